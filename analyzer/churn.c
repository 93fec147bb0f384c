/* Device memory that direct CUDA calls allocate and free again and again: each pair costs a
 * synchronisation and tens of microseconds, which an allocator or one buffer kept would save. Pools
 * (cudaMallocAsync) exist for this and are left out, and so are physical memory that is mapped by
 * hand and PyTorch's tensors.
 *
 * A location churns when, after the first tenth of the run, it was freed at least 20 times and its
 * memory lived less than a twentieth of the run on average.
 */
#include "analyzer/question.h"

#include <stdlib.h>

enum { MIN_FREES = 20, MIN_PER_S = 10 }; /* slower ones are listed, without advice */

struct place {
    uint64_t frees;
    int64_t bytes, life_ns, first_ns, last_ns;
};

struct gs_churns {
    struct gs_builder *b;
    struct place *places;
    size_t cap;
    int64_t warm_ns;
};

static void on_process_start(void *self, uint32_t process)
{
    struct gs_churns *c = self;
    size_t n;
    c->warm_ns = gs_run_processes(c->b->run, &n)[process].end_ns / 10;
}

static void on_free(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_churns *c = self;
    bool direct = life->layer == GS_LAYER_DEVICE && life->space != GS_SPACE_POOL &&
                  life->space != GS_SPACE_VMM && life->space != GS_SPACE_SHARED;
    if (!direct || life->alloc_ns < c->warm_ns) {
        return;
    }
    struct place *p = GS_REACH(c->places, life->location, c->cap);
    p->first_ns = p->frees ? p->first_ns : life->alloc_ns;
    p->last_ns = life->free_ns;
    p->frees++;
    p->bytes = gs_add(p->bytes, life->bytes);
    p->life_ns = gs_add(p->life_ns, life->free_ns - life->alloc_ns);
}

struct gs_churns *gs_churns_start(struct gs_builder *b, struct gs_observer *observer)
{
    struct gs_churns *c = gs_realloc(NULL, 1, sizeof *c);
    *c = (struct gs_churns){.b = b};
    *observer = (struct gs_observer){.self = c, .process_start = on_process_start, .free = on_free};
    return c;
}

static int busier(const void *a, const void *b)
{
    const struct gs_churn *x = a, *y = b;
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return x->stack.n < y->stack.n ? -1 : x->stack.n > y->stack.n;
}

void gs_churns_finish(struct gs_churns *c)
{
    struct gs_report *report = c->b->report;
    struct gs_churn *work = NULL;
    size_t n = 0, cap = 0, processes_n;
    const struct gs_process *processes = gs_run_processes(c->b->run, &processes_n);
    for (size_t i = 0; i < c->cap && i < gs_run_locations(c->b->run); i++) {
        const struct place *p = &c->places[i];
        const struct gs_location *l = gs_run_location(c->b->run, (uint32_t)i);
        const struct gs_series *s = gs_run_series(c->b->run, l->series);
        double mean = p->frees ? (double)p->life_ns / (double)p->frees : 0;
        if (p->frees < MIN_FREES || mean * 20 > (double)processes[s->process].end_ns) {
            continue;
        }
        double span = (double)(p->last_ns - p->first_ns) / 1e9;
        bool often = (double)p->frees >= MIN_PER_S * span;
        *GS_PUSH(work, n, cap) = (struct gs_churn){
            .process = s->process,
            .device = s->device,
            .count = p->frees,
            .bytes = p->bytes,
            .per_s = span > 0 ? (double)p->frees / span : __builtin_nan(""),
            .mean_life_s = mean / 1e9,
            .stack = {.n = l->stack},
            .advice = !often ? NULL
                      : s->layer == GS_SERIES_PINNED
                          ? "pin the buffer once and keep it"
                          : "allocate once and reuse, or use cudaMallocAsync: each cudaFree waits",
        };
    }
    report->churn =
        gs_list(c->b, work, n, sizeof *work, busier, &report->churn_n, &report->churn_total);
    for (size_t i = 0; i < report->churn_n; i++) {
        report->churn[i].stack = gs_trace_of(c->b, (uint32_t)report->churn[i].stack.n);
    }
    free(work);
    free(c->places);
    free(c);
}
