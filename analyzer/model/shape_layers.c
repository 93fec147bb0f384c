/* The tensors of a layer: attention, MLP, experts, norms. */
#include "analyzer/model/lister.h"

/* DeepSeek-V3.2's indexer (modeling_deepseek_v32.py), gates of heads, which are read from the layer's input. */
static void add_beside_attention(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;

    if (s->index_heads) {
        model_lister_add_in(l, kind, "index q_proj", TENSOR_ATTENTION, s->index_heads * s->index_dim,
                            s->q_rank ? s->q_rank : s->hidden, 1);
        model_lister_add_in(l, kind, "index k_proj", TENSOR_ATTENTION, s->index_dim, s->hidden, 1);
        model_lister_add_in(l, kind, "index k_norm", TENSOR_NORM, s->index_dim, 1, 1);
        model_lister_add_bias(l, kind, true, "index k_norm bias", s->index_dim, 1);
        model_lister_add_in(l, kind, "index weights", TENSOR_ATTENTION, s->index_heads, s->hidden, 1);
    }
    if (s->head_gate) model_lister_add_in(l, kind, "head_gate", TENSOR_ATTENTION, s->heads, s->hidden, 1);
    if (s->wide_gate)
        model_lister_add_in(l, kind, "gate of attention", TENSOR_ATTENTION,
                            s->heads * (s->v_dim ? s->v_dim : s->head_dim), s->hidden, 1);
}

static void add_latent_attention(struct model_lister *l)
{
    const struct model_shape *s = l->s;
    uint64_t head = s->nope_dim + s->rope_dim;

    if (s->q_rank) {
        model_lister_add_in(l, MODEL_EVERY, "q_a_proj", TENSOR_ATTENTION, s->q_rank, s->hidden, 1);
        model_lister_add_in(l, MODEL_EVERY, "q_a_norm", TENSOR_NORM, s->q_rank, 1, 1);
        model_lister_add_in(l, MODEL_EVERY, "q_b_proj", TENSOR_ATTENTION, s->heads * head, s->q_rank, 1);
    } else {
        model_lister_add_in(l, MODEL_EVERY, "q_proj", TENSOR_ATTENTION, s->heads * head, s->hidden, 1);
    }
    model_lister_add_in(l, MODEL_EVERY, "kv_a_proj", TENSOR_ATTENTION, s->kv_rank + s->rope_dim, s->hidden, 1);
    model_lister_add_in(l, MODEL_EVERY, "kv_a_norm", TENSOR_NORM, s->kv_rank, 1, 1);
    model_lister_add_in(l, MODEL_EVERY, "kv_b_proj", TENSOR_ATTENTION, s->heads * (s->nope_dim + s->v_dim), s->kv_rank,
                        1);
    model_lister_add_in(l, MODEL_EVERY, "o_proj", TENSOR_ATTENTION, s->hidden, s->heads * s->v_dim, 1);
    add_beside_attention(l, MODEL_EVERY);
}

/* `each` is 2 if the layer has cross-attention, too. */
void model_lister_add_attention(struct model_lister *l, unsigned kind, uint64_t each)
{
    const struct model_shape *s = l->s;
    uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const uint64_t v = s->v_dim ? s->kv_heads * s->v_dim : kv, out = s->v_dim ? s->heads * s->v_dim : q;

    if (s->fused_qkv) {
        model_lister_add_in(l, kind, "qkv_proj", TENSOR_ATTENTION, q + kv + v, s->hidden, each);
        model_lister_add_bias(l, kind, s->qkv_bias, "qkv_proj bias", q + kv + v, each);
    } else {
        model_lister_add_in(l, kind, "q_proj", TENSOR_ATTENTION, s->gated_attention ? 2 * q : q, s->hidden, each);
        model_lister_add_bias(l, kind, s->qkv_bias, "q_proj bias", q, each);
    }
    if (!s->fused_qkv && !s->no_keys) {
        model_lister_add_in(l, kind, "k_proj", TENSOR_ATTENTION, kv, s->hidden, each);
        model_lister_add_bias(l, kind, s->qkv_bias && !s->no_k_bias, "k_proj bias", kv, each);
    }
    if (!s->fused_qkv && !s->no_keys && !s->keys_are_values) {
        model_lister_add_in(l, kind, "v_proj", TENSOR_ATTENTION, v, s->hidden, each);
        model_lister_add_bias(l, kind, s->qkv_bias, "v_proj bias", v, each);
    }
    if (s->qk_norm) {
        model_lister_add_in(l, kind, "q_norm", TENSOR_NORM, s->qk_norm_wide ? q : s->head_dim, 1, each);
        if (!s->no_keys)
            model_lister_add_in(l, kind, "k_norm", TENSOR_NORM, s->qk_norm_wide ? kv : s->head_dim, 1, each);
    }
    if (s->sinks) model_lister_add_in(l, kind, "sinks", TENSOR_OTHER, s->heads, 1, each);
    if (s->index_heads || s->head_gate || s->wide_gate) add_beside_attention(l, kind);
    model_lister_add_in(l, kind, "o_proj", TENSOR_ATTENTION, s->hidden, out, each);
    model_lister_add_bias(l, kind, s->out_bias, "o_proj bias", s->hidden, each);
}

