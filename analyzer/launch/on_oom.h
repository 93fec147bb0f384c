/* GPUSPY_ON_OOM: the command that is run after an out of memory. A process of gpuspy's own attends each recorded
 * process, from its first CUDA call to its end (interpose/on_oom.c starts it); `gpuspy run` attends those that lost
 * theirs. The command runs once for the first failure that the program handled, and once if it died of one. What it
 * prints goes to RECORDING.on-oom.log. */
#ifndef GPUSPY_ON_OOM_H
#define GPUSPY_ON_OOM_H

#include <stddef.h>

#define LAUNCH_ON_OOM "GPUSPY_ON_OOM"
#define LAUNCH_ON_OOM_WORD "--attend-oom"

/* gpuspy --attend-oom RECORDING PID: returns an exit status when the process has ended. */
int launch_on_oom_attend(int argc, char **argv);
/* The run has ended: runs the command for those of its recordings for which it has not run yet, and waits until it
 * is over, at most ten minutes. */
void launch_on_oom_finish(char *const *recordings, size_t n);

#endif
