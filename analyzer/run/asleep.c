#include "analyzer/run/asleep.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

struct gap { /* memory that is not mapped from `from_ns` to `to_ns`; RUN_NEVER: to the end */
    uint64_t address;
    int64_t bytes, from_ns, to_ns;
};

struct run_asleep {
    bool *sleeps;                         /* the process's */
    ARENA_LIST(struct gap, gaps);         /* by address, then by time */
    ARENA_LIST(struct run_stored, waits); /* a heap: the lifetime that begins first is its root */
};

SORT_ORDER(by_address, struct run_mapping, SORT_UP(x->address, y->address) ?: SORT_UP(x->map_ns, y->map_ns))

/* In place of its process's mappings, sorted, their gaps. The memory is the same again only if it is mapped at the same
 * address. */
static void find_gaps(struct run_asleep *a, struct run_mapping *list, size_t n)
{
    SORT(list, n, by_address);
    for (size_t i = 0; i < n; i++) {
        const struct run_mapping *m = &list[i], *next = i + 1 < n && list[i + 1].address == m->address ? m + 1 : NULL;
        if (m->unmap_ns != RUN_NEVER)
            *ARENA_ADD(a->gaps) = (struct gap){m->address, m->bytes, m->unmap_ns, next ? next->map_ns : RUN_NEVER};
    }
}

struct run_asleep *run_asleep_new(struct run *run, uint32_t process)
{
    size_t all_n, n = 0;
    const struct run_mapping *all = run_mappings(run, &all_n);
    struct run_mapping *list = arena_realloc(NULL, all_n, sizeof *list);
    struct run_asleep *a = ARENA_NEW(struct run_asleep, .sleeps = &run->processes[process].sleeps);

    for (size_t i = 0; i < all_n; i++)
        if (all[i].process == process) list[n++] = all[i];
    find_gaps(a, list, n);
    free(list);
    if (a->gaps_n) return a;
    run_asleep_free(a);
    return NULL;
}

void run_asleep_free(struct run_asleep *a)
{
    if (a) ARENA_RELEASE(a->gaps, a->waits, a);
}

/* The first gap of the memory at the address that begins within (after, before). */
static const struct gap *gap_within(const struct run_asleep *a, uint64_t address, int64_t after, int64_t before)
{
    const size_t n = SORT_COUNT(a->gaps_n, i, a->gaps[i].address <= address);
    const uint64_t start = n ? a->gaps[n - 1].address : 0;
    const size_t first =
        SORT_COUNT(n, i, a->gaps[i].address < start || (a->gaps[i].address == start && a->gaps[i].from_ns <= after));
    const struct gap *g = &a->gaps[first];

    return first < n && g->from_ns < before && address - start < (uint64_t)g->bytes ? g : NULL;
}

static void add_waiting(struct run_asleep *a, const struct run_stored *row)
{
    size_t at = a->waits_n;

    (void)ARENA_ADD(a->waits);
    for (; at && a->waits[(at - 1) / 2].life.alloc_ns > row->life.alloc_ns; at = (at - 1) / 2)
        a->waits[at] = a->waits[(at - 1) / 2];
    a->waits[at] = *row;
}

static void take_waiting(struct run_asleep *a, struct run_stored *row)
{
    const struct run_stored last = a->waits[--a->waits_n];
    size_t at = 0;

    *row = a->waits[0];
    for (size_t child; (child = 2 * at + 1) < a->waits_n; at = child) {
        if (child + 1 < a->waits_n && a->waits[child + 1].life.alloc_ns < a->waits[child].life.alloc_ns) child++;
        if (a->waits[child].life.alloc_ns >= last.life.alloc_ns) break;
        a->waits[at] = a->waits[child];
    }
    a->waits[at] = last;
}

void run_asleep_divide(struct run_asleep *a, struct run_stored *row)
{
    struct run_lifetime *life = &row->life;
    const struct gap *g =
        life->layer == GS_LAYER_TENSOR ? gap_within(a, life->address, life->alloc_ns, life->free_ns) : NULL;

    if (!g) return;
    *a->sleeps = true;
    if (g->to_ns < life->free_ns) {
        struct run_stored rest = *row;
        rest.life.alloc_ns = g->to_ns;
        add_waiting(a, &rest);
    }
    life->free_ns = g->from_ns;
}

bool run_asleep_next(struct run_asleep *a, int64_t before, struct run_stored *row)
{
    if (!a->waits_n || a->waits[0].life.alloc_ns >= before) return false;
    take_waiting(a, row);
    run_asleep_divide(a, row);
    return true;
}
