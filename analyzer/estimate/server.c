#include "analyzer/estimate/server.h"

#include <math.h>
#include <string.h>
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/server_tower.h"
#include "analyzer/estimate/serving.h"

static double floor_of(double n)
{
    return n > 0 ? floor(n) : 0;
}

#define BLOCK 16 /* tokens, vLLM's default */
#define GIB 0x1p30
#define MIB 0x1p20

/* What changed with vLLM's versions, 0.N as N; a version that is not given is a current one, and any in low and high.
 */
#define WITHOUT_LONG_PASS 8 /* before, prompts of up to 32,768 tokens were read in one pass, and one GPU sampled */
#define WITH_REQUESTS 11    /* max_num_seqs is 1024 on large GPUs, at the latest */
#define WITH_WORKSPACES 11  /* experts have workspaces that stay */
#define WITH_SORT 12        /* the profiling pass sorts the logits, as up to 0.7 */
#define WITHOUT_SORT 17     /* a kernel samples without sorting them */
#define WITH_MORE 18        /* non_torch_memory has 0.12 GiB more */
#define WITH_GRAPHS 21      /* CUDA graphs are part of the share */
#define WITH_RUNNER 25      /* dense models without recurrent layers run in the second model runner, … */
#define WITH_ALL_GRAPHS 29  /* … which estimates the size of CUDA graphs only from here on, and 0 before */

static bool is_server_before(const struct plan *p, unsigned version)
{
    return p->vllm && p->vllm < version;
}

static bool may_be_before(const struct plan *p, unsigned version)
{
    return !p->vllm || p->vllm < version;
}

/* EngineArgs.get_batch_defaults: "device_memory >= 70 GiB and not A100". */
static bool has_large_batches(const struct plan *p)
{
    return p->memory >= 70 * GIB && !(p->gpu && strstr(p->gpu->product, "A100"));
}

static struct estimate_interval profiled_requests(const struct plan *p)
{
    const double most = has_large_batches(p) && !is_server_before(p, 9) ? 1024 : 256;

    if (p->most_requests) return EXACTLY((double)p->most_requests);
    return (struct estimate_interval){may_be_before(p, WITH_REQUESTS) ? 256 : most, most, most};
}

/* `vllm serve` and the LLM class have different defaults. Version 0.7 and older ones read a prompt in one pass if it
 * has at most 32,768 tokens. */
static struct estimate_interval profiled_tokens(const struct plan *p)
{
    const bool large = has_large_batches(p);
    const double all = p->seq <= 32768 ? fmax(2048, (double)p->seq) : 2048;
    struct estimate_interval n = {large ? 8192 : 2048, large ? 8192 : 2048, large ? 16384 : 8192};

    if (p->most_tokens) return EXACTLY((double)p->most_tokens);
    if (is_server_before(p, WITHOUT_LONG_PASS)) return EXACTLY(all);
    if (!p->vllm) n = (struct estimate_interval){2048, n.likely, fmax(n.high, all)};
    return n;
}

/* What PyTorch allocates in the profiling pass: the larger of a layer and the sampler, whose logits are whole on each
 * GPU; besides them the last hidden states, cuBLAS's workspace and those of experts. The bytes per logit are a copy in
 * float32, scores and probabilities; with a sort 24 more. */
#define SAMPLED 12.4
#define SORTED 36.0

static struct estimate_interval profiled_pass(const struct plan *p)
{
    const struct model_shape *s = &p->model->shape;
    const double size = estimate_serving_element(p), vocab = (double)s->vocab,
                 e = (double)s->expert_ffn / (double)p->tp;
    const struct estimate_interval t = profiled_tokens(p), n = profiled_requests(p),
                                   each = estimate_serving_token_elements(p);
    const bool sorts =
        is_server_before(p, WITHOUT_LONG_PASS) || (p->vllm >= WITH_SORT && is_server_before(p, WITHOUT_SORT));
    const double sorted = sorts ? SORTED : SAMPLED;
    /* until 0.7, one of the GPUs of a tensor-parallel group sampled, and logs are also of the others */
    const double least = p->tp > 1 && may_be_before(p, WITHOUT_LONG_PASS) ? 0 : n.low * vocab * (size + SAMPLED);
    const double sort = may_be_before(p, WITHOUT_SORT) ? SORTED : SAMPLED + 2;
    const double hidden = size * (double)s->hidden;
    const double experts = s->experts ? size * (double)s->experts_used * (fmax(2 * e, (double)s->hidden) + e) : 0;

