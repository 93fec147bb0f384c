/* Derives a shape from the keys of a config.json. */
#include "analyzer/model/config_reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"

#define NUMBER_MAX 1000000000u

static uint64_t read_positive_number(struct model_reading *r, const char *keys, uint64_t absent, uint64_t most)
{
    char name[64];
    json_t *value = model_config_find(r, keys, name);
    uint64_t n = absent;

    if (!value) return absent;
    if (model_config_read_count(value, &n) && n > 0 && n <= most) return n;
    model_config_reject(r, "%s is not a whole number from 1 to %ju", name, (uintmax_t)most);
    return absent ? absent : 1; /* callers may divide by it before the problem is printed */
}

/* The first of a list of numbers, one per layer. */
static uint64_t first_number(struct model_reading *r, const char *key, uint64_t absent)
{
    uint64_t n = absent;

    if (!model_config_read_count(json_array_get(json_object_get(r->json, key), 0), &n) || n == 0)
        model_config_reject(r, "%s does not begin with a whole number from 1 to 1e9", key);
    return n;
}

static void read_norms(struct model_reading *r, unsigned traits)
{
    struct model_shape *s = &r->s;

    s->norm_bias = traits & LAYERNORM;
    s->norms = traits & NORMS_4 ? 4 : traits & NORMS_1 ? 1 : traits & NORMS_0 ? 0 : 2;
    /* ModernBERT's blocks begin with norms. Its first norm is that of the embeddings, so the first block has one less.
     */
    const bool bert = s->family == MODEL_BERT && (traits & LEARNED);
    s->final_norm = !(traits & (NORMS_0 | NORMS_AFTER)) && !bert;
    s->embedding_norm = (traits & EMBEDDING_NORM) || bert;
    s->qk_norm = traits & (QK_NORM | QK_NORM_WIDE);
    s->qk_norm_wide = traits & QK_NORM_WIDE;
    s->wide_norms = traits & WIDE_NORMS;
    s->wide_logits = strcmp(r->type->name, "nemotron_h") == 0;
}

static void read_biases(struct model_reading *r, unsigned traits)
{
    struct model_shape *s = &r->s;

    s->qkv_bias = traits & QKV_BIAS;
    s->out_bias = traits & OUT_BIAS;
    s->mlp_bias = traits & MLP_BIAS;
    s->head_bias = traits & HEAD_BIAS;
    if (traits & (KEY_ATTENTION_BIAS | KEY_QKV_BIAS))
        s->qkv_bias = model_config_flag(r, "attention_bias|qkv_bias", s->qkv_bias);
    if (traits & KEY_ATTENTION_BIAS) s->out_bias = model_config_flag(r, "attention_bias", s->out_bias);
    if (traits & KEY_MLP_BIAS) s->mlp_bias = model_config_flag(r, "mlp_bias", s->mlp_bias);
}

static uint64_t layers_called(struct model_reading *r, const char *kind)
{
    json_t *list = model_config_find(r, "layer_types", (char[64]){0});
    uint64_t n = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        n += text && strcmp(text, kind) == 0;
    }
    return n;
}

static void read_config_window(struct model_reading *r, unsigned traits)
{
    struct model_shape *s = &r->s;
    uint64_t every = traits & WINDOW_2 ? 2 : traits & WINDOW_4 ? 4 : traits & WINDOW_6 ? 6 : 0;
    uint64_t absent = strcmp(r->type->name, "gpt_oss") == 0 ? 128
                      : every || (traits & WINDOW_TOP) || strcmp(r->type->name, "mistral") == 0 ||
                              strcmp(r->type->name, "ministral") == 0
                          ? 4096
                          : 0;

    if (!(traits & (WINDOW_ALL | WINDOW_TOP | WINDOW_2 | WINDOW_4 | WINDOW_6))) return;
    if ((traits & WINDOW_TOP) && !model_config_flag(r, "use_sliding_window", false)) return;
    if (absent && json_is_null(json_object_get(r->json, "sliding_window"))) return; /* null: no window */
    s->window = model_config_count(r, "sliding_window", absent);
    if (!s->window) return;
    if (traits & WINDOW_6)
        every = read_positive_number(r, "sliding_window_pattern|_sliding_window_pattern", every, MODEL_LAYERS_MAX);
    if (json_array_size(model_config_find(r, "layer_types", (char[64]){0})) == s->layers)
        s->window_layers = layers_called(r, "sliding_attention");
    else if (traits & WINDOW_TOP)
        s->window_layers = s->layers - model_config_count(r, "max_window_layers", 28);
    else
        s->window_layers = every ? s->layers - s->layers / every : s->layers;
    if (s->window_layers > s->layers || s->window_layers == 0) s->window = s->window_layers = 0;
}

