/* The totals over time, in at most GS_LEVEL_BUCKETS buckets per series, and the time of each series' peak. */
#include "schema/store_state.h"

#include <stdlib.h>

#define FIRST_WIDTH_NS (1u << 20)
/* A lifetime that is younger than this at the peak began with it. An older one came back after a failed free. */
#define TOGETHER_NS 1000000

void gs_levels_start(struct gs_levels *l)
{
    l->width = l->end_ns = FIRST_WIDTH_NS;
}

void gs_levels_free(struct gs_levels *l)
{
    for (size_t i = 0; i < GS_LEVEL_SERIES; i++) free(l->series[i].buckets);
}

void gs_level_open(struct gs_level_series *series, uint32_t closed)
{
    series->used = true;
    series->buckets = calloc(GS_LEVEL_BUCKETS, sizeof *series->buckets); /* zeros: the level before the first event */
    series->low = 0;
}

static void halve_levels(struct gs_levels *l)
{
    for (size_t i = 0; i < GS_LEVEL_SERIES; i++) {
        struct gs_level_bucket *b = l->series[i].buckets;
        for (size_t n = 0; b && n < GS_LEVEL_BUCKETS / 2; n++) {
            const struct gs_level_bucket x = b[2 * n], y = b[2 * n + 1];
            b[n] = (struct gs_level_bucket){x.low < y.low ? x.low : y.low, x.high > y.high ? x.high : y.high};
        }
    }
    l->closed = GS_LEVEL_BUCKETS / 2;
    l->width *= 2;
}

void gs_levels_advance(struct gs_levels *l, uint64_t now_ns)
{
    while (now_ns >= l->end_ns) {
        for (size_t i = 0; i < GS_LEVEL_SERIES; i++) {
            struct gs_level_series *series = &l->series[i];
            if (!series->used) continue;
            if (series->buckets) series->buckets[l->closed] = (struct gs_level_bucket){series->low, series->high};
            series->low = series->high = series->now;
        }
        if (++l->closed == GS_LEVEL_BUCKETS) halve_levels(l);
        if (l->width > UINT64_MAX / 4 / GS_LEVEL_BUCKETS) { /* only a damaged record has such a time */
            l->end_ns = UINT64_MAX;
            return;
        }
        l->end_ns = (l->closed + 1) * l->width;
    }
}

void gs_level_peak(struct gs_levels *l, unsigned index, uint64_t alloc_ns, uint64_t now_ns)
{
    const bool together = alloc_ns <= now_ns && now_ns - alloc_ns < TOGETHER_NS;
    l->series[index].peaked = true;
    l->series[index].peak = (struct gs_moment){(int64_t)(together ? alloc_ns : now_ns), (int64_t)now_ns};
}

/* ---------------------------------------------------------------- table level */

static int write_series(struct gs_store *s, sqlite3_stmt *st, enum gs_series which, int device)
{
    const struct gs_levels *l = &s->levels;
    struct gs_level_series *series = &s->levels.series[gs_level_index(which, device)];
    for (uint32_t i = series->written; series->buckets && i < l->closed; i++) {
        sqlite3_bind_int(st, 1, which);
        sqlite3_bind_int(st, 2, which < GS_SERIES_PINNED ? device : -1);
        sqlite3_bind_int64(st, 3, (int64_t)(i * l->width));
        sqlite3_bind_int64(st, 4, (int64_t)((i + 1) * l->width));
        sqlite3_bind_int64(st, 5, gs_whole(series->buckets[i].low));
        sqlite3_bind_int64(st, 6, gs_whole(series->buckets[i].high));
        if (gs_store_run(s, st)) return -1;
    }
    series->written = l->closed;
    return 0;
}

/* Wider buckets replace all rows. */
static int begin_width(struct gs_store *s)
{
    struct gs_levels *l = &s->levels;
    if (l->written_width == l->width) return 0;
    for (size_t i = 0; i < GS_LEVEL_SERIES; i++) l->series[i].written = 0;
    l->written_width = l->width;
    return gs_store_sql(s, "DELETE FROM level");
}

int gs_store_write_levels(struct gs_store *s)
{
    sqlite3_stmt *st = gs_store_statement(s, GS_SQL_LEVEL);
    if (!st || begin_width(s)) return -1;
    for (int which = 0; which < GS_SERIES_COUNT; which++)
        for (int device = 0; device < (which < GS_SERIES_PINNED ? GS_LEVEL_DEVICES : 1); device++)
            if (write_series(s, st, which, device)) return -1;
    return 0;
}
