/* Passes events to some observers on a separate thread, in their order, while the replay continues. For replay.c. */
#pragma once

#include <stddef.h>
#include "analyzer/run/run.h"

struct run_beside;

enum run_beside_kind { RUN_BESIDE_ALLOC, RUN_BESIDE_FREE, RUN_BESIDE_OOM, RUN_BESIDE_SAMPLE, RUN_BESIDE_RESERVED };

struct run_beside_event {
    int64_t live_bytes; /* of the series, as are the next three */
    uint32_t process;
    int16_t device;
    uint8_t layer;
    uint8_t kind;
    uint32_t number; /* of a lifetime: run_live_number; of the others: the index in the run's list */
    uint32_t free_stack;
};

/* Serves those of `n` observers that have `beside` set; NULL if none has, or no thread could be started. They must stay
 * at their addresses until the end. */
struct run_beside *run_beside_start(struct run *run, const struct run_observer *observers, size_t n);
void run_beside_add(struct run_beside *b, const struct run_lifetime *life, uint32_t series, uint32_t location,
                    const struct run_beside_event *event);
/* An event without a lifetime, by its index in the run's list; _tell calls an observer at once. */
void run_beside_add_other(struct run_beside *b, enum run_beside_kind kind, size_t index);
void run_beside_tell(struct run *run, const struct run_observer *o, enum run_beside_kind kind, size_t index);
/* Of a lifetime that it passes to an observer; NULL: it passes no such lifetime. */
const struct run_beside_event *run_beside_event_of(const struct run_beside *b, const struct run_lifetime *life);
/* Waits until all observers have received everything. */
void run_beside_wait(struct run_beside *b);
/* The same, and frees it. NULL does nothing. */
void run_beside_end(struct run_beside *b);