/* Number of layers with experts: every step-th one, except those in the list. */
static uint64_t sparse_layers(uint64_t layers, uint64_t step, json_t *dense)
{
    bool *is_dense = arena_realloc(NULL, layers, sizeof *is_dense);
    uint64_t n = 0, layer;

    memset(is_dense, 0, layers * sizeof *is_dense);
    for (size_t i = 0; i < json_array_size(dense); i++)
        if (model_config_read_count(json_array_get(dense, i), &layer) && layer < layers) is_dense[layer] = true;
    for (uint64_t i = 0; i < layers; i++) n += (i + 1) % step == 0 && !is_dense[i];
    free(is_dense);
    return n;
}

/* Shared experts whose size, not their number, is given. */
static void read_shared_experts(struct model_reading *r)
{
    struct model_shape *s = &r->s;

    s->shared_ffn = model_config_count(r,
                                       "moe_shared_expert_intermediate_size|shared_expert_intermediate_size|"
                                       "shared_intermediate_size|share_expert_dim",
                                       0);
    if (s->shared_ffn && !s->shared_experts) s->shared_experts = 1;
    if (!s->shared_experts) s->shared_ffn = 0;
    s->shared_gate = s->shared_ffn && model_config_has(r, "linear_num_value_heads");
    s->expert_choice_bias = strcmp(r->type->name, "afmoe") == 0 || strcmp(r->type->name, "laguna") == 0 ||
                            strcmp(r->type->name, "ernie4_5_moe") == 0;
}

static void read_config_experts(struct model_reading *r, const char *type)
{
    struct model_shape *s = &r->s;
    const bool deepseek = strncmp(type, "deepseek", 8) == 0 || strcmp(type, "glm4_moe") == 0;
    const bool mixed = r->type->traits & MIXED;
    struct row {
        const char *type;
        uint64_t experts, used, ffn, shared;
    };
    static const struct row absent[] = {
        {"mixtral", 8, 2, 0, 0},      {"qwen2_moe", 60, 4, 1408, 0},   {"qwen3_moe", 128, 8, 768, 0},
        {"gpt_oss", 128, 4, 0, 0},    {"deepseek_v2", 64, 0, 1407, 2}, {"deepseek_v3", 256, 8, 2048, 1},
        {"olmoe", 64, 8, 0, 0},       {"glm4_moe", 128, 8, 1408, 1},   {"phimoe", 16, 2, 0, 0},
        {"llama4_text", 16, 1, 0, 1},
    };
    struct row d = {"", 0, 0, 0, 0};

    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (strcmp(absent[i].type, type) == 0) d = absent[i];
    s->experts = model_config_count(r, "num_local_experts|num_experts|n_routed_experts|moe_num_experts", d.experts);
    if (s->experts <= 1 || !model_config_flag(r, "enable_moe_block", true)) {
        if (mixed) s->ffn = model_config_count(r, "shared_intermediate_size", s->ffn); /* Granite 4 without experts */
        s->experts = 0;
        return;
    }
    s->experts_used = model_config_count(
        r, "num_experts_per_tok|num_experts_per_token|moe_k|moe_topk|top_k_experts|moe_top_k", d.used);
    s->expert_ffn = read_positive_number(r, "moe_intermediate_size|expert_ffn_hidden_size|ffn_hidden_size",
                                         d.ffn ? d.ffn : s->ffn, NUMBER_MAX);
    s->shared_experts = model_config_count(r, "n_shared_experts|num_shared_experts|moe_num_shared_experts", d.shared);
    if (mixed) read_shared_experts(r);
    if (!s->experts_used) model_config_reject(r, "num_experts_per_tok is missing or 0");
    if (s->experts_used > s->experts)
        model_config_reject(r, "num_experts_per_tok is %ju, but there are %ju experts", (uintmax_t)s->experts_used,
                            (uintmax_t)s->experts);
    s->moe_layers = s->layers;
    if (mixed) return; /* config_mix.c knows the layers */
    if (deepseek) {
        uint64_t dense = model_config_count(r, "first_k_dense_replace",
                                            strcmp(type, "deepseek_v3") == 0 ? 3 : strcmp(type, "glm4_moe") == 0);
        s->moe_layers = dense < s->layers ? s->layers - dense : 0;
    } else {
        uint64_t step = read_positive_number(r, "decoder_sparse_step", 1, MODEL_LAYERS_MAX);
        s->moe_layers = sparse_layers(s->layers, step, json_object_get(r->json, "mlp_only_layers"));
    }
    if (s->moe_layers == 0) s->experts = s->experts_used = s->shared_experts = s->expert_ffn = 0;
}

