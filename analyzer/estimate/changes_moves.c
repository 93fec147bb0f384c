/* The changes that people make to save memory: when each applies, what to write, what it costs. */
#include "analyzer/estimate/changes_moves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/quantisation.h"

enum group {
    STEP = 1,
    BUCKETS = 2,
    ATTENTION = 4,
    LOSS = 8,
    SP = 16,
    CHECKPOINT = 32,
    BATCH = 64,
    SHARDING = 128,
    PRECISION = 256,
    OPTIMIZER = 512,
    EMA = 1024,
    OFFLOAD = 2048,
    ADAPTER = 4096,
    SEQ = 8192,
    GPUS = 16384,
    WEIGHTS = 32768,
    CACHE = 65536,
    BLOCKS = 131072,
    COMPILED = 262144,
    VAE = 524288,
    ZEROING = 1048576,
};

#define SET_TEXT(field, ...) snprintf(w->field, sizeof w->field, __VA_ARGS__)
#define APPLY(name) static bool name(const struct estimate_move *move, struct plan *p, struct estimate_move_words *w)
/* A change of one field of the plan, unless a condition is true. */
#define SET_ONE(name, unless, change, what_words, option_words, cost_words) \
    APPLY(name)                                                             \
    {                                                                       \
        if (unless) return false;                                           \
        p->change;                                                          \
        SET_TEXT(what, what_words);                                         \
        SET_TEXT(option, option_words);                                     \
        SET_TEXT(cost, cost_words);                                         \
        return true;                                                        \
    }

static bool is_transformer(const struct plan *p)
{
    enum model_family family = p->model->shape.family;

    return p->model->shape.layers && family != MODEL_UNKNOWN && family != MODEL_CONV;
}

static bool is_decoder_plan(const struct plan *p)
{
    return is_transformer(p) && (p->model->shape.family == MODEL_GPT || p->model->shape.family == MODEL_LLAMA);
}

/* Compute capability times ten; 0: not known. */
static int gpu_capability(const struct plan *p)
{
    return p->gpu ? (int)(atof(p->gpu->capability) * 10 + 0.5) : 0;
}

APPLY(fused_step)
{
    static const char *const fused[] = {"adam", "adamw",        "adam-amsgrad", "adamw-amsgrad",
                                        "sgd",  "sgd-momentum", "adagrad",      NULL};
    const char *const *name = fused;

    if (p->step != PLAN_STEP_FOREACH) return false;
    while (*name && strcmp(*name, p->optimizer->name) != 0) name++;
    p->step = *name ? PLAN_STEP_FUSED : PLAN_STEP_LOOP;
    if (*name) {
        SET_TEXT(what, "fused optimizer step: fused=True in the optimizer");
        SET_TEXT(option, "--step fused");
        SET_TEXT(cost, "nothing: one kernel, which is faster");
    } else {
        SET_TEXT(what, "optimizer step parameter by parameter: foreach=False in the optimizer");
        SET_TEXT(option, "--step loop");
        SET_TEXT(cost, "several small kernels for each parameter, once per step");
    }
    return true;
}

SET_ONE(bucket_view, p->sharding != PLAN_SHARDING_DDP || plan_dp(p) < 2 || p->bucket_view, bucket_view = true,
        "gradients inside DDP's buckets: gradient_as_bucket_view=True", "--bucket-view",
        "nothing: one copy less; gradients must not be detached in place")

SET_ONE(zero_grad_early, !p->late_zero_grad, late_zero_grad = false,
        "gradients freed before forward: zero_grad(set_to_none=True) after the step", "without --late-zero-grad",
        "nothing: the same call in another place")

SET_ONE(move_to_flash, p->attention != PLAN_ATTENTION_EAGER || !is_transformer(p), attention = PLAN_ATTENTION_FLASH,
        "attention without the matrix of scores: attn_implementation=\"sdpa\" or \"flash_attention_2\"",
        "--attention flash", "nothing: it is faster; attention weights cannot be returned")

SET_ONE(move_to_chunked_loss, p->chunked_loss || !is_decoder_plan(p) || !p->batch, chunked_loss = true,
        "logits and loss in chunks: Liger's fused linear cross-entropy, or cut-cross-entropy", "--chunked-loss",
        "one more package; the model returns no logits; about as fast")

