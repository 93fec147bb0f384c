#include "analyzer/page/page_singles.h"
#include "analyzer/base/sort.h"

#include <stdlib.h>

enum {
    CANDIDATES = 32, /* per call path; a bit each */
    STACKS_MOST =
        30000, /* nodes of the page's stacks: beyond it, lines that merge call paths have no single allocations */
};

uint32_t page_singles_add(struct page_singles *s, uint32_t line)
{
    *ARENA_ADD(s->paths) = (struct page_singles_path){.line = line, .stack = RUN_NONE, .number = MAP_NEW};
    return (uint32_t)s->paths_n - 1;
}

void page_singles_free(struct page_singles *s)
{
    for (size_t i = 0; i < s->paths_n; i++) free(s->paths[i].candidates);
    ARENA_RELEASE(s->paths, s->queue, s->list);
}

static void enqueue_path(struct page_singles *s, uint32_t path)
{
    if (!s->paths[path].queued) {
        s->paths[path].queued = true;
        *ARENA_ADD(s->queue) = path;
    }
}

static uint32_t all_candidates(const struct page_singles_path *p)
{
    return (uint32_t)(((uint64_t)1 << p->n) - 1);
}

/* Keeps the candidates whose bits are set. */
static void keep_candidates(struct page_singles_path *p, uint32_t bits)
{
    uint32_t listed = 0;
    size_t kept = 0;
    if (bits == all_candidates(p)) return;
    p->least = INT64_MAX;
    for (; bits; bits &= bits - 1, kept++) {
        const unsigned i = (unsigned)__builtin_ctz(bits);
        p->candidates[kept] = p->candidates[i];
        p->least = p->candidates[kept].bytes < p->least ? p->candidates[kept].bytes : p->least;
        listed |= (p->moments_list >> i & 1) << kept;
    }
    p->n = kept;
    p->moments_list = listed;
}

static uint32_t live_candidates(const struct page_singles_path *p, int64_t moment_ns)
{
    uint32_t live = 0;
    for (size_t i = 0; i < p->n; i++) live |= (uint32_t)(p->candidates[i].free_ns > moment_ns) << i;
    return live;
}

/* Whether `a` is at least as large as `b` and live whenever `b` is. */
static bool outlives_single(const struct page_single *a, const struct page_single *b)
{
    return a->bytes >= b->bytes && a->free_ns >= b->free_ns;
}

/* Removes those that no moment can list, because enough others are as large and live as long. */
static void remove_outlived(struct page_singles_path *p)
{
    uint32_t kept = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct page_single *b = &p->candidates[i];
        unsigned others = 0;
        for (size_t k = 0; k < p->n && others < PAGE_SINGLES_SHOWN; k++) {
            const struct page_single *a = &p->candidates[k];
            const bool same = k > i && outlives_single(b, a); /* of equal ones the first stays */
            others += k != i && outlives_single(a, b) && !same;
        }
        kept |= (uint32_t)(others < PAGE_SINGLES_SHOWN) << i;
    }
    keep_candidates(p, kept);
}

/* Until when enough candidates are live that none of the smallest one's size is listed. */
static int64_t enough_until(const struct page_singles_path *p)
{
    int64_t latest[PAGE_SINGLES_SHOWN];
    for (size_t i = 0; i < PAGE_SINGLES_SHOWN; i++) latest[i] = INT64_MIN;
    for (size_t i = 0; i < p->n; i++) {
        size_t at = PAGE_SINGLES_SHOWN;
        for (; at > 0 && latest[at - 1] < p->candidates[i].free_ns; at--)
            if (at < PAGE_SINGLES_SHOWN) latest[at] = latest[at - 1];
        if (at < PAGE_SINGLES_SHOWN) latest[at] = p->candidates[i].free_ns;
    }
    return latest[PAGE_SINGLES_SHOWN - 1];
}

static struct page_single *smallest_single(const struct page_singles_path *p)
{
    struct page_single *least = p->candidates;
    for (size_t i = 1; i < p->n; i++) least = p->candidates[i].bytes < least->bytes ? &p->candidates[i] : least;
    return least;
}

