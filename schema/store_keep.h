/* The state of a recording of bounded size (GPUSPY_KEEP): the moments whose live sets stay complete, and the progress
 * of removals. Part of the store's state; not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "schema/store_level.h"
#include "schema/tables.h"

struct gs_store;

enum { GS_KEEP_TABLES = 5 };

struct gs_removed_total {
    int64_t kind, stack, count, bytes, ns, first_ns;
    uint8_t what; /* enum gs_removed; GS_REMOVED_COUNT: a row of removed_after, with its after_ns in `stack` */
};
struct gs_keep {
    uint64_t bytes, limit;            /* GPUSPY_KEEP, and how much of it the database may use; 0: not bounded */
    bool squeezed;                    /* the disk set the limit, not GPUSPY_KEEP */
    int64_t from_ns;                  /* rows that ended before may be removed; 0: none was */
    bool coarse;                      /* rows that wait for the commit become totals at once */
    bool passing;                     /* a removal is in progress: */
    unsigned table;                   /* … the table in which it is */
    bool again;                       /* … whether it is at rows that an earlier removal left */
    int64_t next_id;                  /* … the next id to visit */
    int64_t stop_id;                  /* … the first id that is too young */
    int64_t young[GS_KEEP_TABLES];    /* per table, the first row that no removal has visited */
    uint64_t left[GS_KEEP_TABLES];    /* rows that removals visited and left */
    uint64_t visited[GS_KEEP_TABLES]; /* young rows visited since those were visited again */
    GS_ARRAY(struct gs_moment) failures;
    GS_ARRAY(struct gs_moment) moments; /* of this removal: sorted, without overlaps */
    GS_ARRAY(int64_t) undoable;         /* sorted ids of allocations whose free may yet fail */
    GS_ARRAY(struct gs_removed_total) totals;
    struct gs_id_map index; /* what, kind, stack → index into totals, plus 1 */
};

/* The failures whose live sets are kept: the first ones and the last ones of a process. */
enum { GS_KEEP_FAILURES_FIRST = 16, GS_KEEP_FAILURES = 64 };

/* An allocation failed at `time_ns`. -1: out of memory. */
int gs_keep_failure(struct gs_keep *k, uint64_t time_ns);
void gs_keep_free(struct gs_keep *k);