SET_ONE(drop_outputs, p->drop_outputs || !estimate_act_has_logits(&p->model->shape) || !p->batch, drop_outputs = true,
        "the loop drops the logits before backward: loss = model(...).loss", "--drop-outputs",
        "nothing; Hugging Face's Trainer already does it")

SET_ONE(move_to_compiled, p->fused_layers || !is_transformer(p) || !p->batch, fused_layers = true,
        "compiled layers: torch.compile(model), or Transformer Engine's and Liger's kernels", "--fused-layers",
        "nothing after compilation, which takes minutes; it is faster")

SET_ONE(sequence_parallel, p->tp < 2 || p->sequence_parallel, sequence_parallel = true,
        "sequence parallel: norms and dropouts divided among the tensor-parallel GPUs", "--sequence-parallel",
        "backward gathers the layers' inputs once more, while it computes")

/* The share of attention's core, computed once more, in forward and backward together: 4·s·q of 3 (2·parameters +
 * 4·s·q) for each token and layer. */
static double core_share(const struct plan *p)
{
    const struct model_shape *s = &p->model->shape;
    double core = 4.0 * (double)p->seq * (double)s->heads * (double)s->head_dim * (double)s->layers;
    double matrices = 2.0 * (double)model_active_params(p->model);

    return core / (3 * (matrices + core));
}

APPLY(checkpoint_selective)
{
    if (p->checkpoint != PLAN_CHECKPOINT_NONE || p->attention != PLAN_ATTENTION_EAGER || !is_transformer(p) ||
        !p->batch)
        return false;
    p->checkpoint = PLAN_CHECKPOINT_SELECTIVE;
    SET_TEXT(what, "selective checkpointing: attention's core is recomputed (Megatron-LM: "
                   "--recompute-activations)");
    SET_TEXT(option, "--checkpointing selective");
    SET_TEXT(cost, "%.1f %% more compute", 100 * core_share(p));
    return true;
}

/* Useful only if few of the products are computed again: not if most of them are of experts, which are not kept. */
APPLY(checkpoint_operations)
{
    double all = 3 * (double)model_active_params(p->model);

    if (p->checkpoint == PLAN_CHECKPOINT_FULL || p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP || !is_transformer(p) ||
        !p->batch)
        return false;
    p->checkpoint = PLAN_CHECKPOINT_SELECTIVE_OP;
    double share = all > 0 ? estimate_act_recomputed(p) / all : 1;
    if (share > 0.2) return false;
    SET_TEXT(what,
             "checkpointing except chosen operations: torch.utils.checkpoint, create_selective_checkpoint_contexts, "
             "torchtitan's policy");
    SET_TEXT(option, "--checkpointing selective-op");
    SET_TEXT(cost, share < 0.005 ? "operations between matrix products are recomputed" : "%.0f %% more compute",
             100 * share);
    return true;
}

SET_ONE(checkpoint_full, p->checkpoint == PLAN_CHECKPOINT_FULL || !is_transformer(p) || !p->batch,
        checkpoint = PLAN_CHECKPOINT_FULL, "gradient checkpointing: model.gradient_checkpointing_enable()",
        "--checkpointing full", "forward is computed twice: about a third more compute")

APPLY(micro_batch)
{
    uint64_t by = move->n ? move->n : p->batch;

    if (p->batch < 2 || by < 2 || p->batch % by || (!move->n && p->batch <= 8)) return false;
    p->batch /= by;
    p->accumulation *= by;
    SET_TEXT(what, "micro-batches of %ju, %ju of them per step: gradient_accumulation_steps=%ju", (uintmax_t)p->batch,
             (uintmax_t)p->accumulation, (uintmax_t)p->accumulation);
    SET_TEXT(option, "--batch %ju --accumulation %ju", (uintmax_t)p->batch, (uintmax_t)p->accumulation);
    SET_TEXT(cost, "the same gradients (not with batch normalisation); small batches keep a GPU less busy");
    return true;
}

