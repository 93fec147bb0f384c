/* Recordings of the programs that this process ran before an exec: they are unfinished, because exec runs no exit
 * handlers. The drain completes them in small steps. Call with the drain's lock held. */
#pragma once

#include <stdbool.h>
#include "interpose/run_path.h"

/* Finds them. */
void gs_before_start(const struct gs_run_path *path);
/* About 20 ms of work. Returns false when nothing is left to do. */
bool gs_before_step(void);
/* The process ends: does as much as it can in half a second. `gpuspy report` does the rest. */
void gs_before_finish(void);
/* In a forked child: only the parent completes them. */
void gs_before_forget(void);