static void read_config_latent(struct model_reading *r)
{
    struct model_shape *s = &r->s;

    s->kv_rank = read_positive_number(r, "kv_lora_rank", 512, NUMBER_MAX);
    s->q_rank = json_is_null(json_object_get(r->json, "q_lora_rank"))
                    ? 0
                    : model_config_count(r, "q_lora_rank", r->type->traits & MIXED ? 0 : 1536);
    s->rope_dim = model_config_count(r, "qk_rope_head_dim", 64);
    s->nope_dim = model_config_count(r, "qk_nope_head_dim", 128);
    s->v_dim = read_positive_number(r, "v_head_dim", 128, NUMBER_MAX);
    s->head_dim = s->rope_dim + s->nope_dim;
    s->kv_heads = s->heads;
    if (!s->head_dim) model_config_reject(r, "qk_nope_head_dim and qk_rope_head_dim are 0");
    if (model_config_flag(r, "attention_bias", false))
        model_config_reject(r, "attention_bias is true, which gpuspy does not support with latent attention; give the "
                               "model's .safetensors");
}

/* A key whose value is 224 or [224, 224]. */
static uint64_t image_side(struct model_reading *r, const char *key, uint64_t absent)
{
    json_t *value = json_object_get(r->json, key);
    uint64_t a = absent, b = absent;

    if (!json_is_array(value)) return read_positive_number(r, key, absent, 100000);
    if (json_array_size(value) != 2 || !model_config_read_count(json_array_get(value, 0), &a) ||
        !model_config_read_count(json_array_get(value, 1), &b) || a != b || a == 0 || a > 100000)
        model_config_reject(r, "%s is not a square", key);
    return a;
}

/* The tokens beside the patches, and what blocks of ViT's descendants have in addition. */
static void read_vit_kind(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const char *type = r->type->name;
    const bool dino = strncmp(type, "dinov2", 6) == 0, beit = strcmp(type, "beit") == 0;
    const uint64_t side = s->patch ? s->image / s->patch : 0;

    s->class_tokens = strcmp(type, "deit") == 0 ? 2 : 1;
    s->layer_scale = dino;
    if (dino) {
        s->mask_token = model_config_flag(r, "use_mask_token", true);
        s->registers = strlen(type) > 6 ? model_config_count(r, "num_register_tokens", 4) : 0;
        s->ffn = s->hidden * read_positive_number(r, "mlp_ratio", 4, 1000);
        s->gated = s->fused_gate = model_config_flag(r, "use_swiglu_ffn", false);
        if (s->gated) s->ffn = (s->ffn * 2 / 3 + 7) / 8 * 8;
        s->mean_in_head = s->fixed_positions = true;
        s->positions = side * side + 1;
    }
    if (beit) {
        json_t *scale = json_object_get(r->json, "layer_scale_init_value");
        s->layer_scale = !json_is_number(scale) || json_number_value(scale) > 0;
        s->mask_token = model_config_flag(r, "use_mask_token", false);
        s->no_k_bias = true;
        s->buckets = (2 * side - 1) * (2 * side - 1) + 3;
        if (model_config_flag(r, "use_absolute_position_embeddings", false) ||
            model_config_flag(r, "use_shared_relative_position_bias", false) ||
            !model_config_flag(r, "use_relative_position_bias", false))
            model_config_reject(r, "gpuspy does not support a BEiT without use_relative_position_bias, or with "
                                   "absolute or shared positions; give the model's .safetensors");
    }
}

static void read_vit(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const char *architecture = json_string_value(json_array_get(json_object_get(r->json, "architectures"), 0));
    json_t *labels = json_object_get(r->json, "id2label");

    s->image = image_side(r, "image_size", 224);
    s->patch = image_side(r, "patch_size", strcmp(r->type->name, "dinov2") == 0 ? 14 : 16);
    s->channels = read_positive_number(r, "num_channels", 3, 100000);
    s->qkv_bias = model_config_flag(r, "qkv_bias", true);
    if (!*r->problem && (s->patch > s->image || s->image % s->patch))
        model_config_reject(r, "patch_size %ju does not divide image_size %ju", (uintmax_t)s->patch,
                            (uintmax_t)s->image);
    if (architecture && strstr(architecture, "ForImageClassification"))
        s->classes = model_config_count(r, "num_labels", json_object_size(labels) ? json_object_size(labels) : 2);
    else
        s->pooler =
            strcmp(r->type->name, "vit") == 0 || strcmp(r->type->name, "deit") == 0; /* BEiT's is its last norm */
    if (architecture && strstr(architecture, "WithTeacher")) s->classes *= 2; /* a classifier for each of two tokens */
    read_vit_kind(r);
}

