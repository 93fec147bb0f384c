/* The running totals over time, in a bounded number of points.
 *
 * Time is cut into buckets of equal width. If an event is later than the last bucket, the width doubles and neighbours
 * merge, so the length of the run need not be known. A bucket keeps its highest total with its time, and its last
 * total: the exact peak is among the points.
 */
#include "analyzer/question/question.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 960 }; /* two points each */

struct bucket {
    bool used;
    int64_t high, high_ns, last, last_ns;
};

struct line {
    int64_t kept_from_ns; /* before this there are only events that a removal left: the levels have the totals */
    unsigned shift;       /* a bucket is 2^shift ns wide */
    size_t used;          /* buckets up to the last event */
    struct bucket *buckets;
};

struct question_timelines {
    struct site_builder *b;
    struct line *lines; /* by series */
    size_t lines_cap;
};

static void merge_buckets(struct bucket *into, const struct bucket *later)
{
    if (!later->used) return;
    if (!into->used || later->high >= into->high) {
        into->high = later->high;
        into->high_ns = later->high_ns;
    }
    into->last = later->last;
    into->last_ns = later->last_ns;
    into->used = true;
}

static void halve_timeline(struct line *line)
{
    for (size_t i = 0; i < BUCKETS / 2; i++) {
        struct bucket pair = line->buckets[2 * i];
        merge_buckets(&pair, &line->buckets[2 * i + 1]);
        line->buckets[i] = pair;
    }
    memset(line->buckets + BUCKETS / 2, 0, BUCKETS / 2 * sizeof *line->buckets);
    line->used = (line->used + 1) / 2;
    line->shift++;
}

static void put_timeline_point(struct line *line, int64_t live, int64_t ns)
{
    while (ns >> line->shift >= BUCKETS) halve_timeline(line);
    size_t index = (size_t)(ns >> line->shift);
    struct bucket now = {.used = true, .high = live, .high_ns = ns, .last = live, .last_ns = ns};
    merge_buckets(&line->buckets[index], &now);
    line->used = index + 1 > line->used ? index + 1 : line->used;
}

/* Totals of the time before a recording of bounded size has all events. */
static void put_timeline_levels(struct question_timelines *t, struct line *line, uint32_t series)
{
    size_t n, processes_n;
    const struct run_level *levels = run_levels(t->b->run, &n);
    const struct run_series *s = series < run_series_count(t->b->run) ? run_series(t->b->run, series) : NULL;
    if (!s) return;
    line->kept_from_ns = run_processes(t->b->run, &processes_n)[s->process].kept_from_ns;
    EACH (l, levels, n) {
        if (l->process == s->process && l->layer == s->layer && l->device == s->device &&
            l->start_ns < line->kept_from_ns) {
            put_timeline_point(line, l->high_bytes, l->start_ns);
            put_timeline_point(line, l->low_bytes,
                               l->end_ns - 1 < line->kept_from_ns ? l->end_ns - 1 : line->kept_from_ns - 1);
        }
    }
}

/* The peak is among the events that were kept: the levels state its height, and this event its time. */
static void put_old(struct line *line, int64_t live, int64_t ns)
{
    struct bucket *bucket = &line->buckets[ns >> line->shift];
    if (bucket->used && live == bucket->high) bucket->high_ns = ns;
}

static inline void timeline_level_at(struct question_timelines *t, uint32_t series, int64_t live, int64_t ns)
{
    struct line *line = SITE_REACH(t->lines, series, t->lines_cap);
    if (!line->buckets) {
        line->buckets = arena_realloc(NULL, BUCKETS, sizeof *line->buckets);
        memset(line->buckets, 0, BUCKETS * sizeof *line->buckets);
        line->shift = 10;
        put_timeline_levels(t, line, series);
    }
    if (ns >= line->kept_from_ns)
        put_timeline_point(line, live, ns);
    else if (ns >> line->shift < BUCKETS)
        put_old(line, live, ns);
}

static void timeline_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    timeline_level_at(self, life->series, series->live_bytes, life->alloc_ns);
}

static void timeline_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    timeline_level_at(self, life->series, series->live_bytes, life->free_ns);
}

struct question_timelines *question_timelines_start(struct site_builder *b, struct run_observer *observer)
{
    struct question_timelines *t = ARENA_NEW(struct question_timelines, .b = b);
    *observer = (struct run_observer){.self = t, .alloc = timeline_on_alloc, .free = timeline_on_free};
    return t;
}

static void draw_timeline(struct question_timelines *t, const struct line *line, struct result_timeline *out)
{
    out->points = arena_alloc(t->b->arena, 2 * line->used * sizeof *out->points);
    EACH (bucket, line->buckets, line->used) {
        if (!bucket->used) continue;
        if (bucket->high_ns < bucket->last_ns || bucket->high != bucket->last)
            out->points[out->n++] = (struct result_point){site_seconds(bucket->high_ns), bucket->high};
        out->points[out->n++] = (struct result_point){site_seconds(bucket->last_ns), bucket->last};
    }
}

/* The memory that the devices held for graphs: it has no lifetimes, so no series. Returns how many lines were drawn. */
static size_t draw_graphs(struct question_timelines *t, struct result_timeline *out, size_t room)
{
    size_t n, lines = 0, first = run_series_count(t->b->run);
    const struct run_graph_memory *g = run_graph_memory(t->b->run, &n);
    for (size_t i = 0; i < n; i++) {
        size_t at_line = 0;
        while (at_line < lines && (out[at_line].process != g[i].process || out[at_line].device != g[i].device))
            at_line++;
        if (at_line == room || (t->b->options->by_device && g[i].device != t->b->options->device)) continue;
        if (at_line == lines) {
            out[lines++] =
                (struct result_timeline){.process = g[i].process, .device = g[i].device, .layer = RUN_SERIES_GRAPH};
        }
        timeline_level_at(t, (uint32_t)(first + at_line), g[i].bytes, g[i].time_ns);
    }
    for (size_t i = 0; i < lines; i++) draw_timeline(t, &t->lines[first + i], &out[i]);
    return lines;
}

void question_timelines_finish(struct question_timelines *t)
{
    enum { GRAPHS = 64 };
    struct result_report *report = t->b->report;
    report->timelines = arena_alloc(t->b->arena, (report->peaks_n + GRAPHS) * sizeof *report->timelines);
    report->timelines_n = report->peaks_n + draw_graphs(t, report->timelines + report->peaks_n, GRAPHS);
    for (size_t i = 0; i < report->peaks_n; i++) {
        const struct result_peak *peak = &report->peaks[i];
        report->timelines[i] =
            (struct result_timeline){.process = peak->process, .device = peak->device, .layer = peak->layer};
        const uint32_t s = run_find_series(t->b->run, peak->process, peak->device, peak->layer);
        if (s != RUN_NONE) draw_timeline(t, &t->lines[s], &report->timelines[i]);
    }
    for (size_t i = 0; i < t->lines_cap; i++) free(t->lines[i].buckets);
    ARENA_RELEASE(t->lines, t);
}
