/* Derives the tensors from the numbers of a configuration. */
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/model/denoisers.h"
#include "analyzer/model/families.h"
#include "analyzer/model/model.h"

/* Kinds of layers: see struct model_tensor. */
enum { EVERY, FIRST, SECOND };

#define FAMILY(id, word, what) word,
static const char *const words[] = {MODEL_FAMILIES(FAMILY)};
#undef FAMILY

const char *model_family_word(enum model_family family)
{
    return words[family];
}

struct model_shape model_family_shape(enum model_family family)
{
    static const struct model_shape shapes[MODEL_FAMILIES_N] = {
        [MODEL_GPT] = {GPT},     [MODEL_LLAMA] = {LLAMA},
        [MODEL_BERT] = {BERT},   [MODEL_VIT] = {VIT},
        [MODEL_T5] = {T5},       [MODEL_WHISPER] = {WHISPER},
        [MODEL_MAMBA] = {MAMBA}, [MODEL_CONV] = {.family = MODEL_CONV},
    };

    return shapes[family];
}

/* The list that is being made. */
struct lister {
    struct model *m;
    const struct model_shape *s;
    uint64_t layers[3]; /* number of layers of each kind; [EVERY] is their sum */
    bool failed;        /* too many parameters, or out of memory */
};

static void list_tensor(struct lister *l, const char *name, enum model_tensor_role role, enum model_tensor_place place,
                        uint64_t rows, uint64_t cols, uint64_t count)
{
    if (count && rows && cols && !model_add(l->m, name, role, place, rows, cols, count)) l->failed = true;
}

/* Adds `each` of them to every layer of the kind. */
static void add_in(struct lister *l, unsigned kind, const char *name, enum model_tensor_role role, uint64_t rows,
                   uint64_t cols, uint64_t each)
{
    struct model_tensor *t;

    if (!l->layers[kind] || !each || !rows || !cols) return;
    t = model_add(l->m, name, role, TENSOR_IN_LAYER, rows, cols, l->layers[kind] * each);
    if (!t) {
        l->failed = true;
        return;
    }
    t->layers = l->layers[kind];
    t->kind = l->layers[kind] == l->layers[EVERY] ? EVERY : kind;
    if (role == TENSOR_ATTENTION || role == TENSOR_MLP || role == TENSOR_EXPERT || role == TENSOR_ROUTER) t->dims = 2;
}

static void add_bias(struct lister *l, unsigned kind, bool has, const char *name, uint64_t rows, uint64_t each)
{
    if (has) add_in(l, kind, name, TENSOR_BIAS, rows, 1, each);
}

static void add_norms(struct lister *l, unsigned kind, const char *name, uint64_t rows, uint64_t each)
{
    add_in(l, kind, name, TENSOR_NORM, rows, 1, each);
    add_bias(l, kind, l->s->norm_bias, "norm bias", rows, each);
}

static void add_norm(struct lister *l, const char *name, enum model_tensor_place place)
{
    list_tensor(l, name, TENSOR_NORM, place, l->s->hidden, 1, 1);
    if (l->s->norm_bias) list_tensor(l, "norm bias", TENSOR_BIAS, place, l->s->hidden, 1, 1);
}

static void add_latent_attention(struct lister *l)
{
    const struct model_shape *s = l->s;
    uint64_t head = s->nope_dim + s->rope_dim;

    if (s->q_rank) {
        add_in(l, EVERY, "q_a_proj", TENSOR_ATTENTION, s->q_rank, s->hidden, 1);
        add_in(l, EVERY, "q_a_norm", TENSOR_NORM, s->q_rank, 1, 1);
        add_in(l, EVERY, "q_b_proj", TENSOR_ATTENTION, s->heads * head, s->q_rank, 1);
    } else {
        add_in(l, EVERY, "q_proj", TENSOR_ATTENTION, s->heads * head, s->hidden, 1);
    }
    add_in(l, EVERY, "kv_a_proj", TENSOR_ATTENTION, s->kv_rank + s->rope_dim, s->hidden, 1);
    add_in(l, EVERY, "kv_a_norm", TENSOR_NORM, s->kv_rank, 1, 1);
    add_in(l, EVERY, "kv_b_proj", TENSOR_ATTENTION, s->heads * (s->nope_dim + s->v_dim), s->kv_rank, 1);
    add_in(l, EVERY, "o_proj", TENSOR_ATTENTION, s->hidden, s->heads * s->v_dim, 1);
}

