/* Passes events to some observers on a separate thread, in their order, while the replay continues. For replay.c. */
#pragma once

#include <stddef.h>
#include "analyzer/run/run.h"

struct run_beside;

struct run_slots { /* of the replay's live lifetimes */
    uint32_t *list;
    size_t n, cap;
};

enum run_beside_kind { RUN_BESIDE_ALLOC, RUN_BESIDE_FREE, RUN_BESIDE_OOM, RUN_BESIDE_SAMPLE, RUN_BESIDE_RESERVED };

struct run_beside_event {
    int64_t live_bytes; /* of the series, as are the process, device and layer */
    uint32_t number;    /* of a lifetime: its slot; of the others: the index in the run's list */
    uint32_t process;
    int16_t device;
    uint8_t layer;
    uint8_t kind;
};

/* Serves those of `n` observers that have `beside` set; NULL if none has, or no thread could be started. They must stay
 * at their addresses until the end.
 *
 * The observers read the lifetimes in `*live`. So `*live` may only change after run_beside_wait, and a slot whose
 * lifetime ended may not be used yet: it goes to run_beside_retired, and later from there to `spare`. */
struct run_beside *run_beside_start(struct run *run, const struct run_observer *observers, size_t n,
                                    struct run_lifetime *const *live, struct run_slots *spare);
/* Of a lifetime. */
void run_beside_add(struct run_beside *b, const struct run_beside_event *event);
struct run_slots *run_beside_retired(struct run_beside *b);
/* An event without a lifetime, by its index in the run's list; _tell calls an observer at once. */
void run_beside_add_other(struct run_beside *b, enum run_beside_kind kind, size_t index);
void run_beside_tell(struct run *run, const struct run_observer *o, enum run_beside_kind kind, size_t index);
/* Waits until all observers have received everything. */
void run_beside_wait(struct run_beside *b);
/* The same, and frees it. NULL does nothing. */
void run_beside_end(struct run_beside *b);
