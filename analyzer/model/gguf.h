/* The metadata that gguf_read.c reads and gguf_shape.c interprets. */
#pragma once

#include "analyzer/model/stored.h"

/* KEY(id, key after the architecture's name) */
#define GGUF_KEYS(KEY)                                  \
    KEY(LAYERS, "block_count")                          \
    KEY(HIDDEN, "embedding_length")                     \
    KEY(CONTEXT, "context_length")                      \
    KEY(FFN, "feed_forward_length")                     \
    KEY(HEADS, "attention.head_count")                  \
    KEY(KV_HEADS, "attention.head_count_kv")            \
    KEY(KEY_LENGTH, "attention.key_length")             \
    KEY(VALUE_LENGTH, "attention.value_length")         \
    KEY(KEY_LENGTH_MLA, "attention.key_length_mla")     \
    KEY(VALUE_LENGTH_MLA, "attention.value_length_mla") \
    KEY(Q_RANK, "attention.q_lora_rank")                \
    KEY(KV_RANK, "attention.kv_lora_rank")              \
    KEY(ROPE, "rope.dimension_count")                   \
    KEY(WINDOW, "attention.sliding_window")             \
    KEY(EXPERTS, "expert_count")                        \
    KEY(EXPERTS_USED, "expert_used_count")              \
    KEY(EXPERTS_SHARED, "expert_shared_count")          \
    KEY(EXPERT_FFN, "expert_feed_forward_length")       \
    KEY(DENSE_LAYERS, "leading_dense_block_count")

#define KEY(id, key) GGUF_##id,
enum model_gguf_key { GGUF_KEYS(KEY) GGUF_KEYS_N };
#undef KEY

struct model_gguf_metadata {
    char architecture[64];
    struct {
        bool present, varies; /* a list of different numbers: `number` is the largest */
        uint64_t number;
        char prefix[64]; /* the part before the key, which must be the architecture's name */
    } keys[GGUF_KEYS_N];
    uint64_t alignment;
    uint64_t parameters; /* general.parameter_count; 0: missing */
    uint64_t split_no, split_count;
};

/* The shape that follows from metadata and tensors, completed; family MODEL_UNKNOWN if they are not sufficient. False
 * after a line: they contradict each other. */
bool model_gguf_shape(const struct model_gguf_metadata *d, const struct model_stored *s, const struct model_file *f,
                      struct model_shape *shape, char *note, size_t note_size);
