/* Reads which mixer and which MLP each layer has, from the many keys in which configurations state it, and groups equal
 * layers. Keys and defaults: transformers 5.24.0, configuration_TYPE.py; configurations published with own code. */
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/model/config_reading.h"

/* `each` is one description per layer: a group with `layers` 1. */
struct mix {
    struct model_reading *r;
    struct model_shape *s;
    struct model_block *each;
    enum model_mixer linear; /* what "linear_attention" means in this configuration */
};

/* A list with one item per layer; NULL: absent. A longer one also describes layers for speculative decoding. */
static json_t *list_per_layer(struct mix *m, const char *keys)
{
    char name[64];
    json_t *list = model_config_find(m->r, keys, name);

    return json_array_size(list) >= m->s->layers ? list : NULL;
}

static enum model_mixer linear_mixer(struct model_reading *r)
{
    if (model_config_has(r, "linear_num_value_heads|linear_num_key_heads")) return MODEL_MIXER_DELTA;
    if (model_config_has(r, "linear_attn_config|linear_num_heads|short_conv_kernel_size")) return MODEL_MIXER_KDA;
    if (model_config_has(r, "mamba_d_state|ssm_state_size|mamba_n_heads|mamba_num_heads")) return MODEL_MIXER_MAMBA;
    if (model_config_has(r, "conv_L_cache") || strncmp(r->type->name, "lfm2", 4) == 0) return MODEL_MIXER_CONV;
    return MODEL_MIXER_LIGHTNING;
}

static bool read_layer_word(struct mix *m, struct model_block *b, const char *word)
{
    static const struct {
        const char *part;
        enum model_mixer mixer;
        bool linear, window, experts;
        unsigned compress;
    } words[] = {
        {"sliding", MODEL_MIXER_ATTENTION, false, true, false, 0},
        {"local", MODEL_MIXER_ATTENTION, false, true, false, 0},
        {"heavily_compressed", MODEL_MIXER_ATTENTION, false, true, false, 128},
        {"compressed_sparse", MODEL_MIXER_ATTENTION, false, true, false, 4},
        {"linear", MODEL_MIXER_ATTENTION, true, false, false, 0},
        {"mamba", MODEL_MIXER_MAMBA, false, false, false, 0},
        {"conv", MODEL_MIXER_CONV, false, false, false, 0},
        {"attention", MODEL_MIXER_ATTENTION, false, false, false, 0},
        {"full", MODEL_MIXER_ATTENTION, false, false, false, 0},
        {"moe", MODEL_MIXER_NONE, false, false, true, 0},
        {"mlp", MODEL_MIXER_NONE, false, false, false, 0},
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(word, words[i].part)) continue;
        b->mixer = (uint8_t)(words[i].linear ? m->linear : words[i].mixer);
        b->experts = words[i].experts;
        b->compress = words[i].compress;
        if (words[i].window) b->window = (uint32_t)(m->s->window ? m->s->window : 512); /* Gemma's default */
        return true;
    }
    model_config_reject(m->r, "layer_types has '%.40s', which gpuspy does not know; give the model's .safetensors",
                        word);
    return false;
}

/* Nemotron-H: M is a Mamba-2, * attention, - an MLP, E experts; each is a layer of its own. */
static void read_letters(struct mix *m, const char *letters)
{
    uint64_t i = 0;

    for (const char *c = letters; *c && i < m->s->layers; c++) {
        struct model_block *b = &m->each[i];
        if (*c == '|') continue;
        b->mixer = *c == 'M' ? MODEL_MIXER_MAMBA : *c == '*' ? MODEL_MIXER_ATTENTION : MODEL_MIXER_NONE;
        b->experts = *c == 'E';
        b->no_mlp = *c == 'M' || *c == '*';
        i++;
        if (!strchr("M*-E", *c)) model_config_reject(m->r, "hybrid_override_pattern has '%c'", *c);
    }
    if (i != m->s->layers) model_config_reject(m->r, "hybrid_override_pattern and num_hidden_layers differ");
}

