/* What gpuspy says on stderr. */
#ifndef GPUSPY_SAY_H
#define GPUSPY_SAY_H

#include <stddef.h>

/* One line on stderr, unless the program has put something else in stderr's place. */
void gs_print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Anything that goes wrong inside gpuspy ends here: one line on stderr (once per process), no
 * further recording, the application untouched. */
void gs_deactivate(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Until it is called with NULL: lines go here instead, each over the one before. For who has asked gpuspy to do
 * something and waits for the answer. `line` is cleared first. */
void gs_print_into(char *line, size_t size);
/* In a child that starts anew: its first failure is said again. */
void gs_print_forget(void);

#endif
