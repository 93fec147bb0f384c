/* Activations: what forward keeps for backward.
 *
 * Two answers. The first is what PyTorch's autograd keeps when the model runs eagerly, as Hugging Face
 * and most plain code write it: a layer is a list of operations (struct estimate_act_tape), each with the bytes
 * that it saves, and a backward pass is walked over it to find the moment at which most is live. The
 * tapes were read off torch.autograd.graph.saved_tensors_hooks, tensor by tensor (docs/estimate.md).
 * The second are the closed forms of Korthikanti et al., "Reducing Activation Recomputation in Large
 * Transformer Models" (2022), and Megatron-LM's report, which hold for its fused kernels and for tensor,
 * sequence and pipeline parallelism. */
#ifndef GPUSPY_ESTIMATE_ACTIVATIONS_H
#define GPUSPY_ESTIMATE_ACTIVATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/estimate.h"

/* --- the tape ----------------------------------------------------------------------------------- */

/* GROUP(id, title): what a saved tensor belongs to; a line each. */
/* clang-format off */
#define ACT_GROUPS(GROUP)                                    \
    GROUP(NORM, "norms and inputs of the linear layers")     \
    GROUP(ATTENTION, "attention: q, k, v, output")           \
    GROUP(SCORES, "attention scores")                        \
    GROUP(MLP, "MLP")                                        \
    GROUP(MASKS, "dropout masks")                            \
    GROUP(ADAPTERS, "inputs of adapters")                    \
    GROUP(INNER, "inputs and outputs of the scan")           \
    GROUP(STATES, "states of the scan")                      \
    GROUP(CONV, "convolutions, batch norms, ReLUs")
/* clang-format on */

enum estimate_act_group {
#define GROUP(id, title) ACT_##id,
    ACT_GROUPS(GROUP)
#undef GROUP
        ACT_GROUPS_N
};

/* How the same layer is written: what LOW, LIKELY and HIGH of the interval stand for. */
enum estimate_act_variant {
    ACT_FUSED,  /* fused norms, activations and losses, no dropout */
    ACT_LEAN,   /* eager, but the script keeps the loss alone, and the model no KV cache */
    ACT_EAGER,  /* Hugging Face's modules and plain torch.nn, PyTorch 2.x, eager */
    ACT_PADDED, /* the same with a padding mask, which makes k and v repeat and the mask a tensor */
    ACT_VARIANTS_N
};

struct estimate_act_op {
    enum estimate_act_group group;
    double saved;  /* bytes that forward keeps and that go when its backward is done */
    double in;     /* bytes of the gradients that its backward makes, which the operation before it takes */
    double work;   /* what its backward needs for a moment on top */
    double params; /* parameters whose gradient it makes */
};

enum { ACT_OPS_MAX = 32 };

struct estimate_act_tape {
    struct estimate_act_op ops[ACT_OPS_MAX]; /* in the order of forward */
    size_t n;
};

/* What a tape depends on: bytes of an element of the residual stream, of what matrix multiplications
 * read, of a gradient; and `tokens` in one forward pass (sequences × length, or images × patches). */
struct estimate_act_sizes {
    double stream, compute, gradient;
    double read; /* of what linear layers keep of their input: 1 in float8, else `compute` */
    bool amp;
    double tokens, seq, batch;
    double keys; /* that each query looks at: `seq`, but for cross-attention to another sequence */
    enum estimate_act_variant variant;
};

/* What differs between models of a family; their configurations do not all say it. */
struct estimate_act_habits {
    bool gemma;       /* norms in float32 with (1 + w) */
    bool caps;        /* scores and logits go through tanh (Gemma 2) */
    bool opt;         /* ReLU, no dropout of scores, softmax in float32 */
    bool python_gelu; /* GPT-2's gelu_new, six element-wise operations */
    bool dropout;
    bool one_matrix; /* q, k and v come of one product */
    bool caches;     /* keys and values go to a KV cache also in training: use_cache is True unless a script says no */
    bool eager_only; /* GPT-Neo has no fused attention */
    bool float_scores; /* softmax is asked for in float32 whatever the precision */
};

struct estimate_act_habits estimate_act_habits_of(const struct plan *p, const struct estimate_act_sizes *z);