/* All layers of `list` (its first number is `from`) have attention, the others `other`. */
static void attend_in(struct mix *m, json_t *list, uint64_t from, enum model_mixer other)
{
    uint64_t layer;

    for (uint64_t i = 0; i < m->s->layers; i++) m->each[i].mixer = (uint8_t)other;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (model_config_read_count(json_array_get(list, i), &layer) && layer >= from && layer - from < m->s->layers)
            m->each[layer - from].mixer = MODEL_MIXER_ATTENTION;
}

static void attend_every(struct mix *m, uint64_t period, uint64_t offset, enum model_mixer other)
{
    for (uint64_t i = 0; i < m->s->layers; i++)
        m->each[i].mixer = (uint8_t)(period && i % period == offset ? MODEL_MIXER_ATTENTION : other);
}

/* If some layers are only an MLP, the others have none. */
static void read_listed_types(struct mix *m, json_t *list)
{
    bool split = false;

    for (uint64_t i = 0; i < m->s->layers; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        if (!read_layer_word(m, &m->each[i], word ? word : "")) return;
        split |= m->each[i].mixer == MODEL_MIXER_NONE;
    }
    for (uint64_t i = 0; split && i < m->s->layers; i++) m->each[i].no_mlp = m->each[i].mixer != MODEL_MIXER_NONE;
}

/* Lists of numbers: attn_type_list 0 is linear attention; hybrid_layer_pattern 1 has a window; compress_ratios. */
static bool read_number_lists(struct mix *m)
{
    json_t *types = list_per_layer(m, "attn_type_list"), *windows = list_per_layer(m, "hybrid_layer_pattern"),
           *ratios = list_per_layer(m, "compress_ratios");
    uint64_t n;

    for (uint64_t i = 0; i < m->s->layers; i++) {
        if (model_config_read_count(json_array_get(types, i), &n) && n == 0) m->each[i].mixer = MODEL_MIXER_LIGHTNING;
        if (model_config_read_count(json_array_get(windows, i), &n) && n == 1)
            m->each[i].window = (uint32_t)m->s->window;
        if (!model_config_read_count(json_array_get(ratios, i), &n)) continue;
        m->each[i].compress = (uint32_t)n;
        m->each[i].window = (uint32_t)m->s->window;
    }
    return types || windows || ratios;
}

static void read_mixers(struct mix *m)
{
    struct model_reading *r = m->r;
    char name[64];
    const char *letters = json_string_value(model_config_find(r, "hybrid_override_pattern", name));
    json_t *linear = model_config_find(r, "linear_attn_config", name), *list = list_per_layer(m, "layer_types");

    if (!list) list = list_per_layer(m, "layers_block_type");
    if (letters)
        read_letters(m, letters);
    else if (list)
        read_listed_types(m, list);
    else if (json_array_size(json_object_get(linear, "full_attn_layers")))
        attend_in(m, json_object_get(linear, "full_attn_layers"), 1, MODEL_MIXER_KDA);
    else if (model_config_has(r, "full_attn_idxs"))
        attend_in(m, model_config_find(r, "full_attn_idxs", name), 0, MODEL_MIXER_CONV);
    else if (model_config_has(r, "attn_layer_period"))
        attend_every(m, model_config_count(r, "attn_layer_period", 8), model_config_count(r, "attn_layer_offset", 4),
                     MODEL_MIXER_MAMBA);
    else if (m->s->window && m->linear == MODEL_MIXER_LIGHTNING &&
             model_config_has(r, "sliding_window_pattern|global_attn_every_n_layers")) {
        const uint64_t every = model_config_count(r, "sliding_window_pattern|global_attn_every_n_layers", 4);
        for (uint64_t i = 0; every && i < m->s->layers; i++)
            m->each[i].window = (i + 1) % every ? (uint32_t)m->s->window : 0;
    } else if (model_config_has(r, "attn_layer_indices")) {
        attend_in(m, model_config_find(r, "attn_layer_indices", name), 0, m->linear);
    } else if (model_config_has(r, "full_attention_interval|layer_group_size")) {
        const uint64_t every = model_config_count(r, "full_attention_interval|layer_group_size", 4);
        attend_every(m, every, every - 1, m->linear);
    } else if (read_number_lists(m)) {
        return;
    } else if (strcmp(r->type->name, "falcon_h1") == 0) {
        for (uint64_t i = 0; i < m->s->layers; i++) m->each[i].mixer = MODEL_MIXER_MAMBA, m->each[i].beside = true;
    } else if (m->linear != MODEL_MIXER_LIGHTNING && m->linear != MODEL_MIXER_KDA) {
        const uint64_t every = m->linear == MODEL_MIXER_DELTA ? 4 : 0;
        attend_in(m, model_config_find(r, "attn_layer_indices", name), 0, m->linear);
        if (every) attend_every(m, every, every - 1, m->linear);
    } else {
        for (uint64_t i = 0; m->s->window && i < m->s->layers; i++)
            m->each[i].window = i < m->s->window_layers ? (uint32_t)m->s->window : 0;
    }
}

