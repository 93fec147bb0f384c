#include "analyzer/step/step.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/site/builder.h"
#include "analyzer/step/step_moments.h"
#include "analyzer/step/step_removed.h"
#include "analyzer/step/step_tree.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/words.h"

enum { LEAST = 2 };

struct step_finder {
    struct site_builder *b;
    struct step_place_tree tree, calls; /* of allocations; of copies and waits */
    bool tensors;                       /* PyTorch has reported tensors in this process */
    ARENA_ROWS(const struct step_list *, of_process);
    int64_t kept_from_ns;             /* of the process: earlier events are incomplete */
    struct step_removed_events early; /* … those of them that have rows */
};

WORDS_FUNCTION(step_source_word, enum step_source, STEP_SOURCES, WORDS_FIRST, "unknown")

const struct step_list *step_list_of(const struct site_builder *b, uint32_t process)
{
    return b->steps && process < b->steps->of_process_n ? b->steps->of_process[process] : NULL;
}

uint64_t step_module_calls(const struct site_builder *b, uint32_t stack)
{
    struct step_place_tree *t = &b->steps->tree;
    return step_place_calls(t, step_place_of(t, stack));
}

/* Steps that begin at `ns` or before. */
static size_t count_steps_begun(const struct step_list *s, int64_t ns)
{
    return SORT_COUNT(s->starts_n, i, s->start_ns[i] <= ns);
}

/* The step within thinned step `k` that contains ns. */
static size_t is_within_step(const struct step_list *s, size_t k, int64_t ns)
{
    size_t first = k * s->stride, size = k + 1 < s->starts_n ? s->stride : s->n - s->removed - first;
    double span = (double)(s->start_ns[k + 1] - s->start_ns[k]), part = (double)(ns - s->start_ns[k]);
    size_t at = span > 0 ? (size_t)(part / span * (double)size) : 0;
    return s->removed + first + (at < size ? at : size - 1);
}

size_t step_at(const struct step_list *s, int64_t ns)
{
    size_t k = count_steps_begun(s, ns);
    if (k == 0 && s->removed && ns >= s->removed_ns[0]) return step_removed_at(s, ns);
    if (k == 0 || ns > (s->end_ns ? s->end_ns[k - 1] : s->start_ns[k]) || ns > s->start_ns[s->starts_n])
        return SIZE_MAX;
    return is_within_step(s, k - 1, ns);
}

size_t step_count_done(const struct step_list *s, int64_t ns)
{
    size_t k = count_steps_begun(s, ns);
    if (k == 0 && s->removed) return step_removed_at(s, ns);
    return k == 0 ? 0 : ns > s->start_ns[s->starts_n] ? s->n : is_within_step(s, k - 1, ns);
}

int64_t step_start_ns(const struct step_list *s, size_t i)
{
    if (i >= s->n) return s->start_ns[s->starts_n];
    if (i < s->removed) return step_removed_start_ns(s, i);
    i -= s->removed;
    size_t k = i / s->stride, first = k * s->stride;
    size_t size = k + 1 < s->starts_n ? s->stride : s->n - s->removed - first;
    double span = (double)(s->start_ns[k + 1] - s->start_ns[k]);
    return s->start_ns[k] + (int64_t)(span * (double)(i - first) / (double)size);
}

/* The outermost ancestor (or itself) that is visited every step: its neighbours are the other lines of the loop. */
static uint32_t loop_line(const struct step_place_tree *t, uint32_t place)
{
    uint64_t visits = t->places[place].visits;
    uint32_t line = place;
    for (uint32_t p = place; p != STEP_PLACE_ROOT; p = t->places[p].parent)
        line = t->places[p].visits * 10 >= visits * 9 ? p : line;
    return line;
}

/* Whether the line comes after the moment in an iteration: the first one shows it, unless that began before the rows
 * that exist (`cut`); then the last one does. */
static bool comes_after(const struct step_place *p, const struct times *times, const struct step_moments *m, bool cut)
{
    if (p->first_ns <= m->times[0]) return false;
    return !cut || !times->n || times_at(times, times->n - 1) > m->times[m->n - 1];
}

/* The first call of the loop after each moment: of the lines beside `line` with as many visits, except those that come
 * after it. One more than moments: for a step that only began. */
