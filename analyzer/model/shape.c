/* Derives the tensors from the numbers of a configuration. */
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/model/convnets.h"
#include "analyzer/model/denoisers.h"
#include "analyzer/model/families.h"
#include "analyzer/model/lister.h"
#include "analyzer/model/model.h"
#include "analyzer/base/words.h"

static const char *const words[] = {MODEL_FAMILIES(WORDS_FIRST)};

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
        [MODEL_CLIP] = {CLIP},
    };

    return shapes[family];
}

static void add_layernorm(struct model_lister *l, const char *name, enum model_tensor_place place, uint64_t width)
{
    model_lister_add(l, name, TENSOR_NORM, place, width, 1, 1);
    if (l->s->norm_bias) model_lister_add(l, "norm bias", TENSOR_BIAS, place, width, 1, 1);
}

/* A dense layer before an output layer: ModernBERT's has no bias, and a norm. */
static void add_dense(struct model_lister *l, uint64_t rows, bool normed)
{
    const struct model_shape *s = l->s;

    model_lister_add(l, "transform", TENSOR_HEAD, TENSOR_AFTER, rows, s->hidden, 1);
    if (s->family != MODEL_BERT || s->positions)
        model_lister_add(l, "transform bias", TENSOR_BIAS, TENSOR_AFTER, rows, 1, 1);
    if (normed) add_layernorm(l, "transform norm", TENSOR_AFTER, rows);
}

static void add_task_head(struct model_lister *l, uint64_t width)
{
    const struct model_shape *s = l->s;

    if (s->label_dense) add_dense(l, s->hidden, s->family == MODEL_BERT && !s->positions);
    model_lister_add(l, "score", TENSOR_HEAD, TENSOR_AFTER, s->labels, width, 1);
    if (s->label_bias) model_lister_add(l, "score bias", TENSOR_BIAS, TENSOR_AFTER, s->labels, 1, 1);
}

static void add_head(struct model_lister *l, uint64_t rows, uint64_t cols, bool matrix)
{
    if (l->s->headless) {
        if (l->s->labels) add_task_head(l, cols);
        return;
    }
    if (matrix) model_lister_add(l, "lm_head", TENSOR_HEAD, TENSOR_AFTER, rows, cols, 1);
    if (l->s->head_bias) model_lister_add(l, "lm_head bias", TENSOR_BIAS, TENSOR_AFTER, rows, 1, 1);
}

/* modeling_gemma3n.py, modeling_gemma4.py: each layer has an embedding of the tokens of its own. */
static void add_layer_embeddings(struct model_lister *l)
{
    const struct model_shape *s = l->s;
    const uint64_t width = s->layers * s->layer_width;

    model_lister_add(l, "embed_tokens_per_layer", TENSOR_EMBEDDING, TENSOR_BEFORE, s->layer_vocab, width, 1);
    model_lister_add(l, "per_layer_model_projection", TENSOR_OTHER, TENSOR_BEFORE, width, s->hidden, 1);
    model_lister_add(l, "per_layer_norm", TENSOR_NORM, TENSOR_BEFORE, s->layer_width, 1, 1);
    if (s->streams > 1)
        model_lister_add(l, "altup projections", TENSOR_OTHER, TENSOR_BEFORE, s->hidden, s->hidden,
                         2 * (s->streams - 1));
}

