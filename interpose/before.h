/* Recordings of the programs that this process ran before an exec: they are unfinished, because exec runs no
 * exit handlers. The drain completes them in small steps. Used with the drain's lock held. */
#ifndef GPUSPY_BEFORE_H
#define GPUSPY_BEFORE_H

#include <stdbool.h>
#include "interpose/run_path.h"

/* Which ones they are. */
void gs_before_start(const struct gs_run_path *path);
/* Some 20 ms of work. False: nothing is left to do. */
bool gs_before_step(void);
/* The process ends: as much as can be done in half a second. The rest is left to `gpuspy report`. */
void gs_before_finish(void);
/* In a forked child: they are the parent's to complete. */
void gs_before_forget(void);

#endif
