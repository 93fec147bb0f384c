#include "analyzer/profile/statistics.h"

#include "analyzer/base/arena.h"

unsigned profile_statistics_size_class(int64_t bytes)
{
    return bytes < 2 ? 0 : 63 - (unsigned)__builtin_clzll((uint64_t)bytes);
}

unsigned profile_statistics_life_class(int64_t ns)
{
    unsigned i = 0;

    for (int64_t limit = 10; ns >= limit && i + 1 < STATISTICS_LIVES; limit *= 10) i++;
    return i;
}

static void add_tally(struct profile_statistics_tally *t, uint64_t count, int64_t bytes)
{
    t->count += count;
    t->bytes = arena_add_capped(t->bytes, bytes);
}

static void tally_bytes(struct profile_statistics_tally *t, int64_t bytes)
{
    add_tally(t, 1, bytes);
}

static void statistics_on_process_start(void *self, uint32_t process)
{
    struct profile_statistics *s = self;

    if (s->sums.finder) profile_sums_start_process(&s->sums, process);
}

/* What becomes of it is known already. */
static void statistics_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct profile_statistics *s = self;
    struct profile_statistics_layer *l = &s->layers[series->layer];
    const int64_t ns = life->free_ns - life->alloc_ns;

    l->rows++;
    l->allocations++;
    l->allocated = arena_add_capped(l->allocated, life->bytes);
    l->largest = life->bytes > l->largest ? life->bytes : l->largest;
    tally_bytes(&l->sizes[profile_statistics_size_class(life->bytes)], life->bytes);
    tally_bytes(&l->spaces[life->space & 7], life->bytes);
    if (life->free_ns == RUN_NEVER) {
        tally_bytes(&l->kept, life->bytes);
    } else {
        l->frees++;
        l->freed = arena_add_capped(l->freed, life->bytes);
        l->life_ns += (double)ns;
        tally_bytes(&l->lives[profile_statistics_life_class(ns)], life->bytes);
    }
    if (s->sums.finder) profile_sums_add(&s->sums, life, run_free_stack(s->run, life), 0);
}

/* Rows that a recording of bounded size lost count in the totals; of their sizes and lifetimes only the sums are known.
 * */
static void add_removed_statistics(struct profile_statistics *s, uint32_t process)
{
    RUN_EACH (r, run_removed, s->run) {
        if (r->what != GS_REMOVED_ALLOCATION || r->process != process) continue;
        struct profile_statistics_layer *l = &s->layers[run_removed_layer(r)];
        l->allocations += r->count;
        l->frees += r->count;
        l->allocated = arena_add_capped(l->allocated, r->bytes);
        l->freed = arena_add_capped(l->freed, r->bytes);
        l->life_ns += (double)r->ns;
        add_tally(&l->spaces[r->space & 7], r->count, r->bytes);
    }
}

static void statistics_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    add_removed_statistics(self, process);
}

struct run_observer profile_statistics_observer(struct profile_statistics *s, struct run *run)
{
    *s = (struct profile_statistics){.run = run};
    if (!category_has_python(run)) profile_sums_start(&s->sums, run, true);
    return (struct run_observer){.self = s,
                                 .process_start = statistics_on_process_start,
                                 .alloc = statistics_on_alloc,
                                 .process_end = statistics_on_process_end};
}
