#include "analyzer/page/page_kinds.h"

#include <stdlib.h>
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

struct memo {             /* by location: its blocks mostly end alike */
    uint32_t fate, kinds; /* fate: with the block's use; kinds: see tell() */
};

struct gs_page_kinds {
    struct gs_run *run;
    const struct gs_report *report;
    struct gs_categorizer *categorizer;
    bool python;
    const struct gs_steps *steps; /* of the process, NULL none */
    int64_t end_ns;
    bool torch_device[DEVICES];
    struct gs_map told[3]; /* by what it is: the call that made it, its fate → kinds */
    uint8_t *fates;        /* by stack that frees, NO_FATE not asked; of GS_NONE the last */
    size_t stacks;
    struct gs_map outlived; /* of the process: series and stack → category */
    struct memo *memos;
    size_t memos_n;
};

struct gs_page_kinds *gs_page_kinds_new(struct gs_run *run, const struct gs_report *report)
{
    struct gs_page_kinds *k = gs_realloc(NULL, 1, sizeof *k);
    *k = (struct gs_page_kinds){.run = run,
                                .report = report,
                                .categorizer = gs_categorizer_new(run),
                                .python = gs_category_python(run),
                                .stacks = gs_run_stacks(run)};
    k->fates = gs_realloc(NULL, k->stacks + 1, sizeof *k->fates);
    memset(k->fates, NO_FATE, k->stacks + 1);
    return k;
}

void gs_page_kinds_free(struct gs_page_kinds *k)
{
    if (k) {
        gs_categorizer_free(k->categorizer);
        for (size_t i = 0; i < 3; i++) {
            gs_map_free(&k->told[i]);
        }
        gs_map_free(&k->outlived);
        free(k->memos);
        free(k->fates);
        free(k);
    }
}

static uint64_t outlived_key(enum gs_series_layer layer, int device, uint32_t stack)
{
    return ((uint64_t)(uint32_t)(device + 1) << 3 | layer) << 32 | stack;
}

/* Of a call path's blocks that outlived the run most were: */
static void list_outlived(struct gs_page_kinds *k, const struct gs_category_end *end)
{
    struct gs_map most = {0}; /* stack → its heaviest line */
    const struct gs_by_category *by = &end->by_category;
    for (size_t i = 0; i < by->lines_n; i++) {
        uint32_t *at = gs_map_at(&most, by->lines[i].stack);
        if (*at == GS_MAP_NEW || by->lines[*at].bytes < by->lines[i].bytes) {
            *at = (uint32_t)i;
            *gs_map_at(&k->outlived, outlived_key(end->layer, end->device, by->lines[i].stack)) = by->lines[i].category;
        }
    }
    gs_map_free(&most);
}

void gs_page_kinds_process(struct gs_page_kinds *k, uint32_t process)
{
    const struct gs_report *r = k->report;
    k->steps = NULL;
    k->end_ns = GS_NEVER;
    gs_map_free(&k->outlived);
    k->outlived = (struct gs_map){0};
    memset(k->torch_device, 0, sizeof k->torch_device);
    for (size_t i = 0; i < r->steps_n; i++) {
        k->steps = r->steps[i]->process == process ? r->steps[i] : k->steps;
    }
    for (size_t i = 0; i < r->ends_n; i++) {
        if (r->ends[i].process == process) {
            k->end_ns = r->ends[i].end_ns;
            list_outlived(k, &r->ends[i]);
        }
    }
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct gs_peak *p = &r->peaks[i];
        if (p->process == process && p->layer == GS_SERIES_TENSOR && p->device >= 0 && p->device < DEVICES) {
            k->torch_device[p->device] = true;
        }
    }
}

enum { FREED, AGED, KEPT, BITS = 8 };

/* Three categories in one number: of a block that is freed, of one that is so after several steps, of one
 * that is kept. */
static uint32_t tell(struct gs_page_kinds *k, unsigned what, uint32_t stack, uint32_t free_stack, unsigned fate,
                     unsigned use)
{
    uint32_t *at = gs_map_at(&k->told[what], (uint64_t)stack << 32 | fate);
    if (*at == GS_MAP_NEW) {
        struct gs_category_block block = {.stack = stack,
                                          .free_stack = free_stack,
                                          .tensor = what == 0,
                                          .direct = what == 1,
                                          .python = k->python,
                                          .use = use};
        uint32_t freed = gs_category_of(gs_category_rule(k->categorizer, &block));
        block.aged = true;
        uint32_t aged = gs_category_of(gs_category_rule(k->categorizer, &block));
        block.aged = false;
        block.kept = true;
        uint32_t kept = gs_category_of(gs_category_rule(k->categorizer, &block));
        *at = freed << FREED * BITS | aged << AGED * BITS | kept << KEPT * BITS;
    }
    return *at;
}

/* Stacks that a replay adds (what autograd computed) are asked for each time. */
static unsigned fate_of(struct gs_page_kinds *k, uint32_t free_stack)
{
    size_t at = free_stack == GS_NONE ? k->stacks : free_stack;
    if (free_stack != GS_NONE && at >= k->stacks) {
        return gs_category_fate(k->categorizer, free_stack);
    }
    if (k->fates[at] == NO_FATE) {
        k->fates[at] = (uint8_t)gs_category_fate(k->categorizer, free_stack);
    }
    return k->fates[at];
}

static uint32_t kinds_of(struct gs_page_kinds *k, const struct gs_lifetime *life, const struct gs_series *series,
                         uint32_t free_stack)
{
    unsigned use = gs_uses_of(k->report->uses, series->process, life->stack, life->alloc_ns, life->free_ns);
    unsigned fate = fate_of(k, free_stack) * GS_USES + use;
    if (life->location >= k->memos_n) {
        size_t n = (size_t)life->location * 2 + 64;
        k->memos = gs_realloc(k->memos, n, sizeof *k->memos);
        memset(k->memos + k->memos_n, 0xff, (n - k->memos_n) * sizeof *k->memos);
        k->memos_n = n;
    }
    struct memo *m = &k->memos[life->location];
    if (m->fate != fate) {
        bool untold = life->device >= 0 && life->device < DEVICES && !k->torch_device[life->device];
        unsigned what = life->layer != GS_LAYER_DEVICE ? 0 : series->layer == GS_SERIES_DEVICE && untold ? 1 : 2;
        *m = (struct memo){fate, tell(k, what, life->stack, free_stack, fate, use)};
    }
    return m->kinds;
}

enum gs_category gs_page_kind(struct gs_page_kinds *k, const struct gs_lifetime *life, const struct gs_series *series,
                              uint32_t free_stack)
{
    uint32_t kinds = kinds_of(k, life, series, free_stack);
    unsigned which = FREED;
    if (life->free_ns > k->end_ns) {
        uint32_t told = gs_map_get(&k->outlived, outlived_key(series->layer, series->device, life->stack));
        if (told != GS_MAP_NEW) {
            return (enum gs_category)told;
        }
        which = KEPT;
    } else if ((kinds >> AGED * BITS & 255) != (kinds >> FREED * BITS & 255) && k->steps &&
               gs_steps_done(k->steps, life->free_ns) >= gs_steps_done(k->steps, life->alloc_ns) + AGE) {
        which = AGED;
    }
    return (enum gs_category)(kinds >> which * BITS & 255);
}
