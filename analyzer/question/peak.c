/* The memory that was live at the peak of each series, by stack: exact, in one pass, O(1) per event.
 *
 * No snapshots are taken. A series' peaks are numbered; each location stores up to which peak `at` contains its
 * changes, and the sum of its later changes in `since`. When a new, higher (or equal: the latest counts) total begins
 * to fall, that was a peak: the number increases, and each location moves `since` into `at` at its next event.
 */
#include "analyzer/question/question.h"
#include "analyzer/base/sort.h"
#include "analyzer/site/owner.h"

#include <stdlib.h>
#include <string.h>

struct place { /* by location */
    uint32_t last_peak;
    int64_t at_bytes, since_bytes;
    int64_t at_count, since_count;
};

struct level { /* by series */
    uint32_t peak_no;
    int64_t heap_at_peak, now;
    int64_t highest;
    int64_t space_now[8], space_highest[8];
};

struct question_peaks {
    struct site_builder *b;
    struct place *places;
    size_t places_cap;
    struct level *levels;
    size_t levels_cap;
};

static inline void change_peak_level(struct question_peaks *p, const struct run_lifetime *life, int64_t bytes,
                                     int64_t count)
{
    struct level *level = SITE_REACH(p->levels, life->series, p->levels_cap);
    struct place *place = SITE_REACH(p->places, life->location, p->places_cap);
    int64_t now = level->now + bytes;
    if (level->now >= level->heap_at_peak && now < level->now) {
        level->peak_no++;
        level->heap_at_peak = level->now;
    }
    level->now = now;
    if (place->last_peak != level->peak_no) {
        place->at_bytes += place->since_bytes;
        place->at_count += place->since_count;
        place->since_bytes = place->since_count = 0;
        place->last_peak = level->peak_no;
    }
    place->since_bytes += bytes;
    place->since_count += count;
    if (life->layer == GS_LAYER_DEVICE) {
        level->space_now[life->space & 7] += bytes;
        if (now >= level->highest && count > 0) {
            level->highest = now;
            memcpy(level->space_highest, level->space_now, sizeof level->space_now);
        }
    }
}

static void peak_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    change_peak_level(self, life, life->bytes, 1);
}

static void peak_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    change_peak_level(self, life, -life->bytes, -1);
}

struct question_peaks *question_peaks_start(struct site_builder *b, struct run_observer *observer)
{
    struct question_peaks *p = ARENA_NEW(struct question_peaks, .b = b);
    *observer = (struct run_observer){.self = p, .beside = true, .alloc = peak_on_alloc, .free = peak_on_free};
    return p;
}

static int64_t place_bytes_at_peak(const struct place *place, uint32_t final, int64_t at, int64_t since)
{
    return at + (place->last_peak != final ? since : 0);
}

/* The shares of one series; the caller frees them. Also added up in `owned`, if given. */
static struct site_share *shares_of(const struct question_peaks *p, uint32_t series, struct site_owned *owned,
                                    size_t *n)
{
    const struct level *level = &p->levels[series];
    uint32_t final = level->peak_no + (level->now >= level->heap_at_peak);
    struct site_share *shares = NULL;
    size_t cap = 0;
    *n = 0;
    for (size_t i = 0; i < run_location_count(p->b->run); i++) {
        const struct run_location *l = run_location(p->b->run, (uint32_t)i);
        const struct place *place = &p->places[i];
        if (l->series == series) {
            struct site_share share = {
                .stack = l->stack,
                .bytes = place_bytes_at_peak(place, final, place->at_bytes, place->since_bytes),
                .count = (uint64_t)place_bytes_at_peak(place, final, place->at_count, place->since_count)};
            *ARENA_PUSH(shares, *n, cap) = share;
            if (owned) site_owned_add(owned, (uint32_t)i, share.bytes, share.count);
        }
    }
    return shares;
}

static void describe_peak(struct question_peaks *p, uint32_t series, struct result_peak *peak)
{
    const struct run_series *s = run_series(p->b->run, series);
    size_t n;
    struct site_owned *owned = s->layer == RUN_SERIES_DEVICE ? site_owned_new(p->b) : NULL;
    struct site_share *shares = shares_of(p, series, owned, &n);
    *peak = (struct result_peak){.process = s->process,
                                 .device = s->device,
                                 .layer = s->layer,
                                 .bytes = s->peak_bytes,
                                 .time_s = site_seconds(s->peak_ns),
                                 .time_ns = s->peak_ns,
                                 .end_bytes = s->live_bytes,
                                 .end_count = s->live_count,
                                 .allocations = s->allocations,
                                 .frees = s->frees,
                                 .allocated_bytes = s->allocated_bytes};
    if (s->layer == RUN_SERIES_DEVICE) {
        memcpy(peak->by_space, p->levels[series].space_highest, sizeof peak->by_space);
        peak->by_owner = site_owned_list(owned, &peak->by_owner_n);
    }
    for (size_t i = 0; i < n; i++) peak->count += shares[i].count;
    peak->by_stack = site_list_by_stack(p->b, shares, n, &peak->by_stack_n, &peak->by_stack_total);
    peak->by_site = site_list_by_site(p->b, shares, n, &peak->by_site_n, &peak->by_site_total);
    peak->by_line = site_list_by_line(p->b, shares, n, &peak->by_line_n, &peak->by_line_total);
    free(shares);
}

SORT_ORDER(order_peak_sites, struct result_peak,
           SORT_UP(x->process, y->process)
               ?: SORT_UP((unsigned)x->device, (unsigned)y->device) /* devices first, then host memory (-1) */
               ?: SORT_UP(x->layer, y->layer))

void question_peaks_finish(struct question_peaks *p)
{
    struct result_report *report = p->b->report;
    report->peaks_n = run_series_count(p->b->run);
    report->peaks = arena_alloc(p->b->arena, report->peaks_n * sizeof *report->peaks);
    for (size_t i = 0; i < report->peaks_n; i++) describe_peak(p, (uint32_t)i, &report->peaks[i]);
    if (report->peaks_n > 1) qsort(report->peaks, report->peaks_n, sizeof *report->peaks, order_peak_sites);
    ARENA_RELEASE(p->places, p->levels, p);
}