/* DeepSpeed's PipelineEngine asserts zero_optimization_stage() < gradients (deepspeed/runtime/pipe/engine.py), so only
 * FSDP has stages 2 and 3: torchtitan applies fully_shard in each pipeline stage, and keeps what it gathered for
 * forward until backward (torchtitan/distributed/fsdp.py), which is zero2. */
static const char *sharder_name(const struct plan *p, enum plan_sharding sharding)
{
    static const char *const megatron[] = {
        [PLAN_SHARDING_ZERO1] = "Megatron-LM --use-distributed-optimizer",
        [PLAN_SHARDING_ZERO2] = "Megatron-LM --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
        [PLAN_SHARDING_ZERO3] = "Megatron-LM --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
    };
    static const char *const whats[][2] = {
        [PLAN_SHARDING_ZERO1] = {"ZeroRedundancyOptimizer, or DeepSpeed zero_optimization.stage 1",
                                 "Megatron-LM's distributed optimizer, or DeepSpeed zero_optimization.stage 1"},
        [PLAN_SHARDING_ZERO2] =
            {"FSDP SHARD_GRAD_OP, or DeepSpeed stage 2",
             "FSDP fully_shard(reshard_after_forward=False); DeepSpeed refuses stage 2 with pipelines"},
        [PLAN_SHARDING_ZERO3] =
            {"FSDP fully_shard, or DeepSpeed stage 3",
             "FSDP fully_shard(reshard_after_forward=True); DeepSpeed refuses stage 3 with pipelines"},
    };

    return p->runtime == PLAN_RUNTIME_MEGATRON ? megatron[sharding] : whats[sharding][p->pp > 1];
}

APPLY(move_to_shards)
{
    static const char *const whats[] = {[PLAN_SHARDING_ZERO1] = "optimizer states sharded",
                                        [PLAN_SHARDING_ZERO2] = "gradients and optimizer states sharded",
                                        [PLAN_SHARDING_ZERO3] = "everything sharded"};
    static const char *const options[] = {
        [PLAN_SHARDING_ZERO1] = "zero1", [PLAN_SHARDING_ZERO2] = "zero2", [PLAN_SHARDING_ZERO3] = "zero3"};

    if (plan_dp(p) < 2 || p->sharding >= (enum plan_sharding)move->n) return false;
    if (p->runtime == PLAN_RUNTIME_MEGATRON && p->pp > 1 && move->n > PLAN_SHARDING_ZERO1) return false; /* asserted */
    p->sharding = (enum plan_sharding)move->n;
    SET_TEXT(what, "%s: %s", whats[move->n], sharder_name(p, p->sharding));
    SET_TEXT(option, "--sharding %s", options[move->n]);
    if (p->sharding == PLAN_SHARDING_ZERO3)
        SET_TEXT(cost, "parameters are gathered for each layer: 1.5 times the traffic of DDP");
    else
        SET_TEXT(cost, "the same traffic as DDP");
    return true;
}

APPLY(more_gpus)
{
    uint64_t to = p->gpus * move->n;

    if (to > 65536) return false;
    p->gpus = to;
    p->sharding = PLAN_SHARDING_ZERO3;
    SET_TEXT(what, "%ju GPUs, everything sharded among them: %s", (uintmax_t)to, sharder_name(p, p->sharding));
    SET_TEXT(option, "--gpus %ju --sharding zero3", (uintmax_t)to);
    SET_TEXT(cost, "%ju GPUs instead of %ju; %u times the batch per step, or a smaller batch per GPU", (uintmax_t)to,
             (uintmax_t)(to / move->n), move->n);
    return true;
}

APPLY(move_to_tensor_parallel)
{
    uint64_t tp = p->tp * move->n;

    if (!is_transformer(p) || tp > (p->gpus_per_node ? p->gpus_per_node : 8)) return false;
    p->tp = tp;
    p->gpus *= move->n;
    SET_TEXT(what, "each layer divided among %ju GPUs (%s)", (uintmax_t)tp,
             p->inference ? "vLLM: --tensor-parallel-size"
                          : "tensor parallel, Megatron-LM or torch's parallelize_module");
    SET_TEXT(option, "--gpus %ju --tp %ju", (uintmax_t)p->gpus, (uintmax_t)tp);
    SET_TEXT(cost, "%ju GPUs instead of %ju, all-reduces in every layer: needs NVLink", (uintmax_t)p->gpus,
             (uintmax_t)(p->gpus / move->n));
    return true;
}

