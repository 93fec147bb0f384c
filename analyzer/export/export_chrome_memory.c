/* Memory over time as counters. A short recording gets a point per event. For a longer one each process's time is
 * divided into parts, and each part gets its highest, its lowest and its last point: so the peak is exact, and the size
 * does not grow with the run. */
#include <stdlib.h>
#include "analyzer/category/category_use.h"
#include "analyzer/export/export_chrome.h"
#include "analyzer/base/sort.h"
#include "schema/event.h"

enum { POINTS_ALL = 30000, POINTS_MOST = 400000, PARTS_LEAST = 200, PARTS_MOST = 4000, SAMPLES_MOST = 4000 };

struct point {
    int64_t time_ns, total;
    int64_t by[RESULT_CATEGORIES_N];
};

struct part {
    bool used;
    struct point high, low, last;
};

struct line { /* one per series */
    struct point now;
    struct part *parts; /* NULL: every point is written */
    bool used[RESULT_CATEGORIES_N];
};

struct memory {
    struct export_chrome *c;
    struct category_finder *categorizer;
    struct category_uses *uses;
    struct line *lines;
    size_t lines_cap;
    int64_t end_ns, last_alloc_ns; /* of the process that is being replayed */
    bool each;
};

static const char *const series_names[RUN_SERIES_LAYERS] = {
    [RUN_SERIES_DEVICE] = "device memory",    [RUN_SERIES_TENSOR] = "tensors",
    [RUN_SERIES_PINNED] = "pinned memory",    [RUN_SERIES_HOST] = "CPU tensors",
    [RUN_SERIES_SHARED] = "shared by others", [RUN_SERIES_GRAPH] = "graphs"};

static void begin_counter(struct memory *m, uint32_t process, int64_t time_ns, int device)
{
    export_chrome_event(m->c, 'C', process, time_ns);
    if (device >= 0)
        fprintf(m->c->out, ",\"name\":\"GPU %d ", device);
    else
        fputs(",\"name\":\"", m->c->out);
}

static void write_point(struct memory *m, const struct run_series *s, const struct line *l, const struct point *p)
{
    FILE *out = m->c->out;
    const char *comma = "";
    begin_counter(m, s->process, p->time_ns, s->device);
    fprintf(out, "%s\",\"args\":{\"bytes\":%lld}}", series_names[s->layer], (long long)p->total);
    if (s->layer != RUN_SERIES_TENSOR) return;
    begin_counter(m, s->process, p->time_ns, s->device);
    fprintf(out, "%s:\",\"args\":{", series_names[s->layer]);
    for (int i = 0; i < RESULT_CATEGORIES_N; i++) {
        if (l->used[i]) {
            fprintf(out, "%s\"%s\":%lld", comma, result_category_word((enum result_category)i), (long long)p->by[i]);
            comma = ",";
        }
    }
    fputs("}}", out);
}

static void keep_counter_line(struct memory *m, struct line *l)
{
    int64_t end = m->end_ns > 0 ? m->end_ns : 1, at = l->now.time_ns < 0 ? 0 : l->now.time_ns;
    double share = (double)at / (double)end;
    struct part *p = &l->parts[share < 1 ? (size_t)(share * (double)m->c->buckets) : m->c->buckets - 1];
    p->high = !p->used || l->now.total >= p->high.total ? l->now : p->high;
    p->low = !p->used || l->now.total < p->low.total ? l->now : p->low;
    p->last = l->now;
    p->used = true;
}

static void change_counter(struct memory *m, const struct run_lifetime *life, const struct run_series *s,
                           int64_t time_ns, int64_t bytes)
{
    struct line *l = SITE_REACH(m->lines, life->series, m->lines_cap);
    enum result_category category = RESULT_CATEGORY_UNKNOWN;
    if (m->c->e->device >= 0 && s->device >= 0 && s->device != m->c->e->device) return;
    if (s->layer == RUN_SERIES_TENSOR) {
        category = category_of_rule(category_rule_of(
            m->categorizer, true, life->stack, run_free_stack(m->c->e->run, life), life->free_ns > m->last_alloc_ns,
            category_uses_of(m->uses, s->process, life->stack, life->alloc_ns, life->free_ns)));
    }
    l->now.time_ns = time_ns;
    l->now.total = s->live_bytes;
    l->now.by[category] += bytes;
    l->used[category] = true;
    if (m->each) {
        write_point(m, s, l, &l->now);
        return;
    }
    if (!l->parts) l->parts = arena_zeroed(m->c->buckets, sizeof *l->parts);
    keep_counter_line(m, l);
}

static void counters_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    change_counter(self, life, series, life->alloc_ns, life->bytes);
}

