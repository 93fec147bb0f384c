#include "analyzer/profile/profile.h"

#include <stdlib.h>
#include "analyzer/site/builder.h"

void profile_sums_start(struct profile_sums *s, struct run *run, bool categories)
{
    *s = (struct profile_sums){.run = run, .finder = categories ? category_finder_new(run) : NULL};
}

void profile_sums_start_process(struct profile_sums *s, uint32_t process)
{
    s->last_alloc_ns = run_process_at(s->run, process)->last_alloc_ns;
}

void profile_sums_add(struct profile_sums *s, const struct run_lifetime *life, uint32_t free_stack, unsigned use)
{
    enum result_category category = RESULT_CATEGORY_UNKNOWN;
    if (s->finder) {
        category = category_of_rule(category_rule_of(s->finder, life->layer == GS_LAYER_TENSOR, life->stack, free_stack,
                                                     life->free_ns > s->last_alloc_ns, use));
    }
    struct profile_sum *sum = SITE_REACH(s->list, (size_t)life->location * RESULT_CATEGORIES_N + category, s->cap);
    sum->bytes = arena_add_capped(sum->bytes, life->bytes);
    sum->count++;
}

struct profile_sum profile_sums_of(const struct profile_sums *s, uint32_t location, enum result_category category)
{
    const size_t at = (size_t)location * RESULT_CATEGORIES_N + category;
    return at < s->cap ? s->list[at] : (struct profile_sum){0, 0};
}

void profile_sums_free(struct profile_sums *s)
{
    if (s->finder) category_finder_free(s->finder);
    free(s->list);
}