APPLY(move_to_autocast)
{
    bool half = gpu_capability(p) && gpu_capability(p) < 80; /* its tensor cores have no bfloat16 */
    const struct estimate_precision *amp = estimate_precision(half ? "amp-fp16" : "amp-bf16");

    if (!amp || p->precision->weights != 4 || p->precision->cast_copy || p->adapter != PLAN_ADAPTER_NONE) return false;
    p->precision = amp;
    p->precision_given = true;
    SET_TEXT(what, "mixed precision: torch.autocast(\"cuda\", dtype=torch.%s",
             half ? "float16), with a GradScaler" : "bfloat16)");
    SET_TEXT(option, "--precision %s", amp->name);
    SET_TEXT(cost, "activations are rounded to 16 bits, weights stay float32; much faster on tensor cores");
    return true;
}

APPLY(all_16_bit)
{
    const struct estimate_precision *bf16 = estimate_precision("bf16");

    if (!bf16 || (p->precision->weights < 4 && !p->master_weights)) return false;
    if (p->precision->weights < 4)
        SET_TEXT(what, "no float32 master weights: 16-bit weights and states only");
    else
        SET_TEXT(what, "everything in bfloat16: model.to(torch.bfloat16)");
    SET_TEXT(option, p->precision->weights < 4 ? "without --master-weights" : "--precision bf16");
    if (p->precision->weights >= 4) p->precision = bf16;
    p->precision_given = true;
    p->master_weights = false;
    SET_TEXT(cost, "rounding loses small updates; stochastic rounding or Kahan summation helps");
    return true;
}

APPLY(optimizer_8bit)
{
    char name[64];
    const struct estimate_optimizer *o;

    snprintf(name, sizeof name, "%s8bit", p->optimizer->name);
    o = estimate_optimizer(name);
    if (!o) return false;
    p->optimizer = o;
    SET_TEXT(what, "optimizer states in 8 bits: bitsandbytes' or torchao's %s", name);
    SET_TEXT(option, "--optimizer %s", name);
    SET_TEXT(cost, "another package; its paper measures the same quality as with 32 bits");
    return true;
}

SET_ONE(average_on_host, !p->ema, ema = false, "the moving average of the weights in the host's memory",
        "without --ema", "the weights are copied to the host each time it is updated")

APPLY(move_to_offload)
{
    bool all = move->n == PLAN_OFFLOAD_ALL, unsharded = p->sharding == PLAN_SHARDING_DDP;
    bool pipelined = p->pp > 1; /* DeepSpeed refuses stages above 1; Megatron-LM divides only states */
    enum plan_sharding needs = all ? PLAN_SHARDING_ZERO3 : pipelined ? PLAN_SHARDING_ZERO1 : PLAN_SHARDING_ZERO2;
    static const char *const whats[2][2] = {
        {"optimizer in the host's memory: DeepSpeed offload_optimizer (ZeRO-Offload)",
         "optimizer in the host's memory: Megatron-LM --optimizer-cpu-offload"},
        {"parameters and optimizer in the host's memory: FSDP CPUOffload, DeepSpeed offload_param",
         "parameters and optimizer in the host's memory: FSDP CPUOffloadPolicy; DeepSpeed refuses stage 3 with "
         "pipelines"}};

    if (p->offload >= (enum plan_offload)move->n || p->adapter != PLAN_ADAPTER_NONE) return false;
    if (all && p->model->tensors_n <= 1) /* only what is gathered for a layer would remain, and its size is unknown */
        return false;
    if (pipelined && !all && p->sharding > PLAN_SHARDING_ZERO1) /* FSDP also moves the parameters */
        return false;
    p->offload = (enum plan_offload)move->n;
    if (unsharded || all) p->sharding = needs;
    SET_TEXT(what, "%s", whats[all][pipelined]);
    SET_TEXT(option, "%s--offload %s",
             all          ? "--sharding zero3 "
             : !unsharded ? ""
             : pipelined  ? "--sharding zero1 "
                          : "--sharding zero2 ",
             all ? "all" : "optimizer");
    SET_TEXT(cost, "each step copies gradients to the host, which runs the optimizer, and weights back");
    return true;
}

