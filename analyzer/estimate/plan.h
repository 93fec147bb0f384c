/* What is to be estimated: a model, and how it is trained or served. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "analyzer/model/model.h"

struct estimate_gpu;         /* gpu.h */
struct estimate_calibration; /* calibration.h */
struct estimate_optimizer;   /* estimate.h */
struct estimate_precision;

/* Each list: X(id, word on the command line, meaning). */
#define PLAN_ATTENTIONS(X)                                                                           \
    X(FLASH, "flash", "scaled_dot_product_attention or FlashAttention: no matrix of scores is kept") \
    X(EAGER, "eager", "the matrix of scores is computed and kept for backward")                      \
    X(MATH, "math", "scaled_dot_product_attention without a fused kernel: float32 scores are kept")  \
    X(SLICED, "sliced", "diffusers' attention slicing: the matrix of scores of half of the heads at a time")

#define PLAN_CHECKPOINTS(X)                                                                  \
    X(NONE, "none", "all activations are kept for backward")                                 \
    X(SELECTIVE, "selective", "attention's core is recomputed in backward")                  \
    X(SELECTIVE_OP, "selective-op",                                                          \
      "forward is recomputed except attention and every second matrix product (torchtitan)") \
    X(FULL, "full", "only each layer's input is kept; forward is recomputed")

#define PLAN_STEPS(X)                                                                               \
    X(FOREACH, "foreach", "PyTorch's default on CUDA: a temporary copy as large as all parameters") \
    X(FUSED, "fused", "one kernel, no temporaries (fused=True; DeepSpeed, apex)")                   \
    X(LOOP, "loop", "one parameter after another (foreach=False)")                                  \
    X(IN_BACKWARD, "in-backward", "each parameter as soon as its gradient exists; the gradient is then freed")

/* What is divided among the data-parallel GPUs. FSDP's FULL_SHARD is zero3, its SHARD_GRAD_OP zero2. */
#define PLAN_SHARDINGS(X)                                                                \
    X(DDP, "ddp", "every GPU holds everything; gradients are reduced in buckets")        \
    X(ZERO1, "zero1", "optimizer states are divided (Megatron's distributed optimizer)") \
    X(ZERO2, "zero2", "gradients too (FSDP SHARD_GRAD_OP)")                              \
    X(ZERO3, "zero3", "parameters too (FSDP FULL_SHARD, fully_shard)")

#define PLAN_OFFLOADS(X)                                                                                        \
    X(NONE, "none", "everything stays on the GPU")                                                              \
    X(OPTIMIZER, "optimizer", "optimizer states and master weights are in host memory")                         \
    X(ALL, "all", "parameters too")                                                                             \
    X(MODEL, "model", "diffusers' enable_model_cpu_offload: one model of the pipeline is on the GPU at a time") \
    X(SEQUENTIAL, "sequential", "diffusers' enable_sequential_cpu_offload: one layer at a time")

#define PLAN_ADAPTERS(X)                                                           \
    X(NONE, "none", "all parameters are trained")                                  \
    X(LORA, "lora", "low-rank adapters beside frozen weights")                     \
    X(DORA, "dora", "LoRA and a magnitude vector for each matrix")                 \
    X(LORA_FA, "lora-fa", "LoRA whose first factor is frozen")                     \
    X(ADALORA, "adalora", "LoRA with a factor for each rank")                      \
    X(LOHA, "loha", "the elementwise product of two low-rank products")            \
    X(LOKR, "lokr", "a Kronecker product")                                         \
    X(VERA, "vera", "vectors beside low-rank projections that all matrices share") \
    X(OFT, "oft", "rotations of blocks of the inputs")                             \
    X(BOFT, "boft", "the same as butterflies, with factors of the outputs")        \
    X(IA3, "ia3", "factors of keys, values and the MLP's inner width")             \
    X(PROMPT, "prompt", "prompt tuning: embeddings of virtual tokens")             \
    X(PREFIX, "prefix", "prefix tuning: keys and values of virtual tokens")

/* The matrices of a layer that can have adapters, as a set. One that joins several counts as each of them. */
enum {
    PLAN_QUERIES = 1,
    PLAN_KEYS = 2,
    PLAN_VALUES = 4,
    PLAN_OUTPUT = 8,
    PLAN_GATE = 16,
    PLAN_UP = 32,
    PLAN_DOWN = 64,
    PLAN_QKV = 7,
    PLAN_MLP = 112,
    PLAN_LINEAR = 127
};