static void counters_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    change_counter(self, life, series, life->free_ns, -life->bytes);
}

static void counters_on_process_start(void *self, uint32_t process)
{
    struct memory *m = self;
    const struct run_process *p = run_process_at(m->c->e->run, process);
    m->end_ns = p->end_ns;
    m->last_alloc_ns = p->last_alloc_ns;
}

SORT_ORDER(order_counter_lines, struct point, SORT_UP(x->time_ns, y->time_ns))

static void write_parts(struct memory *m, uint32_t series)
{
    const struct run_series *s = run_series(m->c->e->run, series);
    struct line *l = &m->lines[series];
    for (size_t i = 0; l->parts && i < m->c->buckets; i++) {
        const struct part *p = &l->parts[i];
        struct point three[3] = {p->high, p->low, p->last};
        SORT(three, 3, order_counter_lines);
        for (size_t k = 0; p->used && k < 3; k++)
            if (k == 0 || three[k].time_ns != three[k - 1].time_ns || three[k].total != three[k - 1].total)
                write_point(m, s, l, &three[k]);
    }
}

/* Writes the series of a process at its end, because those of the next one need the memory. */
static void counters_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct memory *m = self;
    for (uint32_t i = 0; i < run_series_count(m->c->e->run) && i < m->lines_cap; i++) {
        if (run_series(m->c->e->run, i)->process == process) {
            write_parts(m, i);
            free(m->lines[i].parts);
            m->lines[i].parts = NULL;
        }
    }
}

static void write_counter_value(struct memory *m, uint32_t process, int device, int64_t time_ns, const char *name,
                                const char *unit, int64_t value)
{
    if (m->c->e->device < 0 || device == m->c->e->device) {
        begin_counter(m, process, time_ns, device);
        fprintf(m->c->out, "%s\",\"args\":{\"%s\":%lld}}", name, unit, (long long)value);
    }
}

/* Writes the highest of each `stride` values. */
static void write_reserved(struct memory *m)
{
    size_t n;
    const struct run_reserved *r = run_reserved(m->c->e->run, &n);
    size_t stride = n / ((size_t)SAMPLES_MOST * 4) + 1;
    for (size_t i = 0; i < n;) {
        size_t high = i, end = i + stride;
        for (; i < n && i < end && r[i].process == r[high].process && r[i].device == r[high].device; i++)
            high = r[i].bytes >= r[high].bytes ? i : high;
        write_counter_value(m, r[high].process, r[high].device, r[high].time_ns, "reserved by PyTorch", "bytes",
                            r[high].bytes);
    }
}

static void write_counter_samples(struct memory *m)
{
    size_t n;
    const struct run_device_sample *d = run_device_samples(m->c->e->run, &n);
    for (size_t i = 0, stride = n / SAMPLES_MOST + 1; i < n; i += stride) {
        if (d[i].total_bytes >= 0 && d[i].free_bytes >= 0) {
            write_counter_value(m, d[i].process, d[i].device, d[i].time_ns, "in use (NVML)", "bytes",
                                d[i].total_bytes - d[i].free_bytes);
        }
        if (d[i].utilisation >= 0)
            write_counter_value(m, d[i].process, d[i].device, d[i].time_ns, "busy (NVML)", "percent", d[i].utilisation);
    }
}

bool export_chrome_memory(struct export_chrome *c, char *error, size_t error_size)
{
    size_t n;
    uint64_t rows = 0;
    const struct run_process *p = run_processes(c->e->run, &n);
    struct memory m = {.c = c,
                       .categorizer = category_finder_new(c->e->run),
                       .uses = category_uses_read(c->e->run, NULL, error, error_size)};
    struct run_observer observer = {.self = &m,
                                    .process_start = counters_on_process_start,
                                    .alloc = counters_on_alloc,
                                    .free = counters_on_free,
                                    .process_end = counters_on_process_end};
    for (size_t i = 0; i < n; i++) rows += p[i].allocations;
    m.each = rows * 2 <= POINTS_ALL;
    c->bucketed = !m.each;
    c->buckets = POINTS_MOST / 9 / (n ? n : 1); /* three points per part, and about three series */
    c->buckets = c->buckets > PARTS_MOST ? PARTS_MOST : c->buckets < PARTS_LEAST ? PARTS_LEAST : c->buckets;
    bool ok = m.uses && run_replay(c->e->run, &observer, 1, error, error_size);
    write_reserved(&m);
    write_counter_samples(&m);
    for (size_t i = 0; i < m.lines_cap; i++) free(m.lines[i].parts);
    free(m.lines);
    category_finder_free(m.categorizer);
    category_uses_free(m.uses);
    return ok;
}
