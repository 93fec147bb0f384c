/* A batch of rows at a time: the frees that are due before its last allocation are collected and sorted, then merged
 * with the allocations. The others wait in buckets, by the highest digit of 4 bits in which their time differs from
 * that of the last batch, and by the value of that digit: only one bucket has both frees that are due and others. */
#include "analyzer/run/order.h"

#include <stdlib.h>
#include <string.h>

/* `number` is a lifetime's or, with OF_ROW, the index of a row of the batch. */
struct pending {
    int64_t free_ns;
    uint32_t number;
};

struct pending_list {
    struct pending *list;
    size_t n, cap;
};

enum { DIGIT = 4, BUCKETS = 16 << DIGIT };
enum { SORT_DIGIT = 11, SORT_VALUES = 1 << SORT_DIGIT };
#define OF_ROW ((uint32_t)1 << 31)

struct run_order {
    struct pending_list buckets[BUCKETS], due, sorted;
    size_t due_next;
    int64_t last_ns;  /* the time that the buckets are relative to: no free that waits is before it */
    uint32_t numbers; /* given so far */
    uint32_t *spare;  /* numbers of lifetimes that ended, in that order: from spare_first on */
    size_t spare_first, spare_n, spare_cap;
    size_t kept;                            /* so many of them are not used again yet */
    uint32_t number_of_row[RUN_ROWS_BATCH]; /* of the rows that have begun */
};

bool run_row_check(struct run_row_check *check, struct run_stored *row)
{
    struct run_lifetime *life = &row->life;
    if (life->bytes < 0 || life->bytes > RUN_BYTES_MAX) {
        check->damaged++;
        return false;
    }
    check->damaged += row->backwards;
    if (life->alloc_ns < check->now) { /* out of order or negative: time does not run backwards */
        check->damaged += life->alloc_ns < 0;
        life->alloc_ns = check->now;
        life->free_ns = life->free_ns < check->now ? check->now : life->free_ns;
    }
    row->left_out = check->run->options.by_device && life->device >= 0 && life->device != check->run->options.device;
    if (!row->left_out) check->now = life->alloc_ns;
    return !row->left_out;
}

struct run_order *run_order_new(size_t kept)
{
    struct run_order *o = arena_zeroed(1, sizeof *o);
    o->kept = kept;
    return o;
}

void run_order_free(struct run_order *o)
{
    if (!o) return;
    for (size_t i = 0; i < BUCKETS; i++) free(o->buckets[i].list);
    ARENA_RELEASE(o->due.list, o->sorted.list, o->spare, o);
}

static inline void pending_add(struct pending_list *l, struct pending p)
{
    *ARENA_PUSH(l->list, l->n, l->cap) = p;
}

static inline unsigned pending_bucket(const struct run_order *o, int64_t ns)
{
    const uint64_t differs = (uint64_t)ns ^ (uint64_t)o->last_ns;
    const unsigned place = (63 - (unsigned)__builtin_clzll(differs | 1)) / DIGIT;
    return place << DIGIT | (unsigned)(ns >> place * DIGIT & ((1 << DIGIT) - 1));
}

/* Those of the buckets that are due, and relates the buckets to `until`. */
static void collect_waiting(struct run_order *o, int64_t until)
{
    const unsigned last = pending_bucket(o, until);
    struct pending_list *split = &o->buckets[last];
    for (struct pending_list *b = o->buckets; b < split; b++) {
        for (size_t i = 0; i < b->n; i++) pending_add(&o->due, b->list[i]);
        b->n = 0;
    }
    const size_t n = split->n;
    split->n = 0;
    o->last_ns = until;
    for (size_t i = 0; i < n; i++) {
        const struct pending p = split->list[i]; /* another bucket's from now on: it differs in a lower digit */
        pending_add(p.free_ns <= until ? &o->due : &o->buckets[pending_bucket(o, p.free_ns)], p);
    }
}

static void collect_rows(struct run_order *o, const struct run_rows *batch, int64_t until)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct run_stored *row = &batch->rows[i];
        if (!row->left_out && row->life.free_ns <= until)
            pending_add(&o->due, (struct pending){row->life.free_ns, i | OF_ROW});
    }
}

