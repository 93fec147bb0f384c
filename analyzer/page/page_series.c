#include "analyzer/page/page_series_parts.h"
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct page_series *page_series_new(struct run *run)
{
    struct page_series *p = ARENA_NEW(struct page_series, .run = run, .pending_free = RUN_NONE);
    return p;
}

void page_series_free(struct page_series *p)
{
    for (size_t i = 0; i < p->levels_n; i++) {
        ARENA_RELEASE(p->levels[i].cuts, p->levels[i].changed, p->levels[i].buckets, p->levels[i].changes,
                      p->levels[i].ends);
        map_free(&p->levels[i].site_lines);
        page_singles_free(&p->levels[i].singles);
    }
    for (size_t i = 0; i < p->curves_cap; i++) page_curve_free(&p->curves[i]);
    ARENA_RELEASE(p->curves, p->pending);
    map_free(&p->worth);
    ARENA_RELEASE(p->most, p->levels, p->level_of, p->lines, p->line_of, p);
}

/* Zeroed room for element `index`. */
static void *grow_zeroed(void *list, size_t index, size_t *cap, size_t size)
{
    if (index >= *cap) {
        size_t more = index * 2 + 64;
        list = arena_realloc(list, more, size);
        memset((char *)list + *cap * size, 0, (more - *cap) * size);
        *cap = more;
    }
    return list;
}

static inline struct page_curve *curve_of(struct page_series *p, uint32_t series)
{
    if (series >= p->curves_cap) p->curves = grow_zeroed(p->curves, series, &p->curves_cap, sizeof *p->curves);
    if (!p->curves[series].most) {
        size_t processes;
        run_processes(p->run, &processes);
        p->curves[series].most = MOMENTS / (processes + 1) & ~(size_t)1;
        if (p->curves[series].most < MOMENTS_LEAST) p->curves[series].most = MOMENTS_LEAST;
    }
    return &p->curves[series];
}

static void series_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct page_series *p = self;
    int64_t live = run_location(p->run, life->location)->live_bytes;
    if (life->location >= p->most_cap) p->most = grow_zeroed(p->most, life->location, &p->most_cap, sizeof *p->most);
    if (live > p->most[life->location]) p->most[life->location] = live;
    page_curve_add(curve_of(p, life->series), life->alloc_ns, series->live_bytes, true);
}

static void series_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct page_series *p = self;
    page_curve_add(&p->curves[life->series], life->free_ns, series->live_bytes, false);
}

static void series_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct page_series *p = self;
    for (uint32_t i = 0; oom->fatal && i < p->curves_cap && i < run_series_count(p->run); i++) {
        const struct run_series *s = run_series(p->run, i);
        if (s->process == oom->process && (s->device == oom->device || s->device < 0))
            page_curve_keep_last(&p->curves[i]);
    }
}

struct run_observer page_series_observer(struct page_series *p)
{
    return (struct run_observer){.self = p, .alloc = series_on_alloc, .free = series_on_free, .oom = series_on_oom};
}

struct rated {
    uint32_t level, stack;
    int64_t most;
};

SORT_ORDER(rated_order, struct rated,
           SORT_UP(x->level, y->level) ?: SORT_DOWN(x->most, y->most) ?: SORT_UP(x->stack, y->stack))

static uint32_t level_at(const struct page_series *p, uint32_t process, int device, enum run_series_layer layer)
{
    for (size_t i = 0; i < p->levels_n; i++) {
        const struct page_level *l = &p->levels[i];
        if (l->process == process && l->device == device && l->layer == layer) return (uint32_t)i;
    }
    return RUN_NONE;
}

static void choose_lines(struct page_series *p)
{
    size_t n = run_location_count(p->run), series_n = run_series_count(p->run), rated_n = 0, rank = 0;
    struct rated *rated = arena_realloc(NULL, n + 1, sizeof *rated);
    uint32_t *level = arena_realloc(NULL, series_n + 1, sizeof *level);
    for (size_t i = 0; i < series_n; i++) {
        const struct run_series *s = run_series(p->run, (uint32_t)i);
        level[i] = level_at(p, s->process, s->device, s->layer);
    }
    for (size_t i = 0; i < n && i < p->most_cap; i++) {
        const struct run_location *l = run_location(p->run, (uint32_t)i);
        if (level[l->series] != RUN_NONE && p->most[i] > 0)
            rated[rated_n++] = (struct rated){level[l->series], l->stack, p->most[i]};
    }
    if (rated_n > 1) qsort(rated, rated_n, sizeof *rated, rated_order);
    for (size_t i = 0; i < rated_n; i++) {
        rank = i && rated[i].level == rated[i - 1].level ? rank + 1 : 0;
        const size_t room = p->levels[rated[i].level].lines_room;
        if (rank < room - room / SITES)
            *map_at(&p->worth, (uint64_t)rated[i].level << 32 | rated[i].stack) = 1;
        else if (rated[i].most > p->unshown_most)
            p->unshown_most = rated[i].most;
    }
    ARENA_RELEASE(rated, level);
}

