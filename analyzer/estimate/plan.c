/* Contradictions in a plan. */
#include <stdio.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/term.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/quantisation.h"

/* A check returns true if it finds a contradiction, after it has written `why`, which begins with the option. */
enum { WHY = 256 };
typedef bool check(const struct plan *p, char why[WHY]);

#define REJECT(...) (snprintf(why, WHY, __VA_ARGS__), true)

bool plan_sums_in_float32(const struct plan *p)
{
    return p->master_weights && plan_is_megatron(p) && strcmp(p->precision->name, "fp16") != 0;
}

static bool check_zeroes(const struct plan *p, char why[WHY])
{
    const struct {
        const char *option;
        uint64_t n;
    } counts[] = {{"gpus", p->gpus},
                  {"tp", p->tp},
                  {"pp", p->pp},
                  {"cp", p->cp},
                  {"ep", p->ep},
                  {"interleave", p->interleave},
                  {"accumulation", p->accumulation}};

    for (size_t i = 0; i < COUNT_OF(counts); i++)
        if (!counts[i].n) return REJECT("--%s: give at least 1", counts[i].option);
    return false;
}

static bool check_world(const struct plan *p, char why[WHY])
{
    unsigned __int128 divided = (unsigned __int128)p->tp * p->pp * p->cp;

    if (divided > p->gpus || p->gpus % (uint64_t)divided)
        return REJECT("--gpus: %ju GPUs cannot be divided into groups of tp %ju x pp %ju x cp %ju", (uintmax_t)p->gpus,
                      (uintmax_t)p->tp, (uintmax_t)p->pp, (uintmax_t)p->cp);
    if (p->gpus_per_node && p->tp > p->gpus_per_node && p->tp % p->gpus_per_node)
        return REJECT("--tp: %ju GPUs are not whole nodes of %ju", (uintmax_t)p->tp, (uintmax_t)p->gpus_per_node);
    return false;
}

/* --tp must divide each of these; 0: the model has no such thing, or its shape is unknown. */
static bool check_tensor_parallel(const struct plan *p, char why[WHY])
{
    const struct model_shape *s = &p->model->shape;
    uint64_t few, many;

    if (p->tp == 1)
        return p->sequence_parallel && REJECT("--sequence-parallel divides norms among tensor-parallel GPUs; add --tp");
    if (s->family == MODEL_CONV)
        return REJECT("--tp: convolutional networks cannot be tensor parallel; use --sharding");
    if (s->heads && s->heads % p->tp)
        return REJECT("--tp: %ju GPUs do not divide %ju attention heads", (uintmax_t)p->tp, (uintmax_t)s->heads);
    few = p->tp < s->kv_heads ? p->tp : s->kv_heads;
    many = p->tp < s->kv_heads ? s->kv_heads : p->tp;
    if (few && !s->kv_rank && many % few)
        return REJECT("--tp: %ju GPUs are neither a divisor nor a multiple of %ju heads of keys and values",
                      (uintmax_t)p->tp, (uintmax_t)s->kv_heads);
    if (s->ffn && s->ffn % p->tp)
        return REJECT("--tp: %ju GPUs do not divide an MLP of width %ju", (uintmax_t)p->tp, (uintmax_t)s->ffn);
    if (s->experts && s->expert_ffn % p->tp)
        return REJECT("--tp: %ju GPUs do not divide experts of width %ju", (uintmax_t)p->tp, (uintmax_t)s->expert_ffn);
    return false;
}

static bool check_pipeline(const struct plan *p, char why[WHY])
{
    uint64_t layers = p->model->shape.layers;

    const uint64_t named = (p->first_layers > 0) + (p->last_layers > 0);

    if (p->interleave > 1 && p->pp == 1)
        return REJECT("--interleave gives each pipeline stage several chunks of layers; add --pp");
    if (named && p->pp == 1)
        return REJECT("--%s-stage-layers: without --pp there is one stage", p->first_layers ? "first" : "last");
    if (p->pp == 1) return false;
    if (layers && p->pp > layers)
        return REJECT("--pp: %ju stages are more than the %ju layers", (uintmax_t)p->pp, (uintmax_t)layers);
    if (named && p->interleave > 1)
        return REJECT("--%s-stage-layers: gpuspy does not know how --interleave divides such stages",
                      p->first_layers ? "first" : "last");
    if (named && (p->first_layers >= layers || p->last_layers > layers - p->first_layers ||
                  layers - p->first_layers - p->last_layers < p->pp - named ||
                  (p->pp == named && p->first_layers + p->last_layers != layers)))
        return REJECT("--%s-stage-layers: with that many, the %ju layers cannot be divided into %ju stages",
                      p->first_layers ? "first" : "last", (uintmax_t)layers, (uintmax_t)p->pp);
    /* torchtitan's chunks may differ by one layer */
    if (layers && p->interleave > 1 &&
        (p->fsdp ? (unsigned __int128)p->pp * p->interleave > layers
                 : layers % ((unsigned __int128)p->pp * p->interleave) != 0))
        return REJECT("--interleave: %ju layers cannot be divided into %ju stages of %ju chunks", (uintmax_t)layers,
                      (uintmax_t)p->pp, (uintmax_t)p->interleave);
    return false;
}