/* X(word on the command line, matrices). The first word for a set is its name in outputs. */
#define PLAN_TARGETS(X)                    \
    X("all-linear", PLAN_LINEAR)           \
    X("qv", PLAN_QUERIES | PLAN_VALUES)    \
    X("kv", PLAN_KEYS | PLAN_VALUES)       \
    X("attention", PLAN_QKV | PLAN_OUTPUT) \
    X("mlp", PLAN_MLP)                     \
    X("q_proj", PLAN_QUERIES)              \
    X("k_proj", PLAN_KEYS)                 \
    X("v_proj", PLAN_VALUES)               \
    X("qkv_proj", PLAN_QKV)                \
    X("o_proj", PLAN_OUTPUT)               \
    X("gate_proj", PLAN_GATE)              \
    X("up_proj", PLAN_UP)                  \
    X("gate_up_proj", PLAN_GATE | PLAN_UP) \
    X("down_proj", PLAN_DOWN)

#define PLAN_SAVED(X)                            \
    X(NONE, "none", "only adapters are trained") \
    X(EMBEDDINGS, "embeddings", "full copies of the token embedding and the output layer are trained")

/* The part of a model that is not trained, also for models with an image tower. */
#define PLAN_FROZEN(X)                                                                   \
    X(NONE, "none", "all parameters are trained")                                        \
    X(TOWER, "tower", "the image tower is not trained, as in a training without images") \
    X(TEXT, "text", "only the image tower and the layers that attend to it are trained")

/* What is on the GPU beside the denoiser of a diffusion pipeline. */
#define PLAN_RESIDENTS(X)                                      \
    X(ALL, "all", "text encoders and VAE are on the GPU, too") \
    X(VAE, "vae", "the VAE; the text's embeddings are cached") \
    X(TEXT, "text", "the text encoders; latents are cached")   \
    X(DENOISER, "denoiser", "neither: latents and embeddings are cached")

/* The program that runs a served model, or trains one, where it matters. */
#define PLAN_RUNTIMES(X)                                                       \
    X(ANY, "any", "the high end covers all of them")                           \
    X(TRANSFORMERS, "transformers", "Hugging Face's")                          \
    X(AUTOAWQ, "autoawq", "with its fused layers")                             \
    X(LITGPT, "litgpt", "quantises the output layer, and divides only layers") \
    X(MEGATRON, "megatron", "training by Megatron-LM: its fused layers, loss and gradients")

#define PLAN_DECODINGS(X)                                                \
    X(WHOLE, "whole", "all images at once")                              \
    X(SLICED, "slicing", "one image after another (enable_vae_slicing)") \
    X(TILED, "tiling", "one tile after another (enable_vae_tiling)")

#define ATTENTION(id, word, what) PLAN_ATTENTION_##id,
enum plan_attention { PLAN_ATTENTIONS(ATTENTION) };
#undef ATTENTION
#define CHECKPOINT(id, word, what) PLAN_CHECKPOINT_##id,
enum plan_checkpoint { PLAN_CHECKPOINTS(CHECKPOINT) };
#undef CHECKPOINT
#define STEP(id, word, what) PLAN_STEP_##id,
enum plan_step { PLAN_STEPS(STEP) };
#undef STEP
#define SHARDING(id, word, what) PLAN_SHARDING_##id,
enum plan_sharding { PLAN_SHARDINGS(SHARDING) };
#undef SHARDING
#define OFFLOAD(id, word, what) PLAN_OFFLOAD_##id,
enum plan_offload { PLAN_OFFLOADS(OFFLOAD) };
#undef OFFLOAD
#define ADAPTER(id, word, what) PLAN_ADAPTER_##id,
enum plan_adapter { PLAN_ADAPTERS(ADAPTER) };
#undef ADAPTER
#define FROZEN(id, word, what) PLAN_FROZEN_##id,
enum plan_frozen { PLAN_FROZEN(FROZEN) };
#undef FROZEN
#define RESIDENT(id, word, what) PLAN_RESIDENT_##id,
enum plan_resident { PLAN_RESIDENTS(RESIDENT) };
#undef RESIDENT
#define RUNTIME(id, word, what) PLAN_RUNTIME_##id,
enum plan_runtime { PLAN_RUNTIMES(RUNTIME) };
#undef RUNTIME
#define DECODING(id, word, what) PLAN_DECODING_##id,
enum plan_decoding { PLAN_DECODINGS(DECODING) };
#undef DECODING
#define SAVED(id, word, what) PLAN_SAVED_##id,
enum plan_saved { PLAN_SAVED(SAVED) };
#undef SAVED

/* How stored weights are quantised: quantisations.def, quantisation.h. NULL in a plan: in `precision`. */
enum estimate_quantisation_scheme { QUANTISATION_ALL, QUANTISATION_LINEAR, QUANTISATION_EXPERTS, QUANTISATION_GGUF };
struct estimate_quantisation {
    const char *word;
    double bits;                              /* per weight, with its share of the scales */
    double row_bits;                          /* in addition, per row of a matrix */
    enum estimate_quantisation_scheme scheme; /* which tensors are quantised; the others have 16 bits (GGUF: 32) */
    const char *source;
};

