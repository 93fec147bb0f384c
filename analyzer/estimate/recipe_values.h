/* What configurations state, once their keys have been looked up (recipe_keys.def), and what the tools that they are
 * written for do of themselves (recipe_tools.def). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "analyzer/estimate/recipe.h"

enum { RECIPE_UNSET = -1, RECIPE_WORDS = 128 };

/* What a tool does unless its configuration states something else. */
#define RECIPE_TRAITS(X)                                                               \
    X(MEGATRON, "its trainings are Megatron-LM's: master weights beside 16 bits")      \
    X(WHOLE, "trains in 16 bits without autocast")                                     \
    X(WHOLE_ALONE, "the same without FSDP")                                            \
    X(AUTOCAST, "also adapters are trained under autocast")                            \
    X(BF16, "computes in bfloat16")                                                    \
    X(BF16_ALWAYS, "also if the weights have another type")                            \
    X(ADAMW, "AdamW is the optimizer")                                                 \
    X(FUSED, "of PyTorch's optimizers the fused ones")                                 \
    X(REMADE, "layers are checkpointed")                                               \
    X(OPERATIONS, "selective checkpointing chooses operations, as torchtitan's")       \
    X(DROPS, "the loop keeps only the loss of the outputs, as Hugging Face's Trainer") \
    X(NO_CACHE, "calls the model with use_cache=False")                                \
    X(PADS, "pads a batch only to its longest sample")                                 \
    X(FOUR_BITS, "Q-LoRA does not convert embeddings to float32")                      \
    X(EXPANDS, "sets expandable_segments of PyTorch's allocator")                      \
    X(HALF_ADAPTERS, "adapters have the type of the weights, if it is bfloat16")       \
    X(SHARDS, "GPUs are those of FSDP")                                                \
    X(FSDP2, "FSDP is its second version")                                             \
    X(ACCELERATE, "gradients are reduced in 16 bits by FSDP2")                         \
    X(PREFERENCES, "the key `rl` states a training on preferences")                    \
    X(FROZEN_TOWER, "does not train an image tower")                                   \
    X(SERVES, "serves a model by vLLM")                                                \
    X(DENOISER, "trains a diffusion model's denoiser")
#define NUMBER(name, does) RECIPE_NUMBER_##name,
enum { RECIPE_TRAITS(NUMBER) };
#undef NUMBER
#define TRAIT(name, does) RECIPE_##name = 1 << RECIPE_NUMBER_##name,
enum estimate_recipe_trait { RECIPE_TRAITS(TRAIT) };
#undef TRAIT

/* The values of the keys. TEXT: a JSON value of any kind, NULL if unset; WORD: empty if unset;
 * the others: RECIPE_UNSET. */
struct estimate_recipe_values {
    char own_optimizer[RECIPE_WORDS], targets[RECIPE_WORDS], stored[RECIPE_WORDS], stored_text[RECIPE_WORDS];
    int64_t image, frames, vae_away, text_away, text_trained, ema, swapped;
    const json_t *task, *amp_type;
    const json_t *model, *folder, *component, *titan_name, *titan_flavor, *activation;
    const json_t *bf16, *fp16, *mixed, *dtype, *quantization, *recipe_form, *cache, *share, *rl, *rejected, *beta,
        *accelerators;
    const json_t *adapter, *target, *saved, *optimizer, *checkpointing, *attention, *engine, *loss, *plugins;
    const json_t *dropout, *reentrant, *remade_every, *remaking, *remade_modules, *schedule, *shared, *pattern, *stage;
    const json_t *allocator, *processor, *decoder_trained, *tokenizer, *tokenizer_model, *words, *serves, *predicts,
        *trains;
    const json_t *fsdp, *distribution, *strategy, *reshard, *deepspeed, *offload_optimizer, *offload_param,
        *megatron_strategy, *gradients, *moments;
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, padded, vocab_step, context, experts, experts_used, expert_ffn,
        gated;
    int64_t pure, fp8, galore, apollo, galore_rank, nested, master, four_bits, eight_bits, bits;
    int64_t frozen_tower, lora, dora, rank, init_rank, oft_rank, block_size, virtual_tokens, all_linear, fused_step,
        step_in_backward, distributed;
    int64_t batch, stage_batch, global_batch, accumulation, seq, packed_seq, requests, pass_tokens, serves_lora,
        lora_slots, slot_rank;
    int64_t hybrid, head_dim, untied, remade, chunks, chunk_layers, first_layers, last_layers;
    int64_t checkpointing_on, away, selective, flash, eager, liger, chunked, compiled, fused_loss, packs, pads;
    int64_t gpus, devices, nodes, tp, pp, cp, ep, expert_tp, reduces_half, quantised_experts, shards, replicas,
        sequence_parallel, fsdp_version, offload, zero, megatron_fsdp, torch_fsdp2;
};

/* A tool, or a kind of file that gpuspy does not read: `advice` is then what to do instead. */
struct estimate_recipe_tool {
    const char *mark, *name, *advice;
    unsigned traits;
};

/* recipe_keys.c: the tool that what was loaded is written for; NULL: none that gpuspy knows. */
const struct estimate_recipe_tool *estimate_recipe_tool(const json_t *root);
/* Adds the key "$words" for each mark of a tool that is words of this script. */
void estimate_recipe_mark(json_t *root, const char *script);
void estimate_recipe_clear(struct estimate_recipe_values *values);
/* Looks up the keys of a file for `tool`. Keys that may matter and have no row are listed in `r`. The values refer to
 * `root`. `left` limits the number of keys that a file with aliases can expand to. */
void estimate_recipe_walk(struct estimate_recipe *r, struct estimate_recipe_values *values,
                          const struct estimate_recipe_tool *tool, const json_t *root, unsigned *left);
/* Sets what is still unset to what the tool assumes. The values refer to `kept`, a list. */
void estimate_recipe_fill(struct estimate_recipe_values *values, const struct estimate_recipe_tool *tool, json_t *kept);
/* Adds an option, or a key that is not used, unless it is listed already. */
void estimate_recipe_add(struct estimate_recipe *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void estimate_recipe_leave_out(struct estimate_recipe *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
