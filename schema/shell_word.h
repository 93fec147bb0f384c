/* Quotes file names in suggested commands, so that they can be pasted into a shell. */
#ifndef GPUSPY_SHELL_WORD_H
#define GPUSPY_SHELL_WORD_H

#include <stddef.h>

/* `text` as one word of a POSIX shell, on one line, without characters that a terminal would obey: plain where it
 * can be, else in quotes, else by printf: "$(printf 'a\012b')". Returns `out`, or "" where it does not fit. */
char *gs_shell_word(char *out, size_t size, const char *text);
/* The same of a file's name, which must not be taken for an option: -x is ./-x. */
char *gs_shell_path(char *out, size_t size, const char *path);

#endif