/* `json` is text_config. */
static void read_clip(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    struct model_reading v = *r;
    const bool clip = strcmp(r->type->name, "clip") == 0;
    const char *activation = model_config_word(r->json, "hidden_act");

    v.json = json_object_get(r->outer, "vision_config_dict");
    if (!json_is_object(v.json)) v.json = json_object_get(r->outer, "vision_config");
    s->encoder_layers = read_positive_number(&v, "num_hidden_layers", 12, MODEL_LAYERS_MAX);
    s->layers += s->encoder_layers;
    s->image_hidden = read_positive_number(&v, "hidden_size", 768, NUMBER_MAX);
    s->image_heads = read_positive_number(&v, "num_attention_heads", 12, NUMBER_MAX);
    s->image_ffn = read_positive_number(&v, "intermediate_size", 3072, NUMBER_MAX);
    s->image = image_side(&v, "image_size", 224);
    s->patch = image_side(&v, "patch_size", clip ? 32 : 16);
    s->channels = read_positive_number(&v, "num_channels", 3, 100000);
    s->class_tokens = clip;
    s->quick_gelu = clip && (!*activation || strcmp(activation, "quick_gelu") == 0);
    const bool head = model_config_flag(&v, "vision_use_head", true);
    v.json = r->outer;
    s->projection = clip ? read_positive_number(&v, "projection_dim", 512, NUMBER_MAX) : 0;
    if (*v.problem) memcpy(r->problem, v.problem, sizeof r->problem);
    if (!clip && (!head || model_config_count(r, "projection_size", s->image_hidden) != s->image_hidden))
        model_config_reject(r, "gpuspy does not support a SigLIP without vision_use_head, or with a projection_size "
                               "that is not the image's hidden_size; give the model's .safetensors");
}

/* Falcon has keys for what other models have in their type. */
static void read_falcon(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    bool newer = model_config_flag(r, "new_decoder_architecture", false), bias = model_config_flag(r, "bias", false);

    s->qkv_bias = s->out_bias = s->mlp_bias = bias;
    s->kv_heads = newer ? read_positive_number(r, "num_kv_heads", s->heads, NUMBER_MAX)
                  : model_config_flag(r, "multi_query", true) ? 1
                                                              : s->heads;
    s->norms = model_config_flag(r, "parallel_attn", true) && !newer
                   ? 1
                   : (unsigned)model_config_count(r, "num_ln_in_parallel_attn", 2);
    if (s->norms < 1 || s->norms > 2) model_config_reject(r, "num_ln_in_parallel_attn is neither 1 nor 2");
}

static void read_t5(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const char *forward = json_string_value(json_object_get(r->json, "feed_forward_proj"));
    bool newer = strcmp(r->type->name, "mt5") == 0;

    s->encoder_layers = s->layers;
    s->layers += read_positive_number(r, "num_decoder_layers", s->layers, MODEL_LAYERS_MAX);
    s->head_dim = read_positive_number(r, "d_kv", 64, NUMBER_MAX);
    s->ffn = read_positive_number(r, "d_ff", r->type->ffn, NUMBER_MAX);
    s->buckets = read_positive_number(r, "relative_attention_num_buckets", 32, NUMBER_MAX);
    s->gated = forward ? strncmp(forward, "gated-", 6) == 0 : newer;
}

/* The number of both halves, which are equal in all published models. */
static uint64_t of_both(struct model_reading *r, const char *encoder, const char *decoder, uint64_t absent)
{
    uint64_t one = read_positive_number(r, encoder, absent, NUMBER_MAX),
             other = read_positive_number(r, decoder, absent, NUMBER_MAX);

    if (one != other)
        model_config_reject(r, "%s and %s differ, which gpuspy does not support; give the model's .safetensors",
                            encoder, decoder);
    return one;
}

static bool is_zero(struct model_reading *r, const char *keys, bool absent)
{
    json_t *value = model_config_find(r, keys, (char[64]){0});

    return value ? json_number_value(value) == 0 : absent;
}