/* modeling_gemma4.py, Gemma4TextAttention with attention_k_eq_v. */
static void add_global_attention(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;
    const uint64_t q = s->heads * s->global_head_dim, kv = s->global_kv_heads * s->global_head_dim;

    model_lister_add_in(l, kind, "q_proj", TENSOR_ATTENTION, q, s->hidden, 1);
    model_lister_add_in(l, kind, "k_proj", TENSOR_ATTENTION, kv, s->hidden, 1);
    model_lister_add_in(l, kind, "q_norm", TENSOR_NORM, s->global_head_dim, 1, 1);
    model_lister_add_in(l, kind, "k_norm", TENSOR_NORM, s->global_head_dim, 1, 1);
    model_lister_add_in(l, kind, "o_proj", TENSOR_ATTENTION, s->hidden, q, 1);
}

void model_lister_add_mlps(struct model_lister *l, unsigned kind, enum model_tensor_role role, uint64_t ffn, bool bias,
                           uint64_t each)
{
    const struct model_shape *s = l->s;

    if (s->gated && s->fused_gate) {
        model_lister_add_in(l, kind, "gate_up_proj", role, 2 * ffn, s->hidden, each);
        model_lister_add_bias(l, kind, bias, "gate_up_proj bias", 2 * ffn, each);
    } else {
        if (s->gated) {
            model_lister_add_in(l, kind, "gate_proj", role, ffn, s->hidden, each);
            model_lister_add_bias(l, kind, bias, "gate_proj bias", ffn, each);
        }
        model_lister_add_in(l, kind, "up_proj", role, ffn, s->hidden, each);
        model_lister_add_bias(l, kind, bias, "up_proj bias", ffn, each);
    }
    model_lister_add_in(l, kind, "down_proj", role, s->hidden, ffn, each);
    model_lister_add_bias(l, kind, bias, "down_proj bias", s->hidden, each);
}

static void add_experts(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;

    model_lister_add_in(l, kind, "router", TENSOR_ROUTER, s->experts, s->hidden, 1);
    model_lister_add_bias(l, kind, s->router_bias, "router bias", s->experts, 1);
    if (s->expert_choice_bias) model_lister_add_in(l, kind, "expert_bias", TENSOR_OTHER, s->experts, 1, 1);
    if (s->latent_ffn) {
        struct model_shape narrow = *s;
        struct model_lister inner = *l;
        narrow.hidden = s->latent_ffn;
        inner.s = &narrow;
        model_lister_add_in(l, kind, "latent_in", TENSOR_MLP, s->latent_ffn, s->hidden, 1);
        model_lister_add_in(l, kind, "latent_out", TENSOR_MLP, s->hidden, s->latent_ffn, 1);
        model_lister_add_mlps(&inner, kind, TENSOR_EXPERT, s->expert_ffn, s->expert_bias, s->experts);
        l->failed |= inner.failed;
    } else {
        model_lister_add_mlps(l, kind, TENSOR_EXPERT, s->expert_ffn, s->expert_bias, s->experts);
    }
    if (s->shared_experts) model_lister_add_mlps(l, kind, TENSOR_MLP, s->shared_ffn, s->mlp_bias, 1);
    if (s->experts_beside) {
        model_lister_add_norms(l, kind, "expert norm", s->hidden, 3);
        model_lister_add_in(l, kind, "router scale", TENSOR_OTHER, s->hidden, 1, 1);
        model_lister_add_in(l, kind, "expert scale", TENSOR_OTHER, s->experts, 1, 1);
    }
    if (s->shared_gate) model_lister_add_in(l, kind, "shared_gate", TENSOR_ROUTER, 1, s->hidden, 1);
}

