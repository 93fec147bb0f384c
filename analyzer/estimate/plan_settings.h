/* The options that describe a plan, as read from the command line, and the plan that they make. To add one:
 * a row below, a field, a line in plan_settings.c. */
#pragma once

#include "analyzer/base/options.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/settings.h"

/* Types of option kinds: OPTION_COUNT and OPTION_BYTES are uint64_t, 0: not given. */
struct plan_settings {
    struct estimate_settings model; /* --params, --model, --optimizer, --precision, --master-weights */
    /* an explicit shape, instead of --model */
    const char *family;
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context, experts, experts_used;
    uint64_t image, width, frames;
    bool tied, untied, masked_lm;
    /* training */
    uint64_t batch, seq, accumulation, remade, remade_every;
    const char *attention, *checkpointing, *step, *torch, *transformers, *bitsandbytes;
    bool not_reentrant, fused_layers, fused_norms, fused_loss, chunked_loss, one_kernel_gelu, away, by_module,
        drop_outputs, no_cache, bucket_view, ema, varying_lengths, late_zero_grad;
    const char *frozen;
    uint64_t network;
    uint64_t gpus, per_node, tp, pp, cp, ep, expert_tp, interleave, first_layers, last_layers;
    bool expandable, sequence_parallel, separate, half_reduce, half_states, half_adapters, quantised_experts;
    const char *sharding, *offload;
    const char *adapter, *saved;
    struct option_list target;
    uint64_t rank, block_size, virtual_tokens;
    const char *lora_dropout;
    const char *weights; /* quantisation */
    const char *text_weights, *resident, *vae;
    bool no_guidance;
    /* inference */
    bool inference, tuple_cache;
    const char *cache;
    uint64_t cache_block, prompt;
    const char *serve, *share, *vllm, *runtime;
    uint64_t most_requests, most_tokens, lora_slots;
    /* the device */
    struct option_list gpu;
    uint64_t memory, context_size;
};

#define PLAN_SETTINGS_DEFAULT              \
    {                                      \
        .model = ESTIMATE_SETTINGS_DEFAULT \
    }

extern const char plan_families[], plan_attentions[], plan_checkpoints[], plan_steps[], plan_shardings[],
    plan_offloads[], plan_adapters[], plan_targets[], plan_saved[], plan_frozen_words[], plan_servers[],
    plan_residents[], plan_decodings[], plan_runtimes[];

#define PLAN_AT(type, member, field) offsetof(type, member) + offsetof(struct plan_settings, field)
#define PLAN_COUNT(type, member, name, field, argument, help)                              \
    {                                                                                      \
        name, 0, OPTION_COUNT, PLAN_AT(type, member, field), argument, NULL, 1, 1e12, help \
    }
#define PLAN_WORD(type, member, name, field, words, help)                               \
    {                                                                                   \
        name, 0, OPTION_CHOICE, PLAN_AT(type, member, field), "WORD", words, 0, 0, help \
    }
#define PLAN_FLAG(type, member, name, field, help)                                 \
    {                                                                              \
        name, 0, OPTION_FLAG, PLAN_AT(type, member, field), NULL, NULL, 0, 0, help \
    }

