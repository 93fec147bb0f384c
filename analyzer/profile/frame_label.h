/* The text of a frame where there is room for one: folded stacks, slices of a trace. */
#pragma once

#include "analyzer/run/run.h"

enum { PROFILE_LABEL = 2048 };

/* "step (train.py:12)", "at::empty (libtorch_cpu.so)", "libkernels.so+0x40": cleaned (terminal_clean), so
 * without control characters. `cwd` is the process's, NULL unknown. Returns out. */
const char *profile_frame_label(const struct run_frame *frame, const char *cwd, char out[PROFILE_LABEL]);
/* Only its function; "??" or module and offset if unknown; cleaned. */
const char *profile_frame_function(const struct run_frame *frame, char out[PROFILE_LABEL]);
/* The working directory that all processes of the run share, NULL if there are several. */
const char *profile_run_cwd(const struct run *run);