void page_singles_add_live(struct page_singles *s, uint32_t path, const struct run_lifetime *life, int64_t moment_ns)
{
    struct page_singles_path *p = &s->paths[path];
    struct page_single *to;
    if (p->dropped) return;
    if (p->n == CANDIDATES) {
        if (life->bytes <= p->least && life->free_ns <= p->enough_until_ns) return;
        keep_candidates(p, live_candidates(p, moment_ns));
    }
    if (p->n == CANDIDATES) remove_outlived(p);
    if (p->n < CANDIDATES)
        to = ARENA_PUSH(p->candidates, p->n, p->cap);
    else if ((to = smallest_single(p))->bytes >= life->bytes)
        return;
    *to = (struct page_single){path, life->stack, life->bytes, life->alloc_ns, life->free_ns};
    p->moments_list &= ~((uint32_t)1 << (to - p->candidates));
    p->least = p->n == 1 || life->bytes < p->least ? life->bytes : p->least;
    if (p->n == CANDIDATES) p->enough_until_ns = enough_until(p);
    enqueue_path(s, path);
}

/* Which candidates are to be listed, as bits: of those that are live the largest, if no moment lists them yet. Of equal
 * ones, those that are listed come first. */
static uint32_t choose_singles(const struct page_singles_path *p, uint32_t live)
{
    const uint32_t listed = p->moments_list;
    uint32_t chosen = 0;
    if (p->n <= PAGE_SINGLES_SHOWN || __builtin_popcount(live) <= PAGE_SINGLES_SHOWN) return live & ~listed;
    for (uint32_t left = live & ~listed; left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        unsigned before = 0;
        for (uint32_t others = live; others && before < PAGE_SINGLES_SHOWN; others &= others - 1) {
            const int k = __builtin_ctz(others);
            const int64_t bytes = p->candidates[i].bytes, other = p->candidates[k].bytes;
            const bool first = (listed >> k & 1) || k < i;
            before += other > bytes || (other == bytes && first);
        }
        chosen |= (uint32_t)(before < PAGE_SINGLES_SHOWN) << i;
    }
    return chosen;
}

SORT_ORDER_OF_POINTERS(more_first, struct page_singles_path, SORT_DOWN(x->most, y->most) ?: SORT_UP(x, y))

/* All paths, the one that held most first. */
static struct page_singles_path **in_order(struct page_singles *s)
{
    struct page_singles_path **order = arena_realloc(NULL, s->paths_n + 1, sizeof(struct page_singles_path *));
    for (size_t i = 0; i < s->paths_n; i++) order[i] = &s->paths[i];
    SORT(order, s->paths_n, more_first);
    return order;
}

static void drop_single(struct page_singles_path *p)
{
    free(p->candidates);
    p->candidates = NULL;
    p->n = p->cap = p->listed = 0;
    p->dropped = true;
}

/* Half of the list is kept: the paths that held most so far. */
static void drop_small_singles(struct page_singles *s)
{
    struct page_singles_path **order = in_order(s);
    size_t sum = 0, kept = 0;
    for (size_t i = 0; i < s->paths_n; i++) {
        sum += order[i]->listed;
        if (i && sum > s->most / 2) drop_single(order[i]);
    }
    free(order);
    for (size_t i = 0; i < s->n; i++)
        if (!s->paths[s->list[i].path].dropped) s->list[kept++] = s->list[i];
    s->n = kept;
}

void page_singles_list(struct page_singles *s, int64_t moment_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->queue_n; i++) {
        struct page_singles_path *p = &s->paths[s->queue[i]];
        const uint32_t live = live_candidates(p, moment_ns);
        const uint32_t chosen = choose_singles(p, live);
        for (uint32_t left = chosen; left; left &= left - 1, p->listed++)
            *ARENA_PUSH(s->list, s->n, s->cap) = p->candidates[__builtin_ctz(left)];
        p->moments_list |= chosen;
        keep_candidates(p, live);
        p->queued = p->moments_list != all_candidates(p); /* the others are listed once larger ones have been freed */
        if (p->queued) s->queue[kept++] = s->queue[i];
    }
    s->queue_n = kept;
    if (s->n > s->most) drop_small_singles(s);
}

SORT_ORDER(single_by_time, struct page_single,
           SORT_UP(x->alloc_ns, y->alloc_ns) ?: SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->free_ns, y->free_ns))

/* They were listed nearly in this order. */
static void sort_path(struct page_single *list, size_t n)
{
    size_t moves = 0;
    for (size_t i = 1; i < n && moves <= n * 8; i++) {
        const struct page_single single = list[i];
        size_t at = i;
        for (; at > 0 && single_by_time(&single, &list[at - 1]) < 0; at--, moves++) list[at] = list[at - 1];
        list[at] = single;
    }
    if (moves > n * 8) SORT(list, n, single_by_time);
}