static void find_starts(struct step_place_tree *t, uint32_t line, const struct step_moments *m, bool cut,
                        int64_t *starts)
{
    const struct step_place *own = &t->places[line];
    for (uint32_t i = 1; i < t->n; i++) {
        const struct step_place *p = &t->places[i];
        if (p->parent != own->parent || p->visits < LEAST || p->visits * 2 < own->visits || p->thread != own->thread ||
            (p->shift && p->shift != STEP_PLACE_DROPPED))
            continue;
        const struct times *times = step_place_times(t, p);
        if (comes_after(p, times, m, cut)) continue;
        for (size_t k = 0, at = 0; k <= m->n; k++) {
            while (at < times->n && k > 0 && times_at(times, at) <= m->times[k - 1]) at++;
            int64_t ns = at < times->n ? times_at(times, at) : RUN_NEVER;
            starts[k] = ns < starts[k] ? ns : starts[k];
        }
    }
}

/* The usual time from the moment to the next beginning. */
static int64_t usual_tail(const int64_t *starts, const int64_t *moments, size_t n)
{
    int64_t *between = arena_realloc(NULL, n, sizeof *between), tail;
    between[0] = 0; /* so that the tails are the gaps between these */
    for (size_t i = 0; i + 1 < n; i++) {
        int64_t one = starts[i + 1] - moments[i];
        between[i + 1] = arena_add_capped(between[i], one > 0 ? one : 0);
    }
    tail = step_moments_gap(between, n);
    free(between);
    return tail;
}

static bool is_usual_step(const struct step_list *s, size_t k)
{
    double lasts = (double)(s->start_ns[k + 1] - s->start_ns[k]);
    return lasts <= 2.0 * (double)s->median_ns * (double)s->stride;
}

/* After the first tenth, and the first of three that take at most twice as long as usual. */
static size_t steady_of(const struct step_list *s)
{
    size_t k = s->starts_n / 10, half = s->starts_n / 2;
    k = k == 0 && s->starts_n > 4 ? 1 : k;
    while (k < half && k + 3 <= s->starts_n &&
           !(is_usual_step(s, k) && is_usual_step(s, k + 1) && is_usual_step(s, k + 2)))
        k++;
    return k * s->stride < s->n ? k * s->stride : s->n - 1;
}

