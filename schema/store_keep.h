/* The state of a recording of bounded size (GPUSPY_KEEP): the totals over time, the moments whose live sets stay
 * complete, and the progress of removals. Part of the store's state; not thread-safe. */
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

/* ---------------------------------------------------------------- store_level.c */

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

/* ---------------------------------------------------------------- store_scope.c */

enum { GS_SCOPES = 1024, GS_SCOPE_SERIES = 2 * GS_LEVEL_DEVICES };

struct gs_scope_peak {             /* of the ranges with one name, in one series */
    uint64_t most, most_ns, entry; /* while it is open: largest since it was opened; live when it was opened */
    uint64_t peak, peak_ns, peak_entry, peak_exit; /* of the visit with the highest peak */
    uint16_t series;                               /* gs_level_index */
    bool ended;                                    /* at least one visit has ended */
};
struct gs_scope {
    char *domain, *name; /* domain "": the default one */
    uint64_t count;      /* number of ranges that began */
    uint64_t depth;      /* number of ranges that are open */
    int64_t ended_ns;    /* total duration of the ranges that ended */
    GS_ARRAY(struct gs_scope_peak) peaks;
};
struct gs_scopes {
    GS_ARRAY(struct gs_scope) list;
    GS_ARRAY(uint32_t) open; /* indices into the list */
    struct gs_id_map index;  /* domain, name → index into the list, plus 1 */
    uint64_t left_out;       /* ranges whose names exceed the limit */
};

/* A range begins; call it in the order of events. Returns the number of its scope, from 1; 0: it has none. */
uint32_t gs_scope_begin(struct gs_store *s, const char *domain, size_t domain_length, const char *name,
                        size_t name_length);
void gs_scope_end(struct gs_store *s, uint32_t number, int64_t life_ns);
/* Replaces table removed_scope; within a transaction. */
int gs_store_write_scopes(struct gs_store *s);
void gs_scopes_free(struct gs_scopes *c);

/* ---------------------------------------------------------------- store_keep.c */

enum { GS_KEEP_TABLES = 5 };

struct gs_removed_total {
    int64_t kind, stack, count, bytes, ns;
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
