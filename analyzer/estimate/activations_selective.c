/* What checkpointing of chosen operations keeps of a layer: torch.utils.checkpoint's
 * create_selective_checkpoint_contexts with torchtitan's choice (torchtitan/distributed/activation_checkpoint.py at
 * b5bcd76; the list of operations is get_default_op_list of torch/_functorch/partitioners.py, PyTorch 2.11):
 *
 *  - products with a bias (addmm) and batched ones (bmm: eager attention's two) are kept, and so is attention in
 *    one kernel, its output and the logarithms of its sums;
 *  - of the products without a bias (mm) the first, third, fifth … of the layer are kept; the router's is neither
 *    counted nor kept;
 *  - reduce-scatters are kept, all-reduces and all-gathers are not. The list has all-to-alls since September 2025, but
 *    they are not counted: DeepSeek's 16B then took 4.5 GiB more (torchtitan#1672); the results of all are 39 GiB;
 *  - the grouped products of experts are in neither list, and are computed again.
 *
 * The result of an operation is kept even if backward does not need it: q before its rotation, and the result of the
 * layer. The compiler drops results that nothing reads. */
#include <string.h>
#include "analyzer/estimate/activations.h"

struct keeping {
    const struct plan *p;
    const struct estimate_act_sizes *z;
    struct estimate_act_kept *out;
    unsigned seen; /* products without a bias so far */
};

/* The product of x (`in` elements) and a matrix: `width` elements of `c` bytes. */
static void keep_product(struct keeping *k, enum estimate_act_group group, double in, double width, bool bias, double c,
                         bool whole)
{
    bool kept = bias || ++k->seen % 2 == 1;

    /* Torchao's float8 product is always kept. Transformer Engine's products are not PyTorch operations and are not
     * kept: the low variant. */
    if (k->p->precision->cast == PRECISION_CAST_FP8) kept = k->z->variant != ACT_FUSED;
    if (kept) {
        k->out->group[group] += c * width;
        k->out->whole += whole ? c * width : 0;
    } else {
        k->out->again += in * width;
    }
}

/* A linear layer, and the two products of its adapter if it has one. peft's run in float32 unless autocast is on. */
static void keep_linear(struct keeping *k, enum estimate_act_group group, double in, double width, bool bias,
                        bool adapted, bool whole)
{
    double c = k->z->amp || k->z->variant == ACT_FUSED ? k->z->compute : 4, rank = (double)k->p->rank;

    keep_product(k, group, in, width, bias, k->z->compute, whole);
    if (adapted && k->p->adapter != PLAN_ADAPTER_NONE) {
        keep_product(k, ACT_ADAPTERS, in, rank, false, c, false);
        keep_product(k, ACT_ADAPTERS, rank, width, false, c, whole);
    }
}

/* `cross`: cross-attention. Whisper's decoder computes its keys and values from the encoder's output. */
static void keep_attention(struct keeping *k, bool cross)
{
    const struct model_shape *m = &k->p->model->shape;
    double c = k->z->compute, heads = (double)m->heads, width = (double)m->hidden, out = heads * (double)m->head_dim;
    double q = out, kv = (double)(m->kv_heads * m->head_dim);
    const unsigned on = k->p->targets;
    bool bias = m->qkv_bias, sound = m->family == MODEL_WHISPER;
    double keys = sound && cross ? (double)m->sound : k->z->keys,
           encoder_tokens = sound && cross && k->z->seq > 0 ? keys / k->z->seq : 1;

    if (m->kv_rank) {
        double latent = (double)m->kv_rank, each = (double)(m->nope_dim + m->rope_dim);
        out = heads * (double)m->v_dim;
        if (m->q_rank) keep_linear(k, ACT_ATTENTION, width, (double)m->q_rank, bias, false, true);
        keep_linear(k, ACT_ATTENTION, m->q_rank ? (double)m->q_rank : width, heads * each, bias && !m->q_rank,
                    on & PLAN_QUERIES, false);
        keep_linear(k, ACT_ATTENTION, width, latent + (double)m->rope_dim, bias, on & PLAN_OUTPUT, true);
        keep_linear(k, ACT_ATTENTION, latent, heads * (double)(m->nope_dim + m->v_dim), false,
                    on & (PLAN_KEYS | PLAN_VALUES), false);
    } else if (m->fused_qkv &&
               !(m->family == MODEL_VIT && k->z->variant == ACT_PADDED)) { /* estimate_act_layer's one_matrix */
        keep_linear(k, ACT_ATTENTION, width, q + 2 * kv, bias, on & PLAN_QKV, false);
    } else {
        keep_linear(k, ACT_ATTENTION, width, q, bias, on & PLAN_QUERIES, false);
        keep_linear(k, ACT_ATTENTION, width, encoder_tokens * kv, bias && !sound, on & PLAN_KEYS,
                    false); /* Whisper's keys have no bias */
        keep_linear(k, ACT_ATTENTION, width, encoder_tokens * kv, bias, on & PLAN_VALUES, false);
    }
    if (k->p->attention == PLAN_ATTENTION_EAGER || estimate_act_falls_back(k->p, k->z))
        k->out->group[ACT_SCORES] += c * heads * keys;
    else
        k->out->group[ACT_ATTENTION] += 4 * heads;
    k->out->group[ACT_ATTENTION] += c * out;
    keep_linear(k, ACT_ATTENTION, out, width, m->out_bias, on & PLAN_OUTPUT, true);
}