/* modeling_qwen3_5.py, Qwen3_5GatedDeltaNet; Qwen3-Next has the same in fewer matrices. */
static void add_linear_attention(struct lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;
    const uint64_t keys = s->linear_keys * MODEL_LINEAR_HEAD, values = s->linear_values * MODEL_LINEAR_HEAD;

    add_in(l, kind, "linear qkv_proj", TENSOR_ATTENTION, 2 * keys + values, s->hidden, 1);
    add_in(l, kind, "linear z_proj", TENSOR_ATTENTION, values, s->hidden, 1);
    add_in(l, kind, "linear ba_proj", TENSOR_ATTENTION, s->linear_values, s->hidden, 2);
    add_in(l, kind, "linear conv1d", TENSOR_CONV, 2 * keys + values, s->taps, 1);
    if (!l->failed && l->layers[kind]) l->m->tensors[l->m->tensors_n - 1].dims = 4;
    add_in(l, kind, "dt_bias and A_log", TENSOR_OTHER, s->linear_values, 1, 2);
    add_in(l, kind, "linear norm", TENSOR_NORM, MODEL_LINEAR_HEAD, 1, 1);
    add_in(l, kind, "linear o_proj", TENSOR_ATTENTION, s->hidden, values, 1);
}

/* `each` is 2 if the layer has cross-attention, too. */
static void add_attention(struct lister *l, unsigned kind, uint64_t each)
{
    const struct model_shape *s = l->s;
    uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;

    if (s->fused_qkv) {
        add_in(l, kind, "qkv_proj", TENSOR_ATTENTION, q + 2 * kv, s->hidden, each);
        add_bias(l, kind, s->qkv_bias, "qkv_proj bias", q + 2 * kv, each);
    } else {
        add_in(l, kind, "q_proj", TENSOR_ATTENTION, s->gated_attention ? 2 * q : q, s->hidden, each);
        add_bias(l, kind, s->qkv_bias, "q_proj bias", q, each);
        add_in(l, kind, "k_proj", TENSOR_ATTENTION, kv, s->hidden, each);
        add_bias(l, kind, s->qkv_bias && !s->no_k_bias, "k_proj bias", kv, each);
        add_in(l, kind, "v_proj", TENSOR_ATTENTION, kv, s->hidden, each);
        add_bias(l, kind, s->qkv_bias, "v_proj bias", kv, each);
    }
    if (s->qk_norm) {
        add_in(l, kind, "q_norm", TENSOR_NORM, s->qk_norm_wide ? q : s->head_dim, 1, each);
        add_in(l, kind, "k_norm", TENSOR_NORM, s->qk_norm_wide ? kv : s->head_dim, 1, each);
    }
    if (s->sinks) add_in(l, kind, "sinks", TENSOR_OTHER, s->heads, 1, each);
    add_in(l, kind, "o_proj", TENSOR_ATTENTION, s->hidden, q, each);
    add_bias(l, kind, s->out_bias, "o_proj bias", s->hidden, each);
}