static bool check_remade(const struct plan *p, char why[WHY])
{
    const enum model_family family = p->model->shape.family;
    const char *option = p->remade_every ? "checkpoint-every" : "checkpointed-layers";

    if (p->by_module && p->checkpoint != PLAN_CHECKPOINT_FULL)
        return REJECT("--checkpoint-modules: add --checkpointing full");
    if (p->by_module && ((family != MODEL_LLAMA && family != MODEL_GPT) || p->model->shape.linear_layers ||
                         p->model->shape.blocks_n || p->model->shape.norms == 1))
        return REJECT("--checkpoint-modules: known for text decoders whose layers are attention and an MLP");
    if (!p->remade && !p->remade_every) return false;
    if (p->remade && p->remade_every) return REJECT("--checkpointed-layers and --checkpoint-every: give one of them");
    if (p->checkpoint != PLAN_CHECKPOINT_FULL) return REJECT("--%s: add --checkpointing full", option);
    return (family == MODEL_T5 || family == MODEL_WHISPER || family == MODEL_CLIP || family == MODEL_CONV ||
            family == MODEL_DENOISER || family == MODEL_MAMBA || p->model->shape.linear_layers ||
            p->model->shape.blocks_n) &&
           REJECT("--%s: known for decoders and encoders of text and images", option);
}

/* A mixer with a state, which some of the layers have. */
static enum model_mixer unusual_mixer(const struct model_shape *s)
{
    for (int i = MODEL_MIXER_MAMBA; i < MODEL_MIXERS_N; i++)
        if (model_has_mixer(s, (enum model_mixer)i)) return (enum model_mixer)i;
    return MODEL_MIXER_ATTENTION;
}

/* Models whose layers differ, or have a state instead of attention: not all options are known for them. */
static bool own_kinds(const struct plan *p, char why[WHY])
{
    const enum model_family family = p->model->shape.family;
    const enum model_mixer mixer = unusual_mixer(&p->model->shape);
    const bool linear =
        p->model->shape.linear_layers || p->model->shape.shared || p->model->shape.global_head_dim || mixer;
    const char *name = mixer                           ? model_mixer_word(mixer)
                       : p->model->shape.linear_layers ? "gated delta net"
                       : p->model->shape.shared        ? "model whose layers share parameters (ALBERT)"
                       : linear                        ? "Gemma 4"
                       : family == MODEL_MAMBA         ? "Mamba"
                       : family == MODEL_CLIP          ? "model of two towers (CLIP)"
                                                       : "Whisper";
    const char *option = p->tp > 1 ? "tp" : p->pp > 1 ? "pp" : p->cp > 1 ? "cp" : NULL;

    if (family != MODEL_WHISPER && family != MODEL_MAMBA && family != MODEL_CLIP && !linear) return false;
    const bool heads_divide = mixer || p->model->shape.linear_layers; /* by servers: vLLM's mamba_utils.py */
    if (p->runtime == PLAN_RUNTIME_MEGATRON)
        return REJECT("--runtime: gpuspy does not know what Megatron-LM keeps of a %s", name);
    if (option && !(heads_divide && p->inference && p->tp > 1 && p->pp == 1 && p->cp == 1))
        return REJECT("--%s: gpuspy does not know how a %s is divided; use --sharding", option, name);
    if (p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP ||
        (p->checkpoint == PLAN_CHECKPOINT_SELECTIVE && family != MODEL_WHISPER))
        return REJECT("--checkpointing: gpuspy does not know what a %s keeps; use full", name);
    if (p->fused_layers && family == MODEL_MAMBA)
        return REJECT("--fused-layers: mamba_ssm's kernels, the default, are already fused");
    return false;
}