/* Tensor parallelism among the GPUs that the plan has: fewer of them have a batch of their own. */
APPLY(tensor_parallel_within)
{
    uint64_t tp = p->tp * move->n;

    if (!is_transformer(p) || tp > (p->gpus_per_node ? p->gpus_per_node : 8) || plan_dp(p) % move->n ||
        plan_dp(p) < move->n || (!p->inference && p->gpu && p->gpu->reach < (int)tp))
        return false;
    p->tp = tp;
    SET_TEXT(option, "--tp %ju", (uintmax_t)tp);
    if (p->inference) {
        SET_TEXT(what, "each layer divided among %ju of the %ju GPUs (vLLM: --tensor-parallel-size)", (uintmax_t)tp,
                 (uintmax_t)p->gpus);
        SET_TEXT(cost, "all-reduces in every layer; %ju cop%s of the model serve requests, %ju now",
                 (uintmax_t)plan_dp(p), plan_dp(p) == 1 ? "y" : "ies", (uintmax_t)plan_dp(p) * move->n);
        return true;
    }
    SET_TEXT(
        what,
        "each layer divided among %ju of the %ju GPUs (tensor parallel, Megatron-LM or torch's parallelize_module)",
        (uintmax_t)tp, (uintmax_t)p->gpus);
    SET_TEXT(cost, "all-reduces in every layer, 1/%u of the batch per step: needs NVLink", move->n);
    return true;
}

APPLY(move_to_lora)
{
    bool master = p->master_weights;

    if (p->adapter != PLAN_ADAPTER_NONE || !is_transformer(p)) return false;
    p->adapter = PLAN_ADAPTER_LORA;
    p->master_weights = false; /* the adapters are float32 */
    SET_TEXT(what, "LoRA of rank %ju beside frozen weights: peft's LoraConfig(r=%ju, target_modules=\"all-linear\")",
             (uintmax_t)p->rank, (uintmax_t)p->rank);
    SET_TEXT(option, "--adapter lora%s", master ? " without --master-weights" : "");
    SET_TEXT(cost, "only the adapters are trained: for fine-tuning, not for training from scratch");
    return true;
}

APPLY(move_to_qlora)
{
    if (p->adapter > PLAN_ADAPTER_LORA || p->weights || !is_transformer(p)) return false;
    p->weights = estimate_quantisation_find("nf4-double");
    SET_TEXT(what,
             "QLoRA: frozen weights in 4 bits%s: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True)",
             p->adapter == PLAN_ADAPTER_NONE ? ", LoRA beside them" : "");
    SET_TEXT(option, "%s--weights nf4-double%s", p->adapter == PLAN_ADAPTER_NONE ? "--adapter lora " : "",
             p->master_weights ? " without --master-weights" : "");
    p->master_weights = false;
    SET_TEXT(cost,
             "only the adapters are trained, weights are unpacked for each use; the paper measures 16-bit quality");
    p->adapter = PLAN_ADAPTER_LORA;
    return true;
}

APPLY(move_to_shorter)
{
    if (p->model->shape.family == MODEL_DENOISER || p->seq < 256 * (uint64_t)move->n || p->seq % move->n ||
        !is_transformer(p) || !p->batch || p->model->shape.family == MODEL_VIT)
        return false;
    p->seq /= move->n;
    SET_TEXT(what, p->inference ? "contexts of %ju tokens (vLLM: --max-model-len)" : "sequences of %ju tokens",
             (uintmax_t)p->seq);
    SET_TEXT(option, "--seq %ju", (uintmax_t)p->seq);
    SET_TEXT(cost, p->inference ? "longer requests are refused or truncated"
                                : "the model learns no dependencies over longer distances");
    return true;
}