/* modeling_gemma4.py, Gemma4TextAttention with attention_k_eq_v. */
static void add_global_attention(struct lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;
    const uint64_t q = s->heads * s->global_head_dim, kv = s->global_kv_heads * s->global_head_dim;

    add_in(l, kind, "q_proj", TENSOR_ATTENTION, q, s->hidden, 1);
    add_in(l, kind, "k_proj", TENSOR_ATTENTION, kv, s->hidden, 1);
    add_in(l, kind, "q_norm", TENSOR_NORM, s->global_head_dim, 1, 1);
    add_in(l, kind, "k_norm", TENSOR_NORM, s->global_head_dim, 1, 1);
    add_in(l, kind, "o_proj", TENSOR_ATTENTION, s->hidden, q, 1);
}

static void add_mlps(struct lister *l, unsigned kind, enum model_tensor_role role, uint64_t ffn, bool bias,
                     uint64_t each)
{
    const struct model_shape *s = l->s;

    if (s->gated && s->fused_gate) {
        add_in(l, kind, "gate_up_proj", role, 2 * ffn, s->hidden, each);
        add_bias(l, kind, bias, "gate_up_proj bias", 2 * ffn, each);
    } else {
        if (s->gated) {
            add_in(l, kind, "gate_proj", role, ffn, s->hidden, each);
            add_bias(l, kind, bias, "gate_proj bias", ffn, each);
        }
        add_in(l, kind, "up_proj", role, ffn, s->hidden, each);
        add_bias(l, kind, bias, "up_proj bias", ffn, each);
    }
    add_in(l, kind, "down_proj", role, s->hidden, ffn, each);
    add_bias(l, kind, bias, "down_proj bias", s->hidden, each);
}

static void add_experts(struct lister *l, unsigned kind)
{
    const struct model_shape *s = l->s;

    add_in(l, kind, "router", TENSOR_ROUTER, s->experts, s->hidden, 1);
    add_bias(l, kind, s->router_bias, "router bias", s->experts, 1);
    add_mlps(l, kind, TENSOR_EXPERT, s->expert_ffn, s->expert_bias, s->experts);
    if (s->shared_experts) add_mlps(l, kind, TENSOR_MLP, s->shared_ffn, s->mlp_bias, 1);
    if (s->experts_beside) {
        add_norms(l, kind, "expert norm", s->hidden, 3);
        add_in(l, kind, "router scale", TENSOR_OTHER, s->hidden, 1, 1);
        add_in(l, kind, "expert scale", TENSOR_OTHER, s->experts, 1, 1);
    }
    if (s->shared_gate) add_in(l, kind, "shared_gate", TENSOR_ROUTER, 1, s->hidden, 1);
}

static void add_layer_tensors(struct lister *l)
{
    const struct model_shape *s = l->s;

    if (s->kv_rank) {
        add_latent_attention(l);
    } else if (s->linear_layers) {
        l->layers[FIRST] = s->linear_layers;
        l->layers[SECOND] = s->layers - s->linear_layers;
        add_linear_attention(l, FIRST);
        add_attention(l, SECOND, 1);
    } else if (s->global_head_dim) {
        l->layers[FIRST] = s->window_layers;
        l->layers[SECOND] = s->layers - s->window_layers;
        add_attention(l, FIRST, 1);
        add_global_attention(l, SECOND);
    } else {
        add_attention(l, EVERY, 1);
    }
    l->layers[FIRST] = s->layers - s->moe_layers;
    l->layers[SECOND] = s->moe_layers;
    add_mlps(l, FIRST, TENSOR_MLP, s->ffn, s->mlp_bias, 1);
    if (s->moe_layers) add_experts(l, SECOND);
    add_norms(l, EVERY, "norm", s->hidden, s->norms);
}

static void add_head(struct lister *l, uint64_t rows, uint64_t cols, bool matrix)
{
    if (matrix) list_tensor(l, "lm_head", TENSOR_HEAD, TENSOR_AFTER, rows, cols, 1);
    if (l->s->head_bias) list_tensor(l, "lm_head bias", TENSOR_BIAS, TENSOR_AFTER, rows, 1, 1);
}

