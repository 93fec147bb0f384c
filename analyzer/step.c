#include "analyzer/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/question.h"
#include "analyzer/step_tree.h"

enum { LEAST = 2, LEAST_PERIODS = 8, FEW_PERIODS = 4, RARER = 16 };

struct gs_step_finder {
    struct gs_builder *b;
    struct gs_place_tree tree;
    const struct gs_steps **of_process;
    size_t of_process_n;
};

/* What a source offers: the moments at which its steps were made, and where. */
struct moments {
    int64_t *times; /* of every `stride`-th */
    size_t n, cap;
    size_t stride;
    uint64_t count;
    uint32_t place; /* that most of them come from */
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
    if (k == 0 || ns > (s->end_ns ? s->end_ns[k - 1] : s->start_ns[k]) ||
        ns > s->start_ns[s->starts_n]) {
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

/* --- which calls are the steps ------------------------------------------------------------------ */

/* Of places that take turns: among those that were there for most of the time the rarest, so that a
 * round is a step; of equals the one that comes last in a round. */
static uint32_t anchor_of(const struct gs_place_tree *t, const uint32_t *group, size_t n)
{
    int64_t first = INT64_MAX, last = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const struct gs_place *p = &t->places[group[i]];
        first = p->first_ns < first ? p->first_ns : first;
        last = p->last_ns > last ? p->last_ns : last;
        most = p->visits > most ? p->visits : most;
    }
    uint32_t anchor = GS_NONE;
    for (size_t i = 0; i < n; i++) {
        const struct gs_place *p = &t->places[group[i]], *a = &t->places[anchor == GS_NONE ? 0 : anchor];
        bool there = (double)(p->last_ns - p->first_ns) >= 0.8 * (double)(last - first);
        bool better = anchor == GS_NONE || p->visits < a->visits ||
                      (p->visits == a->visits && p->first_ns > a->first_ns);
        if (p->visits * RARER >= most && there && better) {
            anchor = group[i];
        }
    }
    return anchor;
}

static void add_times(struct moments *m, const struct gs_place *p)
{
    for (size_t i = 0; i < p->n; i++) {
        *GS_PUSH(m->times, m->n, m->cap) = p->times[i];
    }
    m->count += p->visits;
}

/* Phases with places of their own follow one another; each has its anchor. A thinned one cannot be
 * joined to others: then the longest counts alone. */
static void join(const struct gs_place_tree *t, const uint32_t *anchors, size_t n, struct moments *m)
{
    bool thinned = false;
    uint32_t most = anchors[0];
    for (size_t i = 0; i < n; i++) {
        thinned = thinned || t->places[anchors[i]].shift > 0;
        most = t->places[anchors[i]].visits > t->places[most].visits ? anchors[i] : most;
    }
    m->place = most;
    m->stride = (size_t)1 << t->places[most].shift;
    for (size_t i = 0; i < n; i++) {
        const struct gs_place *p = &t->places[anchors[i]];
        bool once = p->visits * RARER < t->places[most].visits; /* a try before the loop */
        if (anchors[i] == most || (!thinned && !once)) {
            add_times(m, p);
        }
    }
}

static int by_first(const void *a, const void *b, void *tree)
{
    const struct gs_place_tree *t = tree;
    const struct gs_place *x = &t->places[*(const uint32_t *)a], *y = &t->places[*(const uint32_t *)b];
    return x->first_ns != y->first_ns ? (x->first_ns < y->first_ns ? -1 : 1)
                                      : (*(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1);
}

/* The calls of one kind: places of it that overlap in time take turns. */
static struct moments calls_of(struct gs_place_tree *t, enum gs_place_kind kind)
{
    struct moments m = {.stride = 1, .place = GS_NONE};
    uint32_t *found = NULL, *anchors = NULL;
    size_t n = 0, cap = 0, anchors_n = 0, anchors_cap = 0;
    for (uint32_t i = 1; i < t->n; i++) {
        if (t->places[i].kind == kind && t->places[i].visits) {
            *GS_PUSH(found, n, cap) = i;
        }
    }
    if (n) {
        qsort_r(found, n, sizeof *found, by_first, t);
    }
    for (size_t from = 0, to; from < n; from = to) {
        int64_t last = t->places[found[from]].last_ns;
        for (to = from + 1; to < n && t->places[found[to]].first_ns <= last; to++) {
            last = t->places[found[to]].last_ns > last ? t->places[found[to]].last_ns : last;
        }
        uint32_t anchor = anchor_of(t, found + from, to - from);
        if (anchor != GS_NONE) {
            *GS_PUSH(anchors, anchors_n, anchors_cap) = anchor;
        }
    }
    if (anchors_n) {
        join(t, anchors, anchors_n, &m);
    }
    free(found);
    free(anchors);
    return m;
}

/* Visits of that kind after a time; of thinned ones about. */
static uint64_t calls_after(const struct gs_place_tree *t, enum gs_place_kind kind, int64_t ns, uint64_t *all)
{
    uint64_t after = 0;
    *all = 0;
    for (size_t i = 1; i < t->n; i++) {
        const struct gs_place *p = &t->places[i];
        if (p->kind != kind || !p->visits) {
            continue;
        }
        *all += p->visits;
        for (size_t k = p->n; k-- > 0 && p->times[k] > ns;) {
            after += (uint64_t)1 << p->shift;
        }
    }
    return after;
}

/* An optimizer that allocates at its first call only, as momentum does, is not seen later: the backward
 * passes then go on without it. */
static bool goes_on(const struct gs_place_tree *t, const struct moments *m)
{
    uint64_t all, after;
    if (!m->n) {
        return false;
    }
    after = calls_after(t, GS_PLACE_BACKWARD, m->times[m->n - 1], &all);
    return (double)after <= 2.0 * (double)all / (double)m->count + 1;
}

/* --- a loop without such calls ------------------------------------------------------------------- */

static int order_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The middle one of times between neighbours. */
static int64_t median_gap(const int64_t *times, size_t n)
{
    if (n < 2) {
        return 0;
    }
    int64_t *gaps = gs_realloc(NULL, n - 1, sizeof *gaps), median;
    for (size_t i = 0; i + 1 < n; i++) {
        gaps[i] = times[i + 1] - times[i];
    }
    qsort(gaps, n - 1, sizeof *gaps, order_ns);
    median = gaps[(n - 1) / 2];
    free(gaps);
    return median;
}

/* Comes by at even intervals over most of the run. */
static bool regular(const struct gs_place_tree *t, const struct gs_place *p)
{
    if (p->visits < FEW_PERIODS) {
        return false;
    }
    double span = (double)(p->last_ns - p->first_ns), usual = (double)median_gap(p->times, p->n);
    return span >= 0.5 * (double)(t->last_ns - p->first_ns) && 2 * span >= (double)t->last_ns - span &&
           usual * (double)(p->n - 1) >= 0.5 * span;
}

/* Events in and below each place. */
static uint64_t *sums_of(const struct gs_place_tree *t)
{
    uint64_t *sums = gs_realloc(NULL, t->n, sizeof *sums);
    for (size_t i = 0; i < t->n; i++) {
        sums[i] = t->places[i].events;
    }
    for (size_t i = t->n; i-- > 1;) { /* children stand behind their parents */
        sums[t->places[i].parent] += sums[i];
    }
    return sums;
}

/* Among the lines below `parent` that come by regularly, and of which something happens, the one that
 * does so most seldom: it comes once a round. */
static uint32_t round_of(const struct gs_place_tree *t, uint32_t parent, const uint64_t *sums, uint64_t least)
{
    uint64_t most = 0;
    uint32_t found = GS_NONE;
    for (uint32_t i = 1; i < t->n; i++) {
        const struct gs_place *p = &t->places[i];
        if (p->parent == parent && p->visits >= least) {
            most = sums[i] > most ? sums[i] : most;
        }
    }
    for (uint32_t i = 1; i < t->n; i++) {
        const struct gs_place *p = &t->places[i];
        if (p->parent == parent && p->visits >= least && sums[i] * 4 >= most && regular(t, p) &&
            (found == GS_NONE || p->visits < t->places[found].visits)) {
            found = i;
        }
    }
    return found;
}

static uint32_t heaviest_child(const struct gs_place_tree *t, uint32_t parent, const uint64_t *sums)
{
    uint32_t heaviest = GS_NONE;
    for (uint32_t i = 1; i < t->n; i++) {
        if (t->places[i].parent == parent && sums[i] > 0 &&
            (heaviest == GS_NONE || sums[i] > sums[heaviest])) {
            heaviest = i;
        }
    }
    return heaviest;
}

/* From the root inwards, along where most happens: the first loop. One with few rounds, as of epochs,
 * counts only where no other is in it; what a module does inside only where nothing else repeats. */
static struct moments period_of(const struct gs_place_tree *t)
{
    struct moments m = {.stride = 1, .place = GS_NONE};
    uint64_t *sums = sums_of(t);
    uint32_t found = GS_NONE;
    for (uint32_t at = GS_PLACE_ROOT; at != GS_NONE; at = heaviest_child(t, at, sums)) {
        if (t->places[at].module && found != GS_NONE) {
            break;
        }
        uint32_t round = round_of(t, at, sums, LEAST_PERIODS);
        if (round != GS_NONE) {
            found = round;
            break;
        }
        found = found == GS_NONE ? round_of(t, at, sums, FEW_PERIODS) : found;
    }
    free(sums);
    if (found != GS_NONE) {
        join(t, &found, 1, &m);
    }
    return m;
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

/* The first call of the loop after each moment: the lines beside `line` that come by as often. */
static void find_starts(const struct gs_place_tree *t, uint32_t line, const struct moments *m, int64_t *starts)
{
    const struct gs_place *own = &t->places[line];
    for (uint32_t i = 1; i < t->n; i++) {
        const struct gs_place *p = &t->places[i];
        if (p->parent != own->parent || p->visits * 2 < own->visits || p->thread != own->thread || p->shift) {
            continue;
        }
        for (size_t k = 0, at = 0; k < m->n; k++) {
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
    if (n < 2) {
        return 0;
    }
    int64_t *tails = gs_realloc(NULL, n - 1, sizeof *tails), tail;
    for (size_t i = 0; i + 1 < n; i++) {
        tails[i] = starts[i + 1] - moments[i];
    }
    qsort(tails, n - 1, sizeof *tails, order_ns);
    tail = tails[(n - 1) / 2];
    free(tails);
    return tail < 0 ? 0 : tail;
}

/* Past the first tenth and what takes more than twice as long as usual before it. */
static size_t steady_of(const struct gs_steps *s)
{
    size_t k = 0, tenth = s->starts_n / 10;
    for (size_t i = 0; i + 1 < s->starts_n && i < s->starts_n / 2; i++) {
        int64_t lasts = s->start_ns[i + 1] - s->start_ns[i];
        k = lasts > 2 * s->median_ns * (int64_t)s->stride && i < 16 ? i + 1 : k;
    }
    k = k > tenth ? k : tenth;
    k = k == 0 && s->starts_n > 4 ? 1 : k;
    return k * s->stride < s->n ? k * s->stride : s->n - 1;
}

static void set_times(struct gs_builder *b, struct gs_steps *s, int64_t *starts, const struct moments *m,
                      int64_t process_end)
{
    size_t n = m->n;
    int64_t usual = median_gap(starts, n), tail = usual_tail(starts, m->times, n);
    int64_t *start = gs_arena_alloc(b->arena, (n + 1) * sizeof *start);
    int64_t *end = gs_arena_alloc(b->arena, n * sizeof *end);
    bool gaps = false;
    memcpy(start, starts, n * sizeof *start);
    for (size_t i = 0; i < n; i++) {
        int64_t next = i + 1 < n ? starts[i + 1] : GS_NEVER, soon = gs_add(m->times[i], 2 * tail);
        if (i + 1 == n) { /* the last one takes as long as the others, at least to its moment */
            int64_t whole = gs_add(starts[i], usual);
            next = whole > soon ? whole : soon;
            next = next > process_end && process_end >= m->times[i] ? process_end : next;
        }
        bool far = i + 1 < n && next - m->times[i] > 2 * usual && m->stride == 1 && soon < next;
        end[i] = far ? soon : next;
        gaps = gaps || far;
    }
    start[n] = end[n - 1] > start[n - 1] ? end[n - 1] : start[n - 1];
    s->starts_n = n;
    s->start_ns = start;
    s->end_ns = gaps ? end : NULL;
    s->median_ns = usual / (int64_t)m->stride;
    s->steady = steady_of(s);
}

static const char *name_of(const struct gs_place *p, enum gs_step_source source)
{
    switch (source) {
    case GS_STEP_OPTIMIZER: return p->name ? p->name : "the optimizer";
    case GS_STEP_BACKWARD: return "backward";
    default: return "the loop";
    }
}

static struct gs_steps *make(struct gs_step_finder *f, uint32_t process, enum gs_step_source source,
                             const struct moments *m)
{
    const struct gs_place_tree *t = &f->tree;
    const struct gs_place *p = &t->places[m->place];
    struct gs_steps *s = gs_arena_alloc(f->b->arena, sizeof *s);
    size_t processes;
    int64_t *starts = gs_realloc(NULL, m->n, sizeof *starts);
    *s = (struct gs_steps){.process = process, .source = source, .stack = p->stack, .n = m->count, .stride = m->stride};
    memcpy(starts, m->times, m->n * sizeof *starts);
    if (m->stride == 1) {
        find_starts(t, loop_line(t, m->place), m, starts);
    }
    set_times(f->b, s, starts, m, gs_run_processes(f->b->run, &processes)[process].end_ns);
    free(starts);
    char place[512];
    uint32_t site = gs_site_number(f->b, p->stack); /* first: it may move b->sites */
    s->site = f->b->sites[site];
    struct gs_site shown = s->site;
    shown.function = shown.line ? NULL : shown.function;
    s->evidence = gs_arena_printf(f->b->arena, "%s at %s, %zu times", name_of(p, source),
                                  gs_site_text(&shown, place, sizeof place), s->n);
    return s;
}

static struct gs_steps *choose(struct gs_step_finder *f, uint32_t process)
{
    enum { SOURCES = 3 };
    struct gs_steps *steps = NULL;
    for (size_t i = 0; i < SOURCES && !steps; i++) {
        enum gs_step_source source = i == 0 ? GS_STEP_OPTIMIZER : i == 1 ? GS_STEP_BACKWARD : GS_STEP_PERIOD;
        struct moments m = i == 0   ? calls_of(&f->tree, GS_PLACE_OPTIMIZER)
                           : i == 1 ? calls_of(&f->tree, GS_PLACE_BACKWARD)
                                    : period_of(&f->tree);
        if (m.count >= LEAST && (i > 0 || goes_on(&f->tree, &m))) {
            steps = make(f, process, source, &m);
        }
        free(m.times);
    }
    return steps;
}

/* --- the replay ------------------------------------------------------------------------------------ */

static void on_process_start(void *self, uint32_t process)
{
    struct gs_step_finder *f = self;
    (void)process;
    gs_places_restart(&f->tree);
}

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_step_finder *f = self;
    (void)series;
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
    *f = (struct gs_step_finder){.b = b, .tree.run = b->run};
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
        free(f->of_process);
        free(f);
    }
}