/* Numbers are at least 1 unless noted otherwise. Divisors of the world: gpus = tp · pp · cp · (data-parallel GPUs); ep
 * divides the data-parallel GPUs. */
struct plan {
    const struct model *model;
    bool inference;
    const struct estimate_precision *precision;
    bool precision_given; /* by the user; else, in inference, weights have the types of their file, or 16 bits */
    const struct estimate_optimizer *optimizer;
    bool master_weights;
    enum plan_step step;

    uint64_t batch;         /* sequences (or images) per forward pass on one GPU; 0: no activations */
    uint64_t seq;           /* tokens per sequence (prompt and answer in inference) */
    uint64_t accumulation;  /* forward and backward passes per step */
    bool adds_out_of_place; /* a foreach step of Adam has its denominator beside the square root (PyTorch before 2.1) */
    const char *torch;      /* PyTorch's version; NULL: a current one */
    bool zeroes_gradients, keeps_softmax_input, loads_all_kernels; /* as before 2.0, 1.11, 1.13 */
    unsigned transformers;         /* its version, 4.49: 449; 0: not given, a current one */
    bool repeats_keys;             /* its sdpa repeats keys and values for each query head */
    bool casts_queries;            /* its flash_attention_2 reads float32 queries in 16 bits */
    const char *transformers_text; /* as given; NULL: not given */
    unsigned bitsandbytes;         /* its version, 0.43.2: 4302; 0: not given, a current one */
    const char *bitsandbytes_text; /* as given; NULL: not given */
    bool not_reentrant;            /* checkpoints have use_reentrant=False */
    enum plan_attention attention;
    enum plan_checkpoint checkpoint;
    uint64_t remade;       /* with full checkpointing: layers that are checkpointed, of each pipeline stage; 0: all */
    uint64_t remade_every; /* or every so manieth layer; 0: all */
    bool fused_norms;      /* only the norms are one kernel each */
    bool fused_layers;     /* compiled or hand-written layers without dropout: activations at their low end */
    bool fused_loss;       /* the loss too: in the type of the logits */
    bool chunked_loss;     /* logits are made in pieces (Liger, cut cross-entropy) */
    bool away;             /* saved activations are in host memory until backward needs them */
    unsigned varying_lengths; /* micro-batches that are longer than all before, the last has `seq`; 0: all are equal */
    bool no_cache;            /* the loop passes use_cache=False, so that outputs contain no keys and values */
    bool by_module;           /* a checkpointed layer's norms, attention and MLP are checkpointed one by one */
    bool drop_outputs;        /* before backward the training loop drops what the model returned, except the loss */
    bool late_zero_grad;      /* zero_grad() runs between forward and backward, not after the step */

    uint64_t gpus, gpus_per_node; /* gpus_per_node 0: not given */
    uint64_t tp, pp, cp, ep;
    uint64_t expert_tp;                 /* GPUs that an expert is divided among; 0: as many as tp */
    uint64_t interleave;                /* model chunks per pipeline stage (virtual stages) */
    uint64_t first_layers, last_layers; /* of the first and the last pipeline stage; 0: as many as the others */
    bool sequence_parallel;             /* with tp: norms and dropouts are divided too */
    enum plan_sharding sharding;
    bool fsdp;        /* PyTorch's; else DeepSpeed's ZeRO */
    bool flat;        /* its first version, which joins a unit's parameters into one */
    bool separate;    /* adapters are units of their own, by peft's wrapping policy */
    bool expandable;  /* PyTorch's allocator has expandable segments */
    bool half_reduce; /* the second version and Megatron-LM: gradients are reduced in 16 bits, not in float32 */
    bool half_states; /* beside float32 master weights */
    enum plan_offload offload;
    bool bucket_view; /* gradient_as_bucket_view=True */

    enum plan_frozen frozen;
    enum plan_adapter adapter;
    bool half_adapters;     /* in 16 bits, as the weights beside them */
    bool quantised_experts; /* --weights is also that of experts which a class holds in one tensor */
    bool prepared; /* by peft's prepare_model_for_kbit_training: frozen weights that are not quantized are float32 */
    bool prepared_remakes; /* and it turns on checkpointing, which the user did not set */
    uint64_t rank;    /* of the adapters; of kinds without a rank: the size of their blocks, their virtual tokens */
    unsigned targets; /* PLAN_QUERIES and so on: what has adapters */
    /* of the inputs of adapters; unknown: none, with it at the high end */
    enum { PLAN_DROPOUT_UNKNOWN, PLAN_DROPOUT_NONE, PLAN_DROPOUT_SOME } dropout;
    enum plan_saved saved;                       /* peft's modules_to_save */
    const struct estimate_quantisation *weights; /* of frozen weights (QLoRA) or in inference; NULL: precision */
    bool ema;                                    /* an exponential moving average of the weights, float32, on the GPU */