static void set_times(struct site_builder *b, struct step_list *s, int64_t *starts, const struct step_moments *m,
                      int64_t process_end)
{
    size_t n = m->n;
    int64_t step = step_moments_gap(starts, n), tail = usual_tail(starts, m->times, n);
    int64_t *start = arena_alloc(b->arena, (n + 1) * sizeof *start);
    int64_t *end = arena_alloc(b->arena, n * sizeof *end);
    bool gaps = false;
    memcpy(start, starts, n * sizeof *start);
    for (size_t i = 0; i < n; i++) {
        int64_t next = i + 1 < n ? starts[i + 1] : RUN_NEVER,
                soon = arena_add_capped(m->times[i], arena_add_capped(tail, tail));
        if (i + 1 == n) { /* the last one takes as long as the others, at least to its moment */
            int64_t whole = arena_add_capped(starts[i], step);
            next = whole > soon ? whole : soon;
            next = next > process_end && process_end >= m->times[i] ? process_end : next;
            next = next > starts[n] ? starts[n] : next;
        }
        bool far = i + 1 < n && next - m->times[i] > arena_add_capped(step, step) && m->stride == 1 && soon < next;
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

static const char *step_source_name(const struct step_place *p, enum step_source source, bool zeroed)
{
    switch (source) {
    case STEP_SOURCE_OPTIMIZER: return p->name ? p->name : "the optimizer";
    case STEP_SOURCE_BACKWARD: return zeroed ? "backward before zero_grad" : "backward";
    default: return "the loop";
    }
}

static const char *step_call_name(struct step_finder *f, const struct step_list *s, const struct step_moments *m)
{
    char place[512];
    struct result_site shown = s->site;
    shown.function = shown.line ? NULL : shown.function;
    return m->name ? m->name
                   : arena_printf(
                         f->b->arena, "%s at %s",
                         step_source_name(&f->tree.places[m->named ? m->named - 1 : m->place], s->source, m->zeroed),
                         site_text(&shown, place, sizeof place));
}

static struct step_list *make_step_list(struct step_finder *f, uint32_t process, enum step_source source,
                                        const struct step_moments *m, const struct step_removed *removed)
{
    struct step_list *s = arena_alloc(f->b->arena, sizeof *s);
    const struct run_process *p = run_process_at(f->b->run, process);
    int64_t *starts = arena_realloc(NULL, m->n + 1, sizeof *starts);
    *s =
        (struct step_list){.process = process, .source = source, .stack = m->stack, .n = m->count, .stride = m->stride};
    memcpy(starts, m->begins ? m->begins : m->times, m->n * sizeof *starts);
    starts[m->n] = RUN_NEVER;
    if (m->stride == 1 && m->place != RUN_NONE && source != STEP_SOURCE_PERIOD)
        find_starts(&f->tree, loop_line(&f->tree, m->place), m, p->kept_from_ns > 0, starts);
    set_times(f->b, s, starts, m, p->end_ns);
    free(starts);
    if (p->kept_from_ns) step_removed_set(f->b->arena, s, f->b->run, removed, &f->early);
    if (m->stack != RUN_NONE) s->site = site_of_call(f->b, m->stack);
    s->by = step_call_name(f, s, m);
    s->evidence = arena_printf(f->b->arena, "%s, %zu time%s%s", s->by, s->n, s->n == 1 ? "" : "s",
                               m->named ? ", counted where gradients are clipped or unscaled" : "");
    return s;
}

static void steps_on_call(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct step_finder *f = self;
    if ((copy ? copy->start_ns : sync->start_ns) < f->kept_from_ns) return;
    if (copy)
        step_places_add_event(&f->calls, copy->thread, copy->stack, copy->start_ns);
    else
        step_places_add_event(&f->calls, sync->thread, sync->stack, sync->start_ns);
}

/* If allocations show no loop, copies and waits may. */
static struct step_moments period_of_calls(struct step_finder *f, uint32_t process)
{
    char error[256]; /* rows that cannot be read are reported by the pass that needs them */
    step_places_restart(&f->calls, true);
    run_each_call_of(f->b->run, process, steps_on_call, f, error, sizeof error);
    return step_moments_of_period(&f->calls);
}

static struct step_moments of_backward(struct step_place_tree *t, uint32_t process)
{
    struct step_moments m = step_moments_of_calls(t, STEP_PLACE_BACKWARD);
    if (m.count >= 2 * LEAST) step_moments_accumulate(&m, t, process);
    return m;
}

static const enum step_source sources[] = {STEP_SOURCE_OPTIMIZER, STEP_SOURCE_OPTIMIZER, STEP_SOURCE_MARK,
                                           STEP_SOURCE_BACKWARD,  STEP_SOURCE_PERIOD,    STEP_SOURCE_PERIOD,
                                           STEP_SOURCE_PERIOD};

enum { SOURCE_STACKS = 5, SOURCE_CALLS }; /* indices of `sources` */

static struct step_moments ask_step_moments(struct step_finder *f, uint32_t process, size_t source)
{
    switch (source) {
    case 0: return step_moments_of_calls(&f->tree, STEP_PLACE_OPTIMIZER);
    case 1: return step_moments_of_clips(&f->tree);
    case 2: return step_moments_of_marks(f->b->run, f->b->arena, process);
    case 3: return of_backward(&f->tree, process);
    case 4: return step_moments_of_period(&f->tree);
    case SOURCE_STACKS: return step_moments_of_stacks(&f->tree, process);
    default: return period_of_calls(f, process);
    }
}

static void steps_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct step_finder *f = self;
    f->tensors = f->tensors || life->layer == GS_LAYER_TENSOR;
    if (f->tensors && life->layer == GS_LAYER_DEVICE && series->layer == RUN_SERIES_DEVICE)
        return;                             /* PyTorch's allocator occasionally needs a segment */
    if (life->alloc_ns < f->kept_from_ns) { /* other events of that time were removed */
        step_removed_add_row(&f->early, life->stack, life->alloc_ns, life->free_ns >= f->kept_from_ns);
        return;
    }
    step_places_add_event(&f->tree, life->thread, life->stack, life->alloc_ns);
}

static void steps_on_row(void *self, const struct run_lifetime *life, uint32_t free_stack)
{
    struct step_finder *f = self;
    steps_on_alloc(f, life, run_series(f->b->run, life->series));
}

/* Reads the process once more, with the times of all places. */
static void read_all_times(struct step_finder *f, uint32_t process)
{
    char error[256]; /* the replay has reported unreadable rows */
    f->tensors = false;
    step_removed_free(&f->early);
    step_places_restart(&f->tree, true);
    run_each_last(f->b->run, process, RUN_LAST_ALL, steps_on_row, f, error, sizeof error);
}

/* The steps before the kept part of a bounded recording. */
static struct step_removed find_removed(struct step_finder *f, uint32_t process, size_t source,
                                        const struct step_moments *m)
{
    const struct run_process *p = run_process_at(f->b->run, process);
    if (!p->kept_from_ns || !p->lows_are_known) return (struct step_removed){0};
    if (m->place == RUN_NONE)
        return (struct step_removed){m->removed_first_ns != RUN_UNKNOWN, m->removed, m->removed_first_ns};
    const bool calls = source == SOURCE_CALLS;
    const struct step_place_tree *t = calls ? &f->calls : &f->tree;
    struct step_removed_events events = {0};
    step_removed_add_totals(&events, f->b->run, process, calls, f->tensors);
    for (uint32_t i = 0; !calls && i < f->early.of_stack_n; i++) step_removed_add(&events, i, &f->early.of_stack[i]);
    const uint64_t visits = t->places[m->place].visits;
    /* Steps of several phases have several places, of which this one is known. */
    const bool all = source == SOURCE_STACKS || (m->count <= visits + 1 && visits <= m->count + 1);
    struct step_removed r = step_removed_count(&events, t, m->place, all ? m->count : visits);
    if (m->zeroed && visits) r.n = (r.n * m->count + visits / 2) / visits;
    step_removed_free(&events);
    return r;
}

static struct step_list *step_list_from(struct step_finder *f, uint32_t process, size_t source)
{
    struct step_moments m = ask_step_moments(f, process, source);
    struct step_list *steps = NULL;
    if (m.count >= LEAST && m.n) {
        bool backward = m.named && f->tree.places[m.named - 1].kind == STEP_PLACE_BACKWARD;
        const struct step_removed removed = find_removed(f, process, source, &m);
        steps = make_step_list(f, process, backward ? STEP_SOURCE_BACKWARD : sources[source], &m, &removed);
    }
    step_moments_free(&m);
    return steps;
}

static struct step_list *choose_step_list(struct step_finder *f, uint32_t process)
{
    struct step_list *steps = NULL;
    if (run_why_unknown(f->b->run, RUN_FACT_HISTORY)) return NULL; /* one moment has no order */
    for (size_t i = 0; i < sizeof sources / sizeof *sources && !steps; i++) {
        steps = step_list_from(f, process, i);
        if (f->tree.missed) {
            read_all_times(f, process);
            steps = step_list_from(f, process, i);
        }
    }
    return steps;
}

static void steps_on_process_start(void *self, uint32_t process)
{
    struct step_finder *f = self;
    f->tensors = false;
    step_removed_free(&f->early);
    f->kept_from_ns = run_process_at(f->b->run, process)->kept_from_ns;
    if (run_why_unknown(f->b->run, RUN_FACT_WAITS)) f->kept_from_ns = 1; /* at 0 is what was live before, in no order */
    step_places_restart(&f->tree, false);
}

static void steps_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct step_finder *f = self;
    *SITE_REACH(f->of_process, process, f->of_process_n) = choose_step_list(f, process);
}