/* What activations depend on; also used to compare a recording with an estimate. */
#define PLAN_ACTIVATION_OPTIONS(type, member)                                                                          \
    PLAN_COUNT(type, member, "batch", batch, "N", "sequences or images in one forward pass on one GPU (micro-batch)"), \
        PLAN_COUNT(type, member, "seq", seq, "N", "tokens per sequence"),                                              \
        PLAN_WORD(type, member, "attention", attention, plan_attentions,                                               \
                  "attention kernels; default flash, which scaled_dot_product_attention also uses; sdpa and "          \
                  "flash_attention_2 are flash, except as --transformers states; T5 in transformers 5.15 to 5.19 "     \
                  "uses math; handwritten: softmax is exp, sum and a quotient, as in teaching code"),                  \
        PLAN_WORD(type, member, "checkpointing", checkpointing, plan_checkpoints,                                      \
                  "activation checkpointing; default none"),                                                           \
        PLAN_COUNT(type, member, "checkpoint-every", remade_every, "N",                                                \
                   "only every Nth layer is checkpointed (torchtitan)"),                                               \
        PLAN_COUNT(type, member, "checkpointed-layers", remade, "N",                                                   \
                   "only N layers of each pipeline stage are checkpointed (Megatron-LM: --recompute-num-layers)"),     \
        PLAN_FLAG(type, member, "checkpoint-modules", by_module,                                                       \
                  "with --checkpointing full: norms, attention and MLP of a layer are checkpointed one by one (NeMo "  \
                  "AutoModel)"),                                                                                       \
        PLAN_WORD(type, member, "step", step, plan_steps, "the optimizer's implementation; default foreach"),          \
        PLAN_FLAG(type, member, "fused-layers", fused_layers,                                                          \
                  "layers are compiled or use fused kernels, without dropout: less is saved for backward"),            \
        PLAN_FLAG(type, member, "fused-norms", fused_norms,                                                            \
                  "only norms use fused kernels (Liger's or Unsloth's RMSNorm), which keep only their input")

/* A shape instead of a model's name. */
#define PLAN_SHAPE_OPTIONS(type, member)                                                                              \
    PLAN_COUNT(type, member, "layers", layers, "N", "number of layers"),                                              \
        PLAN_COUNT(type, member, "hidden", hidden, "N", "hidden size"),                                               \
        PLAN_COUNT(type, member, "heads", heads, "N", "attention heads"),                                             \
        PLAN_COUNT(type, member, "kv-heads", kv_heads, "N", "key and value heads; default: --heads"),                 \
        PLAN_COUNT(type, member, "head-dim", head_dim, "N", "size of a head; default: hidden / heads"),               \
        PLAN_COUNT(type, member, "ffn", ffn, "N", "size of the MLP (intermediate_size)"),                             \
        PLAN_COUNT(type, member, "vocab", vocab, "N", "tokens in the vocabulary"),                                    \
        PLAN_COUNT(type, member, "context", context, "N", "longest sequence (max_position_embeddings)"),              \
        PLAN_COUNT(type, member, "experts", experts, "N", "experts per layer"),                                       \
        PLAN_COUNT(type, member, "experts-used", experts_used, "N", "experts per token"),                             \
        PLAN_COUNT(type, member, "image", image, "N", "image models: pixels per side; default 224 for most"),         \
        PLAN_COUNT(type, member, "width", width, "N",                                                                 \
                   "diffusion: pixels of the width, if it is not the height (--image)"),                              \
        PLAN_COUNT(type, member, "frames", frames, "N", "video diffusion: frames"),                                   \
        PLAN_FLAG(type, member, "tied", tied, "the output layer shares the embedding's weights"),                     \
        PLAN_FLAG(type, member, "untied", untied, "the output layer has weights of its own, also with --family gpt"), \
        PLAN_WORD(type, member, "family", family, plan_families, "kind of model; default llama")

