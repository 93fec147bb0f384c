/* GPUSPY_ON_OOM: a command to run after an out-of-memory error. A separate process, `gpuspy --attend-oom`, waits for
 * the recorded process's end and runs the command (analyzer/launch/on_oom.c). It is not a child of the recorded
 * process, has none of its descriptors, and survives its death by any signal. */
#pragma once

/* While the library is loaded: copies the environment's current contents, which the program may overwrite. */
void gs_on_oom_load(void);
/* Starts the process that waits for the recorded process. Call in a thread of gpuspy's own; one line on stderr if it
 * fails. */
void gs_on_oom_start(const char *database);
