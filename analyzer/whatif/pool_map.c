#include "analyzer/whatif/pool_map.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

enum { UNKNOWN = -1, POOLS_MAX = 1000, RANGES_MAX = 1 << 16 }; /* more are unknown: a file may contain anything */

struct numbered {
    int64_t identity, number;
};

static int64_t pool_number_of(struct numbered *list, size_t n, int64_t identity)
{
    while (n-- > 0)
        if (list[n].identity == identity) return list[n].number;
    return 0;
}

/* At equal times: unmapped pages first, then mapped pages, then the facts about an address. */
static int order_facts(const void *x, const void *y)
{
    const struct whatif_fact *a = x, *b = y;
    const int p = a->kind < WHATIF_FACT_UNMAP ? 2 : a->kind == WHATIF_FACT_MAP,
              q = b->kind < WHATIF_FACT_UNMAP ? 2 : b->kind == WHATIF_FACT_MAP;
    return SORT_UP(a->ns, b->ns) ?: SORT_UP(p, q) ?: SORT_UP(a->address, b->address);
}

static void add_mappings(struct whatif_facts *f, const struct run *run, uint32_t process, int device)
{
    size_t n;
    const struct run_mapping *list = run_mappings(run, &n);
    EACH (m, list, n) {
        if (m->process != process || m->device != device) continue;
        f->mapped = true;
        *ARENA_PUSH(f->list, f->n, f->cap) = (struct whatif_fact){m->map_ns, m->address, m->bytes, WHATIF_FACT_MAP};
        if (m->unmap_ns != RUN_NEVER)
            *ARENA_PUSH(f->list, f->n, f->cap) =
                (struct whatif_fact){m->unmap_ns, m->address, m->bytes, WHATIF_FACT_UNMAP};
    }
    if (f->mapped) SORT(f->list, f->n, order_facts);
}

void whatif_facts_read(struct whatif_facts *f, const struct run *run, uint32_t process, int device)
{
    struct numbered *known = NULL;
    size_t known_n = 0, known_cap = 0, n;
    int64_t pools = 0;
    const struct run_allocator_fact *list = run_allocator_facts(run, &n);
    *f = (struct whatif_facts){0};
    EACH (a, list, n) {
        struct whatif_fact fact = {a->time_ns, a->address, a->value, a->kind};
        if (a->process != process || a->device != device) continue;
        if (a->kind == GS_ALLOCATOR_POOL && a->value > 0) {
            fact.value = pool_number_of(known, known_n, a->value);
            if (!fact.value && pools == POOLS_MAX) fact.value = UNKNOWN;
            if (!fact.value) {
                fact.value = ++pools;
                *ARENA_ADD(known) = (struct numbered){a->value, fact.value};
            }
        } else if (a->kind == GS_ALLOCATOR_UNUSED) {
            fact.value = pool_number_of(known, known_n, a->value);
            if (!fact.value) continue;
            for (size_t k = 0; k < known_n; k++) /* the next with this identity is another */
                if (known[k].identity == a->value) known[k--] = known[--known_n];
        }
        f->pools = f->pools || a->kind == GS_ALLOCATOR_POOL;
        f->syncs = f->syncs || a->kind == GS_ALLOCATOR_SYNCED;
        *ARENA_PUSH(f->list, f->n, f->cap) = fact;
    }
    free(known);
    if (f->pools) add_mappings(f, run, process, device);
}

void whatif_facts_add_unused(struct whatif_facts *f, int64_t ns, int64_t pool)
{
    size_t at = f->n;
    for (size_t i = 0; i < f->n && f->list[i].ns <= ns; i++)
        if (f->list[i].kind == GS_ALLOCATOR_UNUSED && f->list[i].value == pool) return;
    (void)ARENA_PUSH(f->list, f->n, f->cap);
    for (; at > 0 && f->list[at - 1].ns > ns; at--) f->list[at] = f->list[at - 1];
    f->list[at] = (struct whatif_fact){ns, 0, pool, GS_ALLOCATOR_UNUSED};
}

