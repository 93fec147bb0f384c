/* The program's command line, as a recording may contain it. */
#ifndef GPUSPY_ARGUMENTS_H
#define GPUSPY_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

/* Reads /proc/self/cmdline into `out`, joined by blanks and without secrets (schema/mask.h); with GPUSPY_ARGS=0
 * only which program it is: "python train.py", "python -m torch.distributed.run". "" where it cannot be read.
 * Needs 24 KB of stack, and a descriptor for a moment, 500 or higher; leaves errno alone. */
void gs_arguments_read(char *out, size_t size);

/* Another process's command line, as NVML gives it in text[size], is made one that may be stored. */
void gs_arguments_clean(char *text, size_t size);

/* Of `words`, each ended by a NUL: how many bytes name the program. */
size_t gs_arguments_program(const char *words, size_t length);

#endif
