#include "analyzer/page/page_kinds.h"

#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/category/category_use.h"
#include "analyzer/step/step.h"
#include "analyzer/category/category.h"

enum {
    AGE = 2, /* as in categories.c */
    DEVICES = 128,
    NO_FATE = 255,
};

struct memo {             /* by location: most of its blocks end alike */
    uint32_t fate, kinds; /* fate: including the block's use; kinds: see categories_of_block() */
};

struct page_kinds {
    struct run *run;
    const struct result_report *report;
    struct category_finder *categorizer;
    bool python;
    const struct step_list *steps; /* of the process, NULL none */
    int64_t end_ns;
    bool torch_device[DEVICES];
    struct map kind_of[3]; /* by the call that made the block and its fate → kinds */
    uint8_t *fates;        /* by stack that frees, NO_FATE not computed; the last for RUN_NONE */
    size_t stacks;
    struct map outlived; /* of the process: series and stack → category */
    ARENA_ROWS(struct memo, memos);
};

struct page_kinds *page_kinds_new(struct run *run, const struct result_report *report)
{
    struct page_kinds *k =
        ARENA_NEW(struct page_kinds, .run = run, .report = report, .categorizer = category_finder_new(run),
                  .python = category_has_python(run), .stacks = run_stack_count(run));
    k->fates = arena_realloc(NULL, k->stacks + 1, sizeof *k->fates);
    memset(k->fates, NO_FATE, k->stacks + 1);
    return k;
}

void page_kinds_free(struct page_kinds *k)
{
    if (k) {
        category_finder_free(k->categorizer);
        for (size_t i = 0; i < 3; i++) map_free(&k->kind_of[i]);
        map_free(&k->outlived);
        ARENA_RELEASE(k->memos, k->fates, k);
    }
}

static uint64_t outlived_key(enum run_series_layer layer, int device, uint32_t stack)
{
    return ((uint64_t)(uint32_t)(device + 1) << 3 | layer) << 32 | stack;
}

/* The category of most of a call path's blocks that outlived the run: */
static void list_outlived(struct page_kinds *k, const struct result_category_end *end)
{
    struct map most = {0}; /* stack → its largest line */
    const struct result_by_category *by = &end->by_category;
    for (size_t i = 0; i < by->lines_n; i++) {
        uint32_t *at = map_at(&most, by->lines[i].stack);
        if (*at == MAP_NEW || by->lines[*at].bytes < by->lines[i].bytes) {
            *at = (uint32_t)i;
            *map_at(&k->outlived, outlived_key(end->layer, end->device, by->lines[i].stack)) = by->lines[i].category;
        }
    }
    map_free(&most);
}

void page_kinds_process(struct page_kinds *k, uint32_t process)
{
    const struct result_report *r = k->report;
    k->steps = NULL;
    k->end_ns = RUN_NEVER;
    map_free(&k->outlived);
    k->outlived = (struct map){0};
    memset(k->torch_device, 0, sizeof k->torch_device);
    for (size_t i = 0; i < r->steps_n; i++) k->steps = r->steps[i]->process == process ? r->steps[i] : k->steps;
    for (size_t i = 0; i < r->ends_n; i++) {
        if (r->ends[i].process == process) {
            k->end_ns = r->ends[i].end_ns;
            list_outlived(k, &r->ends[i]);
        }
    }
    EACH_IN (p, r->peaks)
        if (p->process == process && p->layer == RUN_SERIES_TENSOR && p->device >= 0 && p->device < DEVICES)
            k->torch_device[p->device] = true;
}

enum { FREED, AGED, KEPT, BITS = 8 };

/* Three categories in one number: of a block that is freed, of one that is freed after several steps, of one that is
 * kept. */
static uint32_t categories_of_block(struct page_kinds *k, unsigned what, uint32_t stack, uint32_t free_stack,
                                    unsigned fate, unsigned use)
{
    uint32_t *at = map_at(&k->kind_of[what], (uint64_t)stack << 32 | fate);
    if (*at == MAP_NEW) {
        struct category_block block = {.stack = stack,
                                       .free_stack = free_stack,
                                       .tensor = what == 0,
                                       .direct = what == 1,
                                       .python = k->python,
                                       .use = use};
        uint32_t freed = category_of_rule(category_rule(k->categorizer, &block));
        block.aged = true;
        uint32_t aged = category_of_rule(category_rule(k->categorizer, &block));
        block.aged = false;
        block.kept = true;
        uint32_t kept = category_of_rule(category_rule(k->categorizer, &block));
        *at = freed << FREED * BITS | aged << AGED * BITS | kept << KEPT * BITS;
    }
    return *at;
}

/* Stacks that a replay adds (what autograd computed) are computed each time. */
static unsigned fate_of(struct page_kinds *k, uint32_t free_stack)
{
    size_t at = free_stack == RUN_NONE ? k->stacks : free_stack;
    if (free_stack != RUN_NONE && at >= k->stacks) return category_fate(k->categorizer, free_stack);
    if (k->fates[at] == NO_FATE) k->fates[at] = (uint8_t)category_fate(k->categorizer, free_stack);
    return k->fates[at];
}

static uint32_t kinds_of(struct page_kinds *k, const struct run_lifetime *life, const struct run_series *series,
                         uint32_t free_stack)
{
    unsigned use =
        k->python ? category_uses_of(k->report->uses, series->process, life->stack, life->alloc_ns, life->free_ns) : 0;
    unsigned fate = fate_of(k, free_stack) * CATEGORY_USES + use;
    if (life->location >= k->memos_n) {
        size_t n = (size_t)life->location * 2 + 64;
        k->memos = arena_realloc(k->memos, n, sizeof *k->memos);
        memset(k->memos + k->memos_n, 0xff, (n - k->memos_n) * sizeof *k->memos);
        k->memos_n = n;
    }
    struct memo *m = &k->memos[life->location];
    if (m->fate != fate) {
        bool not_torch = life->device >= 0 && !k->torch_device[life->device];
        unsigned what = life->layer != GS_LAYER_DEVICE ? 0 : series->layer == RUN_SERIES_DEVICE && not_torch ? 1 : 2;
        *m = (struct memo){fate, categories_of_block(k, what, life->stack, free_stack, fate, use)};
    }
    return m->kinds;
}

enum result_category page_kind(struct page_kinds *k, const struct run_lifetime *life, const struct run_series *series,
                               uint32_t free_stack)
{
    uint32_t kinds = kinds_of(k, life, series, free_stack);
    unsigned which = FREED;
    if (life->free_ns > k->end_ns) {
        uint32_t kind_of = map_get(&k->outlived, outlived_key(series->layer, series->device, life->stack));
        if (kind_of != MAP_NEW) return (enum result_category)kind_of;
        which = KEPT;
    } else if ((kinds >> AGED * BITS & 255) != (kinds >> FREED * BITS & 255) && k->steps &&
               step_count_done(k->steps, life->free_ns) >= step_count_done(k->steps, life->alloc_ns) + AGE) {
        which = AGED;
    }
    return (enum result_category)(kinds >> which * BITS & 255);
}
