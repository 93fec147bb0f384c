/* Passes events to some observers on a separate thread, in their order, while the replay continues. For replay.c. */
#pragma once

#include <stddef.h>
#include "analyzer/run/run.h"

struct run_beside;

enum { RUN_BESIDE_BATCH = 2048 }; /* events that are passed at a time */
enum run_beside_kind { RUN_BESIDE_ALLOC, RUN_BESIDE_FREE, RUN_BESIDE_OOM, RUN_BESIDE_SAMPLE, RUN_BESIDE_RESERVED };

/* Serves those of `n` observers that have `beside` set; NULL if none has, or no thread could be started. They must stay
 * at their addresses until the end. `free_stacks`: they get the calls that free. */
struct run_beside *run_beside_start(struct run *run, const struct run_observer *observers, size_t n, bool free_stacks);
/* The events that follow are of this process; those before have been waited for. */
void run_beside_begin(struct run_beside *b, uint32_t process);
/* `place` has the lifetime's series and location; `number` is its own until it ends and RUN_BESIDE_BATCH more have
 * ended. `series`: with its totals after the event. */
void run_beside_add_alloc(struct run_beside *b, const struct run_lifetime *life, const struct run_lifetime *place,
                          uint32_t number, uint32_t free_stack, const struct run_series *series);
void run_beside_add_free(struct run_beside *b, uint32_t number, const struct run_series *series);
/* An event without a lifetime, by its index in the run's list; _tell calls an observer at once. */
void run_beside_add_other(struct run_beside *b, enum run_beside_kind kind, size_t index);
void run_beside_tell(struct run *run, const struct run_observer *o, enum run_beside_kind kind, size_t index);
/* The one whose observers this thread calls; NULL. Then, of the lifetime that they receive: the number, and the call
 * that frees it or RUN_NONE. */
extern _Thread_local const struct run_beside *run_beside_own;
uint32_t run_beside_number(const struct run_beside *b, const struct run_lifetime *life);
uint32_t run_beside_free_stack(const struct run_beside *b, const struct run_lifetime *life);
/* Waits until all observers have received everything. */
void run_beside_wait(struct run_beside *b);
/* The same, and frees it. NULL does nothing. */
void run_beside_end(struct run_beside *b);

/* Room for at least `n` lifetimes, each in one cache line. */
void run_lifetimes_grow(struct run_lifetime **list, size_t *cap, size_t n);