APPLY(move_to_smaller_weights)
{
    bool eight = move->n == 8;
    const char *word = !eight && p->model->shape.family == MODEL_DENOISER ? "nf4"
                       : !eight                                           ? "int4"
                       : gpu_capability(p) >= 89 || !gpu_capability(p)    ? "fp8"
                                                                          : "int8";
    const struct estimate_quantisation *q = estimate_quantisation_find(word);

    if (!q || p->model->shape.family == MODEL_CONV || (p->weights && p->weights->bits <= q->bits + 1)) return false;
    p->weights = q;
    if (eight)
        SET_TEXT(what, "weights in 8 bits (%s)", word);
    else if (p->model->shape.family == MODEL_DENOISER)
        SET_TEXT(what, "the denoiser's weights in 4 bits (bitsandbytes nf4)");
    else
        SET_TEXT(what, "weights in 4 bits: AWQ or GPTQ (bitsandbytes nf4 and GGUF are about as small)");
    SET_TEXT(option, "--weights %s", word);
    if (p->model->shape.family == MODEL_DENOISER)
        SET_TEXT(cost, "images differ; text encoders are separate: --text-weights %s", word);
    else if (!eight)
        SET_TEXT(cost, "close to 8 bits in quality when tuned; faster for few sequences, slower for many");
    else if (strcmp(word, "fp8") == 0)
        SET_TEXT(cost, "no loss measured over the Llama-3.1 family; faster");
    else
        SET_TEXT(cost, "1 to 3 %% of accuracy when tuned");
    return true;
}

APPLY(one_at_a_time)
{
    if (p->model->shape.family != MODEL_DENOISER || p->offload != PLAN_OFFLOAD_NONE) return false;
    p->offload = (enum plan_offload)move->n;
    SET_TEXT(what, move->n == PLAN_OFFLOAD_MODEL
                       ? "one model of the pipeline on the GPU at a time: pipe.enable_model_cpu_offload()"
                       : "one layer on the GPU at a time: pipe.enable_sequential_cpu_offload()");
    SET_TEXT(option, "--offload %s", move->n == PLAN_OFFLOAD_MODEL ? "model" : "sequential");
    SET_TEXT(cost, move->n == PLAN_OFFLOAD_MODEL ? "models are copied to the GPU for each image"
                                                 : "all weights are copied to the GPU in each step");
    return true;
}

APPLY(move_to_tiles)
{
    if (p->model->shape.family != MODEL_DENOISER || p->decoding == PLAN_DECODING_TILED) return false;
    p->decoding = PLAN_DECODING_TILED;
    SET_TEXT(what, "the VAE decodes tile by tile: pipe.vae.enable_tiling()");
    SET_TEXT(option, "--vae tiling");
    SET_TEXT(cost, "tiles overlap, and their seams may show");
    (void)move;
    return true;
}

APPLY(cache_fp8)
{
    if ((p->cache && p->cache->bits <= 8) || !is_decoder_plan(p) || !p->batch || !p->seq) return false;
    p->cache = estimate_quantisation_find("fp8");
    SET_TEXT(what, "KV cache in 8 bits (vLLM: --kv-cache-dtype fp8)");
    SET_TEXT(option, "--kv-cache fp8");
    SET_TEXT(cost, "coarser keys and values; calibrated scales help");
    return true;
}

APPLY(fewer_at_once)
{
    uint64_t by = move->n ? move->n : p->batch;

    if (p->batch < 2 || by < 2 || p->batch % by || (!move->n && p->batch <= 8)) return false;
    p->batch /= by;
    SET_TEXT(what, is_decoder_plan(p) ? "%ju sequence%s at once (vLLM: --max-num-seqs)" : "%ju input%s at once",
             (uintmax_t)p->batch, p->batch == 1 ? "" : "s");
    SET_TEXT(option, "--batch %ju", (uintmax_t)p->batch);
    if (!is_decoder_plan(p))
        SET_TEXT(cost, "others wait; small batches keep a GPU less busy");
    else
        SET_TEXT(cost, "others wait; while memory is the limit, 1/%ju of the tokens per second", (uintmax_t)by);
    return true;
}

SET_ONE(move_to_pieces, p->cache_block || !is_decoder_plan(p) || !p->batch || !p->seq, cache_block = 16,
        "a server that reads prompts in chunks and keeps the cache in blocks (vLLM, SGLang)", "--cache-block 16",
        "another program instead of model.generate(); it is faster")