static void sort_by_digit(const struct pending_list *from, struct pending *to, int64_t least, unsigned shift)
{
    uint32_t first[SORT_VALUES] = {0}, sum = 0;
#define VALUE(i) ((uint64_t)(from->list[i].free_ns - least) >> shift & (SORT_VALUES - 1))
    for (size_t i = 0; i < from->n; i++) first[VALUE(i)]++;
    for (unsigned v = 0; v < SORT_VALUES; v++) {
        const uint32_t n = first[v];
        first[v] = sum;
        sum += n;
    }
    for (size_t i = 0; i < from->n; i++) to[first[VALUE(i)]++] = from->list[i];
#undef VALUE
}

/* By time; equal times stay in order. */
static void sort_due(struct run_order *o)
{
    int64_t least = INT64_MAX, most = 0;
    for (size_t i = 0; i < o->due.n; i++) {
        least = o->due.list[i].free_ns < least ? o->due.list[i].free_ns : least;
        most = o->due.list[i].free_ns > most ? o->due.list[i].free_ns : most;
    }
    if (o->sorted.cap < o->due.n) {
        o->sorted.cap = o->due.cap;
        o->sorted.list = arena_realloc(o->sorted.list, o->sorted.cap, sizeof *o->sorted.list);
    }
    for (unsigned shift = 0; o->due.n > 1 && shift < 64 && (uint64_t)(most - least) >> shift; shift += SORT_DIGIT) {
        sort_by_digit(&o->due, o->sorted.list, least, shift);
        o->sorted.n = o->due.n;
        const struct pending_list sorted = o->sorted;
        o->sorted = o->due;
        o->due = sorted;
    }
}

static uint32_t take_number(struct run_order *o)
{
    return o->spare_n - o->spare_first > o->kept ? o->spare[o->spare_first++] : o->numbers++;
}

static void give_back_number(struct run_order *o, uint32_t number)
{
    if (o->spare_n == o->spare_cap && o->spare_first > o->spare_n / 2) {
        o->spare_n -= o->spare_first;
        memmove(o->spare, o->spare + o->spare_first, o->spare_n * sizeof *o->spare);
        o->spare_first = 0;
    }
    *ARENA_ADD(o->spare) = number;
}

/* The frees up to that moment of the lifetimes that have begun: of the rows, the first `begun`. */
static inline void put_frees(struct run_order *o, struct run_rows *batch, int64_t until, uint32_t begun)
{
    for (; o->due_next < o->due.n; o->due_next++) {
        const struct pending *p = &o->due.list[o->due_next];
        const bool of_row = p->number & OF_ROW;
        if (p->free_ns > until || (of_row && (p->number & ~OF_ROW) >= begun)) return;
        const uint32_t number = of_row ? o->number_of_row[p->number & ~OF_ROW] : p->number;
        batch->events[batch->events_n++] = number | RUN_ROWS_FREE;
        give_back_number(o, number);
    }
}

static void put_row(struct run_order *o, struct run_rows *batch, uint32_t row, int64_t until)
{
    const struct run_stored *r = &batch->rows[row];
    uint32_t number = RUN_NONE & ~RUN_ROWS_FREE;
    if (!r->left_out) {
        put_frees(o, batch, r->life.alloc_ns, row);
        o->number_of_row[row] = number = take_number(o);
        if (r->life.free_ns > until && r->life.free_ns != RUN_NEVER)
            pending_add(&o->buckets[pending_bucket(o, r->life.free_ns)], (struct pending){r->life.free_ns, number});
    }
    batch->events[batch->events_n++] = number;
}

void run_order_batch(struct run_order *o, struct run_rows *batch, bool last)
{
    int64_t until = o->last_ns;
    for (size_t i = 0; i < batch->n; i++)
        if (!batch->rows[i].left_out) until = batch->rows[i].life.alloc_ns;
    if (last) until = RUN_NEVER - 1;
    o->due.n = o->due_next = 0;
    collect_waiting(o, until);
    collect_rows(o, batch, until);
    sort_due(o);
    batch->events_n = 0;
    if (batch->events_cap < batch->n + o->due.n) {
        batch->events_cap = batch->n + o->due.n + RUN_ROWS_BATCH;
        batch->events = arena_realloc(batch->events, batch->events_cap, sizeof *batch->events);
    }
    for (uint32_t i = 0; i < batch->n; i++) put_row(o, batch, i, until);
    put_frees(o, batch, until, (uint32_t)batch->n);
}
