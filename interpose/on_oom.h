/* GPUSPY_ON_OOM: a command after an out of memory. A process of its own, `gpuspy --attend-oom`, waits for the
 * recorded process's end and runs the command (analyzer/launch/on_oom.c). It is no child of the recorded process,
 * has none of its descriptors, and outlives its death by any signal. */
#ifndef GPUSPY_ON_OOM_H
#define GPUSPY_ON_OOM_H

/* While the library is loaded: copies what the environment holds then, which the program may overwrite. */
void gs_on_oom_load(void);
/* Starts the process that attends the recording. In a thread of gpuspy's own; one line on stderr if it fails. */
void gs_on_oom_start(const char *database);

#endif