    return (struct estimate_interval){
        16 * MIB + hidden * t.low + fmax(size * t.low * each.low, least),
        64 * MIB + hidden * t.likely +
            fmax(size * t.likely * each.low,
                 n.likely * vocab * (size + sorted) + (is_server_before(p, WITH_WORKSPACES) ? 0 : experts * t.likely)),
        160 * MIB + 2 * hidden * t.high +
            fmax(size * t.high * each.likely, n.high * vocab * (size + sort) + 1.5 * experts * t.high)};
}

/* vLLM's non_torch_memory in published logs: 0.01 to 0.25 GiB, 1.8 GiB in version 0.6.4; with tensor parallelism 0.1 to
 * 0.3 GiB where GPUs have no NVLink, else 2.1 GiB, 3.6 GiB in version 0.6.4, 10.5 GiB in 0.2.5. Newer versions do not
 * count the context. */
static struct estimate_interval profiled_outside(const struct plan *p)
{
    const bool linked = p->gpu ? p->gpu->nvlink > 0 : p->memory >= 70 * GIB;

    if (p->tp > 1)
        return (struct estimate_interval){0.08 * GIB, (linked ? 2.1 : 0.25) * GIB,
                                          (is_server_before(p, 5) ? 11
                                           : may_be_before(p, 7)  ? 3.6
                                                                  : 2.6) *
                                              GIB};
    return (struct estimate_interval){0.01 * GIB, (is_server_before(p, WITH_MORE) ? 0.12 : 0.25) * GIB,
                                      (may_be_before(p, 7) ? 1.8 : 0.6) * GIB};
}

/* The tower is profiled first: what it needs at once counts only where it is more than the language model's pass,
 * beside which its pixels and results stay. Besides, convolutions load cuDNN and take its workspaces: 0 to 0.8 GiB with
 * Mistral 3.1 and Gemma 3, 2.8 GiB with Llama 4. */
static struct estimate_interval profiled_passes(const struct plan *p)
{
    struct estimate_interval pass = profiled_pass(p);
    struct estimate_tower_pass tower;

    if (!p->model->shape.tower) return pass;
    estimate_server_tower(p, profiled_tokens(p), profiled_requests(p), &tower);
    return (struct estimate_interval){pass.low, fmax(pass.likely + tower.kept.likely, tower.pass.likely) + 0.5 * GIB,
                                      fmax(pass.high + tower.kept.high, tower.pass.high) + 3 * GIB};
}

static bool has_graphs_in_share(const struct plan *p)
{
    const struct model_shape *s = &p->model->shape;
    const bool runner = p->vllm >= WITH_RUNNER && is_server_before(p, WITH_ALL_GRAPHS) && !s->experts &&
                        !s->linear_layers && !s->state_heads;

    return !is_server_before(p, WITH_GRAPHS) && !runner;
}

/* The peak before the cache exists, and what vLLM subtracts besides. */
static struct estimate_interval profiled_peak(const struct plan *p, const struct estimate_result *r)
{
    struct estimate_interval sum = estimate_interval_add(profiled_passes(p), profiled_outside(p));

    for (const struct estimate_line *l = r->lines; l < r->lines + r->lines_n; l++) {
        if (l->host || !(l->phases & IN_PHASE(PREFILL))) continue;
        if (strcmp(l->name, "CUDA graphs") == 0 && has_graphs_in_share(p))
            sum = estimate_interval_add(sum, (struct estimate_interval){0, l->bytes.likely, l->bytes.high});
        if (l->part == ESTIMATE_WEIGHTS || l->part == ESTIMATE_ADAPTERS) sum = estimate_interval_add(sum, l->bytes);
        if (l->part == ESTIMATE_ALLOCATOR && may_be_before(p, 7)) sum.high += l->bytes.high;
    }
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
    struct plan one = *p;

    *s = (struct estimate_server){.share = p->share, .taken = memory * p->share};
    one.batch = 1;
    one.memory = memory;
    if (!estimate_make(&one, &r)) return false;
    s->used = profiled_peak(&one, &r);
    s->request = server_cache_bytes(&r);
    if (!(s->request > 0)) return false;
    s->cache = (struct estimate_interval){fmax(0, s->taken - s->used.high), fmax(0, s->taken - s->used.likely),
                                          fmax(0, s->taken - s->used.low)};
    s->requests =
        (struct estimate_interval){s->cache.low / s->request, s->cache.likely / s->request, s->cache.high / s->request};
    s->admitted = profiled_requests(&one).likely;
    const double blocks = (double)p->seq / BLOCK;
    s->tokens = (struct estimate_interval){floor_of(s->requests.low * blocks) * BLOCK,
                                           floor_of(s->requests.likely * blocks) * BLOCK,
                                           floor_of(s->requests.high * blocks) * BLOCK};
    return true;
}