/* BART and its descendants: T5's two stacks with GPT's layers. */
static void read_bart(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const char *type = r->type->name, *activation = model_config_word(r->json, "activation_function");
    const bool learned = strcmp(type, "bart") == 0 || strcmp(type, "mbart") == 0, m2m = strcmp(type, "m2m_100") == 0;

    s->encoder_layers = read_positive_number(r, "encoder_layers", 12, MODEL_LAYERS_MAX);
    s->layers = s->encoder_layers + read_positive_number(r, "decoder_layers", 12, MODEL_LAYERS_MAX);
    s->heads = s->kv_heads = of_both(r, "encoder_attention_heads", "decoder_attention_heads", 16);
    s->ffn = of_both(r, "encoder_ffn_dim", "decoder_ffn_dim", 4096);
    if (learned) s->positions += 2; /* BartLearnedPositionalEmbedding.offset */
    s->fixed_positions = !learned;
    s->relu = strcmp(activation, "relu") == 0 || (m2m && !*activation);
    s->no_dropout = is_zero(r, "dropout", false);
    s->no_score_dropout = is_zero(r, "attention_dropout", !m2m);
    s->inner_dropout = !is_zero(r, "activation_dropout", true);
    s->logits_bias = !m2m;
    if (!s->tied || !model_config_flag(r, "share_encoder_decoder_embeddings", true) ||
        model_config_count(r, "decoder_vocab_size", s->vocab) != s->vocab)
        model_config_reject(
            r,
            "encoder, decoder and output layer have embeddings of their own, which gpuspy does not support; give the "
            "model's .safetensors");
}

static void read_whisper(struct model_reading *r)
{
    struct model_shape *s = &r->s;

    s->encoder_layers = read_positive_number(r, "encoder_layers|num_hidden_layers", 4, MODEL_LAYERS_MAX);
    s->layers = s->encoder_layers + read_positive_number(r, "decoder_layers", 4, MODEL_LAYERS_MAX);
    s->heads = s->kv_heads = of_both(r, "encoder_attention_heads", "decoder_attention_heads", 6);
    s->ffn = of_both(r, "encoder_ffn_dim", "decoder_ffn_dim", 1536);
    s->channels = read_positive_number(r, "num_mel_bins", 80, 100000);
    s->sound = read_positive_number(r, "max_source_positions", 1500, NUMBER_MAX);
    s->positions = s->context = read_positive_number(r, "max_target_positions", 448, NUMBER_MAX);
    s->no_k_bias = true;
}

/* The configuration's class computes intermediate_size and does not read it. */
static void read_mamba(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const bool newer = strcmp(r->type->name, "mamba2") == 0;
    const bool automatic = strcmp(model_config_word(r->json, "time_step_rank"), "auto") == 0;

    s->inner = s->hidden * read_positive_number(r, "expand", 2, 1000);
    s->state = read_positive_number(r, "state_size", newer ? 128 : 16, NUMBER_MAX);
    s->taps = read_positive_number(r, "conv_kernel", 4, NUMBER_MAX);
    s->chunk = model_config_count(r, "chunk_size", 256);
    s->conv_bias = model_config_flag(r, "use_conv_bias", true);
    s->inner_bias = model_config_flag(r, "use_bias", false);
    s->heads = s->kv_heads = s->head_dim = s->ffn = s->context = 0;
    if (!newer) {
        s->step_rank = automatic ? 0 : read_positive_number(r, "time_step_rank", 0, NUMBER_MAX);
        return;
    }
    s->heads = read_positive_number(r, "num_heads", 128, NUMBER_MAX);
    s->head_dim = read_positive_number(r, "head_dim", 64, NUMBER_MAX);
    s->groups = read_positive_number(r, "n_groups", 8, NUMBER_MAX);
    if (s->heads * s->head_dim != s->inner)
        model_config_reject(r, "num_heads · head_dim is %ju, and expand · hidden_size is %ju: they must be equal",
                            (uintmax_t)(s->heads * s->head_dim), (uintmax_t)s->inner);
}

static void read_llama4(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    uint64_t every = read_positive_number(r, "interleave_moe_layer_step", 1, MODEL_LAYERS_MAX);
    json_t *listed_layers = json_object_get(r->json, "moe_layers");

    s->expert_ffn = read_positive_number(r, "intermediate_size", 8192, NUMBER_MAX);
    s->ffn = read_positive_number(r, "intermediate_size_mlp", 16384, NUMBER_MAX);
    s->shared_experts = 1;
    s->moe_layers = json_is_array(listed_layers) ? json_array_size(listed_layers) : s->layers / every;
    s->window = model_config_count(r, "attention_chunk_size", 8192);
    s->window_layers = layers_called(r, "chunked_attention");
    if (s->window_layers == 0) s->window = 0;
}

/* Activations that take several operations; transformers, activations.py. */
static bool is_activation_in_pieces(const char *activation)
{
    return !*activation || strcmp(activation, "gelu_new") == 0 || strcmp(activation, "gelu_fast") == 0 ||
           strcmp(activation, "gelu_python") == 0;
}