static void read_sparse_layers(struct mix *m)
{
    struct model_reading *r = m->r;
    json_t *words = list_per_layer(m, "mlp_layer_types"), *flags = list_per_layer(m, "moe_layer_freq");
    const uint64_t dense = model_config_count(r, "first_k_dense_replace|num_dense_layers", r->dense_layers),
                   from = model_config_count(r, "moe_layer_start_index", dense),
                   end = model_config_count(r, "moe_layer_end_index", m->s->layers),
                   every = model_config_count(r, "expert_layer_period|moe_layer_interval|decoder_sparse_step", 1),
                   offset = model_config_count(r, "expert_layer_offset", every - 1);
    char name[64];
    json_t *never = model_config_find(r, "mlp_only_layers", name);
    uint64_t n;

    for (uint64_t i = 0; i < m->s->layers; i++) {
        struct model_block *b = &m->each[i];
        const char *word = json_string_value(json_array_get(words, i));
        if (b->no_mlp || b->mixer == MODEL_MIXER_NONE) continue;
        if (word)
            b->experts = strcmp(word, "dense") != 0;
        else if (model_config_read_count(json_array_get(flags, i), &n))
            b->experts = n > 0;
        else
            b->experts = i >= from && i <= end && (every < 2 || i % every == offset % every);
        for (size_t k = 0; k < json_array_size(never); k++)
            if (model_config_read_count(json_array_get(never, k), &n) && n == i) b->experts = false;
    }
}

/* A number of one layer from a list, if it is not the model's. */
static uint32_t listed_number(json_t *list, uint64_t i, uint64_t usual)
{
    uint64_t n;

    return model_config_read_count(json_array_get(list, i), &n) && n != usual ? (uint32_t)n : 0;
}

/* Heads of layers with a window (MiMo-V2: swa_…) and without (Gemma 4: global_…), and lists of sizes. */
static void read_own_sizes(struct mix *m)
{
    struct model_reading *r = m->r;
    struct model_shape *s = m->s;
    json_t *ffns = list_per_layer(m, "intermediate_size"), *index = list_per_layer(m, "indexer_types"),
           *heads = list_per_layer(m, "num_attention_heads_per_layer");
    const uint64_t shared = model_config_count(r, "num_kv_shared_layers", 0),
                   wide = model_config_count(r, "global_head_dim", 0);
    const bool one = model_config_flag(r, "attention_k_eq_v", false),
               doubled = model_config_flag(r, "use_double_wide_mlp", false);

    for (uint64_t i = 0; i < s->layers; i++) {
        struct model_block *b = &m->each[i];
        const char *word = json_string_value(json_array_get(index, i));
        if (b->mixer != MODEL_MIXER_ATTENTION && !b->beside) continue;
        b->index = s->index_heads && !(word && strcmp(word, "shared") == 0);
        b->sinks = s->sinks;
        if (b->window) {
            b->heads = (uint32_t)model_config_count(r, "swa_num_attention_heads", 0);
            b->kv_heads = (uint32_t)model_config_count(r, "swa_num_key_value_heads", 0);
            b->head_dim = (uint32_t)model_config_count(r, "swa_head_dim", 0);
            b->v_dim = (uint32_t)model_config_count(r, "swa_v_head_dim", 0);
            b->sinks |= model_config_flag(r, "add_swa_attention_sink_bias", false);
        } else {
            b->head_dim = (uint32_t)wide;
            b->keys_are_values = one;
            if (one) b->kv_heads = (uint32_t)model_config_count(r, "num_global_key_value_heads", 0);
            b->sinks |= model_config_flag(r, "add_full_attention_sink_bias", false);
        }
        if (heads) b->heads = listed_number(heads, i, s->heads);
        b->no_keys = shared && shared <= s->layers && i >= s->layers - shared;
        if (doubled && b->no_keys) b->ffn = (uint32_t)(2 * s->ffn);
    }
    for (uint64_t i = 0; ffns && i < s->layers; i++) m->each[i].ffn = listed_number(ffns, i, s->ffn);
}

