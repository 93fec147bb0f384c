#include "analyzer/step/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/site/builder.h"
#include "analyzer/step/step_moments.h"
#include "analyzer/step/step_tree.h"

enum { LEAST = 2 };

struct gs_step_finder {
    struct gs_builder *b;
    struct gs_place_tree tree, calls; /* of allocations; of copies and waits */
    bool tensors;                     /* PyTorch has reported some in this process */
    const struct gs_steps **of_process;
    size_t of_process_n;
};

static const char *const words[] = {
#define WORD(s, w) [GS_STEP_##s] = w,
    GS_STEP_SOURCES(WORD)
#undef WORD
};

const char *gs_step_source_word(enum gs_step_source source)
{
    return (unsigned)source < GS_STEP_SOURCES_N ? words[source] : "unknown";
}

const struct gs_steps *gs_steps_of(const struct gs_builder *b, uint32_t process)
{
    return b->steps && process < b->steps->of_process_n ? b->steps->of_process[process] : NULL;
}

uint64_t gs_steps_rounds(const struct gs_builder *b, uint32_t stack)
{
    struct gs_place_tree *t = &b->steps->tree;
    uint32_t at = gs_place_of(t, stack);
    uint64_t rounds;
    if (!t->places[at].module) {
        return UINT64_MAX;
    }
    while (t->places[t->places[at].parent].module) {
        at = t->places[at].parent;
    }
    rounds = t->stacks[t->places[at].first].events; /* what a model does first, it does once a call */
    for (; at != GS_PLACE_ROOT; at = t->places[at].parent) {
        rounds = t->places[at].visits > rounds ? t->places[at].visits : rounds;
    }
    return rounds;
}