    /* inference */
    uint64_t prompt;                           /* tokens of the prompt, part of `seq`; 0: all */
    const struct estimate_quantisation *cache; /* KV cache; NULL: 16 bits */
    uint64_t cache_block;                      /* tokens per block (vLLM: 16); 0: contiguous */
    /* diffusion */
    enum plan_resident resident;
    enum plan_runtime runtime;
    enum plan_decoding decoding;
    bool guided;                                      /* classifier-free guidance: two passes in one batch */
    const struct estimate_quantisation *text_weights; /* of the text encoders; NULL: 16 bits, or float32 if asked for */

    double share;                        /* vLLM's gpu_memory_utilization; 0: no --serve */
    unsigned vllm;                       /* its version, 0.19: 19; 0: not given, a current one */
    uint64_t most_requests, most_tokens; /* vLLM's max_num_seqs, max_num_batched_tokens; 0: not given */
    uint64_t lora_slots;                 /* vLLM's max_loras, if it serves adapters, of rank `rank` */

    const struct estimate_gpu *gpu;                 /* NULL: not named */
    double context;                                 /* bytes of CUDA's context; 0: not given */
    double memory;                                  /* bytes of one GPU; 0: not given. From --memory, or the GPU's */
    const struct estimate_calibration *calibration; /* NULL: none */
};

/* The GPUs that an expert is divided among. */
static inline uint64_t plan_expert_tp(const struct plan *p)
{
    return p->expert_tp ? p->expert_tp : p->tp;
}

/* Megatron-LM, or a program whose layers, loss and gradients are assumed to be like its. */
static inline bool plan_is_megatron(const struct plan *p)
{
    return p->runtime == PLAN_RUNTIME_MEGATRON || p->tp > 1 || p->pp > 1;
}

/* Tensor and pipeline parallelism are assumed to be Megatron-LM's, or similar. With bfloat16 weights it has float32
 * gradients from the start, and steps with them; with float16 it converts them for the step, as DeepSpeed does. */
bool plan_sums_in_float32(const struct plan *p);

/* The data-parallel GPUs: gpus / (tp · pp · cp). */
static inline uint64_t plan_dp(const struct plan *p)
{
    uint64_t divided = p->tp * p->pp * p->cp;
    return divided && p->gpus >= divided ? p->gpus / divided : 1;
}

/* Whether forward finds the gradients of an earlier pass. */
static inline bool plan_keeps_gradients(const struct plan *p)
{
    return p->accumulation > 1 || p->zeroes_gradients ||
           p->runtime == PLAN_RUNTIME_MEGATRON; /* param_and_grad_buffer.py: allocated once */
}

/* Whether layers are computed again from their input. With SELECTIVE_OP the results of some operations are kept. */
static inline bool plan_remakes_layers(const struct plan *p)
{
    return p->checkpoint == PLAN_CHECKPOINT_FULL || p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP;
}

/* The same of one layer, if only some are checkpointed. Every Nth: torchtitan counts layers from 1
 * (distributed/activation_checkpoint.py). A number: Megatron-LM's --recompute-method block remakes a stage's first
 * layers. */
static inline bool plan_remakes_layer(const struct plan *p, uint64_t layer)
{
    return plan_remakes_layers(p) && (p->remade_every ? (layer + 1) % p->remade_every == 0
                                      : p->remade     ? layer < p->remade
                                                      : true);
}

/* How many of the first `layers` are. */
static inline uint64_t plan_remade_layers(const struct plan *p, uint64_t layers)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < layers; i++) n += plan_remakes_layer(p, i);
    return n;
}

/* Inputs that a checkpointed layer keeps. */
static inline double plan_kept_inputs(const struct plan *p)
{
    return p->by_module ? 4 : 1; /* of two norms, attention and MLP */
}

/* The longest sequence that a learned table of positions allows; 0: no such table. OPT's table has two rows that no
 * token uses. */
static inline uint64_t plan_positions(const struct model_shape *s)
{
    if (s->family == MODEL_VIT || !s->vocab) return 0;
    return s->context && s->context < s->positions ? s->context : s->positions;
}

/* The default rank of adapters. */
enum { PLAN_RANK = 16 };
/* ln n: one in 50 sequences is as long as the longest, one in 1,000. */
enum { PLAN_RECORDS = 4, PLAN_MOST_RECORDS = 7 };

#define PLAN_DEFAULT                                                                                   \
    {                                                                                                  \
        .accumulation = 1, .gpus = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .interleave = 1, .rank = 16, \
        .targets = PLAN_LINEAR                                                                         \
    }
