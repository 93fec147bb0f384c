/* gpuspy run --simulate: the program runs on a simulated GPU instead of a real one. Its calls and its
 * memory are real, its kernels do not run. */
#ifndef GPUSPY_SIMULATE_H
#define GPUSPY_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include "analyzer/launch/launch.h"

/* "t4-16g|v100-16g|…": what can be simulated (estimate/gpus.def). */
extern const char simulate_words[];

/* Gives the program `count` GPUs of that kind. False after a line on stderr: the simulated CUDA is not
 * installed. */
bool simulate_set(struct launch *l, const char *gpu, int count);

/* Where the simulated CUDA is: beside the executable (a build folder), or in an installed prefix. False with a
 * line in `why`. */
bool simulate_folder(char *folder, size_t size, char *why, size_t why_size);

#endif
