/* How a frame is called where there is one text for it: folded stacks, slices of a trace. */
#ifndef GPUSPY_FRAME_LABEL_H
#define GPUSPY_FRAME_LABEL_H

#include "analyzer/run/run.h"

enum { GS_LABEL = 2048 };

/* "step (train.py:12)", "at::empty (libtorch_cpu.so)", "libkernels.so+0x40": cleaned (term_clean), so
 * without control characters. `cwd` is the process's, NULL unknown. Returns out. */
const char *gs_frame_label(const struct gs_frame *frame, const char *cwd, char out[GS_LABEL]);
/* Its function alone, "??" or module and offset where it is not known; cleaned. */
const char *gs_frame_function(const struct gs_frame *frame, char out[GS_LABEL]);
/* The working directory that all processes of the run share, NULL where there are several. */
const char *gs_run_cwd(const struct gs_run *run);

#endif