/* modeling_gemma3n.py, Gemma3nTextDecoderLayer; modeling_gemma4.py has only the embeddings of layers. */
static void add_layer_inputs(struct model_lister *l)
{
    const struct model_shape *s = l->s;
    const uint64_t n = s->streams;

    model_lister_add_in(l, MODEL_EVERY, "per_layer_input_gate", TENSOR_MLP, s->layer_width, s->hidden, 1);
    model_lister_add_in(l, MODEL_EVERY, "per_layer_projection", TENSOR_MLP, s->hidden, s->layer_width, 1);
    model_lister_add_norms(l, MODEL_EVERY, "per_layer_norm", s->hidden, 1);
    if (n > 1) {
        model_lister_add_in(l, MODEL_EVERY, "altup", TENSOR_OTHER, n * n * (n + 1), 1, 1);
        model_lister_add_in(l, MODEL_EVERY, "altup router", TENSOR_ROUTER, n, s->hidden, 1);
        model_lister_add_norms(l, MODEL_EVERY, "altup norm", s->hidden, 2);
    }
    if (s->laurel_rank) {
        model_lister_add_in(l, MODEL_EVERY, "laurel_left", TENSOR_MLP, s->laurel_rank, s->hidden, 1);
        model_lister_add_in(l, MODEL_EVERY, "laurel_right", TENSOR_MLP, s->hidden, s->laurel_rank, 1);
        model_lister_add_norms(l, MODEL_EVERY, "laurel norm", s->hidden, 1);
    }
}

/* modeling_deepseek_v4.py, DeepseekV4Attention and its compressors: one head of keys, which are also the values. */
static void add_compressed_attention(struct model_lister *l)
{
    enum { OVERLAPPED = 4 }; /* compressed by so many tokens, entries overlap, and an indexer selects them */
    const struct model_shape *s = l->s;
    const uint64_t head = s->head_dim, ratio = s->compress, wide = ratio == OVERLAPPED ? 2 : 1;

    model_lister_add_in(l, MODEL_EVERY, "q_a_proj", TENSOR_ATTENTION, s->q_rank, s->hidden, 1);
    model_lister_add_in(l, MODEL_EVERY, "q_a_norm", TENSOR_NORM, s->q_rank, 1, 1);
    model_lister_add_in(l, MODEL_EVERY, "q_b_proj", TENSOR_ATTENTION, s->heads * head, s->q_rank, 1);
    model_lister_add_in(l, MODEL_EVERY, "kv_a_proj", TENSOR_ATTENTION, head, s->hidden, 1);
    model_lister_add_in(l, MODEL_EVERY, "kv_a_norm", TENSOR_NORM, head, 1, 1);
    model_lister_add_in(l, MODEL_EVERY, "o_a_proj", TENSOR_ATTENTION, s->o_groups * s->o_rank,
                        s->heads * head / s->o_groups, 1);
    model_lister_add_in(l, MODEL_EVERY, "o_proj", TENSOR_ATTENTION, s->hidden, s->o_groups * s->o_rank, 1);
    model_lister_add_in(l, MODEL_EVERY, "sinks", TENSOR_OTHER, s->heads, 1, 1);
    if (!ratio) return;
    model_lister_add_in(l, MODEL_EVERY, "compressor positions", TENSOR_OTHER, ratio, wide * head, 1);
    model_lister_add_in(l, MODEL_EVERY, "compressor", TENSOR_ATTENTION, wide * head, s->hidden, 2);
    model_lister_add_in(l, MODEL_EVERY, "compressor norm", TENSOR_NORM, head, 1, 1);
    if (ratio != OVERLAPPED) return;
    model_lister_add_in(l, MODEL_EVERY, "index positions", TENSOR_OTHER, ratio, wide * s->index_dim, 1);
    model_lister_add_in(l, MODEL_EVERY, "index compressor", TENSOR_ATTENTION, wide * s->index_dim, s->hidden, 2);
    model_lister_add_in(l, MODEL_EVERY, "index norm", TENSOR_NORM, s->index_dim, 1, 1);
    model_lister_add_in(l, MODEL_EVERY, "index q_proj", TENSOR_ATTENTION, s->index_heads * s->index_dim, s->q_rank, 1);
    model_lister_add_in(l, MODEL_EVERY, "index weights", TENSOR_ATTENTION, s->index_heads, s->hidden, 1);
}