/* The peak, and the failures from which the program did not recover. */
static size_t list_focus(const struct page_series *p, const struct page_level *l, int64_t *out)
{
    size_t n = 0;
    out[n++] = l->peak->time_ns;
    for (size_t i = 0; i < p->report->ooms_n && n < FOCUS_MOST; i++) {
        const struct result_oom_verdict *v = &p->report->ooms[i];
        if (v->process == l->process && (v->device == l->device || l->device < 0) && v->fatal) out[n++] = v->time_ns;
    }
    return n;
}

static void add_cut(struct page_level *l, size_t *cap, double ns, int64_t end_ns)
{
    if (ns > 0 && ns < (double)end_ns) *ARENA_PUSH(l->cuts, l->cuts_n, *cap) = (int64_t)ns;
}

static const struct step_list *series_steps_of(const struct page_series *p, uint32_t process)
{
    const struct step_list *found = NULL;
    for (size_t i = 0; i < p->report->steps_n; i++)
        found = p->report->steps[i]->process == process ? p->report->steps[i] : found;
    return found && found->n >= STEPS_LEAST ? found : NULL;
}

/* If steps are known, buckets hold whole steps: a bucket with half a step would show a dip that does not exist. Few
 * steps are divided into parts, and the time outside of them is cut evenly. */
static void cut_steps(struct page_level *l, size_t *cap, const struct step_list *s, size_t third, int64_t end_ns)
{
    size_t stride = s->n > 2 * third ? s->n / (2 * third) + 1 : 1, parts = third / s->n;
    int64_t first = step_start_ns(s, 0), last = step_start_ns(s, s->n);
    for (size_t i = 0; i < s->n; i += stride) {
        int64_t start = step_start_ns(s, i), next = step_start_ns(s, i + 1);
        add_cut(l, cap, (double)start, end_ns);
        for (size_t k = 1; k < parts; k++)
            add_cut(l, cap, (double)start + (double)(next - start) * (double)k / (double)parts, end_ns);
    }
    add_cut(l, cap, (double)last, end_ns);
    for (size_t i = 1; i < third; i++) {
        double ns = (double)end_ns * (double)i / (double)third;
        if (ns < (double)first || ns > (double)last) add_cut(l, cap, ns, end_ns);
    }
    if (parts == 0) /* steps are as even in events as in time */
        l->every = UINT64_MAX / 2;
}

/* A third of the buckets each: even in time, even in events, and in intervals that grow with the distance from the
 * focus. */
static void list_cuts(const struct page_series *p, struct page_level *l)
{
    size_t cap = 0, third = l->buckets_room / 3 + 1;
    int64_t focus[FOCUS_MOST], end_ns = p->report->processes[l->process].end_ns;
    size_t focus_n = list_focus(p, l, focus), side = third / 2 / focus_n;
    const struct step_list *steps = series_steps_of(p, l->process);
    l->every = l->events <= l->buckets_room ? 1 : l->events / third + 1;
    if (l->every == 1) return; /* one bucket for each */
    if (steps) cut_steps(l, &cap, steps, third, end_ns);
    for (size_t i = 1; !steps && i < third; i++) add_cut(l, &cap, (double)end_ns * (double)i / (double)third, end_ns);
    for (size_t f = 0; f < focus_n; f++) {
        const double nearest = 1e3;
        double factor = side > 1 ? pow((double)end_ns / nearest, 1 / (double)side) : 2;
        double away = nearest;
        for (size_t i = 0; i < side && factor > 1; i++, away *= factor) {
            add_cut(l, &cap, (double)focus[f] + away, end_ns);
            add_cut(l, &cap, (double)focus[f] - away, end_ns);
        }
    }
    if (l->cuts_n > 1) qsort(l->cuts, l->cuts_n, sizeof *l->cuts, sort_int64_up);
}

