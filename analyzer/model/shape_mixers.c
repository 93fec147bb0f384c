/* The tensors of mixers that have a state instead of keys and values: Mamba, gated delta nets, short convolutions.
 * Names and forms are those of transformers 5.24.0, models/TYPE/modeling_TYPE.py. */
#include "analyzer/model/lister.h"

static void add_taps(struct model_lister *l, unsigned kind, const char *name, uint64_t rows)
{
    if (!l->layers[kind] || l->failed) return;
    model_lister_add_in(l, kind, name, TENSOR_CONV, rows, l->s->taps, 1);
    if (!l->failed) l->m->tensors[l->m->tensors_n - 1].dims = 4;
}

/* A vector or a table of a layer that is not part of a matrix product. */
static void add_plain_tensor(struct model_lister *l, unsigned kind, const char *name, uint64_t rows, uint64_t cols)
{
    model_lister_add_in(l, kind, name, TENSOR_OTHER, rows, cols, 1);
}

/* modeling_mamba.py, MambaMixer; modeling_mamba2.py, Mamba2Mixer; Jamba's has three norms more. */
void model_lister_add_mamba(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;
    const uint64_t heads = s->family == MODEL_MAMBA ? s->heads : s->state_heads;
    uint64_t in = 2 * s->inner, mixed = s->inner;

    if (heads) { /* Mamba-2 */
        mixed += 2 * s->groups * s->state;
        in += 2 * s->groups * s->state + heads;
    }
    model_lister_add_in(l, kind, "in_proj", TENSOR_MLP, in, s->hidden, 1);
    model_lister_add_bias(l, kind, s->inner_bias, "in_proj bias", in, 1);
    add_taps(l, kind, "conv1d", mixed);
    model_lister_add_bias(l, kind, s->conv_bias, "conv1d bias", mixed, 1);
    if (heads) {
        model_lister_add_bias(l, kind, true, "dt_bias", heads, 1);
        add_plain_tensor(l, kind, "A_log", heads, 1);
        add_plain_tensor(l, kind, "D", heads, 1);
        if (!s->no_inner_norm) model_lister_add_in(l, kind, "inner norm", TENSOR_NORM, s->inner, 1, 1);
    } else {
        model_lister_add_in(l, kind, "x_proj", TENSOR_MLP, s->step_rank + 2 * s->state, s->inner, 1);
        model_lister_add_in(l, kind, "dt_proj", TENSOR_MLP, s->inner, s->step_rank, 1);
        model_lister_add_bias(l, kind, true, "dt_proj bias", s->inner, 1);
        add_plain_tensor(l, kind, "A_log", s->inner, s->state);
        add_plain_tensor(l, kind, "D", s->inner, 1);
        if (s->state_norms) model_lister_add_in(l, kind, "inner norm", TENSOR_NORM, s->step_rank + 2 * s->state, 1, 1);
    }
    model_lister_add_in(l, kind, "out_proj", TENSOR_MLP, s->hidden, s->inner, 1);
    model_lister_add_bias(l, kind, s->inner_bias, "out_proj bias", s->hidden, 1);
}

static uint64_t linear_dim(uint64_t dim)
{
    return dim ? dim : MODEL_LINEAR_HEAD;
}

/* modeling_qwen3_5.py, Qwen3_5GatedDeltaNet; Qwen3-Next has the same in fewer matrices, OLMo Hybrid in more. */
void model_lister_add_delta(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;
    const uint64_t keys = s->linear_keys * linear_dim(s->linear_key_dim),
                   values = s->linear_values * linear_dim(s->linear_value_dim);

    model_lister_add_in(l, kind, "linear qkv_proj", TENSOR_ATTENTION, 2 * keys + values, s->hidden, 1);
    model_lister_add_in(l, kind, "linear z_proj", TENSOR_ATTENTION, values, s->hidden, 1);
    model_lister_add_in(l, kind, "linear ba_proj", TENSOR_ATTENTION, s->linear_values, s->hidden, 2);
    add_taps(l, kind, "linear conv1d", 2 * keys + values);
    model_lister_add_in(l, kind, "dt_bias and A_log", TENSOR_OTHER, s->linear_values, 1, 2);
    model_lister_add_in(l, kind, "linear norm", TENSOR_NORM, linear_dim(s->linear_value_dim), 1, 1);
    model_lister_add_in(l, kind, "linear o_proj", TENSOR_ATTENTION, s->hidden, values, 1);
}

