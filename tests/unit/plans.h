/* Random plans, for properties that hold for all plans. The same seed gives the same plans. */
#pragma once

#include <stdlib.h>
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/quantisation.h"

struct random_plans {
    uint64_t seed;
    struct model model;
    struct plan plan;
};

static inline uint64_t random_below(struct random_plans *r, uint64_t n)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return (r->seed >> 33) % n;
}

static inline bool random_yes(struct random_plans *r)
{
    return random_below(r, 2);
}

static inline void random_done(struct random_plans *r)
{
    model_free(&r->model);
}

static inline void random_shape(struct random_plans *r, struct model_shape *s)
{
    uint64_t kv_shares[] = {1, 4, 8};

    *s = (struct model_shape){.family = random_below(r, 3) ? MODEL_LLAMA : MODEL_GPT};
    s->layers = 4 * (1 + random_below(r, 16));
    s->head_dim = random_yes(r) ? 64 : 128;
    s->heads = 8u << random_below(r, 4);
    s->hidden = s->heads * s->head_dim;
    s->kv_heads = s->heads;
    s->ffn = 4 * s->hidden;
    s->vocab = 32000 + 1000 * random_below(r, 100);
    s->context = 8192;
    s->norms = 2;
    s->final_norm = true;
    s->gated = s->family == MODEL_LLAMA;
    if (s->family == MODEL_LLAMA)
        s->kv_heads = s->heads / kv_shares[random_below(r, 3)];
    else
        s->positions = 8192, s->norm_bias = s->qkv_bias = s->out_bias = s->mlp_bias = true;
    s->tied = random_yes(r);
}

static inline const struct plan *random_any_plan(struct random_plans *r)
{
    static const char *const optimizers[] = {"adam", "adamw", "sgd", "sgd-momentum", "adamw8bit", "lion"};
    static const char *const precisions[] = {"fp32", "amp-bf16", "bf16"};
    static const char *const stored[] = {"fp8", "int8", "nf4", "awq", "q4_k_m", "q8_0", "mxfp4"};
    struct model_shape shape;
    int exit_code;
    struct plan *p = &r->plan;

    model_free(&r->model);
    random_shape(r, &shape);
    if (!model_from_shape("test", "test", &shape, &r->model, &exit_code)) abort();
    *p = (struct plan)PLAN_DEFAULT;
    p->model = &r->model;
    p->optimizer = estimate_optimizer(optimizers[random_below(r, 6)]);
    p->precision = estimate_precision(precisions[random_below(r, 3)]);
    p->precision_given = random_yes(r);
    p->batch = 1u << random_below(r, 6);
    p->seq = 256u << random_below(r, 6);
    p->attention = random_yes(r) ? PLAN_ATTENTION_FLASH : PLAN_ATTENTION_EAGER;
    p->inference = random_below(r, 3) == 0;
    p->tp = 1u << random_below(r, 3);
    p->gpus = p->tp << random_below(r, 4);
    if (p->inference) {
        if (random_yes(r)) p->weights = estimate_quantisation_find(stored[random_below(r, 7)]);
        if (random_yes(r)) p->cache = estimate_quantisation_find("fp8");
        p->cache_block = random_yes(r) ? 16 : 0;
        p->gpus = p->tp;
    } else {
        p->step = (enum plan_step)random_below(r, 3);
        p->checkpoint = (enum plan_checkpoint)random_below(r, 3);
        p->accumulation = 1 + random_below(r, 4);
        p->sharding = (enum plan_sharding)random_below(r, 4);
        p->chunked_loss = random_yes(r);
        p->bucket_view = random_yes(r);
        p->late_zero_grad = random_yes(r) && p->step != PLAN_STEP_IN_BACKWARD;
        p->sequence_parallel = p->tp > 1 && random_yes(r);
        p->master_weights = p->precision->weights < 4 && random_yes(r);
        p->ema = random_below(r, 4) == 0;
        if (random_below(r, 4) == 0) p->adapter = PLAN_ADAPTER_LORA;
    }
    p->gpu = &estimate_gpus[random_below(r, estimate_gpu_count)];
    p->memory = (double)p->gpu->total_bytes;
    return p;
}

/* The next plan that is possible; valid until the next call. */
static inline const struct plan *random_plan(struct random_plans *r)
{
    while (!plan_possible(random_any_plan(r)))
        ;
    return &r->plan;
}
