#include "analyzer/estimate/server.h"

#include <math.h>
#include <string.h>

#define BLOCK 16     /* tokens, vLLM's default */
#define PROFILED 256 /* sequences in vLLM's profiling pass: max_num_seqs, by default 256 … 1024 (EngineArgs) */
/* non_torch_memory beyond the context in published logs: 1.8 GiB on one GPU, 3.6 GiB with tensor parallelism. */
#define OVERHEAD_HIGH (1.5 * 0x1p30)
#define OVERHEAD_TP_HIGH (3.5 * 0x1p30)

static double floor_of(double n)
{
    return n > 0 ? floor(n) : 0;
}

/* The peak before the cache exists. Afterwards vLLM captures CUDA graphs, beyond its share, and frees what its
 * allocator had cached. */
static struct estimate_interval profiled_peak(const struct plan *p, const struct estimate_result *r)
{
    struct estimate_interval sum = {0};

    for (const struct estimate_line *l = r->lines; l < r->lines + r->lines_n; l++) {
        const bool after = l->part == ESTIMATE_CACHE || strcmp(l->name, "CUDA graphs") == 0;
        if (l->host || after || !(l->phases & IN_PHASE(PREFILL))) continue;
        if (l->part == ESTIMATE_ALLOCATOR)
            sum.high += l->bytes.high;
        else
            sum = estimate_interval_add(sum, l->bytes);
    }
    sum.high += p->tp > 1 ? OVERHEAD_TP_HIGH : OVERHEAD_HIGH;
    return sum;
}

static double server_cache_bytes(const struct estimate_result *r)
{
    double sum = 0;

    for (const struct estimate_line *l = r->lines; l < r->lines + r->lines_n; l++)
        if (l->part == ESTIMATE_CACHE && !l->host && (l->phases & IN_PHASE(DECODE))) sum += l->bytes.likely;
    return sum;
}

bool estimate_server(const struct plan *p, double memory, struct estimate_server *s)
{
    static struct estimate_result r;
    struct plan one = *p, many = *p;

    *s = (struct estimate_server){.share = p->share, .taken = memory * p->share};
    one.batch = 1;
    many.batch = PROFILED;
    one.memory = many.memory = memory;
    if (!estimate_make(&many, &r)) return false;
    s->used = profiled_peak(p, &r);
    if (!estimate_make(&one, &r)) return false;
    s->request = server_cache_bytes(&r);
    if (!(s->request > 0)) return false;
    s->cache = (struct estimate_interval){fmax(0, s->taken - s->used.high), fmax(0, s->taken - s->used.likely),
                                          fmax(0, s->taken - s->used.low)};
    s->requests =
        (struct estimate_interval){s->cache.low / s->request, s->cache.likely / s->request, s->cache.high / s->request};
    const double blocks = (double)p->seq / BLOCK;
    s->tokens = (struct estimate_interval){floor_of(s->requests.low * blocks) * BLOCK,
                                           floor_of(s->requests.likely * blocks) * BLOCK,
                                           floor_of(s->requests.high * blocks) * BLOCK};
    return true;
}