void whatif_facts_free(struct whatif_facts *f)
{
    free(f->list);
    *f = (struct whatif_facts){0};
}

struct whatif_range {
    uint64_t address, end;
    int64_t pool;
    bool page; /* of an expandable segment: neighbours are of the same */
};

/* The first that ends above an address. */
static size_t find_range(const struct whatif_pool_map *m, uint64_t address)
{
    return SORT_COUNT(m->n, i, m->ranges[i].end <= address);
}

static void insert_range(struct whatif_pool_map *m, size_t at, struct whatif_range range)
{
    (void)ARENA_PUSH(m->ranges, m->n, m->cap);
    memmove(&m->ranges[at + 1], &m->ranges[at], (m->n - 1 - at) * sizeof *m->ranges);
    m->ranges[at] = range;
}

static void drop_range(struct whatif_pool_map *m, size_t at)
{
    memmove(&m->ranges[at], &m->ranges[at + 1], (--m->n - at) * sizeof *m->ranges);
}

void whatif_pool_map_add(struct whatif_pool_map *m, uint64_t address, int64_t bytes, bool page)
{
    struct whatif_range range = {address, address + (uint64_t)bytes, UNKNOWN, page};
    if (bytes <= 0 || range.end < address || m->n >= RANGES_MAX) return;
    size_t at = find_range(m, address);
    if (page && at > 0 && m->ranges[at - 1].page && m->ranges[at - 1].end == address) {
        at--;
        range.address = m->ranges[at].address;
        range.pool = m->ranges[at].pool;
        drop_range(m, at);
    }
    if (page && at < m->n && m->ranges[at].page && m->ranges[at].address == range.end) {
        range.end = m->ranges[at].end;
        if (range.pool == UNKNOWN) range.pool = m->ranges[at].pool;
        drop_range(m, at);
    }
    insert_range(m, at, range);
}

static int64_t take_out(struct whatif_pool_map *m, uint64_t address, int64_t bytes)
{
    const size_t at = find_range(m, address);
    if (bytes <= 0 || at == m->n || m->ranges[at].address > address) return UNKNOWN;
    const struct whatif_range range = m->ranges[at];
    const uint64_t end = address + (uint64_t)bytes;
    drop_range(m, at);
    if (end < range.end) insert_range(m, at, (struct whatif_range){end, range.end, range.pool, range.page});
    if (range.address < address)
        insert_range(m, at, (struct whatif_range){range.address, address, range.pool, range.page});
    return range.pool;
}

static void note_pool(struct whatif_pool_map *m, const struct whatif_fact *fact)
{
    m->any_private = m->any_private || fact->value > 0;
    const size_t at = find_range(m, fact->address);
    if (at < m->n && m->ranges[at].address <= fact->address && fact->value != UNKNOWN) m->ranges[at].pool = fact->value;
}

void whatif_pool_map_advance(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns)
{
    for (; m->next < f->n && f->list[m->next].ns <= ns; m->next++) {
        const struct whatif_fact *fact = &f->list[m->next];
        if (fact->kind == GS_ALLOCATOR_POOL) note_pool(m, fact);
        if (fact->kind == WHATIF_FACT_MAP) whatif_pool_map_add(m, fact->address, fact->value, true);
        if (fact->kind == WHATIF_FACT_UNMAP) m->unmapped = take_out(m, fact->address, fact->value);
    }
}

int64_t whatif_pool_map_remove(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns, uint64_t address,
                               int64_t bytes)
{
    whatif_pool_map_advance(m, f, ns);
    return take_out(m, address, bytes);
}

int64_t whatif_pool_map_at(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns, uint64_t address)
{
    whatif_pool_map_advance(m, f, ns);
    const size_t at = find_range(m, address);
    return at < m->n && m->ranges[at].address <= address ? m->ranges[at].pool : UNKNOWN;
}

void whatif_pool_map_free(struct whatif_pool_map *m)
{
    free(m->ranges);
    *m = (struct whatif_pool_map){0};
}
