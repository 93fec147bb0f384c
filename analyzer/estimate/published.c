#include "analyzer/estimate/published.h"

#include <math.h>

#define BUFFER 1.5 /* DeepSpeed's additional_buffer_factor */

struct estimate_published estimate_deepspeed_zero2(double params, double gpus_per_node, double nodes,
                                                   bool offload_optimizer)
{
    double gpus = gpus_per_node * nodes;

    if (offload_optimizer) return (struct estimate_published){2 * params, trunc(params * fmax(4 * gpus, 16) * BUFFER)};
    return (struct estimate_published){2 * params + trunc(18 * params / gpus),
                                       trunc(params * 4 * gpus_per_node * BUFFER)};
}

struct estimate_published estimate_deepspeed_zero3(double params, double largest_layer, double gpus_per_node,
                                                   double nodes, bool offload_optimizer, bool offload_params,
                                                   bool zero_init)
{
    double gpus = gpus_per_node * nodes, layer = 4 * largest_layer, whole = 4 * gpus_per_node;
    double host = (offload_params ? 18 : 16) / nodes; /* bytes a parameter on a node */

    if (!offload_optimizer)
        return (struct estimate_published){layer + trunc(18 * params / gpus),
                                           trunc((zero_init ? largest_layer : params) * whole * BUFFER)};
    return (struct estimate_published){layer + (offload_params ? 0 : trunc(2 * params / gpus)),
                                       trunc(params * (zero_init ? host : fmax(whole, host)) * BUFFER)};
}

double estimate_megatron_padded_vocab(double vocab, double divisible_by, double tp)
{
    return ceil(vocab / (divisible_by * tp)) * divisible_by * tp;
}

/* 16-bit weights, float32 gradients, weights and two states. */
static double bytes_each(const struct estimate_megatron_weights *m, double group)
{
    return m->distributed_optimizer ? 6 + 12 / group : 18;
}

double estimate_megatron_weight_bytes(const struct estimate_megatron_weights *m)
{
    double matrices = m->gated ? 3 : 2, norm = (m->rms_norm ? 1 : 2) * m->hidden;
    double kv_heads = m->kv_heads > 0 ? m->kv_heads : m->heads;
    double head_dim = m->head_dim > 0 ? m->head_dim : m->hidden / m->heads;
    double attention = 2 * m->hidden * head_dim * (m->heads + kv_heads);
    double embedding = m->hidden * m->vocab;
    bool moe = m->experts > 0; /* in all layers */
    double divided = attention + matrices * m->hidden * (moe ? m->shared_ffn : m->ffn);
    double whole = 2 * norm + m->hidden * m->experts; /* norms, router */
    double experts = matrices * m->hidden * m->expert_ffn * m->experts;
    double tables = m->untied && m->pp <= 1 ? 2 : 1; /* of the fullest stage */
    double dense = (divided * m->layers / m->pp + tables * embedding) / m->tp + (whole * m->layers + norm) / m->pp;
    double routed = experts * m->layers / m->pp / (m->tp * m->ep);

    return dense * bytes_each(m, m->dp) + routed * bytes_each(m, fmax(1, m->dp / m->ep));
}