static int64_t level_end_ns(const struct page_series *p, const struct page_level *l)
{
    const int64_t end = p->report->processes[l->process].end_ns;
    return end > l->last_ns ? end : l->last_ns;
}

static struct page_bucket *add_page_bucket(struct page_level *l, size_t *cap, int64_t start_ns, int64_t high_ns)
{
    ARENA_APPEND_TO(l->buckets, l->buckets_n, *cap, .start_ns = start_ns, .high_ns = high_ns, .low = INT64_MAX);
    return &l->buckets[l->buckets_n - 1];
}

/* A bucket's moments: those of the curve up to the next cut. */
static void list_buckets(struct page_level *l, const struct page_moment *moments, size_t n, size_t *cap)
{
    struct page_moment highest = {0};
    uint64_t next = 0;
    size_t cut = 0;
    EACH (m, moments, n) {
        bool over = m->first >= next;
        while (next <= m->first) next += l->every;
        for (; cut < l->cuts_n && l->cuts[cut] <= m->start_ns; cut++) over = true;
        struct page_bucket *b = over ? add_page_bucket(l, cap, m->start_ns, 0) : &l->buckets[l->buckets_n - 1];
        if (over)
            highest = *m;
        else
            page_moment_raise(&highest, m->high, m->high_ns, m->by_alloc);
        b->high_ns = highest.high_ns;
        b->high = highest.high;
        b->low = m->low < b->low ? m->low : b->low;
    }
}

/* A bucket of only that moment, after those whose moments are not later. */
static void add_page_moment(struct page_level *l, size_t *cap, int64_t ns)
{
    size_t at = SORT_COUNT(l->buckets_n, i, l->buckets[i].high_ns <= ns);
    add_page_bucket(l, cap, ns, ns);
    const struct page_bucket moment = l->buckets[l->buckets_n - 1];
    memmove(&l->buckets[at + 1], &l->buckets[at], (l->buckets_n - 1 - at) * sizeof *l->buckets);
    l->buckets[at] = moment;
    for (size_t i = at + 1; i < l->buckets_n && l->buckets[i].start_ns < ns; i++) l->buckets[i].start_ns = ns;
}

static const struct page_curve *level_curve(const struct page_series *p, const struct page_level *l)
{
    const uint32_t i = run_find_series(p->run, l->process, l->device, l->layer);
    return i < p->curves_cap ? &p->curves[i] : NULL;
}

/* Decides what the buckets are: all but the memory at their moments is known. */
static void prepare_buckets(struct page_series *p, struct page_level *l)
{
    const struct page_curve *curve = level_curve(p, l);
    size_t n = 0, cap = 0;
    if (!curve || !curve->events) return;
    struct page_moment *moments = page_curve_moments(curve, &n);
    l->events = curve->events;
    l->last_ns = curve->last_ns;
    list_cuts(p, l);
    list_buckets(l, moments, n, &cap);
    free(moments);
    EACH_IN (v, p->report->ooms)
        if (v->process == l->process && (v->device == l->device || l->device < 0) && v->fatal &&
            v->time_ns >= l->buckets[0].start_ns && l->buckets_n < 2 * l->buckets_room)
            add_page_moment(l, &cap, v->time_ns);
    add_page_moment(l, &cap, level_end_ns(p, l));
    l->ends = arena_realloc(NULL, l->buckets_n, sizeof *l->ends);
    for (size_t i = 0; i < l->buckets_n; i++) l->ends[i] = RUN_NONE;
}

static void list_levels(struct page_series *p)
{
    const struct result_report *r = p->report;
    p->levels = arena_realloc(NULL, r->peaks_n + 1, sizeof *p->levels);
    size_t room = r->peaks_n ? BUCKETS / r->peaks_n : 0;
    room = room > BUCKETS_MOST ? BUCKETS_MOST : room < BUCKETS_LEAST ? BUCKETS_LEAST : room;
    EACH_IN (peak, r->peaks) {
        struct page_level *l = &p->levels[p->levels_n++];
        *l = (struct page_level){
            .process = peak->process, .device = peak->device, .layer = peak->layer, .peak = peak, .buckets_room = room};
        l->lines_room = CHANGES / r->peaks_n / room;
        l->lines_room = l->lines_room > LINES_MOST ? LINES_MOST : l->lines_room;
        l->singles.most = SINGLES / r->peaks_n;
        prepare_buckets(p, l);
    }
}