static void add_mixers(struct model_lister *l)
{
    const struct model_shape *s = l->s;

    if (s->mixer != MODEL_MIXER_ATTENTION) model_lister_add_mixer(l, MODEL_EVERY);
    if (s->mixer != MODEL_MIXER_ATTENTION && !s->beside) return;
    if (s->o_groups) {
        add_compressed_attention(l);
    } else if (s->kv_rank) {
        add_latent_attention(l);
    } else if (s->linear_layers) {
        l->layers[MODEL_FIRST] = s->linear_layers;
        l->layers[MODEL_SECOND] = s->layers - s->linear_layers;
        model_lister_add_delta(l, MODEL_FIRST);
        model_lister_add_attention(l, MODEL_SECOND, 1);
    } else if (s->global_head_dim) {
        l->layers[MODEL_FIRST] = s->window_layers;
        l->layers[MODEL_SECOND] = s->layers - s->window_layers;
        model_lister_add_attention(l, MODEL_FIRST, 1);
        add_global_attention(l, MODEL_SECOND);
    } else {
        model_lister_add_attention(l, MODEL_EVERY, 1);
    }
}

static void add_uniform_layers(struct model_lister *l)
{
    const struct model_shape *s = l->s;

    add_mixers(l);
    l->layers[MODEL_FIRST] = s->layers - s->moe_layers;
    l->layers[MODEL_SECOND] = s->moe_layers;
    if (!s->no_mlp) model_lister_add_mlps(l, MODEL_FIRST, TENSOR_MLP, s->ffn, s->mlp_bias, 1);
    if (s->activation_numbers && !s->no_mlp) model_lister_add_in(l, MODEL_FIRST, "xielu", TENSOR_OTHER, 1, 1, 2);
    if (s->moe_layers) add_experts(l, MODEL_SECOND);
    if (s->layer_width) add_layer_inputs(l);
    if (s->hyper) { /* modeling_deepseek_v4.py, DeepseekV4HyperConnection: before attention and before the MLP */
        const uint64_t mixes = (2 + s->hyper) * s->hyper;
        model_lister_add_in(l, MODEL_EVERY, "hyper connection", TENSOR_OTHER, mixes, s->hyper * s->hidden, 2);
        model_lister_add_in(l, MODEL_EVERY, "hyper base", TENSOR_OTHER, mixes + 3, 1, 2);
    }
    if (s->layer_scale) model_lister_add_in(l, MODEL_EVERY, "layer_scale", TENSOR_OTHER, s->hidden, 1, 2);
    if (s->family == MODEL_VIT) /* BEiT */
        model_lister_add_in(l, MODEL_EVERY, "relative_position_bias", TENSOR_OTHER, s->buckets, s->heads, 1);
    model_lister_add_norms(l, MODEL_EVERY, "norm", s->hidden, s->norms);
}

void model_lister_add_layers(struct model_lister *l)
{
    for (unsigned i = 0; i < l->s->blocks_n; i++) {
        const struct model_shape one = model_block_shape(l->s, i);
        struct model_lister inner = *l;
        inner.s = &one;
        inner.layers[MODEL_EVERY] = one.layers;
        add_uniform_layers(&inner);
        l->failed |= inner.failed;
    }
    if (!l->s->blocks_n) add_uniform_layers(l);
}