#define ZERO_PAPER "ZeRO (1910.02054), section 7"
#define QUANTISATION_PAPER "Kurtic et al. (2411.02355)"

const struct estimate_move estimate_moves[] = {
    /* id, cost, groups, n, training, inference, source, apply */
    {"step_fused", CHANGE_COST_NOTHING, STEP, 0, true, false, NULL, fused_step},
    {"bucket_view", CHANGE_COST_NOTHING, BUCKETS, 0, true, false, "torch DistributedDataParallel's documentation",
     bucket_view},
    {"zero_grad_early", CHANGE_COST_NOTHING, ZEROING, 0, true, false, NULL, zero_grad_early},
    {"attention_flash", CHANGE_COST_NOTHING, ATTENTION, 0, true, true, "FlashAttention (2205.14135)", move_to_flash},
    {"drop_outputs", CHANGE_COST_NOTHING, LOSS, 0, true, false, NULL, drop_outputs},
    {"chunked_loss", CHANGE_COST_NOTHING, LOSS, 0, true, false, "cut cross-entropy (2411.09009)", move_to_chunked_loss},
    {"fused_layers", CHANGE_COST_LITTLE, COMPILED, 0, true, false, NULL, move_to_compiled},
    {"checkpointing_selective", CHANGE_COST_LITTLE, CHECKPOINT, 0, true, false, "Korthikanti et al. (2205.05198)",
     checkpoint_selective},
    {"sharding_zero1", CHANGE_COST_LITTLE, SHARDING, PLAN_SHARDING_ZERO1, true, false, ZERO_PAPER, move_to_shards},
    {"sharding_zero2", CHANGE_COST_LITTLE, SHARDING, PLAN_SHARDING_ZERO2, true, false, ZERO_PAPER, move_to_shards},
    {"micro_batch", CHANGE_COST_LITTLE, BATCH, 2, true, false, NULL, micro_batch},
    {"micro_batch", CHANGE_COST_LITTLE, BATCH, 4, true, false, NULL, micro_batch},
    {"micro_batch", CHANGE_COST_LITTLE, BATCH, 8, true, false, NULL, micro_batch},
    {"micro_batch", CHANGE_COST_LITTLE, BATCH, 0, true, false, NULL, micro_batch},
    {"in_pieces", CHANGE_COST_LITTLE, BLOCKS, 0, false, true, "PagedAttention (2309.06180)", move_to_pieces},
    {"sharding_zero3", CHANGE_COST_TIME, SHARDING, PLAN_SHARDING_ZERO3, true, false, ZERO_PAPER, move_to_shards},
    {"checkpointing_full", CHANGE_COST_TIME, CHECKPOINT, 0, true, false,
     "forward is one of three units of work, backward two", checkpoint_full},
    /* takes less time than full checkpointing, but needs a policy in code, not only a switch */
    {"checkpointing_selective_op", CHANGE_COST_TIME, CHECKPOINT, 0, true, false, ACT_KEPT_SOURCE,
     checkpoint_operations},
    {"tensor_parallel_within", CHANGE_COST_TIME, GPUS, 2, true, true, "Megatron-LM (1909.08053)",
     tensor_parallel_within},
    {"tensor_parallel_within", CHANGE_COST_TIME, GPUS, 4, true, true, "Megatron-LM (1909.08053)",
     tensor_parallel_within},
    {"tensor_parallel_within", CHANGE_COST_TIME, GPUS, 8, true, true, "Megatron-LM (1909.08053)",
     tensor_parallel_within},
    {"ema_on_host", CHANGE_COST_TIME, EMA, 0, true, false, NULL, average_on_host},
    {"autocast", CHANGE_COST_ROUNDING, PRECISION, 0, true, false, "mixed precision (1710.03740)", move_to_autocast},
    {"optimizer_8bit", CHANGE_COST_ROUNDING, OPTIMIZER, 0, true, false, "8-bit optimizers (2110.02861)",
     optimizer_8bit},
    {"kv_cache_fp8", CHANGE_COST_ROUNDING, CACHE, 0, false, true, "vLLM's documentation, quantized KV cache",
     cache_fp8},
    {"vae_tiling", CHANGE_COST_LITTLE, VAE, 0, false, true, "diffusers' documentation, reduce memory usage",
     move_to_tiles},
    {"offload_models", CHANGE_COST_TIME, OFFLOAD, PLAN_OFFLOAD_MODEL, false, true,
     "diffusers' documentation, reduce memory usage", one_at_a_time},
    {"offload_layers", CHANGE_COST_MUCH_TIME, OFFLOAD, PLAN_OFFLOAD_SEQUENTIAL, false, true,
     "diffusers' documentation, reduce memory usage", one_at_a_time},
    {"weights_8bit", CHANGE_COST_ROUNDING, WEIGHTS, 8, false, true, QUANTISATION_PAPER, move_to_smaller_weights},
    {"offload_optimizer", CHANGE_COST_MUCH_TIME, OFFLOAD | SHARDING, PLAN_OFFLOAD_OPTIMIZER, true, false,
     "ZeRO-Offload (2101.06840)", move_to_offload},
    {"offload_all", CHANGE_COST_MUCH_TIME, OFFLOAD | SHARDING, PLAN_OFFLOAD_ALL, true, false,
     "ZeRO-Infinity (2104.07857)", move_to_offload},
    {"weights_4bit", CHANGE_COST_QUALITY, WEIGHTS, 4, false, true, QUANTISATION_PAPER, move_to_smaller_weights},
    {"all_16_bit", CHANGE_COST_QUALITY, PRECISION, 0, true, false, "Zamirai et al. (2010.06192)", all_16_bit},
    {"fewer_at_once", CHANGE_COST_RESULT, BATCH, 2, false, true, NULL, fewer_at_once},
    {"fewer_at_once", CHANGE_COST_RESULT, BATCH, 4, false, true, NULL, fewer_at_once},
    {"fewer_at_once", CHANGE_COST_RESULT, BATCH, 8, false, true, NULL, fewer_at_once},
    {"fewer_at_once", CHANGE_COST_RESULT, BATCH, 0, false, true, NULL, fewer_at_once},
    {"shorter_sequences", CHANGE_COST_RESULT, SEQ, 2, true, true, NULL, move_to_shorter},
    {"shorter_sequences", CHANGE_COST_RESULT, SEQ, 4, true, true, NULL, move_to_shorter},
    {"lora", CHANGE_COST_RESULT, ADAPTER | OFFLOAD, 0, true, false, "LoRA (2106.09685)", move_to_lora},
    {"qlora", CHANGE_COST_RESULT, ADAPTER | OFFLOAD, 0, true, false, "QLoRA (2305.14314)", move_to_qlora},
    {"more_gpus", CHANGE_COST_HARDWARE, GPUS | SHARDING, 2, true, false, ZERO_PAPER, more_gpus},
    {"more_gpus", CHANGE_COST_HARDWARE, GPUS | SHARDING, 4, true, false, ZERO_PAPER, more_gpus},
    {"more_gpus", CHANGE_COST_HARDWARE, GPUS | SHARDING, 8, true, false, ZERO_PAPER, more_gpus},
    {"more_gpus", CHANGE_COST_HARDWARE, GPUS | SHARDING, 16, true, false, ZERO_PAPER, more_gpus},
    {"more_gpus", CHANGE_COST_HARDWARE, GPUS | SHARDING, 64, true, false, ZERO_PAPER, more_gpus},
    {"tensor_parallel", CHANGE_COST_HARDWARE, GPUS, 2, true, true, "Megatron-LM (1909.08053)", move_to_tensor_parallel},
    {"tensor_parallel", CHANGE_COST_HARDWARE, GPUS, 4, true, true, "Megatron-LM (1909.08053)", move_to_tensor_parallel},
    {"tensor_parallel", CHANGE_COST_HARDWARE, GPUS, 8, true, true, "Megatron-LM (1909.08053)", move_to_tensor_parallel},
    {"sequence_parallel", CHANGE_COST_NOTHING, SP, 0, true, false, "Korthikanti et al. (2205.05198), section 4.2",
     sequence_parallel},
};
const size_t estimate_move_count = sizeof estimate_moves / sizeof *estimate_moves;