static void change_line(struct page_series *p, struct page_level *l, uint32_t number, int64_t bytes, int blocks)
{
    struct page_line *line = &p->lines[number];
    line->now = arena_add_capped(line->now, bytes);
    line->now_n += blocks;
    l->total = arena_add_capped(l->total, bytes);
    if (!line->changed) *ARENA_ADD(l->changed) = number;
    line->changed = true;
}

/* Stores a line's difference from the previous bucket. */
static void close_line(struct page_level *l, struct page_line *line, uint32_t number)
{
    line->changed = false;
    if (line->now == line->out && line->now_n == line->out_n) return;
    *ARENA_ADD(l->changes) = (struct page_change){line->now - line->out, number, (int32_t)(line->now_n - line->out_n)};
    line->out = line->now;
    line->out_n = line->now_n;
    line->most = line->now > line->most ? line->now : line->most;
    l->singles.paths[line->singles].most = line->most;
}

/* All that was allocated up to the bucket's moment is known: stores what was live then. */
static void close_bucket(struct page_series *p, struct page_level *l)
{
    struct page_bucket *b = &l->buckets[l->at];
    for (uint32_t i = l->ends[l->at], next; i != RUN_NONE; i = next) {
        struct page_end *end = &p->pending[i];
        next = end->next;
        change_line(p, l, end->line, -end->bytes, -1);
        end->next = p->pending_free;
        p->pending_free = i;
    }
    b->changes = l->changes_n;
    for (size_t i = 0; i < l->changed_n; i++) close_line(l, &p->lines[l->changed[i]], l->changed[i]);
    l->changed_n = 0;
    b->high = l->total; /* of events at the same time, the curve also has the totals in between */
    b->low = b->low < b->high ? b->low : b->high;
    page_singles_list(&l->singles, b->high_ns);
    l->at++;
}

static struct page_level *page_level_of(struct page_series *p, const struct run_lifetime *life)
{
    if (life->series >= p->level_of_cap)
        p->level_of = grow_zeroed(p->level_of, life->series, &p->level_of_cap, sizeof *p->level_of);
    uint32_t *level = &p->level_of[life->series];
    if (!*level) {
        const struct run_series *s = run_series(p->run, life->series);
        *level = level_at(p, s->process, s->device, s->layer) + 1;
    }
    return *level ? &p->levels[*level - 1] : NULL;
}

static uint32_t add_page_line(struct page_series *p, uint32_t level, uint32_t stack, unsigned category, bool merged)
{
    ARENA_APPEND(p->lines, .stack = stack, .series = level, .category = (uint8_t)category, .merged = merged);
    struct page_level *l = &p->levels[level];
    p->lines[p->lines_n - 1].singles = page_singles_add(&l->singles, (uint32_t)p->lines_n - 1);
    return (uint32_t)p->lines_n - 1;
}

uint32_t page_series_shared(const struct run *run, uint32_t a, uint32_t b)
{
    uint32_t x = a == RUN_NONE ? 0 : run_stack_depth(run, a), y = b == RUN_NONE ? 0 : run_stack_depth(run, b);
    for (; x > y; x--) a = run_stack_parent(run, a);
    for (; y > x; y--) b = run_stack_parent(run, b);
    for (; a != b; x--) {
        a = x > 1 ? run_stack_parent(run, a) : RUN_NONE;
        b = x > 1 ? run_stack_parent(run, b) : RUN_NONE;
    }
    return a;
}

/* The line that merges the call paths of the same line of code; MAP_NEW: there is no room for another one. */
static uint32_t site_line(struct page_series *p, struct page_level *l, uint32_t stack, unsigned category)
{
    uint32_t *at = map_at(&l->site_lines, page_site_key(p->stacks, stack) << 4 | category);
    if (*at == MAP_NEW && l->sites_n < l->lines_room / SITES) {
        l->sites_n++;
        *at = add_page_line(p, (uint32_t)(l - p->levels), stack, category, true);
        p->lines[*at].site = page_site(p->stacks, stack);
    } else if (*at != MAP_NEW) {
        p->lines[*at].stack = page_series_shared(p->run, p->lines[*at].stack, stack);
    }
    return *at;
}

