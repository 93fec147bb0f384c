/* A progress line on stderr for long work: it appears after half a second and is removed when the work is done. Nothing
 * if stderr is not a terminal. */
#pragma once

#include <stdint.h>

/* "gpuspy: reading 3,400,000 of 10,000,000 allocations"; total 0: not known. Fits run_progress_fn (run.h).
 * Cheap enough for every few thousand events. */
void progress_show(void *unused, const char *what, uint64_t done, uint64_t total);
/* Removes the line before anything else is written there. Async-signal-safe. */
void progress_clear(void);