#define PLAN_TRAINING_OPTIONS(type, member)                                                                           \
    PLAN_ACTIVATION_OPTIONS(type, member),                                                                            \
        PLAN_COUNT(type, member, "accumulation", accumulation, "N", "micro-batches per step"),                        \
        PLAN_FLAG(type, member, "fused-loss", fused_loss,                                                             \
                  "the loss is a plain or compiled cross_entropy, which makes no float32 copy of the logits; "        \
                  "with --runtime=megatron: its --cross-entropy-loss-fusion, which makes one more copy"),             \
        PLAN_FLAG(type, member, "chunked-loss", chunked_loss,                                                         \
                  "logits are computed in chunks (Liger kernels, cut cross-entropy)"),                                \
        PLAN_FLAG(type, member, "offload-activations", away,                                                          \
                  "saved activations are in host memory until backward needs them (torchtune, TRL)"),                 \
        PLAN_FLAG(type, member, "one-kernel-gelu", one_kernel_gelu,                                                   \
                  "nn.GELU instead of transformers' gelu_new (nanoGPT, litgpt)"),                                     \
        PLAN_FLAG(                                                                                                    \
            type, member, "varying-lengths", varying_lengths,                                                         \
            "each micro-batch is only as long as its longest sequence, at most --seq: the allocator then caches "     \
            "segments of many sizes"),                                                                                \
        PLAN_FLAG(type, member, "drop-outputs", drop_outputs,                                                         \
                  "the loop keeps only the loss of the model's outputs, as Hugging Face's Trainer does"),             \
        PLAN_FLAG(type, member, "no-cache", no_cache,                                                                 \
                  "the model is called with use_cache=False: what it returns contains no keys and values"),           \
        PLAN_FLAG(type, member, "late-zero-grad", late_zero_grad,                                                     \
                  "zero_grad() runs between forward and backward, so that forward runs beside the gradients of "      \
                  "the step before (Lightning); default: after the step or before forward"),                          \
        PLAN_FLAG(type, member, "expandable-segments", expandable,                                                    \
                  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which torchtitan's script, torchtune, axolotl "  \
                  "and Unsloth set"),                                                                                 \
        PLAN_FLAG(type, member, "masked-lm", masked_lm,                                                               \
                  "encoders of text: with the head for masked tokens and its loss"),                                  \
        {"torch",                                                                                                     \
         0,                                                                                                           \
         OPTION_TEXT,                                                                                                 \
         PLAN_AT(type, member, torch),                                                                                \
         "VERSION",                                                                                                   \
         NULL,                                                                                                        \
         0,                                                                                                           \
         0,                                                                                                           \
         "PyTorch's version, if it is older than 2.1: the foreach step of Adam in 2.0 has two copies of all "         \
         "parameters; before 2.0 optimizers zeroed gradients instead of freeing them, before 1.13 the context held "  \
         "all kernels, before 1.11 softmax kept its input"},                                                          \
        {"transformers",                                                                                              \
         0,                                                                                                           \
         OPTION_TEXT,                                                                                                 \
         PLAN_AT(type, member, transformers),                                                                         \
         "VERSION",                                                                                                   \
         NULL,                                                                                                        \
         0,                                                                                                           \
         0,                                                                                                           \
         "transformers' version: before 4.54 sdpa repeats grouped keys, before 4.49 losses copy logits, before 4.45 " \
         "a prompt has all its logits, before "                                                                       \
         "4.36 (Mistral 4.37, GPT-2 4.42 …) attention is eager, before "                                            \
         "4.53 LoRA with FSDP's first version keeps the gradient of each checkpointed layer's input"},                \
        {"bitsandbytes",                                                                                              \
         0,                                                                                                           \
         OPTION_TEXT,                                                                                                 \
         PLAN_AT(type, member, bitsandbytes),                                                                         \
         "VERSION",                                                                                                   \
         NULL,                                                                                                        \
         0,                                                                                                           \
         0,                                                                                                           \
         "bitsandbytes' version: before 0.43.2 each product with 4-bit weights keeps its input for backward"},        \
        PLAN_FLAG(type, member, "no-reentrant", not_reentrant,                                                        \
                  "checkpointing with use_reentrant=False, which matters for LoRA with FSDP's first version"),        \
        PLAN_FLAG(type, member, "ema", ema, "a float32 moving average of the weights on the GPU"),                    \
        PLAN_WORD(type, member, "frozen", frozen, plan_frozen_words,                                                  \
                  "models of text and images: the part that is not trained (tower: the image tower); default none")

/* How the GPUs divide the model; also used to compare a recording of one of them with an estimate. */
#define PLAN_DIVIDED_OPTIONS(type, member)                                                                             \
    PLAN_WORD(type, member, "sharding", sharding, plan_shardings,                                                      \
              "what data-parallel GPUs shard: ddp (nothing), zero1, zero2, zero3; fsdp is zero3, fsdp-grad-op zero2"), \
        PLAN_FLAG(type, member, "separate-adapters", separate,                                                         \
                  "with --sharding fsdp: adapters are FSDP units of their own (peft's fsdp_auto_wrap_policy)"),        \
        PLAN_FLAG(type, member, "half-reduce", half_reduce,                                                            \
                  "gradients are reduced in 16 bits: with --sharding fsdp2 accelerate's, with --runtime megatron "     \
                  "--grad-reduce-in-bf16; "                                                                            \
                  "default float32"),                                                                                  \
        PLAN_FLAG(type, member, "half-states", half_states,                                                            \
                  "with --master-weights: the optimizer's states have 16 bits (Megatron-LM's --exp-avg-dtype bf16)"),  \
        PLAN_WORD(type, member, "offload", offload, plan_offloads, "what is offloaded to host memory"),                \
        PLAN_FLAG(type, member, "bucket-view", bucket_view, "DDP with gradient_as_bucket_view=True"),                  \
        PLAN_COUNT(type, member, "tp", tp, "N", "tensor parallel GPUs"),                                               \
        PLAN_FLAG(type, member, "sequence-parallel", sequence_parallel,                                                \
                  "with --tp: norms and dropouts are sharded too"),                                                    \
        PLAN_COUNT(type, member, "pp", pp, "N", "pipeline stages"),                                                    \
        PLAN_COUNT(type, member, "interleave", interleave, "N", "model chunks per pipeline stage"),                    \
        PLAN_COUNT(type, member, "first-stage-layers", first_layers, "N",                                              \
                   "layers of the first pipeline stage; default as many as the others"),                               \
        PLAN_COUNT(type, member, "last-stage-layers", last_layers, "N", "layers of the last pipeline stage"),          \
        PLAN_COUNT(type, member, "cp", cp, "N", "context parallel GPUs"),                                              \
        PLAN_COUNT(type, member, "ep", ep, "N", "expert parallel GPUs"),                                               \
        PLAN_COUNT(type, member, "expert-tp", expert_tp, "N", "GPUs that each expert is divided among; default --tp")

#define PLAN_PARALLEL_OPTIONS(type, member)                                                            \
    {"gpus",                                                                                           \
     0,                                                                                                \
     OPTION_COUNT_OR_ALONE,                                                                            \
     PLAN_AT(type, member, gpus),                                                                      \
     "N",                                                                                              \
     NULL,                                                                                             \
     1,                                                                                                \
     1e6,                                                                                              \
     "total number of GPUs; default: as many as --tp, --pp, --cp and --ep need; "                      \
     "without a number: list the GPUs that gpuspy knows"},                                             \
        PLAN_COUNT(type, member, "gpus-per-node", per_node, "N", "GPUs per machine"),                  \
        {"network",                                                                                    \
         0,                                                                                            \
         OPTION_RATE,                                                                                  \
         PLAN_AT(type, member, network),                                                               \
         "RATE",                                                                                       \
         NULL,                                                                                         \
         1,                                                                                            \
         1e16,                                                                                         \
         "each GPU's share of its machine's network; default 400Gb/s, or less if its PCIe is slower"}, \
        PLAN_DIVIDED_OPTIONS(type, member)

#define PLAN_ADAPTER_OPTIONS(type, member)                                                                          \
    PLAN_WORD(                                                                                                      \
        type, member, "adapter", adapter, plan_adapters,                                                            \
        "an adapter of peft beside frozen weights; qlora: lora with --weights=nf4-double, float32 embeddings and "  \
        "--checkpointing=full"),                                                                                    \
        PLAN_COUNT(type, member, "lora-rank", rank, "N",                                                            \
                   "rank of adapters; default 16 (loha, lokr: 8; adalora: 12; vera: 256)"),                         \
        PLAN_FLAG(                                                                                                  \
            type, member, "half-adapters", half_adapters,                                                           \
            "adapters have the 16 bits of the weights, as in torchtune and litgpt; default float32, as in peft"),   \
        PLAN_FLAG(type, member, "quantised-experts", quantised_experts,                                             \
                  "--weights of bitsandbytes includes the experts (axolotl's quantize_moe_experts, Unsloth); by "   \
                  "default transformers 5 keeps them in 16 bits"),                                                  \
        {"lora-dropout",                                                                                            \
         0,                                                                                                         \
         OPTION_TEXT,                                                                                               \
         PLAN_AT(type, member, lora_dropout),                                                                       \
         "P",                                                                                                       \
         NULL,                                                                                                      \
         0,                                                                                                         \
         0,                                                                                                         \
         "dropout of LoRA's inputs, which keeps a mask beside each matrix; default 0, as in peft"},                 \
        PLAN_COUNT(type, member, "block-size", block_size, "N", "inputs per block of oft and boft; default 32, 4"), \
        PLAN_COUNT(type, member, "virtual-tokens", virtual_tokens, "N",                                             \
                   "number of virtual tokens of prompt and prefix tuning"),                                         \
        {"target",                                                                                                  \
         0,                                                                                                         \
         OPTION_LIST,                                                                                               \
         PLAN_AT(type, member, target),                                                                             \
         "NAMES",                                                                                                   \
         plan_targets,                                                                                              \
         0,                                                                                                         \
         0,                                                                                                         \
         "matrices with adapters, several separated by commas; default all-linear"},                                \
        PLAN_WORD(type, member, "modules-to-save", saved, plan_saved,                                               \
                  "layers trained in full beside adapters, like peft's modules_to_save; default none"),             \
    {                                                                                                               \
        "weights", 0, OPTION_TEXT, PLAN_AT(type, member, weights), "WORD", plan_quantisations, 0, 0,                \
            "how frozen or served weights are stored"                                                               \
    }

#define PLAN_DIFFUSION_OPTIONS(type, member)                                                                         \
    PLAN_WORD(                                                                                                       \
        type, member, "resident", resident, plan_residents,                                                          \
        "which models stay on the GPU beside the denoiser: text encoders, VAE; default all, in training denoiser"),  \
        PLAN_WORD(type, member, "vae", vae, plan_decodings, "how the VAE decodes; default whole"),                   \
        PLAN_FLAG(type, member, "no-guidance", no_guidance, "no classifier-free guidance, which doubles the batch"), \
    {                                                                                                                \
        "text-weights", 0, OPTION_TEXT, PLAN_AT(type, member, text_weights), "WORD", plan_quantisations, 0, 0,       \
            "how weights of the text encoders are stored"                                                            \
    }

#define PLAN_INFERENCE_OPTIONS(type, member)                                                             \
    PLAN_FLAG(type, member, "inference", inference, "serve the model instead of training it"),           \
        PLAN_WORD(type, member, "serve", serve, plan_servers,                                            \
                  "compute how much this server leaves for the KV cache, and how many requests fit"),    \
        {"gpu-memory-utilization",                                                                       \
         0,                                                                                              \
         OPTION_TEXT,                                                                                    \
         PLAN_AT(type, member, share),                                                                   \
         "SHARE",                                                                                        \
         NULL,                                                                                           \
         0,                                                                                              \
         0,                                                                                              \
         "with --serve: the share of the GPU that the server takes; default 0.9"},                       \
        PLAN_COUNT(type, member, "max-num-seqs", most_requests, "N",                                     \
                   "with --serve: at most N requests in one pass; default 256, or 1024 on large GPUs"),  \
        PLAN_COUNT(type, member, "max-num-batched-tokens", most_tokens, "N",                             \
                   "with --serve: at most N tokens in one pass; default 2048, or 8192 on large GPUs"),   \
        PLAN_COUNT(type, member, "max-loras", lora_slots, "N",                                           \
                   "with --serve: N LoRA adapters of --lora-rank at once, for which vLLM takes memory"), \
        {"vllm",                                                                                         \
         0,                                                                                              \
         OPTION_TEXT,                                                                                    \
         PLAN_AT(type, member, vllm),                                                                    \
         "VERSION",                                                                                      \
         NULL,                                                                                           \
         0,                                                                                              \
         0,                                                                                              \
         "vLLM's version: before 0.21 CUDA graphs take memory beyond the share, before 0.17 sampling "   \
         "sorts all logits"},                                                                            \
        {"kv-cache",                                                                                     \
         0,                                                                                              \
         OPTION_TEXT,                                                                                    \
         PLAN_AT(type, member, cache),                                                                   \
         "WORD",                                                                                         \
         plan_quantisations,                                                                             \
         0,                                                                                              \
         0,                                                                                              \
         "number format of the KV cache; default 16 bits"},                                              \
        PLAN_COUNT(type, member, "prompt", prompt, "N", "tokens of the prompt; default: all of --seq"),  \
        PLAN_COUNT(type, member, "cache-block", cache_block, "N", "tokens per block of the KV cache"),   \
        PLAN_FLAG(type, member, "tuple-cache", tuple_cache,                                              \
                  "each token copies the whole KV cache, as in transformers before 4.36"),               \
        PLAN_WORD(type, member, "runtime", runtime, plan_runtimes,                                       \
                  "the program that serves or trains the model; default any")

#define PLAN_DEVICE_OPTIONS(type, member)                                                                            \
    {"gpu",                                                                                                          \
     0,                                                                                                              \
     OPTION_LIST,                                                                                                    \
     PLAN_AT(type, member, gpu),                                                                                     \
     "NAME",                                                                                                         \
     plan_gpus,                                                                                                      \
     0,                                                                                                              \
     0,                                                                                                              \
     "compare with this GPU, several separated by commas, or all; exit status 1 if it "                              \
     "fits on none"},                                                                                                \
        {"memory",                                                                                                   \
         0,                                                                                                          \
         OPTION_BYTES,                                                                                               \
         PLAN_AT(type, member, memory),                                                                              \
         "SIZE",                                                                                                     \
         NULL,                                                                                                       \
         1,                                                                                                          \
         1e18,                                                                                                       \
         "compare with SIZE, such as 24GiB; exit status 1 if it does not fit"},                                      \
    {                                                                                                                \
        "context-size", 0, OPTION_BYTES, PLAN_AT(type, member, context_size), "SIZE", NULL, 1, 1e12,                 \
            "size of the CUDA context, if you know it: nvidia-smi's figure for a process that only initialised CUDA" \
    }

extern const char plan_gpus[]; /* plan_quantisations: quantisation.h */

/* Whether a model is given: by name, by its number of parameters or by shape. */
bool plan_settings_model_given(const struct plan_settings *s);
/* The GPUs that --gpu names, each once, in `named` (room for estimate_gpu_count of gpu.h); false after one line on
 * stderr. */
bool plan_settings_gpus(const char *command, const struct plan_settings *s, const struct estimate_gpu **named,
                        size_t *n);
/* Fills in what the user left out: a batch of 1, and the sequence length that the model was made for, at most PLAN_SEQ
 * tokens. Nothing if the shape is unknown: there are no activations then. */
enum { PLAN_SEQ = 4096 };
struct plan_assumed {
    bool batch, seq;
};
void plan_assume(struct plan *p, struct plan_assumed *assumed);
/* Fills the plan and the model that it points to; call model_free() on the model in any case. False after one line on
 * stderr, with the exit code. */
bool plan_from_settings(const char *command, const struct plan_settings *s, struct plan *p, struct model *m,
                        int *exit_code);