/* ELECTRA and ALBERT have narrower tables, ALBERT one set of parameters for all layers. */
static void read_bert(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const char *type = r->type->name;
    const bool albert = strcmp(type, "albert") == 0, newer = albert || strcmp(type, "modernbert") == 0;

    if (strcmp(type, "modernbert") == 0) s->norm_bias = model_config_flag(r, "norm_bias", false);
    s->relu = strcmp(model_config_word(r->json, "hidden_act"), "relu") == 0;
    s->no_dropout = is_zero(r, "hidden_dropout_prob|mlp_dropout|dropout", newer) &&
                    is_zero(r, "attention_probs_dropout_prob|attention_dropout", newer);
    if (albert || strcmp(type, "electra") == 0) {
        s->embedding = read_positive_number(r, "embedding_size", 128, NUMBER_MAX);
        s->token_types = model_config_count(r, "type_vocab_size", 2);
        if (s->embedding == s->hidden) s->embedding = 0;
    }
    if (!albert) return;
    const uint64_t groups = read_positive_number(r, "num_hidden_groups", 1, MODEL_LAYERS_MAX);
    const char *activation = model_config_word(r->json, "hidden_act");
    s->shared = s->layers / groups;
    s->new_gelu = is_activation_in_pieces(activation);
    if (s->layers % groups || read_positive_number(r, "inner_group_num", 1, MODEL_LAYERS_MAX) != 1 || !s->embedding)
        model_config_reject(r,
                            "gpuspy does not support an ALBERT whose groups of layers differ in size or have more than "
                            "one layer inside, or whose embedding_size is hidden_size; give the model's .safetensors");
}

static void read_by_type(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const char *type = r->type->name;

    if (strcmp(type, "falcon") == 0) read_falcon(r);
    if (r->type->family == MODEL_T5) (r->type->traits & LAYERNORM ? read_bart : read_t5)(r);
    if (r->type->family == MODEL_BERT) read_bert(r);
    if (r->type->family == MODEL_WHISPER) read_whisper(r);
    if (r->type->family == MODEL_MAMBA) read_mamba(r);
    if (strcmp(type, "llama4_text") == 0) read_llama4(r);
    if (strcmp(type, "phimoe") == 0) s->head_bias = model_config_flag(r, "lm_head_bias", false);
    if (strcmp(type, "mpt") == 0) s->ffn = s->hidden * read_positive_number(r, "expansion_ratio", 4, 1000);
    if (strcmp(type, "gpt_bigcode") == 0 && !model_config_flag(r, "multi_query", true)) s->kv_heads = s->heads;
    if (strcmp(type, "opt") == 0) {
        s->positions += 2; /* OPTLearnedPositionalEmbedding.offset */
        s->qkv_bias = s->out_bias = s->mlp_bias = model_config_flag(r, "enable_bias", true);
        s->final_norm = model_config_flag(r, "do_layer_norm_before", true) &&
                        !model_config_flag(r, "_remove_final_layer_norm", false);
        s->embedding = read_positive_number(r, "word_embed_proj_dim", s->hidden, NUMBER_MAX);
        if (s->embedding == s->hidden) s->embedding = 0;
    }
    if (s->positions > 2 && (strstr(type, "roberta") || strcmp(type, "camembert") == 0))
        s->context = s->positions - 2; /* positions begin after the padding index, 1 */
    if (strcmp(type, "phi") == 0 || strcmp(type, "gptj") == 0 || strcmp(type, "codegen") == 0)
        s->new_gelu = is_activation_in_pieces(
            model_config_word(r->json, strcmp(type, "phi") == 0 ? "hidden_act" : "activation_function"));
    if (strcmp(type, "starcoder2") == 0) {
        s->qkv_bias = s->out_bias = s->mlp_bias = model_config_flag(r, "use_bias", true);
        s->dropout = json_number_value(json_object_get(r->json, "residual_dropout")) > 0;
    }
    if (strcmp(type, "stablelm") == 0) {
        s->qkv_bias = model_config_flag(r, "use_qkv_bias", false);
        s->norms = model_config_flag(r, "use_parallel_residual", false) ? 1 : 2;
    }
    s->bare_experts = strncmp(type, "granitemoe", 10) == 0;
    if (strcmp(type, "glm4_moe") == 0) s->qk_norm = model_config_flag(r, "use_qk_norm", false);
    if (strcmp(type, "cohere") == 0) /* one weight per head and element */
        s->qk_norm = s->qk_norm_wide = model_config_flag(r, "use_qk_norm", false);
    if (strcmp(type, "gemma4_text") == 0 && s->experts) {
        s->experts_beside = true;
        s->shared_experts = 1;
        s->shared_ffn = s->ffn;
    }
    s->activation_numbers = strcmp(type, "apertus") == 0;
    if (strcmp(type, "afmoe") == 0) s->wide_gate = true;
    if (strcmp(type, "minimax_m2") == 0 && !model_config_flag(r, "use_qk_norm", true)) s->qk_norm = false;
    s->sinks = s->router_bias = s->expert_bias = strcmp(type, "gpt_oss") == 0;
    if (strcmp(type, "qwen2_moe") == 0 && s->experts) {
        s->shared_gate = true;
        s->shared_experts = 1;
        s->shared_ffn = read_positive_number(r, "shared_expert_intermediate_size", 5632, NUMBER_MAX);
    }
    if ((strcmp(type, "stablelm") == 0 && model_config_flag(r, "qk_layernorm", false)) ||
        (strcmp(type, "phi") == 0 && model_config_flag(r, "qk_layernorm", false)))
        model_config_reject(
            r, "qk_layernorm is true, which gpuspy does not support for this type; give the model's .safetensors");
    if (model_config_flag(r, "add_cross_attention", false))
        model_config_reject(
            r, "add_cross_attention is true, which gpuspy does not support; give the model's .safetensors");
}

