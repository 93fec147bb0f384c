/* Opens files with high descriptor numbers, so that the low ones stay free for the program. */
#pragma once

#include <stdbool.h>

#define GS_HIGH_FD 500 /* the lowest number; the limit on open files must be above it */

/* open(2), close-on-exec, with a number of at least GS_HIGH_FD: the program's files keep the numbers that they would
 * have without gpuspy. Returns -1 and sets errno (EMFILE) if no such number is free; nothing stays open. */
int gs_open_high(const char *path, int flags, int mode);

/* Permits low numbers if no high one is free: in gpuspy's own process, and in threads with a table of
 * their own. */
void gs_open_low(bool allowed);
