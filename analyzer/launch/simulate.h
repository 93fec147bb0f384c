/* gpuspy run --simulate: the program runs on a simulated GPU instead of a real one. Its calls and its
 * memory are real, its kernels do not run. */
#ifndef GPUSPY_SIMULATE_H
#define GPUSPY_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include "analyzer/launch/launch.h"

enum { SIMULATE_UNKNOWN = 2 }; /* an exit status: a usage error */

/* Gives the program `count` GPUs of that name (estimate_gpu_find) or size ("24GiB"), and stops loops as
 * --simulate-loops says
 * (-1: not given). 0; else the exit status, after a line on stderr: SIMULATE_UNKNOWN no such GPU, LAUNCH_FAILED the
 * simulated CUDA is not installed. */
int launch_simulate_set(struct launch *l, const char *gpu, int count, int loops);

/* The same for who starts the program in another way: calls `set` for each variable of its environment. The strings
 * stay. False with a line in `why`. `gpu` as estimate_gpu_find gives it. */
struct estimate_gpu;
bool launch_simulate_variables(const struct estimate_gpu *gpu, int count,
                               void (*set)(void *self, const char *name, const char *value), void *self, char *why,
                               size_t why_size);

/* Where the simulated CUDA is: beside the executable (a build folder), or in an installed prefix. False with a
 * line in `why`. */
bool launch_simulate_folder(char *folder, size_t size, char *why, size_t why_size);

#endif
