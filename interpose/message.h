/* What gpuspy prints on stderr. */
#pragma once

#include <stddef.h>

/* One line on stderr, unless the program has replaced stderr; control characters in it are printed as "?". */
void gs_print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same line unchanged: its paths are quoted for a shell (shell_word.h), which may need a newline in quotes. */
void gs_print_quoted(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Any failure inside gpuspy ends here: one line on stderr (once per process), no further recording, the application
 * untouched. */
void gs_deactivate(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Until it is called with NULL: lines are stored here instead, each over the previous one. For a caller that waits for
 * gpuspy's answer. `line` is cleared first. */
void gs_print_into(char *line, size_t size);
/* In a child that starts anew: its first failure is reported again. */
void gs_print_forget(void);