struct step_finder *step_finder_start(struct site_builder *b, struct run_observer *observer)
{
    struct step_finder *f = ARENA_NEW(struct step_finder, .b = b, .tree.run = b->run, .calls.run = b->run);
    *observer = (struct run_observer){.self = f,
                                      .beside = true,
                                      .process_start = steps_on_process_start,
                                      .alloc = steps_on_alloc,
                                      .process_end = steps_on_process_end};
    b->steps = f;
    return f;
}

void step_finder_build(struct site_builder *b)
{
    struct result_report *r = b->report;
    r->steps = arena_alloc(b->arena, b->steps->of_process_n * sizeof *r->steps);
    for (uint32_t i = 0; i < b->steps->of_process_n; i++)
        if (b->steps->of_process[i]) r->steps[r->steps_n++] = b->steps->of_process[i];
}

void step_finder_adopt(struct site_builder *b, const struct result_report *r)
{
    struct step_finder *f = ARENA_NEW(struct step_finder, .b = b);
    for (size_t i = 0; i < r->steps_n; i++)
        *SITE_REACH(f->of_process, r->steps[i]->process, f->of_process_n) = r->steps[i];
    b->steps = f;
}

void step_finder_free(struct step_finder *f)
{
    if (f) {
        step_places_free(&f->tree);
        step_places_free(&f->calls);
        step_removed_free(&f->early);
        ARENA_RELEASE(f->of_process, f);
    }
}
