#include "analyzer/category/category_alike.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"

enum { ROWS = 200000, FATES = 6 }; /* ROWS: allocations looked back at, some steps of a large model */

struct likes { /* of a stack and a size */
    struct fate {
        unsigned rule;
        uint64_t count;
        int64_t longest_ns;
    } fates[FATES];
    unsigned n;
};

struct gs_alike {
    struct gs_categorizer *categorizer;
    bool python;
    struct gs_map stacks; /* wanted */
    struct gs_map index;  /* stack, size → likes; a size of 0: any */
    struct likes *list;
    size_t n, cap;
};

struct gs_alike *gs_alike_new(struct gs_categorizer *categorizer, bool python)
{
    struct gs_alike *a = gs_realloc(NULL, 1, sizeof *a);
    *a = (struct gs_alike){.categorizer = categorizer, .python = python};
    return a;
}

void gs_alike_free(struct gs_alike *a)
{
    gs_map_free(&a->stacks);
    gs_map_free(&a->index);
    free(a->list);
    free(a);
}

static uint64_t key_of(uint32_t stack, int64_t bytes)
{
    return gs_hash64((uint64_t)bytes) ^ stack;
}

void gs_alike_want(struct gs_alike *a, uint32_t stack, int64_t bytes)
{
    const uint64_t keys[] = {key_of(stack, bytes), key_of(stack, 0)};
    *gs_map_at(&a->stacks, stack) = 1;
    for (size_t i = 0; i < 2; i++) {
        uint32_t *at = gs_map_at(&a->index, keys[i]);
        if (*at == GS_MAP_NEW) {
            *at = (uint32_t)a->n;
            *GS_PUSH(a->list, a->n, a->cap) = (struct likes){.n = 0};
        }
    }
}

static void add(struct gs_alike *a, uint64_t key, unsigned rule, int64_t life_ns)
{
    uint32_t at = gs_map_get(&a->index, key);
    if (at == GS_MAP_NEW) {
        return;
    }
    struct likes *l = &a->list[at];
    unsigned i = 0;
    while (i < l->n && l->fates[i].rule != rule) {
        i++;
    }
    if (i == FATES) {
        return;
    }
    struct fate *f = &l->fates[i];
    if (i == l->n) {
        l->n++;
        *f = (struct fate){.rule = rule};
    }
    f->count++;
    f->longest_ns = life_ns > f->longest_ns ? life_ns : f->longest_ns;
}

static void on_ended(void *self, const struct gs_lifetime *life, uint32_t free_stack)
{
    struct gs_alike *a = self;
    if (gs_map_get(&a->stacks, life->stack) == GS_MAP_NEW) {
        return;
    }
    struct gs_category_block block = {.stack = life->stack,
                                      .free_stack = free_stack,
                                      .tensor = life->layer != GS_LAYER_DEVICE,
                                      .python = a->python};
    unsigned rule = gs_category_rule(a->categorizer, &block);
    int64_t lived = life->free_ns - life->alloc_ns;
    add(a, key_of(life->stack, life->bytes), rule, lived);
    add(a, key_of(life->stack, 0), rule, lived);
}

bool gs_alike_read(struct gs_alike *a, struct gs_run *run, uint32_t process, int64_t until_ns,
                   char *error, size_t error_size)
{
    return !a->n || gs_run_ended(run, process, until_ns, ROWS, on_ended, a, error, error_size);
}

unsigned gs_alike_rule(const struct gs_alike *a, uint32_t stack, int64_t bytes, int64_t age_ns)
{
    const uint64_t keys[] = {key_of(stack, bytes), key_of(stack, 0)};
    for (size_t k = 0; k < 2; k++) {
        uint32_t at = gs_map_get(&a->index, keys[k]);
        const struct likes *l = at == GS_MAP_NEW ? NULL : &a->list[at];
        const struct fate *most = NULL;
        for (unsigned i = 0; l && i < l->n; i++) {
            const struct fate *f = &l->fates[i];
            if (gs_add(f->longest_ns, f->longest_ns / 2) >= age_ns && (!most || f->count > most->count)) {
                most = f;
            }
        }
        if (most) {
            return gs_category_of(most->rule) == GS_CATEGORY_UNKNOWN
                       ? GS_NONE
                       : most->rule + gs_category_rules() / 2;
        }
        if (l && l->n) { /* of its very size there were some, and it has outlived them */
            return GS_NONE;
        }
    }
    return GS_NONE;
}
