/* The program's command line in the form that a recording may contain. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Reads /proc/self/cmdline into `out`, joined by blanks and without secrets (schema/mask.h); with GPUSPY_ARGS=0
 * only which program it is: "python train.py", "python -m torch.distributed.run". "" if it cannot be read.
 * For a worker of Python's multiprocessing or of loky it is the command of the process that started it.
 * Uses 24 KB of stack and, briefly, a descriptor numbered 500 or higher; keeps errno. */
void gs_arguments_read(char *out, size_t size);

/* Masks another process's command line, as NVML returns it in text[size], so that it may be stored. */
void gs_arguments_clean(char *text, size_t size);

/* `words` are each terminated by a NUL. Returns how many bytes name the program. */
size_t gs_arguments_program(const char *words, size_t length);
