#include "analyzer/page/page_series_parts.h"
#include "analyzer/base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct page_series *page_series_new(struct run *run)
{
    struct page_series *p = arena_realloc(NULL, 1, sizeof *p);
    *p = (struct page_series){.run = run};
    return p;
}

void page_series_free(struct page_series *p)
{
    for (size_t i = 0; i < p->levels_n; i++) {
        free(p->levels[i].cuts);
        free(p->levels[i].changed);
        free(p->levels[i].buckets);
        free(p->levels[i].changes);
        map_free(&p->levels[i].site_lines);
        page_singles_free(&p->levels[i].singles);
    }
    map_free(&p->worth);
    free(p->most);
    free(p->levels);
    free(p->level_of);
    free(p->lines);
    free(p->line_of);
    free(p->line_of_live);
    free(p);
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

static void series_on_first_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct page_series *p = self;
    (void)series;
    int64_t live = run_location(p->run, life->location)->live_bytes;
    if (life->location >= p->most_cap) p->most = grow_zeroed(p->most, life->location, &p->most_cap, sizeof *p->most);
    if (live > p->most[life->location]) p->most[life->location] = live;
}

struct run_observer page_series_observer(struct page_series *p)
{
    return (struct run_observer){.self = p, .alloc = series_on_first_alloc};
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
    free(rated);
    free(level);
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
        l->every = l->next = UINT64_MAX / 2;
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
    l->next = l->every;
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

static void list_levels(struct page_series *p)
{
    const struct result_report *r = p->report;
    p->levels = arena_realloc(NULL, r->peaks_n + 1, sizeof *p->levels);
    size_t room = r->peaks_n ? BUCKETS / r->peaks_n : 0;
    room = room > BUCKETS_MOST ? BUCKETS_MOST : room < BUCKETS_LEAST ? BUCKETS_LEAST : room;
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct result_peak *peak = &r->peaks[i];
        struct page_level *l = &p->levels[p->levels_n++];
        *l = (struct page_level){.process = peak->process,
                                 .device = peak->device,
                                 .layer = peak->layer,
                                 .peak = peak,
                                 .events = peak->allocations + peak->frees,
                                 .buckets_room = room};
        l->lines_room = CHANGES / r->peaks_n / room;
        l->lines_room = l->lines_room > LINES_MOST ? LINES_MOST : l->lines_room;
        l->singles.most = SINGLES / r->peaks_n;
        list_cuts(p, l);
    }
}

/* Stores a line's difference. True: the next bucket may differ again. */
static bool close_line(struct page_series *p, struct page_level *l, uint32_t number)
{
    struct page_line *line = &p->lines[number];
    bool since = line->epoch == l->epoch;
    int64_t bytes = since ? line->at : line->now, blocks = since ? line->at_n : line->now_n;
    if (bytes != line->out || blocks != line->out_n) {
        *ARENA_PUSH(l->changes, l->changes_n, l->changes_cap) =
            (struct page_change){number, bytes - line->out, blocks - line->out_n};
        line->out = bytes;
        line->out_n = blocks;
        line->most = bytes > line->most ? bytes : line->most;
    }
    return line->now != line->out || line->now_n != line->out_n;
}

/* Stores the state at the bucket's highest moment, as differences from the previous bucket. */
static void close_bucket(struct page_series *p, struct page_level *l)
{
    if (!l->open) return;
    l->open = false;
    l->now.changes = l->changes_n;
    *ARENA_PUSH(l->buckets, l->buckets_n, l->buckets_cap) = l->now;
    for (size_t w = 0; w < l->changed_n; w++) {
        for (uint64_t bits = l->changed[w]; bits; bits &= bits - 1) {
            const unsigned bit = (unsigned)__builtin_ctzll(bits);
            if (!close_line(p, l, (uint32_t)(w * 64 + bit))) l->changed[w] &= ~((uint64_t)1 << bit);
        }
    }
    page_singles_list(&l->singles, l->now.high_ns, l->last_ns);
}

/* Before an event at that time. */
static inline void cut_bucket(struct page_series *p, struct page_level *l, int64_t ns)
{
    bool over = l->seen++ >= l->next;
    if (over) l->next += l->every;
    while (l->cut < l->cuts_n && l->cuts[l->cut] <= ns) {
        l->cut++;
        over = true;
    }
    if (over) close_bucket(p, l);
}

static inline void total_is(struct page_level *l, int64_t total, int64_t ns, bool alloc)
{
    ns = ns < l->last_ns ? l->last_ns : ns; /* inconsistent times do not run backwards */
    l->total = total;
    l->last_ns = ns;
    if (!l->open) {
        l->open = true;
        l->now = (struct page_bucket){.start_ns = ns, .high_ns = ns, .high = total, .low = total};
        l->epoch++;
        return;
    }
    if (total > l->now.high || (total == l->now.high && alloc)) {
        l->now.high = total;
        l->now.high_ns = ns;
        l->epoch++;
    }
    l->now.low = total < l->now.low ? total : l->now.low;
}