/* modeling_kimi_linear.py, KimiLinearDeltaAttention; modeling_bailing_hybrid.py has gates of one matrix. */
static void add_kda(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;
    const uint64_t head = linear_dim(s->linear_key_dim), width = s->linear_keys * head;

    model_lister_add_in(l, kind, "linear qkv_proj", TENSOR_ATTENTION, 3 * width, s->hidden, 1);
    add_taps(l, kind, "linear conv1d", 3 * width);
    if (s->full_rank_gates) {
        model_lister_add_in(l, kind, "linear gates", TENSOR_ATTENTION, width, s->hidden, 2);
    } else {
        model_lister_add_in(l, kind, "linear gates a", TENSOR_ATTENTION, head, s->hidden, 2);
        model_lister_add_in(l, kind, "linear gates b", TENSOR_ATTENTION, width, head, 2);
    }
    model_lister_add_in(l, kind, "linear ba_proj", TENSOR_ATTENTION, s->linear_keys, s->hidden, 1);
    add_plain_tensor(l, kind, "dt_bias", width, 1);
    add_plain_tensor(l, kind, "A_log", s->linear_keys, 1);
    model_lister_add_in(l, kind, "linear norm", TENSOR_NORM, head, 1, 1);
    model_lister_add_in(l, kind, "linear o_proj", TENSOR_ATTENTION, s->hidden, width, 1);
}

/* modeling_minimax.py, MiniMaxLightningAttention. */
static void add_lightning(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;
    const uint64_t width = s->heads * s->head_dim;

    model_lister_add_in(l, kind, "linear qkv_proj", TENSOR_ATTENTION, 3 * width, s->hidden, 1);
    model_lister_add_in(l, kind, "linear z_proj", TENSOR_ATTENTION, width, s->hidden, 1);
    model_lister_add_in(l, kind, "linear norm", TENSOR_NORM, width, 1, 1);
    model_lister_add_in(l, kind, "linear o_proj", TENSOR_ATTENTION, s->hidden, width, 1);
}

/* modeling_lfm2.py, Lfm2ShortConv. */
static void add_short_conv(struct model_lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;

    model_lister_add_in(l, kind, "in_proj", TENSOR_MLP, 3 * s->hidden, s->hidden, 1);
    model_lister_add_bias(l, kind, s->conv_bias, "in_proj bias", 3 * s->hidden, 1);
    add_taps(l, kind, "conv1d", s->hidden);
    model_lister_add_bias(l, kind, s->conv_bias, "conv1d bias", s->hidden, 1);
    model_lister_add_in(l, kind, "out_proj", TENSOR_MLP, s->hidden, s->hidden, 1);
    model_lister_add_bias(l, kind, s->conv_bias, "out_proj bias", s->hidden, 1);
}

void model_lister_add_mixer(struct model_lister *l, unsigned kind)
{
    static void (*const add[MODEL_MIXERS_N])(struct model_lister *, unsigned) = {
        [MODEL_MIXER_MAMBA] = model_lister_add_mamba,
        [MODEL_MIXER_DELTA] = model_lister_add_delta,
        [MODEL_MIXER_KDA] = add_kda,
        [MODEL_MIXER_LIGHTNING] = add_lightning,
        [MODEL_MIXER_CONV] = add_short_conv,
    };

    if (add[l->s->mixer]) add[l->s->mixer](l, kind);
}