static void list_decoder(struct lister *l)
{
    const struct model_shape *s = l->s;
    uint64_t width = s->embedding ? s->embedding : s->hidden;

    list_tensor(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, width, 1);
    list_tensor(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    if (s->embedding_norm) add_norm(l, "embed_norm", TENSOR_BEFORE);
    if (width != s->hidden) list_tensor(l, "project_in", TENSOR_EMBEDDING, TENSOR_BEFORE, s->hidden, width, 1);
    add_layer_tensors(l);
    if (s->final_norm) add_norm(l, "final_norm", TENSOR_AFTER);
    if (width != s->hidden) list_tensor(l, "project_out", TENSOR_HEAD, TENSOR_AFTER, width, s->hidden, 1);
    add_head(l, s->vocab, width, !s->tied);
}

static void list_bert(struct lister *l)
{
    const struct model_shape *s = l->s;

    list_tensor(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    list_tensor(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    list_tensor(l, "embed_types", TENSOR_EMBEDDING, TENSOR_BEFORE, s->token_types, s->hidden, 1);
    if (s->embedding_norm) add_norm(l, "embed_norm", TENSOR_BEFORE);
    add_layer_tensors(l);
    if (s->final_norm) add_norm(l, "final_norm", TENSOR_AFTER);
    if (s->pooler) {
        list_tensor(l, "pooler", TENSOR_HEAD, TENSOR_AFTER, s->hidden, s->hidden, 1);
        list_tensor(l, "pooler bias", TENSOR_BIAS, TENSOR_AFTER, s->hidden, 1, 1);
    }
    if (s->masked_lm) {
        list_tensor(l, "transform", TENSOR_HEAD, TENSOR_AFTER, s->hidden, s->hidden, 1);
        list_tensor(l, "transform bias", TENSOR_BIAS, TENSOR_AFTER, s->hidden, 1, 1);
        add_norm(l, "transform norm", TENSOR_AFTER);
        list_tensor(l, "head bias", TENSOR_BIAS, TENSOR_AFTER, s->vocab, 1, 1);
    }
}

static void list_vit(struct lister *l)
{
    const struct model_shape *s = l->s;
    struct model_tensor *t;

    list_tensor(l, "class_token", TENSOR_EMBEDDING, TENSOR_BEFORE, s->hidden, 1, 1);
    list_tensor(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    t = model_add(l->m, "patch_proj", TENSOR_CONV, TENSOR_BEFORE, s->hidden, s->channels * s->patch * s->patch, 1);
    if (t)
        t->dims = 4;
    else
        l->failed = true;
    list_tensor(l, "patch_proj bias", TENSOR_BIAS, TENSOR_BEFORE, s->hidden, 1, 1);
    add_layer_tensors(l);
    if (s->final_norm) add_norm(l, "final_norm", TENSOR_AFTER);
    if (s->pooler) {
        list_tensor(l, "pooler", TENSOR_HEAD, TENSOR_AFTER, s->hidden, s->hidden, 1);
        list_tensor(l, "pooler bias", TENSOR_BIAS, TENSOR_AFTER, s->hidden, 1, 1);
    }
    if (s->classes) {
        list_tensor(l, "head", TENSOR_HEAD, TENSOR_AFTER, s->classes, s->hidden, 1);
        list_tensor(l, "head bias", TENSOR_BIAS, TENSOR_AFTER, s->classes, 1, 1);
    }
}

/* The layers of an encoder, and of a decoder that also attends to the encoder's output. */
static void add_both(struct lister *l)
{
    const struct model_shape *s = l->s;

    add_attention(l, FIRST, 1);
    add_attention(l, SECOND, 2);
    add_mlps(l, EVERY, TENSOR_MLP, s->ffn, s->mlp_bias, 1);
    add_norms(l, FIRST, "norm", s->hidden, s->norms);
    add_norms(l, SECOND, "norm", s->hidden, s->norms + 1);
    add_norm(l, "encoder final_norm", TENSOR_BEFORE);
    add_norm(l, "final_norm", TENSOR_AFTER);
    add_head(l, s->vocab, s->hidden, !s->tied);
}

static void list_t5(struct lister *l)
{
    const struct model_shape *s = l->s;

    l->layers[FIRST] = s->encoder_layers;
    l->layers[SECOND] = s->layers - s->encoder_layers;
    list_tensor(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    list_tensor(l, "relative_attention_bias", TENSOR_EMBEDDING, TENSOR_BEFORE, s->buckets, s->heads, 2);
    add_both(l);
}

/* A convolution as a matrix: cols = inputs · taps of the kernel. */
static void add_conv(struct lister *l, const char *name, uint64_t rows, uint64_t cols)
{
    list_tensor(l, name, TENSOR_CONV, TENSOR_BEFORE, rows, cols, 1);
    if (!l->failed) l->m->tensors[l->m->tensors_n - 1].dims = 4;
}

enum { SOUND_TAPS = 3 }; /* modeling_whisper.py, WhisperEncoder: conv1, conv2 */

static void list_whisper(struct lister *l)
{
    const struct model_shape *s = l->s;

    l->layers[FIRST] = s->encoder_layers;
    l->layers[SECOND] = s->layers - s->encoder_layers;
    add_conv(l, "conv1", s->hidden, s->channels * SOUND_TAPS);
    list_tensor(l, "conv1 bias", TENSOR_BIAS, TENSOR_BEFORE, s->hidden, 1, 1);
    add_conv(l, "conv2", s->hidden, s->hidden * SOUND_TAPS);
    list_tensor(l, "conv2 bias", TENSOR_BIAS, TENSOR_BEFORE, s->hidden, 1, 1);
    list_tensor(l, "encoder embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->sound, s->hidden, 1);
    if (!l->failed) l->m->tensors[l->m->tensors_n - 1].fixed = true; /* sinusoids: requires_grad_(False) */
    list_tensor(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    list_tensor(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    add_both(l);
}

/* A vector or a table of a layer that is not part of a matrix product. */
static void add_plain_tensor(struct lister *l, const char *name, uint64_t rows, uint64_t cols)
{
    add_in(l, EVERY, name, TENSOR_OTHER, rows, cols, 1);
}

/* modeling_mamba.py, MambaMixer; modeling_mamba2.py, Mamba2Mixer. */
static void list_mamba(struct lister *l)
{
    const struct model_shape *s = l->s;
    uint64_t in = 2 * s->inner, mixed = s->inner;

    if (s->heads) { /* Mamba-2 */
        mixed += 2 * s->groups * s->state;
        in += 2 * s->groups * s->state + s->heads;
    }
    list_tensor(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    add_in(l, EVERY, "in_proj", TENSOR_MLP, in, s->hidden, 1);
    add_bias(l, EVERY, s->inner_bias, "in_proj bias", in, 1);
    add_in(l, EVERY, "conv1d", TENSOR_CONV, mixed, s->taps, 1);
    if (!l->failed) l->m->tensors[l->m->tensors_n - 1].dims = 4;
    add_bias(l, EVERY, s->conv_bias, "conv1d bias", mixed, 1);
    if (s->heads) {
        add_bias(l, EVERY, true, "dt_bias", s->heads, 1);
        add_plain_tensor(l, "A_log", s->heads, 1);
        add_plain_tensor(l, "D", s->heads, 1);
        add_norms(l, EVERY, "inner norm", s->inner, 1);
    } else {
        add_in(l, EVERY, "x_proj", TENSOR_MLP, s->step_rank + 2 * s->state, s->inner, 1);
        add_in(l, EVERY, "dt_proj", TENSOR_MLP, s->inner, s->step_rank, 1);
        add_bias(l, EVERY, true, "dt_proj bias", s->inner, 1);
        add_plain_tensor(l, "A_log", s->inner, s->state);
        add_plain_tensor(l, "D", s->inner, 1);
    }
    add_in(l, EVERY, "out_proj", TENSOR_MLP, s->hidden, s->inner, 1);
    add_bias(l, EVERY, s->inner_bias, "out_proj bias", s->hidden, 1);
    add_norms(l, EVERY, "norm", s->hidden, s->norms);
    add_norm(l, "final_norm", TENSOR_AFTER);
    add_head(l, s->vocab, s->hidden, !s->tied);
}

/* Products of two sizes, sums of a few such products, and products of three sizes of an image then fit in 64 bits. */
#define SIZE_LARGEST 1000000000u
#define PICTURE_LARGEST 100000u

static bool refuse_model_shape(const char *command, const char *what, int *exit_code, const char *why)
{
    complain("%s: %s: %s", command, what, why);
    *exit_code = EXIT_USAGE;
    return false;
}

static bool require_shape_number(const char *command, const char *what, int *exit_code, enum model_family family,
                                 const char *number, const char *option)
{
    char why[160];

    if (what[0] == '-' && option)
        snprintf(why, sizeof why, "a shape of family '%s' needs --%s too, the %s", words[family], option, number);
    else
        snprintf(why, sizeof why, "the %s is missing or zero", number);
    return refuse_model_shape(command, what, exit_code, why);
}

/* Families whose MLP has four times the hidden size by default, and those with as many layers in the encoder as in the
 * decoder. */
static bool is_fourfold(const struct model_shape *s)
{
    return s->family == MODEL_GPT || s->family == MODEL_BERT || s->family == MODEL_VIT || s->family == MODEL_WHISPER;
}

static bool is_halved(const struct model_shape *s)
{
    return s->family == MODEL_T5 || s->family == MODEL_WHISPER;
}

/* Defaults of both kinds of Mamba. */
static void complete_mamba(struct model_shape *s)
{
    if (s->family != MODEL_MAMBA) return;
    s->inner = s->inner ? s->inner : 2 * s->hidden;
    s->state = s->state ? s->state : s->heads ? 128 : 16;
    s->step_rank = s->heads ? 0 : s->step_rank ? s->step_rank : (s->hidden + 15) / 16;
    s->groups = !s->heads ? 0 : s->groups ? s->groups : 1;
    s->head_dim = s->heads ? s->inner / s->heads : 0;
}

/* Completes numbers that follow from the others. */
static void complete_shape(struct model_shape *s)
{
    bool fourfold = is_fourfold(s);

    complete_mamba(s);

    if (!s->head_dim && s->heads) s->head_dim = s->hidden / s->heads;
    if (!s->kv_heads) s->kv_heads = s->heads;
    if (!s->ffn && fourfold) s->ffn = 4 * s->hidden;
    if (s->experts) {
        s->moe_layers = s->moe_layers ? s->moe_layers : s->layers;
        s->expert_ffn = s->expert_ffn ? s->expert_ffn : s->ffn;
        s->shared_ffn = s->shared_ffn ? s->shared_ffn : s->shared_experts * s->expert_ffn;
    }
    if (s->family == MODEL_VIT && s->patch)
        s->positions = s->positions ? s->positions : (s->image / s->patch) * (s->image / s->patch) + 1;
    if (s->positions == MODEL_AS_CONTEXT) s->positions = s->context;
    if (is_halved(s) && !s->encoder_layers) s->encoder_layers = s->layers / 2;
    if (s->window && !s->window_layers) s->window_layers = s->layers;
}

static bool sizes_in_bounds(const char *command, const char *what, const struct model_shape *s, int *exit_code)
{
    const struct {
        const char *name;
        uint64_t size;
    } sizes[] = {
        {"layers", s->layers},
        {"image size", s->image},
        {"patch size", s->patch},
        {"channels", s->channels},
        {"hidden size", s->hidden},
        {"heads", s->heads},
        {"heads of keys", s->kv_heads},
        {"head size", s->head_dim},
        {"MLP size", s->ffn},
        {"vocabulary", s->vocab},
        {"positions", s->positions == MODEL_AS_CONTEXT ? s->context : s->positions},
        {"token types", s->token_types},
        {"experts", s->experts},
        {"experts' size", s->expert_ffn},
        {"shared experts", s->shared_experts},
        {"shared experts' size", s->shared_ffn},
        {"query rank", s->q_rank},
        {"key and value rank", s->kv_rank},
        {"rotary part of a head", s->rope_dim},
        {"other part of a head", s->nope_dim},
        {"head size of values", s->v_dim},
        {"classes", s->classes},
        {"embedding size", s->embedding},
        {"buckets", s->buckets},
        {"context", s->context},
        {"window", s->window},
        {"audio positions", s->sound},
        {"inner size", s->inner},
        {"state", s->state},
        {"kernel of the convolution", s->taps},
        {"rank of time steps", s->step_rank},
        {"groups", s->groups},
    };
    char why[160];

    /* in this order: the layers, three sizes of an image, the others */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].size > (i == 0 ? MODEL_LAYERS_MAX : i <= 3 ? PICTURE_LARGEST : SIZE_LARGEST)) {
            snprintf(why, sizeof why, "%s of %ju is more than any model has", sizes[i].name, (uintmax_t)sizes[i].size);
            return refuse_model_shape(command, what, exit_code, why);
        }
    }
    return true;
}

static bool has_sizes(const char *command, const char *what, const struct model_shape *s, int *exit_code)
{
    bool text = s->family != MODEL_VIT,
         all_moe = s->experts && s->expert_ffn && (!s->moe_layers || s->moe_layers == s->layers);
    bool fourfold = is_fourfold(s) || s->family == MODEL_MAMBA;
    const struct {
        bool missing;
        const char *number, *option;
    } rows[] = {
        {!s->layers, "number of layers", "layers"},
        {!s->hidden, "hidden size", "hidden"},
        {!s->heads && s->family != MODEL_MAMBA, "number of attention heads", "heads"},
        {s->family == MODEL_WHISPER && !s->sound, "number of positions of the encoder", NULL},
        {s->family == MODEL_WHISPER && !s->channels, "number of channels", NULL},
        {s->family == MODEL_MAMBA && !s->taps, "size of the convolution's kernel", NULL},
        {!s->ffn && !fourfold && !all_moe, "size of the MLP", "ffn"},
        {text && !s->vocab, "size of the vocabulary", "vocab"},
        {s->positions == MODEL_AS_CONTEXT && !s->context, "longest sequence, the number of rows of its position table",
         "context"},
        {s->experts && !s->experts_used, "number of experts per token", "experts-used"},
        {(s->experts_used || s->moe_layers || s->shared_experts) && !s->experts, "number of experts", "experts"},
        {s->kv_rank && !(s->nope_dim && s->v_dim), "size of the parts of a head besides the key and value rank", NULL},
        {!text && !s->image, "image size", NULL},
        {!text && !s->patch, "patch size", NULL},
        {!text && !s->channels, "number of channels", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].missing)
            return require_shape_number(command, what, exit_code, s->family, rows[i].number, rows[i].option);
    return true;
}

static bool is_shape_consistent(const char *command, const char *what, const struct model_shape *s, int *exit_code)
{
    char why[160] = "";

    if (s->family == MODEL_MAMBA && s->heads && (s->inner ? s->inner : 2 * s->hidden) % s->heads)
        snprintf(why, sizeof why, "%ju heads do not divide an inner size of %ju", (uintmax_t)s->heads,
                 (uintmax_t)(s->inner ? s->inner : 2 * s->hidden));
    else if (s->family == MODEL_MAMBA && (s->experts || s->kv_rank || s->window))
        snprintf(why, sizeof why, "a Mamba has neither experts nor attention");
    else if (s->family == MODEL_WHISPER && (s->experts || s->kv_rank))
        snprintf(why, sizeof why, "a Whisper has neither experts nor latent attention");
    else if (s->heads && !s->head_dim && !s->kv_rank && s->hidden % s->heads)
        snprintf(why, sizeof why, "%ju heads do not divide a hidden size of %ju", (uintmax_t)s->heads,
                 (uintmax_t)s->hidden);
    else if (s->kv_heads && s->heads % s->kv_heads && s->family != MODEL_MAMBA)
        snprintf(why, sizeof why, "%ju heads of keys and values do not divide %ju heads", (uintmax_t)s->kv_heads,
                 (uintmax_t)s->heads);
    else if (s->experts_used > s->experts)
        snprintf(why, sizeof why, "a token cannot use %ju of %ju experts", (uintmax_t)s->experts_used,
                 (uintmax_t)s->experts);
    else if (s->moe_layers > s->layers)
        snprintf(why, sizeof why, "%ju layers with experts are more than %ju layers", (uintmax_t)s->moe_layers,
                 (uintmax_t)s->layers);
    else if (s->encoder_layers > s->layers)
        snprintf(why, sizeof why, "%ju layers of the encoder are more than %ju layers", (uintmax_t)s->encoder_layers,
                 (uintmax_t)s->layers);
    else if (is_halved(s) && !s->encoder_layers && s->layers % 2)
        snprintf(why, sizeof why, "%ju layers cannot be halved between encoder and decoder", (uintmax_t)s->layers);
    else if (s->window_layers > s->layers)
        snprintf(why, sizeof why, "%ju layers with a sliding window are more than %ju layers",
                 (uintmax_t)s->window_layers, (uintmax_t)s->layers);
    else if (s->family == MODEL_VIT && (s->patch > s->image || s->image % s->patch))
        snprintf(why, sizeof why, "patches of %ju do not divide an image of %ju", (uintmax_t)s->patch,
                 (uintmax_t)s->image);
    return !*why || refuse_model_shape(command, what, exit_code, why);
}

static void list_tensors(struct lister *l)
{
    static void (*const listed[MODEL_FAMILIES_N])(struct lister *) = {
        [MODEL_GPT] = list_decoder, [MODEL_LLAMA] = list_decoder,   [MODEL_BERT] = list_bert,   [MODEL_VIT] = list_vit,
        [MODEL_T5] = list_t5,       [MODEL_WHISPER] = list_whisper, [MODEL_MAMBA] = list_mamba,
    };

    listed[l->s->family](l);
}

bool model_from_shape(const char *command, const char *what, const struct model_shape *shape, struct model *m,
                      int *exit_code)
{
    struct lister l = {.m = m, .s = &m->shape};

    *m = (struct model){.source = "options", .shape = *shape};
    *exit_code = EXIT_USAGE;
    if (shape->family == MODEL_UNKNOWN || shape->family >= MODEL_FAMILIES_N)
        return refuse_model_shape(command, what, exit_code,
                                  "the family of the model must be known for a shape: gpt, llama …");
    if (shape->family == MODEL_CONV)
        return refuse_model_shape(command, what, exit_code,
                                  "convolutional networks are known by name: --model resnet-50");
    if (shape->family == MODEL_DENOISER)
        return (shape->denoiser.latent && model_denoiser_make(m)) ||
               refuse_model_shape(command, what, exit_code, "denoisers are known by name or by their config.json");
    if (!sizes_in_bounds(command, what, shape, exit_code) || !has_sizes(command, what, shape, exit_code) ||
        !is_shape_consistent(command, what, shape, exit_code))
        return false;
    complete_shape(&m->shape);
    if (!sizes_in_bounds(command, what, &m->shape, exit_code)) return false;
    l.layers[EVERY] = m->shape.layers;
    list_tensors(&l);
    if (!model_add_tower(m)) l.failed = true;
    if (l.failed || !m->params)
        return refuse_model_shape(command, what, exit_code, "this shape has more than 1e15 parameters");
    return true;
}