/* Steps that begin at `ns` or before. */
static size_t begun(const struct gs_steps *s, int64_t ns)
{
    size_t low = 0, high = s->starts_n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->start_ns[middle] <= ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The step in thinned step `k`, into which ns falls. */
static size_t within(const struct gs_steps *s, size_t k, int64_t ns)
{
    size_t first = k * s->stride, size = k + 1 < s->starts_n ? s->stride : s->n - first;
    double span = (double)(s->start_ns[k + 1] - s->start_ns[k]), part = (double)(ns - s->start_ns[k]);
    size_t at = span > 0 ? (size_t)(part / span * (double)size) : 0;
    return first + (at < size ? at : size - 1);
}

size_t gs_step_at(const struct gs_steps *s, int64_t ns)
{
    size_t k = begun(s, ns);
    if (k == 0 || ns > (s->end_ns ? s->end_ns[k - 1] : s->start_ns[k]) || ns > s->start_ns[s->starts_n]) {
        return SIZE_MAX;
    }
    return within(s, k - 1, ns);
}

size_t gs_steps_done(const struct gs_steps *s, int64_t ns)
{
    size_t k = begun(s, ns);
    return k == 0 ? 0 : ns > s->start_ns[s->starts_n] ? s->n : within(s, k - 1, ns);
}

int64_t gs_step_start(const struct gs_steps *s, size_t i)
{
    if (i >= s->n) {
        return s->start_ns[s->starts_n];
    }
    size_t k = i / s->stride, first = k * s->stride;
    size_t size = k + 1 < s->starts_n ? s->stride : s->n - first;
    double span = (double)(s->start_ns[k + 1] - s->start_ns[k]);
    return s->start_ns[k] + (int64_t)(span * (double)(i - first) / (double)size);
}

/* --- from moments to steps ----------------------------------------------------------------------- */

/* The ancestor-or-self that is itself visited every step, outermost: its neighbours are the other lines
 * of the loop. */
static uint32_t loop_line(const struct gs_place_tree *t, uint32_t place)
{
    uint64_t visits = t->places[place].visits;
    uint32_t line = place;
    for (uint32_t p = place; p != GS_PLACE_ROOT; p = t->places[p].parent) {
        line = t->places[p].visits * 10 >= visits * 9 ? p : line;
    }
    return line;
}

/* The first call of the loop after each moment: the lines beside `line` that come by as often, but for
 * those that come after it in the first round. One more than moments: of a step that was begun only. */
static void find_starts(const struct gs_place_tree *t, uint32_t line, const struct gs_moments *m, int64_t *starts)
{
    const struct gs_place *own = &t->places[line];
    for (uint32_t i = 1; i < t->n; i++) {
        const struct gs_place *p = &t->places[i];
        if (p->parent != own->parent || p->visits < LEAST || p->visits * 2 < own->visits || p->thread != own->thread ||
            p->shift || p->first_ns > m->times[0]) {
            continue;
        }
        for (size_t k = 0, at = 0; k <= m->n; k++) {
            while (at < p->n && k > 0 && p->times[at] <= m->times[k - 1]) {
                at++;
            }
            if (at < p->n && p->times[at] < starts[k]) {
                starts[k] = p->times[at];
            }
        }
    }
}

/* The usual time from the moment to the next beginning. */
static int64_t usual_tail(const int64_t *starts, const int64_t *moments, size_t n)
{
    int64_t *between = gs_realloc(NULL, n, sizeof *between), tail;
    between[0] = 0; /* so that the tails are the gaps of these */
    for (size_t i = 0; i + 1 < n; i++) {
        int64_t one = starts[i + 1] - moments[i];
        between[i + 1] = gs_add(between[i], one > 0 ? one : 0);
    }
    tail = gs_moments_gap(between, n);
    free(between);
    return tail;
}

static bool usual(const struct gs_steps *s, size_t k)
{
    double lasts = (double)(s->start_ns[k + 1] - s->start_ns[k]);
    return lasts <= 2.0 * (double)s->median_ns * (double)s->stride;
}

/* Past the first tenth, and the first of three that take at most twice as long as usual. */
static size_t steady_of(const struct gs_steps *s)
{
    size_t k = s->starts_n / 10, half = s->starts_n / 2;
    k = k == 0 && s->starts_n > 4 ? 1 : k;
    while (k < half && k + 3 <= s->starts_n && !(usual(s, k) && usual(s, k + 1) && usual(s, k + 2))) {
        k++;
    }
    return k * s->stride < s->n ? k * s->stride : s->n - 1;
}

static void set_times(struct gs_builder *b, struct gs_steps *s, int64_t *starts, const struct gs_moments *m,
                      int64_t process_end)
{
    size_t n = m->n;
    int64_t step = gs_moments_gap(starts, n), tail = usual_tail(starts, m->times, n);
    int64_t *start = gs_arena_alloc(b->arena, (n + 1) * sizeof *start);
    int64_t *end = gs_arena_alloc(b->arena, n * sizeof *end);
    bool gaps = false;
    memcpy(start, starts, n * sizeof *start);
    for (size_t i = 0; i < n; i++) {
        int64_t next = i + 1 < n ? starts[i + 1] : GS_NEVER, soon = gs_add(m->times[i], gs_add(tail, tail));
        if (i + 1 == n) { /* the last one takes as long as the others, at least to its moment */
            int64_t whole = gs_add(starts[i], step);
            next = whole > soon ? whole : soon;
            next = next > process_end && process_end >= m->times[i] ? process_end : next;
            next = next > starts[n] ? starts[n] : next;
        }
        bool far = i + 1 < n && next - m->times[i] > gs_add(step, step) && m->stride == 1 && soon < next;
        end[i] = far ? soon : next;
        gaps = gaps || far;
    }
    start[n] = end[n - 1] > start[n - 1] ? end[n - 1] : start[n - 1];
    s->starts_n = n;
    s->start_ns = start;
    s->end_ns = gaps ? end : NULL;
    s->median_ns = step / (int64_t)m->stride;
    s->steady = steady_of(s);
}

static const char *name_of(const struct gs_place *p, enum gs_step_source source, bool zeroed)
{
    switch (source) {
    case GS_STEP_OPTIMIZER: return p->name ? p->name : "the optimizer";
    case GS_STEP_BACKWARD: return zeroed ? "backward before zero_grad" : "backward";
    default: return "the loop";
    }
}

static const struct gs_place *named_place(const struct gs_step_finder *f, const struct gs_moments *m)
{
    return &f->tree.places[m->named ? m->named - 1 : m->place];
}

static const char *called(struct gs_step_finder *f, const struct gs_steps *s, const struct gs_moments *m)
{
    char place[512];
    struct gs_site shown = s->site;
    shown.function = shown.line ? NULL : shown.function;
    return m->name ? m->name
                   : gs_arena_printf(f->b->arena, "%s at %s", name_of(named_place(f, m), s->source, m->zeroed),
                                     gs_site_text(&shown, place, sizeof place));
}

static struct gs_steps *make(struct gs_step_finder *f, uint32_t process, enum gs_step_source source,
                             const struct gs_moments *m)
{
    struct gs_steps *s = gs_arena_alloc(f->b->arena, sizeof *s);
    size_t processes;
    int64_t *starts = gs_realloc(NULL, m->n + 1, sizeof *starts);
    *s = (struct gs_steps){.process = process, .source = source, .stack = m->stack, .n = m->count, .stride = m->stride};
    memcpy(starts, m->begins ? m->begins : m->times, m->n * sizeof *starts);
    starts[m->n] = GS_NEVER;
    if (m->stride == 1 && m->place != GS_NONE && source != GS_STEP_PERIOD) {
        find_starts(&f->tree, loop_line(&f->tree, m->place), m, starts);
    }
    set_times(f->b, s, starts, m, gs_run_processes(f->b->run, &processes)[process].end_ns);
    free(starts);
    if (m->stack != GS_NONE) {
        uint32_t site = gs_site_number(f->b, m->stack); /* first: it may move b->sites */
        s->site = f->b->sites[site];
    }
    s->by = called(f, s, m);
    s->evidence = gs_arena_printf(f->b->arena, "%s, %zu time%s%s", s->by, s->n, s->n == 1 ? "" : "s",
                                  m->named ? ", counted where gradients are clipped or unscaled" : "");
    return s;
}

static void on_call(void *self, const struct gs_copy *copy, const struct gs_sync *sync)
{
    struct gs_step_finder *f = self;
    if (copy) {
        gs_places_event(&f->calls, copy->thread, copy->stack, copy->start_ns);
    } else {
        gs_places_event(&f->calls, sync->thread, sync->stack, sync->start_ns);
    }
}

/* Where allocations show no loop, copies and waits may. */
static struct gs_moments period_of_calls(struct gs_step_finder *f, uint32_t process)
{
    char error[256]; /* what cannot be read is said by the pass that is for them */
    gs_places_restart(&f->calls);
    gs_run_calls_of(f->b->run, process, on_call, f, error, sizeof error);
    return gs_moments_of_period(&f->calls);
}

static struct gs_moments of_backward(struct gs_place_tree *t, uint32_t process)
{
    struct gs_moments m = gs_moments_of_calls(t, GS_PLACE_BACKWARD);
    if (m.count >= 2 * LEAST) {
        gs_moments_accumulate(&m, t, process);
    }
    return m;
}

static struct gs_moments ask(struct gs_step_finder *f, uint32_t process, size_t source)
{
    switch (source) {
    case 0: return gs_moments_of_calls(&f->tree, GS_PLACE_OPTIMIZER);
    case 1: return gs_moments_of_clips(&f->tree);
    case 2: return gs_moments_of_marks(f->b->run, f->b->arena, process);
    case 3: return of_backward(&f->tree, process);
    case 4: return gs_moments_of_period(&f->tree);
    case 5: return gs_moments_of_stacks(&f->tree, process);
    default: return period_of_calls(f, process);
    }
}

static struct gs_steps *choose(struct gs_step_finder *f, uint32_t process)
{
    static const enum gs_step_source sources[] = {GS_STEP_OPTIMIZER, GS_STEP_OPTIMIZER, GS_STEP_MARK,  GS_STEP_BACKWARD,
                                                  GS_STEP_PERIOD,    GS_STEP_PERIOD,    GS_STEP_PERIOD};
    struct gs_steps *steps = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof *sources && !steps; i++) {
        struct gs_moments m = ask(f, process, i);
        if (m.count >= LEAST && m.n) {
            bool backward = m.named && f->tree.places[m.named - 1].kind == GS_PLACE_BACKWARD;
            steps = make(f, process, backward ? GS_STEP_BACKWARD : sources[i], &m);
        }
        gs_moments_free(&m);
    }
    return steps;
}