/* The line of a call path's blocks of a category that has not occurred before. */
static uint32_t choose_page_line(struct page_series *p, struct page_level *l, uint32_t stack, unsigned category)
{
    uint32_t level = (uint32_t)(l - p->levels);
    if (map_get(&p->worth, (uint64_t)level << 32 | stack) != MAP_NEW)
        return add_page_line(p, level, stack, category, false);
    uint32_t line = site_line(p, l, stack, category);
    if (line == MAP_NEW && !l->merged[category])
        l->merged[category] = add_page_line(p, level, RUN_NONE, category, true) + 1;
    line = line == MAP_NEW ? l->merged[category] - 1 : line;
    p->lines[line].paths++;
    return line;
}

static uint32_t page_line_at(struct page_series *p, struct page_level *l, const struct run_lifetime *life,
                             unsigned category)
{
    size_t index = (size_t)life->location * RESULT_CATEGORIES_N + category;
    if (index >= p->line_of_n) p->line_of = grow_zeroed(p->line_of, index, &p->line_of_n, sizeof *p->line_of);
    if (!p->line_of[index]) p->line_of[index] = choose_page_line(p, l, life->stack, category) + 1;
    return p->line_of[index] - 1;
}

/* The block is part of the line up to the bucket before the first one whose moment is not before its free. */
static void add_end(struct page_series *p, struct page_level *l, uint32_t line, const struct run_lifetime *life)
{
    size_t step = 1, from = l->at + 1;
    while (from + step < l->buckets_n && l->buckets[from + step].high_ns < life->free_ns) {
        from += step;
        step *= 2;
    }
    const size_t most = from + step < l->buckets_n ? step : l->buckets_n - from;
    const size_t bucket = from + SORT_COUNT(most, i, l->buckets[from + i].high_ns < life->free_ns);
    if (bucket == l->buckets_n) return;
    uint32_t at = p->pending_free;
    if (at != RUN_NONE)
        p->pending_free = p->pending[at].next;
    else
        (void)ARENA_ADD(p->pending), at = (uint32_t)p->pending_n - 1;
    p->pending[at] = (struct page_end){life->bytes, line, l->ends[bucket]};
    l->ends[bucket] = at;
}

static void series_on_row(void *self, const struct run_lifetime *life, uint32_t free_stack)
{
    struct page_series *p = self;
    struct page_level *l = page_level_of(p, life);
    if (!l) return;
    while (l->at < l->buckets_n && l->buckets[l->at].high_ns < life->alloc_ns) close_bucket(p, l);
    if (l->at == l->buckets_n || life->free_ns <= l->buckets[l->at].high_ns) return; /* at no bucket's moment */
    const unsigned category = page_kind(p->kinds, life, run_series(p->run, life->series), free_stack);
    const uint32_t line = page_line_at(p, l, life, category);
    change_line(p, l, line, life->bytes, 1);
    add_end(p, l, line, life);
    page_singles_add_live(&l->singles, p->lines[line].singles, life, l->buckets[l->at].high_ns);
}

/* Of all its series. Free the result. */
static int64_t *list_moments(const struct page_series *p, uint32_t process, size_t *n)
{
    int64_t *moments = NULL;
    size_t cap = 0;
    *n = 0;
    EACH_IN (l, p->levels)
        for (size_t i = 0; l->process == process && i < l->buckets_n; i++)
            *ARENA_PUSH(moments, *n, cap) = l->buckets[i].high_ns;
    SORT(moments, *n, sort_int64_up);
    return moments;
}

bool page_series_read(struct page_series *p, const struct result_report *report, struct page_kinds *kinds,
                      struct page_stacks *stacks, char *error, size_t error_size)
{
    p->report = report;
    p->kinds = kinds;
    p->stacks = stacks;
    list_levels(p);
    choose_lines(p);
    for (uint32_t process = 0; process < RUN_COUNT(run_processes, p->run); process++) {
        page_kinds_process(kinds, process);
        size_t moments_n;
        int64_t *moments = list_moments(p, process, &moments_n);
        const bool ok = run_each_lasting(p->run, process, moments, moments_n, series_on_row, p, error, error_size);
        free(moments);
        if (!ok) return false;
        EACH_IN (l, p->levels)
            while (l->process == process && l->at < l->buckets_n) close_bucket(p, l);
    }
    return true;
}
