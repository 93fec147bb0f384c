/* Activations: what forward keeps for backward.
 *
 * There are two models. The first is for eager PyTorch, as Hugging Face and most plain code use it: a layer is a list
 * of operations (struct estimate_act_tape), each with the bytes that autograd saves for it. A walk of backward over the
 * list finds the moment at which most bytes are live. The lists were read off torch.autograd.graph.saved_tensors_hooks,
 * tensor by tensor (docs/accuracy.md).
 * The second is the closed forms of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"
 * (2022), and of Megatron-LM's report. They hold for its fused kernels and for tensor, sequence and pipeline
 * parallelism. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/estimate.h"

/* GROUP(id, title): the group that a saved tensor belongs to. Each group is one line of the estimate. */
#define ACT_GROUPS(GROUP)                                \
    GROUP(NORM, "norms and inputs of the linear layers") \
    GROUP(ATTENTION, "attention: q, k, v, output")       \
    GROUP(SCORES, "attention scores")                    \
    GROUP(MLP, "MLP")                                    \
    GROUP(MASKS, "dropout masks")                        \
    GROUP(ADAPTERS, "inputs of adapters")                \
    GROUP(INNER, "inputs and outputs of the scan")       \
    GROUP(STATES, "states of the scan")                  \
    GROUP(CONV, "convolutions, batch norms, ReLUs")

#define GROUP(id, title) ACT_##id,
enum estimate_act_group { ACT_GROUPS(GROUP) ACT_GROUPS_N };
#undef GROUP

/* How the same layer is written: the variants from which low, expected and high are computed. */
enum estimate_act_variant {
    ACT_FUSED,  /* fused norms, activations and losses, no dropout */
    ACT_LEAN,   /* eager; the script keeps only the loss, and the model has no KV cache */
    ACT_EAGER,  /* Hugging Face's modules and plain torch.nn, PyTorch 2.x, eager */
    ACT_PADDED, /* the same with a padding mask, which makes k and v repeat and the mask a tensor */
    ACT_VARIANTS_N
};

struct estimate_act_op {
    enum estimate_act_group group;
    double saved;  /* bytes that forward keeps until its backward is done */
    double in;     /* bytes of the gradients that its backward makes for the operation before it */
    double work;   /* additional bytes that its backward allocates temporarily */
    double params; /* parameters whose gradient its backward makes */
    double around; /* additional bytes that its forward allocates temporarily */
    bool uncast;   /* autocast does not copy them: a grouped product of experts */
};

enum { ACT_OPS_MAX = 32 * MODEL_BLOCKS_MAX };

struct estimate_act_tape {
    struct estimate_act_op ops[ACT_OPS_MAX]; /* in the order of forward */
    size_t n;
    size_t mlp; /* the first operation of a layer's second half, the norm of its MLP */
};

/* What a tape depends on: bytes per element of the residual stream, of the inputs of matrix multiplications, and of a
 * gradient; and `tokens` per forward pass (sequences × length, or images × patches). */
struct estimate_act_sizes {
    double stream, compute, gradient;
    double read; /* bytes per element of the input that a linear layer keeps: 1 in float8, else `compute` */
    bool amp;
    bool softmax_input; /* is kept by softmax */
    double tokens, seq, batch;
    double keys; /* keys per query: `seq`, except for cross-attention to another sequence */
    enum estimate_act_variant variant;
};

/* Differences between the models of a family. Their configurations do not contain all of them. */
struct estimate_act_habits {
    bool gemma;                                 /* norms in float32 with (1 + w) */
    bool caps;                                  /* scores and logits go through tanh (Gemma 2) */
    bool opt;                                   /* ReLU, no dropout of scores, softmax in float32 */
    bool python_gelu;                           /* GPT-2's gelu_new, six element-wise operations */
    bool dropout, score_dropout, inner_dropout; /* of the residual stream, the scores, inside the MLP */
    bool one_matrix;                            /* one product makes q, k and v */
    bool caches;     /* keys and values go to a KV cache in training too: use_cache is True by default */
    bool eager_only; /* GPT-Neo, BLOOM and MPT have no fused attention */
    bool falcon;     /* softmax in the type of the hidden states */
    bool one_key;    /* one head of keys without enable_gqa, which no fused kernel accepts: it is computed in float32 */
    bool repeats_keys; /* keys and values are copied for each query head */
    bool float_scores; /* the model requests softmax in float32 at every precision */
};

struct estimate_act_habits estimate_act_habits_of(const struct plan *p, const struct estimate_act_sizes *z);

struct estimate_act_sizes estimate_act_sizes_of(const struct plan *p, enum estimate_act_variant variant);
/* The sizes of the encoder if it reads something other than the decoder's tokens (Whisper's sound); else the same
 * sizes. */
struct estimate_act_sizes estimate_act_encoder_sizes(const struct plan *p, const struct estimate_act_sizes *z);
/* A layer of a model whose layers are grouped, which is estimated as a model of its own. */
void estimate_act_group_layer(const struct plan *p, const struct estimate_act_sizes *z, unsigned group,
                              struct estimate_act_tape *t);