/* By path, then time. Returns the index of each path's first entry; the caller frees it. */
static size_t *sort_singles(struct page_singles *s)
{
    struct page_single *sorted = arena_realloc(NULL, s->n + 1, sizeof *sorted);
    size_t *first = arena_realloc(NULL, s->paths_n + 1, sizeof *first), at = 0;
    for (size_t i = 0; i < s->paths_n; i++) {
        first[i] = at;
        at += s->paths[i].listed;
    }
    for (size_t i = 0; i < s->n; i++) sorted[first[s->list[i].path]++] = s->list[i];
    free(s->list);
    s->list = sorted;
    s->cap = s->n + 1;
    for (size_t i = 0; i < s->paths_n; i++) {
        const size_t n = s->paths[i].listed;
        first[i] -= n;
        sort_path(sorted + first[i], n);
    }
    return first;
}

struct columns {
    struct page_column line, at, lived, bytes, stack;
    uint64_t unit, ns; /* bytes and times are multiples of these */
    uint32_t last;
};

static size_t bytes_of(const struct columns *c)
{
    return c->line.n + c->at.n + c->lived.n + c->bytes.n + c->stack.n;
}

/* Of a path: when each was allocated (as the difference to the one before; -1 unknown), how long it lived (-1 until
 * the end), its bytes, and its stack (as the difference to the line's). Once they have more than `room` bytes, which is
 * then not enough, only their stacks get a number. */
static void put_path(const struct page_singles_path *p, const struct page_single *list, size_t room,
                     struct page_stacks *stacks, struct columns *c)
{
    const int64_t stack = page_stack(stacks, p->stack);
    uint32_t before = p->stack;
    int64_t number = stack;
    page_column_add(&c->line, (int64_t)p->number - c->last);
    page_column_add(&c->line, (int64_t)p->listed);
    c->last = p->number;
    c->at.last = 0;
    EACH (b, list, p->listed) {
        const bool known = b->alloc_ns >= 0;
        if (b->stack != before) number = page_stack(stacks, before = b->stack);
        if (bytes_of(c) > room) continue;
        page_column_step(&c->at, known ? page_column_quotient(b->alloc_ns, c->ns) : -1);
        page_column_add(&c->lived, b->free_ns == RUN_NEVER
                                       ? -1
                                       : page_column_quotient(b->free_ns - (known ? b->alloc_ns : 0), c->ns));
        page_column_add(&c->bytes, page_column_quotient(b->bytes, c->unit));
        page_column_add(&c->stack, number - stack);
    }
}

static void find_units(const struct page_singles *s, struct columns *c)
{
    uint64_t unit = 0, ns = 0;
    for (size_t i = 0; i < s->n; i++) {
        unit = page_column_unit(unit, s->list[i].bytes);
        ns = page_column_unit(ns, s->list[i].alloc_ns > 0 ? s->list[i].alloc_ns : 0);
        ns = page_column_unit(ns, s->list[i].free_ns != RUN_NEVER ? s->list[i].free_ns : 0);
    }
    c->unit = unit ? unit : 1;
    c->ns = ns ? ns : 1;
}

/* Restores the columns as they were before the last path. */
static void take_back_single(struct columns *c, const struct columns *before)
{
    c->line.n = before->line.n;
    c->at.n = before->at.n;
    c->lived.n = before->lived.n;
    c->bytes.n = before->bytes.n;
    c->stack.n = before->stack.n;
    c->last = before->last;
}

bool page_singles_put(struct page_singles *s, size_t room, struct page_stacks *stacks, struct page_writer *w)
{
    struct columns c = {0};
    struct page_singles_path **order = in_order(s);
    size_t *first = sort_singles(s);
    bool all = true;
    find_units(s, &c);
    for (size_t i = 0; i < s->paths_n; i++) {
        const struct page_singles_path *p = order[i];
        const struct columns before = c;
        if (p->number != MAP_NEW && p->listed && (p->whole || stacks->stacks_n < STACKS_MOST))
            put_path(p, s->list + first[p - s->paths], room, stacks, &c);
        if (bytes_of(&c) > room) take_back_single(&c, &before);
        all = all && !p->dropped && (!p->listed || c.line.n > before.line.n);
    }
    page_put_open(w, "singles", '{');
    page_put_int(w, "unit", (int64_t)c.unit);
    page_put_int(w, "ns", (int64_t)c.ns);
    PAGE_PUT_COLUMNS_OF(w, &c, line, at, lived, bytes, stack);
    page_put_close(w, '}');
    ARENA_RELEASE(order, first);
    return all;
}
