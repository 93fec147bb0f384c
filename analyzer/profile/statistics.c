#include "analyzer/profile/statistics.h"

#include "analyzer/base/arena.h"

unsigned statistics_size_class(int64_t bytes)
{
    return bytes < 2 ? 0 : 63 - (unsigned)__builtin_clzll((uint64_t)bytes);
}

unsigned statistics_life_class(int64_t ns)
{
    unsigned i = 0;

    for (; ns >= 10 && i + 1 < STATISTICS_LIVES; ns /= 10) i++;
    return i;
}

static void tally(struct statistics_tally *t, int64_t bytes)
{
    t->count++;
    t->bytes = gs_add(t->bytes, bytes);
}

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct statistics_layer *l = &((struct statistics *)self)->layers[series->layer];

    if (!l->allocations++) l->first_ns = life->alloc_ns;
    l->last_ns = life->alloc_ns > l->last_ns ? life->alloc_ns : l->last_ns;
    l->first_ns = life->alloc_ns < l->first_ns ? life->alloc_ns : l->first_ns;
    l->allocated = gs_add(l->allocated, life->bytes);
    l->largest = life->bytes > l->largest ? life->bytes : l->largest;
    tally(&l->sizes[statistics_size_class(life->bytes)], life->bytes);
    tally(&l->spaces[life->space & 7], life->bytes);
}

static void on_free(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct statistics_layer *l = &((struct statistics *)self)->layers[series->layer];

    l->frees++;
    l->freed = gs_add(l->freed, life->bytes);
    l->life_ns += (double)(life->free_ns - life->alloc_ns);
    tally(&l->lives[statistics_life_class(life->free_ns - life->alloc_ns)], life->bytes);
}

static void on_kept(void *self, const struct gs_lifetime *life)
{
    struct statistics *s = self;

    tally(&s->layers[gs_run_series(s->run, life->series)->layer].kept, life->bytes);
}

static void on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct statistics *s = self;

    (void)process;
    (void)end_ns;
    gs_run_live(s->run, on_kept, s);
}

struct gs_observer statistics_observer(struct statistics *s, const struct gs_run *run)
{
    *s = (struct statistics){.run = run};
    return (struct gs_observer){.self = s, .alloc = on_alloc, .free = on_free, .process_end = on_process_end};
}
