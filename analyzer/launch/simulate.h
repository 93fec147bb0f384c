/* gpuspy run --simulate: runs the program on a simulated GPU. Its calls and its memory are real; its kernels do not
 * run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "analyzer/launch/launch.h"

enum { SIMULATE_UNKNOWN = 2 }; /* an exit status: a usage error */

/* Gives the program `count` simulated GPUs of that name (estimate_gpu_find) or size ("24GiB"). `loops`: the value of
 * --simulate-loops, -1: not given. Returns 0, or the exit status after one line on stderr: SIMULATE_UNKNOWN: no such
 * GPU; LAUNCH_FAILED: the simulated CUDA is not installed. */
int launch_simulate_set(struct launch *l, const char *gpu, int count, int loops);

/* The same for a caller that starts the program in another way: calls `set` for each variable of its environment; the
 * strings stay valid. `gpu`: from estimate_gpu_find. False: one line in `why`. */
struct estimate_gpu;
bool launch_simulate_variables(const struct estimate_gpu *gpu, int count,
                               void (*set)(void *self, const char *name, const char *value), void *self, char *why,
                               size_t why_size);

/* Finds the folder of the simulated CUDA: beside the executable (a build folder) or in an installed prefix. False: one
 * line in `why`. */
bool launch_simulate_folder(char *folder, size_t size, char *why, size_t why_size);

/* Puts the folder of the simulated CUDA first in PYTHONPATH, so that Python loads its sitecustomize
 * (fixtures/simcuda/python): in a dry run, settings by framework and a watch over loops, so that the program ends
 * although no value is computed; with --inside-pools, allocators without a pool. SIMCUDA_LOOPS and GPUSPY_INSIDE_POOLS
 * select what it changes. */
void launch_python_path(struct launch *l, const char *folder);
