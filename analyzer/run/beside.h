/* Passes allocations and frees to some observers on a separate thread, while the replay continues. For replay.c. */
#pragma once

#include <stddef.h>
#include "analyzer/run/run.h"

struct run_beside;

/* Serves those of `n` observers that have `beside` set; NULL if none has, or no thread could be started. They must stay
 * at their addresses until the end. */
struct run_beside *run_beside_start(const struct run_observer *observers, size_t n);
void run_beside_add(struct run_beside *b, const struct run_lifetime *life, uint32_t series, uint32_t location,
                    enum run_series_layer layer, bool freed);
/* Waits until all observers have received everything. */
void run_beside_wait(struct run_beside *b);
/* The same, and frees it. NULL does nothing. */
void run_beside_end(struct run_beside *b);