/* The order in which the estimator expects groups: the heaviest last. */
static unsigned weight_of(const struct model_block *b)
{
    return (b->experts ? 4u : 0) + (b->no_mlp ? 0 : 2u) + (b->mixer == MODEL_MIXER_ATTENTION || b->beside ? 1u : 0);
}

static void group_layers(struct mix *m)
{
    struct model_shape *s = m->s;

    for (uint64_t i = 0; i < s->layers; i++) {
        struct model_block one = m->each[i];
        unsigned k = 0;
        for (; k < s->blocks_n; k++) {
            struct model_block same = s->blocks[k];
            same.layers = one.layers;
            if (memcmp(&same, &one, sizeof one) == 0) break;
        }
        if (k < s->blocks_n) {
            s->blocks[k].layers++;
        } else if (s->blocks_n == MODEL_BLOCKS_MAX) {
            model_config_reject(m->r, "it has layers of more than %d kinds; give the model's .safetensors",
                                MODEL_BLOCKS_MAX);
            return;
        } else {
            s->blocks[s->blocks_n++] = one;
        }
    }
    for (unsigned i = 1; i < s->blocks_n; i++)
        for (unsigned k = i; k > 0 && weight_of(&s->blocks[k]) < weight_of(&s->blocks[k - 1]); k--) {
            const struct model_block swapped = s->blocks[k];
            s->blocks[k] = s->blocks[k - 1];
            s->blocks[k - 1] = swapped;
        }
}

/* Whether the numbers of a shape without groups describe the layers: attention everywhere, and all or the last layers
 * with experts. */
static bool are_plain(struct mix *m)
{
    struct model_shape *s = m->s;
    uint64_t sparse = 0, windows = 0;

    for (uint64_t i = 0; i < s->layers; i++) {
        struct model_block plain = {.layers = 1}, one = m->each[i];
        if (i && m->each[i - 1].experts && !one.experts) return false;
        sparse += one.experts;
        windows += one.window > 0;
        plain.experts = one.experts;
        plain.window = one.window;
        plain.sinks = s->sinks;
        plain.index = s->index_heads > 0;
        if (memcmp(&plain, &one, sizeof one) != 0) return false;
    }
    s->moe_layers = sparse;
    s->window_layers = windows;
    if (!windows) s->window = 0;
    if (!sparse) s->experts = s->experts_used = s->shared_experts = s->expert_ffn = s->shared_ffn = 0;
    return true;
}

void model_config_read_mix(struct model_reading *r)
{
    struct mix m = {r, &r->s, NULL, linear_mixer(r)};

    if (*r->problem) return;
    m.each = arena_realloc(NULL, m.s->layers, sizeof *m.each);
    memset(m.each, 0, m.s->layers * sizeof *m.each);
    for (uint64_t i = 0; i < m.s->layers; i++) m.each[i].layers = 1;
    read_mixers(&m);
    if (m.s->experts && !*r->problem) read_sparse_layers(&m);
    if (!*r->problem) read_own_sizes(&m);
    if (!*r->problem && !are_plain(&m)) group_layers(&m);
    free(m.each);
}