static bool check_experts(const struct plan *p, char why[WHY])
{
    uint64_t n = p->model->shape.experts, group = plan_dp(p) * p->cp * p->tp / plan_expert_tp(p);

    if (p->expert_tp && (!n || p->inference)) return REJECT("--expert-tp applies to the training of experts");
    if (p->tp % plan_expert_tp(p))
        return REJECT("--expert-tp: %ju does not divide the %ju tensor-parallel GPUs", (uintmax_t)p->expert_tp,
                      (uintmax_t)p->tp);
    if (p->ep == 1) return false;
    if (!n) return REJECT("--ep: the model has no experts");
    if (n % p->ep) return REJECT("--ep: %ju GPUs do not divide %ju experts", (uintmax_t)p->ep, (uintmax_t)n);
    if (group % p->ep) /* in inference too: the GPUs are those of attention's data parallelism */
        return REJECT("--ep: %ju does not divide the %ju data-parallel GPUs (--gpus / pp / expert-tp)",
                      (uintmax_t)p->ep, (uintmax_t)group);
    return false;
}

/* Beyond its table of positions such a model fails at the first token; with rotary positions it only gets worse (a
 * note). */
static bool check_positions(const struct plan *p, char why[WHY])
{
    uint64_t most = plan_positions(&p->model->shape);

    if (most && p->seq > most)
        return REJECT("--seq: %ju tokens are more than the model's %ju learned positions", (uintmax_t)p->seq,
                      (uintmax_t)most);
    if (most && p->cp > most)
        return REJECT("--cp: %ju GPUs are more than the model's %ju learned positions", (uintmax_t)p->cp,
                      (uintmax_t)most);
    return false;
}

static bool context_parallel(const struct plan *p, char why[WHY])
{
    const enum model_family family = p->model->shape.family;

    if (p->cp > 1 && (family == MODEL_CONV || family == MODEL_VIT))
        return REJECT("--cp divides a text's tokens, which an image model has none of; use --sharding");
    if (p->cp > 1 && p->seq && p->seq % p->cp)
        return REJECT("--cp: %ju GPUs do not divide sequences of %ju tokens", (uintmax_t)p->cp, (uintmax_t)p->seq);
    if (p->sequence_parallel && p->seq && p->seq % ((unsigned __int128)p->tp * p->cp))
        return REJECT("--sequence-parallel: %ju GPUs do not divide sequences of %ju tokens", (uintmax_t)(p->tp * p->cp),
                      (uintmax_t)p->seq);
    return false;
}

/* Options that only diffusion pipelines have, and options that they do not have. */
static bool check_diffusion(const struct plan *p, char why[WHY])
{
    const bool whole = p->offload == PLAN_OFFLOAD_MODEL || p->offload == PLAN_OFFLOAD_SEQUENTIAL;
    const bool denoiser = p->model->shape.family == MODEL_DENOISER;
    const char *option = p->tp > 1 ? "tp" : p->pp > 1 ? "pp" : p->cp > 1 ? "cp" : p->ep > 1 ? "ep" : NULL;

    if (whole && (!denoiser || !p->inference))
        return REJECT("--offload: 'model' and 'sequential' apply to --inference of diffusion models");
    if (p->attention == PLAN_ATTENTION_SLICED && (!denoiser || !p->inference))
        return REJECT("--attention: 'sliced' applies to --inference of diffusion models");
    if (p->text_weights && !denoiser)
        return REJECT("--text-weights: only diffusion models have separate text encoders");
    if (p->decoding != PLAN_DECODING_WHOLE && !denoiser) return REJECT("--vae: only diffusion models have one");
    if (!denoiser) return false;
    if (option) return REJECT("--%s: gpuspy does not know how a denoiser is divided; use --sharding", option);
    if (p->checkpoint == PLAN_CHECKPOINT_SELECTIVE || p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP)
        return REJECT("--checkpointing: gpuspy does not know what a denoiser keeps; use full");
    if (p->fused_layers) return REJECT("--fused-layers: unknown for denoisers");
    if (p->attention == PLAN_ATTENTION_MATH) return REJECT("--attention: 'math' is unknown for denoisers");
    if (p->adapter != PLAN_ADAPTER_NONE && p->adapter != PLAN_ADAPTER_LORA)
        return REJECT("--adapter: for denoisers, gpuspy knows only lora and qlora");
    if (p->precision->cast == PRECISION_CAST_FP8) return REJECT("--precision: fp8 is unknown for denoisers");
    return false;
}

static bool check_offloads(const struct plan *p, char why[WHY])
{
    if (p->inference || p->offload == PLAN_OFFLOAD_NONE) return false;
    if (p->offload == PLAN_OFFLOAD_ALL && p->sharding != PLAN_SHARDING_ZERO3)
        return REJECT("--offload: parameters can be in host memory only with --sharding zero3");
    if (p->sharding == PLAN_SHARDING_DDP)
        return REJECT("--offload: optimizer states can be in host memory only with --sharding zero1, zero2 or zero3");
    return false;
}