/* --- the replay ------------------------------------------------------------------------------------ */

static void on_process_start(void *self, uint32_t process)
{
    struct gs_step_finder *f = self;
    (void)process;
    f->tensors = false;
    gs_places_restart(&f->tree);
}

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_step_finder *f = self;
    f->tensors = f->tensors || life->layer == GS_LAYER_TENSOR;
    if (f->tensors && life->layer == GS_LAYER_DEVICE && series->layer == GS_SERIES_DEVICE) {
        return; /* PyTorch's allocator needs a segment now and then */
    }
    gs_places_event(&f->tree, life->thread, life->stack, life->alloc_ns);
}

static void on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct gs_step_finder *f = self;
    (void)end_ns;
    *GS_REACH(f->of_process, process, f->of_process_n) = choose(f, process);
}

struct gs_step_finder *gs_steps_start(struct gs_builder *b, struct gs_observer *observer)
{
    struct gs_step_finder *f = gs_realloc(NULL, 1, sizeof *f);
    *f = (struct gs_step_finder){.b = b, .tree.run = b->run, .calls.run = b->run};
    *observer = (struct gs_observer){
        .self = f, .process_start = on_process_start, .alloc = on_alloc, .process_end = on_process_end};
    b->steps = f;
    return f;
}

void gs_steps_build(struct gs_builder *b)
{
    struct gs_report *r = b->report;
    r->steps = gs_arena_alloc(b->arena, b->steps->of_process_n * sizeof *r->steps);
    for (uint32_t i = 0; i < b->steps->of_process_n; i++) {
        if (b->steps->of_process[i]) {
            r->steps[r->steps_n++] = b->steps->of_process[i];
        }
    }
}

void gs_steps_free(struct gs_step_finder *f)
{
    if (f) {
        gs_places_free(&f->tree);
        gs_places_free(&f->calls);
        free(f->of_process);
        free(f);
    }
}
