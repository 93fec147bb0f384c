/* Tells some observers of allocations and frees on a thread of their own, while the replay goes on. For replay.c. */
#ifndef GPUSPY_BESIDE_H
#define GPUSPY_BESIDE_H

#include <stddef.h>
#include "analyzer/run/run.h"

struct run_beside;

/* Of `n` observers those that say `beside`; NULL where none does, or there is no thread to be had. They must stay where
 * they are until the end. */
struct run_beside *run_beside_start(const struct run_observer *observers, size_t n);
void run_beside_add(struct run_beside *b, const struct run_lifetime *life, uint32_t series, uint32_t location,
                    enum run_series_layer layer, bool freed);
/* Until all that was added is told. */
void run_beside_wait(struct run_beside *b);
/* The same, and frees it. NULL is nothing. */
void run_beside_end(struct run_beside *b);

#endif