static bool has_matrices(const struct model *m)
{
    return ANY_IN(t, m->tensors,
                  t->dims >= 2 && (t->role == TENSOR_ATTENTION || t->role == TENSOR_MLP || t->role == TENSOR_EXPERT));
}

static bool check_adapters(const struct plan *p, char why[WHY])
{
    if (p->adapter != PLAN_ADAPTER_NONE && !has_matrices(p->model))
        return REJECT("--adapter: the model's matrices are unknown; add --model, or --layers, --hidden …");
    if (p->adapter != PLAN_ADAPTER_NONE && p->model->shape.shared)
        return REJECT("--adapter: gpuspy does not know what adapters of shared layers (ALBERT) keep");
    if (p->adapter != PLAN_ADAPTER_NONE && p->model->shape.family == MODEL_CLIP)
        return REJECT("--adapter: gpuspy does not know what adapters of two towers (CLIP) keep");
    if (p->adapter > PLAN_ADAPTER_DORA && (p->tp > 1 || p->pp > 1))
        return REJECT("--adapter: gpuspy does not know how --tp and --pp divide such adapters; use --sharding");
    if (estimate_adapter_kind(p)->size_is == ADAPTER_HAS_TOKENS && p->model->shape.family != MODEL_LLAMA &&
        p->model->shape.family != MODEL_GPT)
        return REJECT("--adapter: virtual tokens are known for text decoders only, and this is a %s",
                      model_family_word(p->model->shape.family));
    if (estimate_adapter_kind(p)->size_is == ADAPTER_HAS_TOKENS && p->cp > 1)
        return REJECT("--cp: gpuspy does not know how GPUs divide virtual tokens; use --sharding");
    if (p->separate && (p->adapter == PLAN_ADAPTER_NONE || !p->flat))
        return REJECT("--separate-adapters: applies to --adapter with --sharding fsdp");
    if (p->half_adapters && (p->adapter == PLAN_ADAPTER_NONE || p->precision->weights != 2))
        return REJECT("--half-adapters: needs --adapter and --precision bf16 or fp16");
    if (p->quantised_experts && !estimate_quantisation_skips_experts(p))
        return REJECT("--quantised-experts: needs --adapter, a model with experts, and --weights of bitsandbytes");
    if (p->adapter == PLAN_ADAPTER_PREFIX && p->model->shape.linear_layers)
        return REJECT("--adapter: a gated delta net has no keys that a prefix could precede");
    if (p->adapter == PLAN_ADAPTER_PREFIX && p->checkpoint != PLAN_CHECKPOINT_NONE)
        return REJECT(
            "--checkpointing: prefix tuning passes keys and values as a cache, which checkpointing turns off");
    if (p->adapter > PLAN_ADAPTER_DORA && p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP)
        return REJECT("--checkpointing: gpuspy does not know what selective-op keeps of such adapters; use full");
    if (p->adapter == PLAN_ADAPTER_NONE && p->saved != PLAN_SAVED_NONE)
        return REJECT("--modules-to-save: without adapters all layers are trained; add --adapter lora");
    if (p->adapter != PLAN_ADAPTER_NONE && p->ema)
        return REJECT("--ema averages all weights, but with --adapter they are frozen; leave out one");
    if (p->frozen != PLAN_FROZEN_NONE && p->model->shape.tower == MODEL_TOWER_NONE)
        return REJECT("--frozen: the model has no image tower; leave it out");
    if (!p->inference && p->weights && p->adapter == PLAN_ADAPTER_NONE)
        return REJECT("--weights applies to frozen weights; give --precision instead, or add --adapter lora");
    return false;
}

static bool check_step(const struct plan *p, char why[WHY])
{
    const enum model_family family = p->model->shape.family;

    if (p->away && (p->tp > 1 || p->pp > 1 || family == MODEL_CONV || family == MODEL_DENOISER))
        return REJECT("--offload-activations: known for text models without --tp and --pp");
    if (p->late_zero_grad && p->step == PLAN_STEP_IN_BACKWARD)
        return REJECT("--late-zero-grad: with --step in-backward no gradient outlives backward; leave out one");
    if (p->inference || p->step != PLAN_STEP_IN_BACKWARD) return false;
    if (p->accumulation > 1)
        return REJECT("--step: in-backward steps after each micro-batch; leave out --accumulation");
    if (p->master_weights || p->gpus > 1 || p->adapter != PLAN_ADAPTER_NONE || family == MODEL_DENOISER)
        return REJECT("--step: in-backward is known for one GPU that trains a whole model without --master-weights");
    return false;
}