static void list_decoder(struct model_lister *l)
{
    const struct model_shape *s = l->s;
    uint64_t width = s->embedding ? s->embedding : s->hidden;

    model_lister_add(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, width, 1);
    model_lister_add(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    if (s->embedding_norm) model_lister_add_norm(l, "embed_norm", TENSOR_BEFORE);
    if (width != s->hidden) model_lister_add(l, "project_in", TENSOR_EMBEDDING, TENSOR_BEFORE, s->hidden, width, 1);
    if (s->layer_width) add_layer_embeddings(l);
    model_lister_add_layers(l);
    if (s->hyper) {
        model_lister_add(l, "hyper connection", TENSOR_OTHER, TENSOR_AFTER, s->hyper, s->hyper * s->hidden, 1);
        model_lister_add(l, "hyper base", TENSOR_OTHER, TENSOR_AFTER, s->hyper + 1, 1, 1);
    }
    if (s->final_norm) model_lister_add_norm(l, "final_norm", TENSOR_AFTER);
    if (width != s->hidden) model_lister_add(l, "project_out", TENSOR_HEAD, TENSOR_AFTER, width, s->hidden, 1);
    add_head(l, s->vocab, width, !s->tied);
}

static void list_bert(struct model_lister *l)
{
    const struct model_shape *s = l->s;
    const uint64_t width = s->embedding ? s->embedding : s->hidden;

    model_lister_add(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, width, 1);
    model_lister_add(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, width, 1);
    model_lister_add(l, "embed_types", TENSOR_EMBEDDING, TENSOR_BEFORE, s->token_types, width, 1);
    if (s->embedding_norm) add_layernorm(l, "embed_norm", TENSOR_BEFORE, width);
    if (s->embedding) {
        model_lister_add(l, "project_in", TENSOR_EMBEDDING, TENSOR_BEFORE, s->hidden, width, 1);
        model_lister_add(l, "project_in bias", TENSOR_BIAS, TENSOR_BEFORE, s->hidden, 1, 1);
    }
    model_lister_add_layers(l);
    if (s->final_norm) model_lister_add_norm(l, "final_norm", TENSOR_AFTER);
    if (s->pooler) {
        model_lister_add(l, "pooler", TENSOR_HEAD, TENSOR_AFTER, s->hidden, s->hidden, 1);
        model_lister_add(l, "pooler bias", TENSOR_BIAS, TENSOR_AFTER, s->hidden, 1, 1);
    }
    if (s->masked_lm) {
        add_dense(l, width, true);
        if (!s->tied) model_lister_add(l, "lm_head", TENSOR_HEAD, TENSOR_AFTER, s->vocab, width, 1);
        model_lister_add(l, "head bias", TENSOR_BIAS, TENSOR_AFTER, s->vocab, 1, 1);
    }
    if (s->labels) add_task_head(l, s->hidden);
}

static void list_vit(struct model_lister *l)
{
    const struct model_shape *s = l->s;
    struct model_tensor *t;

    model_lister_add(l, "class_token", TENSOR_EMBEDDING, TENSOR_BEFORE, s->hidden, 1,
                     s->class_tokens + s->registers + s->mask_token);
    model_lister_add(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    t = model_add(l->m, "patch_proj", TENSOR_CONV, TENSOR_BEFORE, s->hidden, s->channels * s->patch * s->patch, 1);
    if (t)
        t->dims = 4;
    else
        l->failed = true;
    model_lister_add(l, "patch_proj bias", TENSOR_BIAS, TENSOR_BEFORE, s->hidden, 1, 1);
    model_lister_add_layers(l);
    if (s->final_norm) model_lister_add_norm(l, "final_norm", TENSOR_AFTER);
    if (s->pooler) {
        model_lister_add(l, "pooler", TENSOR_HEAD, TENSOR_AFTER, s->hidden, s->hidden, 1);
        model_lister_add(l, "pooler bias", TENSOR_BIAS, TENSOR_AFTER, s->hidden, 1, 1);
    }
    if (s->classes) {
        model_lister_add(l, "head", TENSOR_HEAD, TENSOR_AFTER, s->classes, (s->mean_in_head ? 2 : 1) * s->hidden, 1);
        model_lister_add(l, "head bias", TENSOR_BIAS, TENSOR_AFTER, s->classes, 1, 1);
    }
}

/* The layers of an encoder, and of a decoder that also attends to the encoder's output. */
static void add_both(struct model_lister *l)
{
    const struct model_shape *s = l->s;

    model_lister_add_attention(l, MODEL_FIRST, 1);
    model_lister_add_attention(l, MODEL_SECOND, 2);
    model_lister_add_mlps(l, MODEL_EVERY, TENSOR_MLP, s->ffn, s->mlp_bias, 1);
    model_lister_add_norms(l, MODEL_FIRST, "norm", s->hidden, s->norms);
    model_lister_add_norms(l, MODEL_SECOND, "norm", s->hidden, s->norms + 1);
    if (s->final_norm) { /* BART's stacks end with the norm of their last layer */
        model_lister_add_norm(l, "encoder final_norm", TENSOR_BEFORE);
        model_lister_add_norm(l, "final_norm", TENSOR_AFTER);
    }
    add_head(l, s->vocab, s->hidden, !s->tied);
}

static void list_t5(struct model_lister *l)
{
    const struct model_shape *s = l->s;

    l->layers[MODEL_FIRST] = s->encoder_layers;
    l->layers[MODEL_SECOND] = s->layers - s->encoder_layers;
    model_lister_add(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    model_lister_add(l, "relative_attention_bias", TENSOR_EMBEDDING, TENSOR_BEFORE, s->buckets, s->heads, 2);
    model_lister_add(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 2);
    if (s->positions && !l->failed) l->m->tensors[l->m->tensors_n - 1].fixed = s->fixed_positions;
    for (int stack = 0; s->embedding_norm && stack < 2; stack++) model_lister_add_norm(l, "embed_norm", TENSOR_BEFORE);
    add_both(l);
}

/* A convolution as a matrix: cols = inputs · taps of the kernel. */
static void add_conv(struct model_lister *l, const char *name, uint64_t rows, uint64_t cols)
{
    model_lister_add(l, name, TENSOR_CONV, TENSOR_BEFORE, rows, cols, 1);
    if (!l->failed) l->m->tensors[l->m->tensors_n - 1].dims = 4;
}

enum { SOUND_TAPS = 3 }; /* modeling_whisper.py, WhisperEncoder: conv1, conv2 */

static void list_whisper(struct model_lister *l)
{
    const struct model_shape *s = l->s;

    l->layers[MODEL_FIRST] = s->encoder_layers;
    l->layers[MODEL_SECOND] = s->layers - s->encoder_layers;
    add_conv(l, "conv1", s->hidden, s->channels * SOUND_TAPS);
    model_lister_add(l, "conv1 bias", TENSOR_BIAS, TENSOR_BEFORE, s->hidden, 1, 1);
    add_conv(l, "conv2", s->hidden, s->hidden * SOUND_TAPS);
    model_lister_add(l, "conv2 bias", TENSOR_BIAS, TENSOR_BEFORE, s->hidden, 1, 1);
    model_lister_add(l, "encoder embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->sound, s->hidden, 1);
    if (!l->failed) l->m->tensors[l->m->tensors_n - 1].fixed = true; /* sinusoids: requires_grad_(False) */
    model_lister_add(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    model_lister_add(l, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    add_both(l);
}

struct model_shape model_tower_shape(const struct model_shape *s, bool image)
{
    struct model_shape one = *s;

    one.family = MODEL_VIT;
    one.layers = image ? s->encoder_layers : s->layers - s->encoder_layers;
    one.encoder_layers = one.vocab = one.positions = 0;
    if (!image) {
        one.image = one.patch = 0;
        return one;
    }
    one.hidden = s->image_hidden;
    one.heads = one.kv_heads = s->image_heads;
    one.head_dim = one.heads ? one.hidden / one.heads : 0;
    one.ffn = s->image_ffn;
    return one;
}

static void add_matrix(struct model_lister *l, const char *name, uint64_t rows, uint64_t cols, bool bias)
{
    model_lister_add(l, name, TENSOR_HEAD, TENSOR_AFTER, rows, cols, 1);
    if (bias) model_lister_add(l, "head bias", TENSOR_BIAS, TENSOR_AFTER, rows, 1, 1);
}

/* modeling_siglip.py, SiglipMultiheadAttentionPoolingHead */
static void add_pooling(struct model_lister *l)
{
    const struct model_shape *s = l->s;

    model_lister_add(l, "probe", TENSOR_EMBEDDING, TENSOR_AFTER, s->hidden, 1, 1);
    add_matrix(l, "pooling qkv_proj", 3 * s->hidden, s->hidden, true);
    add_matrix(l, "pooling o_proj", s->hidden, s->hidden, true);
    add_matrix(l, "pooling up_proj", s->ffn, s->hidden, true);
    add_matrix(l, "pooling down_proj", s->hidden, s->ffn, true);
    model_lister_add_norm(l, "pooling norm", TENSOR_AFTER);
}

static void add_tower_layers(struct model_lister *l, unsigned kind)
{
    model_lister_add_attention(l, kind, 1);
    model_lister_add_mlps(l, kind, TENSOR_MLP, l->s->ffn, l->s->mlp_bias, 1);
    model_lister_add_norms(l, kind, "norm", l->s->hidden, l->s->norms);
    model_lister_add_norm(l, "final_norm", TENSOR_AFTER);
}

/* modeling_clip.py, modeling_siglip.py */
static void list_clip(struct model_lister *l)
{
    const struct model_shape *s = l->s, image = model_tower_shape(s, true), text = model_tower_shape(s, false);
    struct model_lister tower = *l;

    tower.layers[MODEL_FIRST] = image.layers;
    tower.layers[MODEL_SECOND] = text.layers;
    tower.s = &image;
    model_lister_add(&tower, "class_token", TENSOR_EMBEDDING, TENSOR_BEFORE, image.hidden, 1, s->class_tokens);
    model_lister_add(&tower, "image positions", TENSOR_EMBEDDING, TENSOR_BEFORE, model_image_tokens(s), image.hidden,
                     1);
    add_conv(&tower, "patch_proj", image.hidden, s->channels * s->patch * s->patch);
    if (s->projection)
        model_lister_add_norm(&tower, "image norm", TENSOR_BEFORE);
    else
        model_lister_add(&tower, "patch_proj bias", TENSOR_BIAS, TENSOR_BEFORE, image.hidden, 1, 1);
    add_tower_layers(&tower, MODEL_FIRST);
    if (s->projection)
        add_matrix(&tower, "image projection", s->projection, image.hidden, false);
    else
        add_pooling(&tower);
    tower.s = &text;
    model_lister_add(&tower, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    model_lister_add(&tower, "embed_positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    add_tower_layers(&tower, MODEL_SECOND);
    add_matrix(&tower, "text projection", s->projection ? s->projection : image.hidden, s->hidden, !s->projection);
    model_lister_add(&tower, "logit scale", TENSOR_OTHER, TENSOR_AFTER, s->projection ? 1 : 2, 1, 1);
    l->failed |= tower.failed;
}

static void list_mamba(struct model_lister *l)
{
    const struct model_shape *s = l->s;

    model_lister_add(l, "embed_tokens", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    model_lister_add_mamba(l, MODEL_EVERY);
    model_lister_add_norms(l, MODEL_EVERY, "norm", s->hidden, s->norms);
    model_lister_add_norm(l, "final_norm", TENSOR_AFTER);
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
    return s->family == MODEL_T5 || s->family == MODEL_WHISPER || s->family == MODEL_CLIP;
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

uint64_t model_image_tokens(const struct model_shape *s)
{
    const uint64_t side = s->patch ? s->image / s->patch : 0;

    return side * side + s->class_tokens + s->registers;
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
    if (s->family == MODEL_VIT && s->patch && !s->positions && !s->buckets)
        s->positions = model_image_tokens(s) - s->registers;
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
        {"hidden size of the images", s->image_hidden},
        {"heads of the images", s->image_heads},
        {"MLP size of the images", s->image_ffn},
        {"projection", s->projection},
        {"class tokens", s->class_tokens},
        {"registers", s->registers},
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
        {"heads of the state", s->state_heads},
        {"head size of the state", s->state_head_dim},
        {"heads of linear keys", s->linear_keys},
        {"heads of linear values", s->linear_values},
        {"head size of linear keys", s->linear_key_dim},
        {"head size of linear values", s->linear_value_dim},
        {"heads of the indexer", s->index_heads},
        {"head size of the indexer", s->index_dim},
        {"experts' input", s->latent_ffn},
        {"vocabulary of the layers", s->layer_vocab},
        {"embeddings of the layers", s->layer_width},
        {"streams", s->streams > PICTURE_LARGEST / 100 ? SIZE_LARGEST + 1 : s->streams},
        {"rank", s->laurel_rank},
        {"residual streams", s->hyper > 1000 ? SIZE_LARGEST + 1 : s->hyper},
        {"groups of the output", s->o_groups},
        {"rank of the output", s->o_rank},
        {"compression", s->compress},
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
    const bool text = s->family != MODEL_VIT, images = !text || s->family == MODEL_CLIP;
    bool all_moe = s->experts && s->expert_ffn && (!s->moe_layers || s->moe_layers == s->layers);
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
        {images && !s->image, "image size", NULL},
        {images && !s->patch, "patch size", NULL},
        {images && !s->channels, "number of channels", NULL},
        {s->family == MODEL_CLIP && !(s->image_hidden && s->image_heads && s->image_ffn), "size of the image tower",
         NULL},
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
    else if (s->image_heads && s->image_hidden % s->image_heads)
        snprintf(why, sizeof why, "%ju heads do not divide a hidden size of %ju", (uintmax_t)s->image_heads,
                 (uintmax_t)s->image_hidden);
    else if (s->family == MODEL_CLIP && s->patch > s->image) /* the rest of an image is cut off (SigLIP's 384 / 14) */
        snprintf(why, sizeof why, "patches of %ju are larger than an image of %ju", (uintmax_t)s->patch,
                 (uintmax_t)s->image);
    else if (s->family == MODEL_VIT && (s->patch > s->image || s->image % s->patch))
        snprintf(why, sizeof why, "patches of %ju do not divide an image of %ju", (uintmax_t)s->patch,
                 (uintmax_t)s->image);
    return !*why || refuse_model_shape(command, what, exit_code, why);
}

static bool blocks_are_consistent(const char *command, const char *what, const struct model_shape *s, int *exit_code)
{
    uint64_t layers = 0;

    for (unsigned i = 0; i < s->blocks_n; i++) {
        const struct model_shape one = model_block_shape(s, i);
        if (!sizes_in_bounds(command, what, &one, exit_code) || !is_shape_consistent(command, what, &one, exit_code))
            return false;
        layers += one.layers;
    }
    if (!s->blocks_n || layers == s->layers) return true;
    return refuse_model_shape(command, what, exit_code, "the groups of layers do not add up to the layers");
}

static void list_tensors(struct model_lister *l)
{
    static void (*const listed[MODEL_FAMILIES_N])(struct model_lister *) = {
        [MODEL_GPT] = list_decoder, [MODEL_LLAMA] = list_decoder, [MODEL_BERT] = list_bert,
        [MODEL_VIT] = list_vit,     [MODEL_T5] = list_t5,         [MODEL_WHISPER] = list_whisper,
        [MODEL_MAMBA] = list_mamba, [MODEL_CLIP] = list_clip,
    };

    listed[l->s->family](l);
}

bool model_from_shape(const char *command, const char *what, const struct model_shape *shape, struct model *m,
                      int *exit_code)
{
    struct model_lister l = {.m = m, .s = &m->shape};

    *m = (struct model){.source = "options", .shape = *shape};
    *exit_code = EXIT_USAGE;
    if (shape->family == MODEL_UNKNOWN || shape->family >= MODEL_FAMILIES_N)
        return refuse_model_shape(command, what, exit_code,
                                  "the family of the model must be known for a shape: gpt, llama …");
    if (shape->family == MODEL_CONV && shape->conv_net)
        return model_convnet_make(m) ||
               refuse_model_shape(command, what, exit_code, "the image is too small for this network");
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
    if (!sizes_in_bounds(command, what, &m->shape, exit_code) ||
        !blocks_are_consistent(command, what, &m->shape, exit_code))
        return false;
    l.layers[MODEL_EVERY] = m->shape.layers;
    list_tensors(&l);
    if (!model_add_tower(m)) l.failed = true;
    if (l.failed || !m->params)
        return refuse_model_shape(command, what, exit_code, "this shape has more than 1e15 parameters");
    return true;
}
