/* The totals of every series over the whole time of a recording: buckets that widen with age, and the moments of the
 * peaks. Part of the store's state; not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "schema/event.h"
#include "schema/tables.h"

struct gs_store;

/* A span of time, both ends included. The rows of all lifetimes that overlap it are kept. */
struct gs_moment {
    int64_t from_ns, to_ns;
};

enum { GS_LEVEL_DEVICES = 64, GS_LEVEL_SERIES = 2 * GS_LEVEL_DEVICES + 2, GS_LEVEL_BUCKETS = 1024 };

struct gs_level_bucket {
    uint64_t low, high;
};
struct gs_level_series {
    bool used, peaked;
    uint64_t now, low, high; /* low, high: since the last closed bucket */
    uint32_t written;        /* number of closed buckets that are in table level */
    uint64_t most, most_ns;  /* since a range last began or ended */
    struct gs_moment peak;
    struct gs_level_bucket *buckets; /* GS_LEVEL_BUCKETS of them; NULL: no event yet, or out of memory */
};
/* Closed buckets of equal width. When all are full, neighbours merge and the width doubles. */
struct gs_levels {
    uint64_t width, end_ns; /* end_ns: of the open bucket */
    uint64_t written_width; /* width of the buckets in table level; 0: unknown */
    uint32_t closed;
    struct gs_level_series series[GS_LEVEL_SERIES];
};

void gs_levels_start(struct gs_levels *l);
void gs_levels_free(struct gs_levels *l);
void gs_levels_advance(struct gs_levels *l, uint64_t now_ns);
void gs_level_open(struct gs_level_series *series, uint32_t closed);

/* `device` is below GS_LEVEL_DEVICES; 0 for pinned and host memory. */
static inline unsigned gs_level_index(enum gs_series series, int device)
{
    return series < GS_SERIES_PINNED ? (unsigned)series * GS_LEVEL_DEVICES + (unsigned)device
                                     : 2 * GS_LEVEL_DEVICES + (unsigned)(series - GS_SERIES_PINNED);
}
/* Notes the total of a series in bytes after an event. */
static inline void gs_level_add(struct gs_levels *l, unsigned index, uint64_t now, uint64_t now_ns)
{
    struct gs_level_series *series = &l->series[index];
    if (now_ns >= l->end_ns) gs_levels_advance(l, now_ns);
    if (!series->used) gs_level_open(series, l->closed);
    series->now = now;
    if (now < series->low) series->low = now;
    if (now > series->high) series->high = now;
    if (now > series->most) {
        series->most = now;
        series->most_ns = now_ns;
    }
}
/* The total is the largest so far, reached by a lifetime that began at `alloc_ns`. */
void gs_level_peak(struct gs_levels *l, unsigned index, uint64_t alloc_ns, uint64_t now_ns);
/* Brings table level up to date; within a transaction. */
int gs_store_write_levels(struct gs_store *s);