static struct page_level *page_level_of(struct page_series *p, const struct run_lifetime *life,
                                        const struct run_series *series)
{
    if (life->series >= p->level_of_cap)
        p->level_of = grow_zeroed(p->level_of, life->series, &p->level_of_cap, sizeof *p->level_of);
    if (!p->level_of[life->series])
        p->level_of[life->series] = level_at(p, series->process, series->device, series->layer) + 1;
    return p->level_of[life->series] ? &p->levels[p->level_of[life->series] - 1] : NULL;
}

static uint32_t add_page_line(struct page_series *p, uint32_t level, uint32_t stack, unsigned category, bool merged)
{
    *ARENA_PUSH(p->lines, p->lines_n, p->lines_cap) =
        (struct page_line){.stack = stack, .series = level, .category = (uint8_t)category, .merged = merged};
    struct page_level *l = &p->levels[level];
    p->lines[p->lines_n - 1].singles = page_singles_add(&l->singles, (uint32_t)p->lines_n - 1);
    if (p->lines_n > l->changed_n * 64)
        l->changed = grow_zeroed(l->changed, (p->lines_n - 1) / 64, &l->changed_n, sizeof *l->changed);
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

static inline struct page_line *page_line_at(struct page_series *p, struct page_level *l,
                                             const struct run_lifetime *life, unsigned category)
{
    size_t index = (size_t)life->location * RESULT_CATEGORIES_N + category;
    if (index >= p->line_of_n) p->line_of = grow_zeroed(p->line_of, index, &p->line_of_n, sizeof *p->line_of);
    if (!p->line_of[index]) p->line_of[index] = choose_page_line(p, l, life->stack, category) + 1;
    return &p->lines[p->line_of[index] - 1];
}

/* At its time, before the total changes. */
static inline void change_page_line(struct page_level *l, struct page_line *line, uint32_t number, int64_t bytes,
                                    int blocks)
{
    if (line->epoch != l->epoch) {
        line->at = line->now;
        line->at_n = line->now_n;
        line->epoch = l->epoch;
    }
    line->now += bytes;
    line->now_n += blocks;
    l->changed[number / 64] |= (uint64_t)1 << number % 64;
}

static void series_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct page_series *p = self;
    struct page_level *l = page_level_of(p, life, series);
    const uint32_t live = run_live_number(p->run, life);
    if (live >= p->line_of_live_n)
        p->line_of_live = grow_zeroed(p->line_of_live, live, &p->line_of_live_n, sizeof *p->line_of_live);
    p->line_of_live[live] = RUN_NONE;
    if (!l) return;
    unsigned category = page_kind(p->kinds, life, series, run_free_stack(p->run, life));
    cut_bucket(p, l, life->alloc_ns);
    struct page_line *line = page_line_at(p, l, life, category);
    const uint32_t number = p->line_of_live[live] = (uint32_t)(line - p->lines);
    change_page_line(l, line, number, life->bytes, 1);
    page_singles_on_alloc(&l->singles, line->singles, life, line->now, l->open ? l->now.high_ns : RUN_NEVER);
    total_is(l, series->live_bytes, life->alloc_ns, true);
}

static void series_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct page_series *p = self;
    const uint32_t number = p->line_of_live[run_live_number(p->run, life)];
    if (number == RUN_NONE) return;
    struct page_line *line = &p->lines[number];
    struct page_level *l = &p->levels[line->series];
    cut_bucket(p, l, life->free_ns);
    change_page_line(l, line, number, -life->bytes, -1);
    page_singles_on_free(&l->singles, line->singles);
    total_is(l, series->live_bytes, life->free_ns, false);
}

static void series_on_process_start(void *self, uint32_t process)
{
    struct page_series *p = self;
    page_kinds_process(p->kinds, process);
}

/* A bucket of only that moment. */
static void series_moment(struct page_series *p, struct page_level *l, int64_t ns)
{
    close_bucket(p, l);
    total_is(l, l->total, ns, false);
    close_bucket(p, l);
}

static void series_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct page_series *p = self;
    (void)index;
    for (size_t i = 0; oom->fatal && i < p->levels_n; i++) {
        struct page_level *l = &p->levels[i];
        if (l->process == oom->process && (l->device == oom->device || l->device < 0) && l->seen &&
            l->buckets_n < 2 * l->buckets_room)
            series_moment(p, l, oom->time_ns);
    }
}

static void series_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct page_series *p = self;
    for (size_t i = 0; i < p->levels_n; i++)
        if (p->levels[i].process == process && p->levels[i].seen) series_moment(p, &p->levels[i], end_ns);
}

bool page_series_replay(struct page_series *p, const struct result_report *report, struct page_kinds *kinds,
                        struct page_stacks *stacks, const struct run_observer *also, char *error, size_t error_size)
{
    struct run_observer observers[] = {{.self = p,
                                        .beside = true,
                                        .process_start = series_on_process_start,
                                        .alloc = series_on_alloc,
                                        .free = series_on_free,
                                        .oom = series_on_oom,
                                        .process_end = series_on_process_end},
                                       *also};
    p->report = report;
    p->kinds = kinds;
    p->stacks = stacks;
    list_levels(p);
    choose_lines(p);
    return run_replay(p->run, observers, 2, error, error_size);
}