struct estimate_act_sizes estimate_act_sizes_of(const struct plan *p, enum estimate_act_variant variant);
/* The encoder's, where it reads something else than the decoder: Whisper's sound; else the same. */
struct estimate_act_sizes estimate_act_encoder_sizes(const struct plan *p, const struct estimate_act_sizes *z);
/* One layer of the plan's model: `moe` picks the layers whose MLP is experts. */
void estimate_act_layer(const struct plan *p, const struct estimate_act_sizes *z, bool moe,
                        struct estimate_act_tape *tape);
/* The same of a Mamba. */
void estimate_act_mamba_layer(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *tape);
/* The norm after the layers, with the input of the output layer; whether logits are capped by tanh
 * (Gemma 2); whether embeddings are dropped out. */
void estimate_act_last_norm(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *tape);
/* Grouped queries in float32 have no fused attention in PyTorch: its "math" path keeps the scores. */
bool estimate_act_falls_back(const struct plan *p, const struct estimate_act_sizes *z);
/* T5's positions' bias has a gradient, in cross-attention if layers are checkpointed: transformers 5.15 and later give
 * it to scaled_dot_product_attention as a mask. Up to 5.19 no fused kernel takes that mask, because it is not
 * contiguous. */
bool estimate_act_bias_learns(const struct plan *p, bool cross);
/* Is a layer's input among what its operations keep? Then a checkpoint holds no second one. */
bool estimate_act_keeps_input(const struct plan *p, const struct estimate_act_sizes *z);
bool estimate_act_has_logits(const struct model_shape *m); /* a loss over the vocabulary */
bool estimate_act_bare_loss(const struct model_shape *m);  /* Hugging Face's takes logits as they are, not in float32 */
bool estimate_act_caps_logits(const struct plan *p, const struct estimate_act_sizes *z);
bool estimate_act_embedding_dropout(const struct plan *p, const struct estimate_act_sizes *z);
double estimate_act_saved(const struct estimate_act_tape *tape);

/* What PLAN_CHECKPOINT_SELECTIVE_OP keeps of one layer beside its input (activations_selective.c). */
struct estimate_act_kept {
    double group[ACT_GROUPS_N], sum; /* bytes of a forward pass */
    double whole; /* of the sum: what the hidden state's width has, which tensor parallelism does not divide */
    double again; /* products that are computed again: multiplications a token */
};
#define ACT_KEPT_SOURCE "torchtitan/distributed/activation_checkpoint.py; torch.utils.checkpoint, measured"
void estimate_act_kept(const struct plan *p, const struct estimate_act_sizes *z, bool moe,
                       struct estimate_act_kept *out);
/* Multiplications a token that backward does once more for what was not kept, in all layers. 0: none are. */
double estimate_act_recomputed(const struct plan *p);
/* How many of the layers, the last ones, estimate_act_layer's `moe` is for; of a model with gated delta nets: how many
 * have attention, of which `moe` then tells. */
uint64_t estimate_act_moe_layers(const struct model_shape *m);
double estimate_act_group_saved(const struct estimate_act_tape *tape, enum estimate_act_group group);

/* The whole pass. `saved` by group; the two peaks of backward: in its first half over what is kept (with the
 * logits, and the gradients made until then, unless they are there anyway) and in its last layer and the
 * embedding (over the sum of all gradients). */
struct estimate_act_pass {
    double saved[ACT_GROUPS_N];
    double head;         /* the last norm, the head's input */
    double inputs;       /* checkpointing: the layers' inputs */
    double logits, held; /* while the loss is computed; that outlive it in the script's variable */
    double first, second;
    bool at_loss;      /* the first peak is the loss's */
    double after_loss; /* by how much it is larger than what comes after it */
};
void estimate_act_pass(const struct plan *p, enum estimate_act_variant variant, struct estimate_act_pass *out);

/* The same of a convolutional network that is known by name. False: it is not, or the image does not fit. */
bool estimate_act_conv(const struct plan *p, enum estimate_act_variant variant, struct estimate_act_pass *out);

/* The lines of a pipeline stage under tensor, sequence or pipeline parallelism, and the micro-batches that
 * it holds at once (activations_parallel.c). */
void estimate_act_parallel(const struct plan *p, uint64_t stage, struct estimate_result *r);
double estimate_act_in_flight(const struct plan *p, uint64_t stage);

#endif