/* One layer of the plan's model. `moe` selects a layer that estimate_act_moe_layers counts, else one of the others. */
void estimate_act_layer(const struct plan *p, const struct estimate_act_sizes *z, bool moe,
                        struct estimate_act_tape *tape);
void estimate_act_mamba_layer(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *tape);
/* Adds a Mamba or a short convolution to a layer, in bytes per token. */
void estimate_act_mixer(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *tape);
/* The norm after the layers, with the input of the output layer. Below: whether tanh caps the logits (Gemma 2, Gemma
 * 4), and whether the embeddings have dropout. */
void estimate_act_last_norm(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *tape);
/* Grouped queries in float32 have no fused attention in PyTorch: its "math" path keeps the scores. */
bool estimate_act_falls_back(const struct plan *p, const struct estimate_act_sizes *z);
/* T5's position bias has a gradient, in cross-attention only if layers are checkpointed: transformers 5.15 and later
 * pass it to scaled_dot_product_attention as a mask. Up to 5.19 no fused kernel accepts that mask, because it is not
 * contiguous. */
bool estimate_act_bias_learns(const struct plan *p, bool cross);
/* Whether a layer's operations keep its input. If they do, a checkpoint holds no second copy. */
bool estimate_act_keeps_input(const struct plan *p, const struct estimate_act_sizes *z);
/* Whether a frozen quantised matrix keeps its input for backward. */
bool estimate_act_keeps_frozen(const struct plan *p, const struct estimate_act_sizes *z);
/* Bytes of the buffer in which PyTorch sums `elements` over the tokens, for the gradient of a bias. */
double estimate_act_sum_buffer(const struct plan *p, double elements);
/* Into how many pieces litgpt divides the logits and their loss; 1: not. */
unsigned estimate_act_loss_pieces(const struct plan *p);
double estimate_act_table_width(const struct model_shape *m); /* of the token table, and of a tied output layer */
bool estimate_act_has_logits(const struct model_shape *m);    /* a loss over the vocabulary */
bool estimate_act_bare_loss(const struct model_shape *m);     /* Hugging Face's takes logits in their own type */
bool estimate_act_caps_logits(const struct plan *p, const struct estimate_act_sizes *z);
bool estimate_act_embedding_dropout(const struct plan *p, const struct estimate_act_sizes *z);
double estimate_act_saved(const struct estimate_act_tape *tape);

/* What PLAN_CHECKPOINT_SELECTIVE_OP keeps of one layer beside its input (activations_selective.c). */
struct estimate_act_kept {
    double group[ACT_GROUPS_N], sum; /* bytes of a forward pass */
    double whole; /* of the sum: tensors as wide as the hidden state, which tensor parallelism does not divide */
    double again; /* multiplications per token of the products that are computed again */
};
#define ACT_KEPT_SOURCE "torchtitan/distributed/activation_checkpoint.py; torch.utils.checkpoint, measured"
void estimate_act_kept(const struct plan *p, const struct estimate_act_sizes *z, bool moe,
                       struct estimate_act_kept *out);
/* Multiplications per token, in all layers, that backward repeats because their results were not kept. 0: none. */
double estimate_act_recomputed(const struct plan *p);
/* The number of layers that `moe` of estimate_act_layer selects, counted as the last ones: those with experts; the
 * decoder's (T5, Whisper); those with attention (gated delta nets) or without a window (Gemma 4). */
uint64_t estimate_act_moe_layers(const struct model_shape *m);
double estimate_act_group_saved(const struct estimate_act_tape *tape, enum estimate_act_group group);

/* The whole pass. `saved` is by group. `first` and `second` are the two peaks of backward: in its first half, on top of
 * what forward kept (with the logits, and with the gradients made so far unless they exist anyway); and in its last
 * layer and the embedding, on top of the sum of all gradients. */
struct estimate_act_pass {
    double saved[ACT_GROUPS_N];
    double head;         /* the last norm, the head's input */
    double inputs;       /* checkpointing: the layers' inputs */
    double logits, held; /* while the loss is computed; those that the script's variable keeps alive after it */
    double first, second;
    bool at_loss;      /* the first peak is at the loss */
    double after_loss; /* by how much it exceeds the peak after the loss */
};
void estimate_act_pass(const struct plan *p, enum estimate_act_variant variant, struct estimate_act_pass *out);

/* The same for a convolutional network that is known by name. False: unknown, or the image does not fit. */
bool estimate_act_conv(const struct plan *p, enum estimate_act_variant variant, struct estimate_act_pass *out);

/* The lines of a pipeline stage under tensor, sequence or pipeline parallelism, and the micro-batches that
 * it holds at once (activations_parallel.c). */
void estimate_act_parallel(const struct plan *p, uint64_t stage, struct estimate_result *r);
double estimate_act_in_flight(const struct plan *p, uint64_t stage);
/* The fullest moment of a stage whose gradients appear with the first backward (FSDP): micro-batches that it holds
 * then, and the share of its gradients. */
struct estimate_act_moment {
    double flight, gradients;
};
struct estimate_act_moment estimate_act_fullest(const struct plan *p, uint64_t stage);