/* `end`: the result leaves the layer, and no norm reads it. */
static void keep_mlp(struct keeping *k, double f, bool end)
{
    const struct model_shape *m = &k->p->model->shape;
    double width = (double)m->hidden;
    const unsigned on = k->p->targets;
    struct estimate_act_kept before;

    if (m->gated && !m->fused_gate) {
        keep_linear(k, ACT_MLP, width, f, m->mlp_bias, on & PLAN_GATE, false);
        keep_linear(k, ACT_MLP, width, f, m->mlp_bias, on & PLAN_UP, false);
    } else {
        keep_linear(k, ACT_MLP, width, m->gated ? 2 * f : f, m->mlp_bias, on & (PLAN_GATE | PLAN_UP), false);
    }
    before = *k->out;
    keep_linear(k, ACT_MLP, f, width, m->mlp_bias, on & PLAN_DOWN, true);
    if (end && k->z->variant == ACT_FUSED) { /* nothing in backward reads it */
        double again = k->out->again;
        *k->out = before;
        k->out->again = again;
    }
}

static void keep_experts(struct keeping *k, bool end)
{
    const struct model_shape *m = &k->p->model->shape;
    double used = (double)m->experts_used, width = (double)m->hidden, f = (double)m->expert_ffn;

    /* the indices of a token's experts, and their weights */
    k->out->group[ACT_MLP] += 12 * used;
    k->out->again += width * (double)m->experts + used * (m->gated ? 3 : 2) * width * f;
    if (m->shared_experts) {
        keep_mlp(k, m->shared_ffn ? (double)m->shared_ffn : f * (double)m->shared_experts, end);
        if (m->shared_gate) keep_product(k, ACT_MLP, width, 1, false, k->z->compute, true);
    }
}

void estimate_act_kept(const struct plan *p, const struct estimate_act_sizes *z, bool moe,
                       struct estimate_act_kept *out)
{
    const struct model_shape *m = &p->model->shape;
    struct keeping k = {p, z, out, 0};
    bool end = m->family != MODEL_BERT && m->norms != 4;

    memset(out, 0, sizeof *out);
    keep_attention(&k, false);
    if ((m->family == MODEL_T5 || m->family == MODEL_WHISPER) &&
        moe) { /* the decoder also attends to the encoder's output */
        keep_attention(&k, true);
        moe = false;
    }
    if (moe)
        keep_experts(&k, end);
    else
        keep_mlp(&k, (double)m->ffn, end);
    for (int g = 0; g < ACT_GROUPS_N; g++) {
        out->group[g] *= z->tokens;
        out->sum += out->group[g];
    }
    out->whole *= z->tokens;
}

double estimate_act_recomputed(const struct plan *p)
{
    struct estimate_act_sizes z = estimate_act_sizes_of(p, p->fused_layers ? ACT_FUSED : ACT_EAGER),
                              e = estimate_act_encoder_sizes(p, &z);
    uint64_t layers = p->model->shape.layers, sparse = estimate_act_moe_layers(&p->model->shape);
    struct estimate_act_kept dense, moe;

    if (p->checkpoint != PLAN_CHECKPOINT_SELECTIVE_OP || !layers) return 0;
    estimate_act_kept(p, &e, false, &dense);
    estimate_act_kept(p, &z, true, &moe);
    return (double)(layers - sparse) * dense.again * (z.tokens > 0 ? e.tokens / z.tokens : 1) +
           (double)sparse * moe.again;
}

uint64_t estimate_act_moe_layers(const struct model_shape *m)
{
    if (m->family == MODEL_T5 || m->family == MODEL_CLIP ||
        m->family == MODEL_WHISPER) /* the decoder's layers come last, as do those with experts */
        return m->layers - m->encoder_layers;
    if (m->blocks_n) return m->blocks[m->blocks_n - 1].layers;
    if (m->linear_layers) return m->layers - m->linear_layers;
    if (m->global_head_dim) return m->layers - m->window_layers;
    return m->experts ? m->moe_layers ? m->moe_layers : m->layers : 0;
}
