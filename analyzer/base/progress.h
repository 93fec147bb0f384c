/* A line on stderr that says how far long work is, where somebody looks: it comes after half a second, and
 * is gone when the work is done. Nothing at all where stderr is no terminal. */
#ifndef GPUSPY_PROGRESS_H
#define GPUSPY_PROGRESS_H

#include <stdint.h>

/* "gpuspy: reading 3,400,000 of 10,000,000 allocations"; total 0: not known. Fits run_progress_fn (run.h).
 * Cheap enough for every few thousand events. */
void progress_show(void *unused, const char *what, uint64_t done, uint64_t total);
/* Before anything else is written where it may stand. Async-signal-safe. */
void progress_clear(void);

#endif
