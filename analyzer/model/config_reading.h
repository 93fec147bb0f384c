/* The state of reading a config.json: config.c finds its type, config_shape.c derives a shape from its keys. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "analyzer/model/model.h"

/* The meaning of a type's keys, and properties that no key states. */
enum model_trait {
    TIED = 1 << 0,
    GATED = 1 << 1,
    LAYERNORM = 1 << 2, /* with biases */
    QKV_BIAS = 1 << 3,
    OUT_BIAS = 1 << 4,
    MLP_BIAS = 1 << 5,
    HEAD_BIAS = 1 << 6,
    LEARNED = 1 << 7,      /* positions are a learned table */
    QK_NORM = 1 << 8,      /* normalises each head */
    QK_NORM_WIDE = 1 << 9, /* normalises all heads at once */
    NORMS_0 = 1 << 10,     /* norms without parameters */
    FUSED_QKV = 1 << 24,
    FUSED_GATE = 1 << 25,
    KV_HEADS = 1 << 30, /* may have fewer heads of keys and values */
    EMBEDDING_NORM = 1 << 26,
    NORMS_1 = 1 << 11, /* attention and MLP have the same input */
    NORMS_4 = 1 << 12,
    KEY_ATTENTION_BIAS = 1 << 13, /* attention_bias: of q, k, v and the output */
    KEY_QKV_BIAS = 1 << 14,       /* attention_bias: of q, k and v */
    KEY_MLP_BIAS = 1 << 15,
    WINDOW_ALL = 1 << 16, /* layers with the sliding window: all */
    WINDOW_TOP = 1 << 17, /* … those from max_window_layers on, if use_sliding_window is set */
    WINDOW_2 = 1 << 18,   /* … all except every 2nd, 4th, 6th */
    WINDOW_4 = 1 << 19,
    WINDOW_6 = 1 << 20,
    LATENT = 1 << 21, /* DeepSeek's latent attention */
    EXPERTS = 1 << 22,
    WIDE_NORMS = 1 << 28, /* RMSNorm multiplies by its weight in float32 */
    MIXED = 1 << 27,      /* layers may differ: config_mix.c */
    POOLER = 1 << 23,
    NORMS_AFTER = 1 << 29, /* a block's norms follow it, so none is after the last one */
    BIASES = QKV_BIAS | OUT_BIAS | MLP_BIAS,
};

/* A row of configs.def: the defaults of the type's class. */
struct model_config_type {
    const char *name;
    enum model_family family;
    uint64_t vocab, hidden, layers, heads, kv, head_dim, ffn, context;
    unsigned traits;
};

/* The first problem is kept. */
struct model_reading {
    json_t *json;  /* the object with the shape: the root or its text_config */
    json_t *outer; /* the root, if `json` is not; else NULL */
    const struct model_config_type *type;
    struct model_config_type own; /* the row of a type that is unknown */
    struct model_shape s;
    uint64_t dense_layers; /* layers before those with experts, if no key states them */
    char problem[256], note[320];
    json_t *asked; /* the keys that were looked up, as an object; owned */
    bool unknown;  /* the problem is an unknown type */
    bool assumed;  /* the type is unknown, and read as a Llama */
    bool whole;    /* the image tower is counted, if it is a known one */
    enum model_tower tower;
};

/* A problem is kept if it is the first; notes are joined. */
__attribute__((format(printf, 2, 3))) void model_config_reject(struct model_reading *r, const char *format, ...);
__attribute__((format(printf, 2, 3))) void model_config_note(struct model_reading *r, const char *format, ...);

/* Whether it is a whole number of at least 0. */
bool model_config_read_count(const json_t *value, uint64_t *out);
/* The text of a key; NULL: it has none. */
const char *model_config_word(json_t *object, const char *key);

/* The first key of "a|b|c" that is present and not null, in the object with the shape; `name` receives it. */
json_t *model_config_find(struct model_reading *r, const char *keys, char name[64]);
bool model_config_has(struct model_reading *r, const char *keys);
/* Its value, a whole number, or true or false. Reports another one by model_config_reject. */
uint64_t model_config_count(struct model_reading *r, const char *keys, uint64_t absent);
bool model_config_flag(struct model_reading *r, const char *keys, bool absent);

/* Reads the sizes of states, and which layers have them. */
void model_config_read_states(struct model_reading *r);
void model_config_read_mix(struct model_reading *r);

/* Fills r->s from the keys of r->json; reports contradictions by model_config_reject. */
void model_config_read_shape(struct model_reading *r);

/* The same for a network of convnets.def; false: its model_type is none of theirs. */
bool model_config_read_convnet(struct model_reading *r);

/* The same for a denoiser of diffusers; false: its _class_name is not a known one. */
bool model_config_read_denoiser(struct model_reading *r);
