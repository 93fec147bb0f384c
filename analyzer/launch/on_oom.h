/* GPUSPY_ON_OOM: a command that runs after an out-of-memory error. interpose/on_oom.c starts one attending process per
 * recorded process, which lives from the first CUDA call to the end; `gpuspy run` takes over for attending processes
 * that were killed. The command runs once for the first failure that the program handled, and once if the program died
 * of one. Its output goes to RECORDING.on-oom.log. */
#pragma once

#include <stddef.h>

#define LAUNCH_ON_OOM "GPUSPY_ON_OOM"
#define LAUNCH_ON_OOM_WORD "--attend-oom"

/* gpuspy --attend-oom RECORDING PID: returns an exit status after the process has ended. */
int launch_on_oom_attend(int argc, char **argv);
/* After the end of the run: runs the command for each recording for which it is still due, and waits for it, at most
 * ten minutes. */
void launch_on_oom_finish(char *const *recordings, size_t n);
