#include "analyzer/category/category_alike.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

enum { ROWS = 200000, FATES = 6 }; /* ROWS: earlier allocations to examine, some steps of a large model */

struct likes { /* of a stack and a size */
    struct fate {
        unsigned rule;
        uint64_t count;
        size_t longest; /* life, in allocations and frees of the process */
    } fates[FATES];
    unsigned n;
};

struct end {
    uint32_t stack;
    unsigned rule;
    int64_t bytes, alloc_ns, free_ns;
};

struct category_alike {
    struct category_finder *categorizer;
    bool python;
    const struct category_uses *uses;
    uint32_t process;
    int64_t until_ns;
    struct map stacks; /* wanted */
    struct map index;  /* stack, size → likes; a size of 0: any */
    struct likes *list;
    size_t n, cap;
    int64_t *clock; /* when each allocation and free was: lives are compared in events, which do not depend on the
                       machine's load */
    size_t clock_n, clock_cap;
    ARENA_LIST(struct end, ends);
};

struct category_alike *category_alike_new(struct category_finder *categorizer, bool python,
                                          const struct category_uses *uses)
{
    struct category_alike *a =
        ARENA_NEW(struct category_alike, .categorizer = categorizer, .python = python, .uses = uses);
    return a;
}

void category_alike_free(struct category_alike *a)
{
    MAP_RELEASE(&a->stacks, &a->index);
    ARENA_RELEASE(a->list, a->clock, a->ends, a);
}

static uint64_t alike_key(uint32_t stack, int64_t bytes)
{
    return map_hash((uint64_t)bytes) ^ stack;
}

void category_alike_request(struct category_alike *a, uint32_t stack, int64_t bytes)
{
    const uint64_t keys[] = {alike_key(stack, bytes), alike_key(stack, 0)};
    *map_at(&a->stacks, stack) = 1;
    for (size_t i = 0; i < 2; i++) (void)MAP_INDEX(&a->index, keys[i], a->list, a->n, a->cap, (struct likes){.n = 0});
}

static void add_alike(struct category_alike *a, uint64_t key, unsigned rule, size_t life)
{
    uint32_t at = map_get(&a->index, key);
    if (at == MAP_NEW) return;
    struct likes *l = &a->list[at];
    unsigned i = 0;
    while (i < l->n && l->fates[i].rule != rule) i++;
    if (i == FATES) return;
    struct fate *f = &l->fates[i];
    if (i == l->n) {
        l->n++;
        *f = (struct fate){.rule = rule};
    }
    f->count++;
    f->longest = life > f->longest ? life : f->longest;
}

/* Allocations and frees up to then, of those that were examined. */
static size_t calls_until(const struct category_alike *a, int64_t time_ns)
{
    return SORT_COUNT(a->clock_n, i, a->clock[i] <= time_ns);
}

static void alike_on_last(void *self, const struct run_lifetime *life, uint32_t free_stack)
{
    struct category_alike *a = self;
    *ARENA_ADD(a->clock) = life->alloc_ns;
    if (life->free_ns > a->until_ns) return;
    *ARENA_ADD(a->clock) = life->free_ns;
    if (map_get(&a->stacks, life->stack) == MAP_NEW) return;
    struct category_block block = {
        .stack = life->stack,
        .free_stack = free_stack,
        .tensor = life->layer != GS_LAYER_DEVICE,
        .python = a->python,
        .use = category_uses_of(a->uses, a->process, life->stack, life->alloc_ns, life->free_ns)};
    *ARENA_ADD(a->ends) = (struct end){.stack = life->stack,
                                       .rule = category_rule(a->categorizer, &block),
                                       .bytes = life->bytes,
                                       .alloc_ns = life->alloc_ns,
                                       .free_ns = life->free_ns};
}

bool category_alike_read(struct category_alike *a, struct run *run, uint32_t process, int64_t until_ns, char *error,
                         size_t error_size)
{
    a->process = process;
    a->until_ns = until_ns;
    if (!a->n) return true;
    bool ok = run_each_last(run, process, ROWS, alike_on_last, a, error, error_size);
    SORT(a->clock, a->clock_n, sort_int64_up);
    EACH_IN (e, a->ends) {
        size_t life = calls_until(a, e->free_ns) - calls_until(a, e->alloc_ns);
        add_alike(a, alike_key(e->stack, e->bytes), e->rule, life);
        add_alike(a, alike_key(e->stack, 0), e->rule, life);
    }
    return ok;
}

unsigned category_alike_rule(const struct category_alike *a, uint32_t stack, int64_t bytes, int64_t alloc_ns)
{
    const uint64_t keys[] = {alike_key(stack, bytes), alike_key(stack, 0)};
    size_t age = calls_until(a, a->until_ns) - calls_until(a, alloc_ns);
    for (size_t k = 0; k < 2; k++) {
        uint32_t at = map_get(&a->index, keys[k]);
        const struct likes *l = at == MAP_NEW ? NULL : &a->list[at];
        const struct fate *most = NULL;
        for (unsigned i = 0; l && i < l->n; i++) {
            const struct fate *f = &l->fates[i];
            if (f->longest + f->longest / 2 >= age && (!most || f->count > most->count)) most = f;
        }
        if (most) {
            return category_of_rule(most->rule) == RESULT_CATEGORY_UNKNOWN ? RUN_NONE
                                                                           : most->rule + category_rule_count() / 2;
        }
        if (l && l->n) /* there were some of exactly this size, and it has outlived them */
            return RUN_NONE;
    }
    return RUN_NONE;
}