/* Settings that determine what layers of GPT-2 and GPT-Neo keep for backward. Absent keys have transformers' defaults.
 */
static void read_habits(struct model_reading *r)
{
    const char *word = model_config_word(r->json, "activation_function");
    char name[64];
    json_t *residual = model_config_find(r, "resid_pdrop|resid_dropout", name);
    json_t *scores = model_config_find(r, "attn_pdrop|attention_dropout", name);
    json_t *embedding = model_config_find(r, "embd_pdrop|embed_dropout", name);

    r->s.one_kernel_gelu = !is_activation_in_pieces(word);
    r->s.no_dropout = json_number_value(residual) == 0 && json_number_value(scores) == 0 &&
                      json_number_value(embedding) == 0 && residual && scores && embedding;
}

/* What types with layers of several kinds have in common. */
static void read_mixed(struct model_reading *r)
{
    static const struct {
        const char *type;
        uint64_t layers;
    } first[] = {{"glm_moe_dsa", 3},  {"glm4_moe_lite", 1}, {"laguna", 1},        {"lfm2_moe", 2},
                 {"ernie4_5_moe", 1}, {"afmoe", 1},         {"mimo_v2_flash", 1}, {"exaone_moe", 1}};
    struct model_shape *s = &r->s;
    const bool has_window = model_config_flag(r, "use_sliding_window", true);

    s->window = model_config_count(r, "sliding_window|sliding_window_size", 0);
    if (!has_window) s->window = 0;
    if (!s->head_dim && s->heads && s->hidden % s->heads == 0) s->head_dim = s->hidden / s->heads;
    if (model_config_has(r, "kv_lora_rank")) read_config_latent(r);
    model_config_read_states(r);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strcmp(first[i].type, r->type->name) == 0) r->dense_layers = first[i].layers;
}

/* A key whose name suggests a size or a part of the model, and whose value is not that of an absent part. */
static bool may_change_shape(const char *key, const json_t *value)
{
    static const char *const parts[] = {"size",    "dim",   "rank", "num_", "n_",    "layer",  "heads",
                                        "expert",  "width", "ffn",  "mlp",  "state", "latent", "ratio",
                                        "pattern", "bias",  "gate", "conv", "norm"};
    static const char *const others[] = {
        "token",      "beam",     "return",      "rope",           "loss",     "top",         "max_",
        "dropout",    "labels",   "pretraining", "nextn",          "mtp",      "init",        "scal",
        "eps",        "position", "logits",      "output_",        "chunk",    "_type",       "aux",
        "act",        "group",    "time_step",   "rescale",        "n_gram",   "ngram",       "dtype",
        "cache",      "kernel",   "range",       "epsilon",        "router_",  "norm_before", "ep_size",
        "image",      "vision",   "audio",       "quant",          "freq",     "moe_renorm",  "multiplier",
        "kv_sharing", "skip",     "block_size",  "attention_bias", "mlp_bias", "qk_head_dim", "window",
        "moe_layer",  "sparsity", "norm_topk",   "norm_min",       "lr_"};
    bool sized = json_number_value(value) > 1 || json_is_true(value) || json_array_size(value) > 0;

    for (size_t i = 0; sized && i < sizeof others / sizeof *others; i++) sized = !strstr(key, others[i]);
    for (size_t i = 0; sized && i < sizeof parts / sizeof *parts; i++)
        if (strstr(key, parts[i])) return true;
    return false;
}