static bool check_formats(const struct plan *p, char why[WHY])
{
    if (p->inference) return false;
    if (p->master_weights && p->precision->weights >= 4)
        return REJECT(
            "--master-weights: with --precision %s the weights are already float32; use it with bf16, fp16 or "
            "fp8",
            p->precision->name);
    if (p->master_weights && p->adapter != PLAN_ADAPTER_NONE)
        return REJECT("--master-weights: adapters are already float32");
    if (p->optimizer->shaped)
        for (size_t i = 0; i < p->model->tensors_n; i++)
            if (p->model->tensors[i].dims == 0)
                return REJECT("--optimizer: the states of '%s' depend on the shapes of the matrices (%s); add --model "
                              "or a shape",
                              p->optimizer->name, p->optimizer->shaped);
    return false;
}

static bool check_serving(const struct plan *p, char why[WHY])
{
    const struct {
        bool given;
        const char *option, *instead;
    } training[] = {
        {p->master_weights, "master-weights", ""},
        {p->ema, "ema", ""},
        {p->frozen != PLAN_FROZEN_NONE, "frozen", ""},
        {p->adapter != PLAN_ADAPTER_NONE, "adapter", ""},
        {p->saved != PLAN_SAVED_NONE, "modules-to-save", ""},
        {p->accumulation > 1, "accumulation", ""},
        {p->interleave > 1, "interleave", ""},
        {p->remade > 0, "checkpointed-layers", ""},
        {p->remade_every > 0, "checkpoint-every", ""},
        {p->checkpoint != PLAN_CHECKPOINT_NONE, "checkpointing", ""},
        {p->sharding != PLAN_SHARDING_DDP, "sharding", "; divide the model by --tp or --pp"},
        {p->offload == PLAN_OFFLOAD_OPTIMIZER || p->offload == PLAN_OFFLOAD_ALL, "offload", ""},
        {p->bucket_view, "bucket-view", ""},
        {p->fused_loss, "fused-loss", ""},
        {p->chunked_loss, "chunked-loss", ""},
        {p->away, "offload-activations", ""},
        {p->by_module, "checkpoint-modules", ""},
        {p->drop_outputs, "drop-outputs", ""},
        {p->no_cache, "no-cache", ""},
        {p->late_zero_grad, "late-zero-grad", ""},
        {p->expandable, "expandable-segments", ""},
        {p->fused_layers, "fused-layers", ""},
        {p->fused_norms, "fused-norms", ""},
    };

    for (size_t i = 0; p->inference && i < COUNT_OF(training); i++)
        if (training[i].given)
            return REJECT("--%s applies to training, not to --inference%s", training[i].option, training[i].instead);
    if (!p->inference && (p->cache || p->cache_block))
        return REJECT("--%s: training has no KV cache; add --inference", p->cache ? "kv-cache" : "cache-block");
    if (p->half_reduce && (!p->fsdp || p->flat) && !plan_sums_in_float32(p))
        return REJECT("--half-reduce: applies to --sharding fsdp2, and to --runtime megatron with --master-weights");
    if (p->half_states && (!p->master_weights || p->optimizer->form != OPTIMIZER_EVEN))
        return REJECT("--half-states: needs --master-weights, and an optimizer with states like Adam's");
    if (!p->inference && p->prompt) return REJECT("--prompt: training has no prompt; add --inference");
    if (p->prompt && p->seq && p->prompt > p->seq)
        return REJECT("--prompt: more than --seq, which includes prompt and answer");
    return false;
}

static bool check_attentions(const struct plan *p, char why[WHY])
{
    return p->attention == PLAN_ATTENTION_MATH && p->model->shape.family != MODEL_T5 &&
           REJECT("--attention: only T5's mask has a gradient; for other models use flash or eager");
}

/* The first contradiction, if there is one. */
static bool check_contradictions(const struct plan *p, char why[WHY])
{
    static check *const checks[] = {check_zeroes,   check_world,           check_diffusion,  check_serving,
                                    own_kinds,      check_tensor_parallel, check_pipeline,   check_remade,
                                    check_experts,  check_positions,       context_parallel, check_offloads,
                                    check_adapters, check_formats,         check_attentions, check_step};

    return ANY_OF(c, checks, COUNT_OF(checks), (*c)(p, why));
}

bool plan_possible(const struct plan *p)
{
    char why[WHY];

    return !check_contradictions(p, why);
}

bool plan_check(const char *command, const struct plan *p)
{
    char why[WHY];

    if (!check_contradictions(p, why)) return true;
    return complain_with(false, "%s: %s", command, why);
}
