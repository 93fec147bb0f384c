/* Quotes file names in suggested commands, so that they can be pasted into a shell. */
#pragma once

#include <stddef.h>

/* `text` as one word of a POSIX shell, on one line, without characters that a terminal would interpret: plain if
 * possible, else quoted, else through printf: "$(printf 'a\012b')". Returns `out`, or "" if it does not fit. */
char *gs_shell_word(char *out, size_t size, const char *text);
/* The same for a file name, which must not be mistaken for an option: -x becomes ./-x. */
char *gs_shell_path(char *out, size_t size, const char *path);