/* A key is understood if it was looked up. */
static void note_other_keys(struct model_reading *r)
{
    char list[128] = "", clean[48];
    size_t n = 0;
    const char *key;
    json_t *value;

    json_object_foreach(r->json, key, value)
    {
        if (json_object_get(r->asked, key) || !may_change_shape(key, value)) continue;
        terminal_clean(clean, sizeof clean, key, true);
        if (n + strlen(clean) + 3 > sizeof list) break;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", clean);
    }
    if (n) model_config_note(r, "keys that gpuspy does not know and that may change the count: %s", list);
}

void model_config_read_shape(struct model_reading *r)
{
    const struct model_config_type *t = r->type;
    struct model_shape *s = &r->s;

    *s = (struct model_shape){.family = t->family};
    s->hidden = read_positive_number(r, "hidden_size|n_embd|n_embed|d_model|dim", t->hidden, NUMBER_MAX);
    const uint64_t listed = json_array_size(model_config_find(r, "layers_block_type", (char[64]){0}));
    s->layers = read_positive_number(r, "num_hidden_layers|n_layer|n_layers|num_layers", listed ? listed : t->layers,
                                     MODEL_LAYERS_MAX);
    s->heads = read_positive_number(r, "num_attention_heads|n_head|n_heads|num_heads", t->heads, NUMBER_MAX);
    s->kv_heads = t->kv ? t->kv : s->heads;
    if (t->family == MODEL_LLAMA || (t->traits & KV_HEADS)) /* the classes of other families ignore this key */
        s->kv_heads = read_positive_number(r, "num_key_value_heads", s->kv_heads, NUMBER_MAX);
    if (t->vocab) s->vocab = read_positive_number(r, "vocab_size", t->vocab, NUMBER_MAX);
    s->head_dim = read_positive_number(r, "head_dim", t->head_dim, NUMBER_MAX);
    if (json_is_array(model_config_find(r, "intermediate_size", (char[64]){0})) && (t->traits & MIXED))
        s->ffn = first_number(r, "intermediate_size", t->ffn); /* config_mix.c reads the others */
    else
        s->ffn = read_positive_number(r,
                                      t->family == MODEL_BERT ? "intermediate_size|hidden_dim"
                                                              : "intermediate_size|n_inner|ffn_dim|ffn_hidden_size",
                                      t->ffn ? t->ffn : 4 * s->hidden, NUMBER_MAX);
    s->context = model_config_count(r, "max_position_embeddings|n_positions|max_seq_len|seq_length", t->context);
    s->positions = t->traits & LEARNED ? s->context : 0;
    s->token_types = t->family == MODEL_BERT && (t->traits & POOLER) ? model_config_count(r, "type_vocab_size", 2) : 0;
    s->tied = model_config_flag(r, "tie_word_embeddings", t->traits & TIED);
    if (r->outer && json_is_boolean(json_object_get(r->outer, "tie_word_embeddings"))) /* the outer model decides */
        s->tied = json_is_true(json_object_get(r->outer, "tie_word_embeddings"));
    s->gated = t->traits & GATED;
    s->fused_qkv = t->traits & FUSED_QKV;
    s->fused_gate = t->traits & FUSED_GATE;
    s->pooler = t->traits & POOLER;
    read_norms(r, t->traits);
    read_biases(r, t->traits);
    if (*r->problem) /* the code below loops over the layers */
        return;
    if (t->traits & MIXED)
        read_mixed(r);
    else
        read_config_window(r, t->traits);
    if (t->traits & EXPERTS) read_config_experts(r, t->name);
    if (t->traits & LATENT) read_config_latent(r);
    if (t->family == MODEL_VIT) read_vit(r);
    if (t->family == MODEL_CLIP) read_clip(r);
    read_by_type(r);
    if (t->traits & MIXED) {
        model_config_read_mix(r);
        if (!*r->problem) note_other_keys(r);
    }
    if (s->family == MODEL_GPT && s->positions) read_habits(r);
    if (*r->problem) return;
    if (s->family == MODEL_MAMBA) return;
    if (!s->head_dim && s->hidden % s->heads)
        model_config_reject(r, "num_attention_heads is %ju, which does not divide hidden_size, %ju",
                            (uintmax_t)s->heads, (uintmax_t)s->hidden);
    if (!s->head_dim) s->head_dim = s->hidden / s->heads;
    if (s->heads % s->kv_heads)
        model_config_reject(r, "num_key_value_heads is %ju, which does not divide num_attention_heads, %ju",
                            (uintmax_t)s->kv_heads, (uintmax_t)s->heads);
}
