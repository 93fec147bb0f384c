#include "analyzer/estimate/plan_settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/model/denoisers.h"

#define WORD(id, word, what) word "|"
const char plan_attentions[] =
    PLAN_ATTENTIONS(WORD) "sdpa|flash_attention_2|handwritten|"; /* the last three: attention_of() */
const char plan_checkpoints[] = PLAN_CHECKPOINTS(WORD);
const char plan_steps[] = PLAN_STEPS(WORD);
const char plan_shardings[] = PLAN_SHARDINGS(WORD) "fsdp|fsdp2|fsdp-grad-op|"; /* the last three: sharding_of() */
const char plan_offloads[] = PLAN_OFFLOADS(WORD);
const char plan_adapters[] = PLAN_ADAPTERS(WORD) "qlora|"; /* the last: set_adapter() */
const char plan_servers[] = "vllm|";
const char plan_saved[] = PLAN_SAVED(WORD);
const char plan_frozen_words[] = PLAN_FROZEN(WORD);
const char plan_residents[] = PLAN_RESIDENTS(WORD);
const char plan_decodings[] = PLAN_DECODINGS(WORD);
const char plan_runtimes[] = PLAN_RUNTIMES(WORD);
const char plan_families[] = MODEL_FAMILIES(WORD);
#undef WORD
#define WORD(word, matrices) word "|"
const char plan_targets[] = PLAN_TARGETS(WORD);
#undef WORD

#define GPU(key, ...) key "|"
#define OTHER_GPU(key, ...) key "|"
const char plan_gpus[] = "all|"
#include "analyzer/estimate/gpus.def"
    ;

/* The index of `word` in "a|b|". NULL is 0: each list's first word is the default. */
static int setting_word_index(const char *word, const char *words)
{
    for (int i = 0; word && *words; i++, words += strcspn(words, "|") + 1)
        if (strncmp(word, words, strlen(word)) == 0 && words[strlen(word)] == '|') return i;
    return 0;
}

static bool is_setting_word(const char *word, const char *other)
{
    return word && strcmp(word, other) == 0;
}

/* Also accepts transformers' words for flash. A handwritten softmax is eager, too. */
static enum plan_attention attention_of(const char *word)
{
    if (is_setting_word(word, "handwritten")) return PLAN_ATTENTION_EAGER;
    return is_setting_word(word, "sdpa") || is_setting_word(word, "flash_attention_2")
               ? PLAN_ATTENTION_FLASH
               : (enum plan_attention)setting_word_index(word, plan_attentions);
}

/* Also accepts PyTorch's words for zero3 and zero2. */
static enum plan_sharding sharding_of(const char *word)
{
    return is_setting_word(word, "fsdp") || is_setting_word(word, "fsdp2") ? PLAN_SHARDING_ZERO3
           : word && strcmp(word, "fsdp-grad-op") == 0                     ? PLAN_SHARDING_ZERO2
                                                       : (enum plan_sharding)setting_word_index(word, plan_shardings);
}

static bool quantisation_of(const char *command, const char *option, const char *word,
                            const struct estimate_quantisation **out)
{
    char near[32];

    *out = word ? estimate_quantisation_find(word) : NULL;
    if (*out || !word) return true;
    if (options_nearest(word, plan_quantisations, near, sizeof near))
        complain("%s: --%s: '%s' is unknown; did you mean '%s'?", command, option, word, near);
    else
        complain("%s: --%s: '%s' is unknown; 'gpuspy estimate --help' lists them", command, option, word);
    return false;
}

static bool shape_given(const struct plan_settings *s)
{
    return s->family || s->layers || s->hidden || s->heads;
}

bool plan_settings_model_given(const struct plan_settings *s)
{
    return s->model.params || s->model.model || shape_given(s);
}

/* Replaces the family's own numbers. */
static void set_shape(const struct plan_settings *s, struct model_shape *shape)
{
    shape->layers = s->layers;
    shape->hidden = s->hidden;
    shape->heads = s->heads;
    shape->kv_heads = s->kv_heads;
    shape->head_dim = s->head_dim;
    shape->ffn = s->ffn;
    shape->vocab = s->vocab;
    shape->context = s->context ? s->context : shape->context;
    shape->experts = s->experts;
    shape->experts_used = s->experts_used;
    shape->tied = !s->untied && (shape->tied || s->tied);
}

/* The size of what a diffusion model generates. */
static bool set_size(const char *command, const struct plan_settings *s, struct model *m, int *exit_code)
{
    struct model_denoiser *d = &m->shape.denoiser;
    size_t n = 0;

    if (m->shape.family != MODEL_DENOISER) {
        const char *option = s->width         ? "width"
                             : s->frames      ? "frames"
                             : s->resident    ? "resident"
                             : s->no_guidance ? "no-guidance"
                                              : NULL;
        *exit_code = EXIT_USAGE;
        if (option) complain("%s: --%s: only diffusion models have it", command, option);
        return !option;
    }
    d->width_pixels = s->width;
    d->frames = s->frames;
    d->text_tokens = s->seq;
    free(model_denoiser_ops(m, &n));
    if (!n) {
        *exit_code = EXIT_USAGE;
        complain("%s: --image: too small or too large for %s", command, m->name);
    }
    return n > 0;
}

/* A size that only a described model has; NULL: none is given. */
static const char *shape_size_given(const struct plan_settings *s)
{
    const struct {
        const char *option;
        uint64_t given;
    } sizes[] = {{"kv-heads", s->kv_heads},
                 {"head-dim", s->head_dim},
                 {"ffn", s->ffn},
                 {"vocab", s->vocab},
                 {"context", s->context},
                 {"experts", s->experts},
                 {"experts-used", s->experts_used}};
    EACH (size, sizes, COUNT_OF(sizes))
        if (size->given) return size->option;
    return NULL;
}

static bool find_model_alone(const char *command, const struct plan_settings *s, struct model *m, int *exit_code)
{
    struct model_shape shape =
        model_family_shape(s->family ? setting_word_index(s->family, plan_families) : MODEL_LLAMA);

    *m = (struct model){.source = "--params"};
    *exit_code = EXIT_USAGE;
    if (s->model.model && s->model.params) {
        return complain_with(false, "%s: --model: '%s' has a number of parameters; give it or --params, not both",
                             command, s->model.model);
    }
    if ((s->model.model || s->model.params) && shape_given(s)) {
        return complain_with(false, "%s: --layers, --hidden and --heads describe a model; leave them out, or %s",
                             command, s->model.model ? "--model" : "--params");
    }
    const char *size = s->model.model || s->model.params ? shape_size_given(s) : NULL;
    if (size) {
        return complain_with(false, "%s: --%s: describes a model, as --layers does; leave it out, or %s%s", command,
                             size, s->model.model ? "--model" : "--params",
                             strcmp(size, "context") == 0 ? " (the sequences' length is --seq)" : "");
    }
    if (s->tied && s->untied) return complain_with(false, "%s: --untied: contradicts --tied", command);
    if ((s->tied || s->untied) && !shape_given(s))
        return complain_with(false, "%s: --%s applies to a model that --layers, --hidden and --heads describe", command,
                             s->tied ? "tied" : "untied");
    if (s->image && !s->model.model && shape.family != MODEL_VIT) {
        return complain_with(false, "%s: --image: only image models have images; name one, such as --model resnet-50",
                             command);
    }
    if (s->model.model)
        return model_from_name(command, s->model.model, m, exit_code) &&
               (!s->image || model_set_image(command, s->image, m, exit_code)) && set_size(command, s, m, exit_code);
    if (shape_given(s)) {
        set_shape(s, &shape);
        shape.image = s->image ? s->image : shape.image;
        return model_from_shape(command, "--layers", &shape, m, exit_code);
    }
    model_from_count(s->model.params, m);
    return true;
}

static bool find_model(const char *command, const struct plan_settings *s, struct model *m, int *exit_code)
{
    return find_model_alone(command, s, m, exit_code) && (!s->masked_lm || model_set_masked_lm(command, m, exit_code));
}

static uint64_t at_least_one_setting(uint64_t n)
{
    return n ? n : 1;
}

static void add_gpu(const struct estimate_gpu *gpu, const struct estimate_gpu **named, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (named[i] == gpu) return;
    named[(*n)++] = gpu;
}

bool plan_settings_gpus(const char *command, const struct plan_settings *s, const struct estimate_gpu **named,
                        size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < s->gpu.n; i++) {
        char name[96];
        const struct estimate_gpu *gpu;
        snprintf(name, sizeof name, "%.*s", s->gpu.item[i].length, s->gpu.item[i].text);
        if (strcmp(name, "all") == 0) {
            for (size_t j = 0; j < estimate_gpu_count; j++) add_gpu(&estimate_gpus[j], named, n);
            continue;
        }
        if (!(gpu = estimate_gpu_require(command, "gpu", name))) return false;
        add_gpu(gpu, named, n);
    }
    return true;
}

void plan_assume(struct plan *p, struct plan_assumed *a)
{
    const struct model_shape *shape = &p->model->shape;
    uint64_t most = plan_positions(shape) ? plan_positions(shape) : shape->context;
    uint64_t seq = most && most < PLAN_SEQ ? most : PLAN_SEQ, parts = p->cp * (p->sequence_parallel ? p->tp : 1);

    *a = (struct plan_assumed){0};
    if (shape->family == MODEL_UNKNOWN) return;
    if (!p->batch) {
        p->batch = 1;
        a->batch = true;
    }
    if (!p->seq && shape->vocab) {
        p->seq = parts < seq ? seq / parts * parts : parts; /* a multiple of the parts that GPUs get */
        a->seq = true;
    }
}

/* As many as the model is divided among, unless --gpus is given. */
static uint64_t settings_gpus(const struct plan_settings *s)
{
    double divided = (double)at_least_one_setting(s->tp) * (double)at_least_one_setting(s->pp) *
                     (double)at_least_one_setting(s->cp) * (double)at_least_one_setting(s->ep);

    if (s->gpus && s->gpus != OPTION_ALONE) return s->gpus;
    return divided < 1e6 ? (uint64_t)divided : 1;
}

/* "qlora" is LoRA as peft's users apply it: with prepare_model_for_kbit_training, and quantised as in its paper unless
 * --weights is given. */
static bool set_adapter(const char *command, const struct plan_settings *s, struct plan *p)
{
    bool qlora = s->adapter && strcmp(s->adapter, "qlora") == 0;

    p->adapter = qlora ? PLAN_ADAPTER_LORA : setting_word_index(s->adapter, plan_adapters);
    p->prepared = qlora;
    if (!p->weights && p->model->packed && (p->inference || p->adapter))
        p->weights = estimate_quantisation_find(p->model->packed);
    if (qlora && !p->weights) p->weights = estimate_quantisation_find("nf4-double");
    /* peft/utils/other.py: prepare_model_for_kbit_training(model, use_gradient_checkpointing=True). diffusers' scripts
     * pass False. */
    p->prepared_remakes = qlora && !s->checkpointing && p->model->shape.family != MODEL_DENOISER;
    if (p->prepared_remakes) p->checkpoint = PLAN_CHECKPOINT_FULL;
    if (s->target.n && !p->adapter && !is_setting_word(s->adapter, "none"))
        return complain_with(false, "%s: --target: only adapters have it; add --adapter lora", command);
    p->targets = s->target.n ? 0 : estimate_adapter_usual_matrices(p);
    for (size_t i = 0; i < s->target.n; i++) {
        const unsigned matrices =
            estimate_adapter_find_matrices(s->target.item[i].text, (size_t)s->target.item[i].length);
        if (!matrices) {
            complain("%s: --target: '%.*s' is unknown; give all-linear, attention, mlp, or matrices: q_proj,v_proj",
                     command, s->target.item[i].length, s->target.item[i].text);
            return false;
        }
        p->targets |= matrices;
    }
    return true;
}

static bool is_galore(const struct plan_settings *s)
{
    return strncmp(s->model.optimizer, "galore", 6) == 0;
}

/* The one number of a kind of adapters; without adapters, GaLore's rank. A configuration's, which --adapter none
 * overrides, has no effect. */
static bool adapter_size_of(const char *command, const struct plan_settings *s, struct plan *p)
{
    const struct {
        enum estimate_adapter_size what;
        const char *option, *adapter;
        uint64_t given;
    } sizes[] = {{ADAPTER_HAS_RANK, "lora-rank", "lora", s->rank},
                 {ADAPTER_HAS_BLOCKS, "block-size", "oft", s->block_size},
                 {ADAPTER_HAS_TOKENS, "virtual-tokens", "prefix", s->virtual_tokens}};
    const struct estimate_adapter_kind *kind = estimate_adapter_kind(p);
    const char *option = estimate_adapter_option(p);

    p->rank = p->adapter != PLAN_ADAPTER_NONE ? kind->size : is_galore(s) ? 128 : PLAN_RANK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const bool rank = sizes[i].what == ADAPTER_HAS_RANK && p->adapter == PLAN_ADAPTER_NONE &&
                          (is_galore(s) || s->lora_slots || is_setting_word(s->adapter, "none"));
        if (!sizes[i].given) continue;
        if (s->serve && !rank && sizes[i].what == ADAPTER_HAS_RANK)
            return complain_with(false, "%s: --lora-rank: only served adapters have it; add --max-loras N", command);
        if (!rank && sizes[i].what != kind->size_is) {
            return complain_with(false, "%s: --%s: %s%s%s%s", command, sizes[i].option,
                                 p->adapter == PLAN_ADAPTER_NONE ? "only adapters have it; add --adapter "
                                                                 : "not with --adapter ",
                                 p->adapter == PLAN_ADAPTER_NONE ? sizes[i].adapter : s->adapter,
                                 option ? "; give --" : "", option ? option : "");
        }
        p->rank = sizes[i].given;
    }
    if (p->rank || kind->size_is == ADAPTER_HAS_NO_SIZE) return true;
    return complain_with(false, "%s: --adapter: '%s' also needs --%s", command, s->adapter, option);
}

static bool read_dropout(const char *command, const struct plan_settings *s, struct plan *p)
{
    double share = -1;
    const char *end = s->lora_dropout ? units_read_decimal(s->lora_dropout, &share) : NULL;

    if (!s->lora_dropout || is_setting_word(s->adapter, "none")) return true; /* a configuration's, overridden */
    if (!estimate_adapter_has_dropout(p))
        return complain_with(false, "%s: --lora-dropout applies to lora, dora, adalora, vera and lora-fa only",
                             command);
    if (!end || *end || !(share >= 0 && share < 1))
        return complain_with(false, "%s: --lora-dropout: '%s' is not a probability; give 0.05, or 0 for none", command,
                             s->lora_dropout);
    p->dropout = share > 0 ? PLAN_DROPOUT_SOME : PLAN_DROPOUT_NONE;
    return true;
}

/* "0.9" or "90%"; 0 without --serve. */
static bool read_memory_share(const char *command, const struct plan_settings *s, double *share)
{
    const char *end = "";
    const char *option = s->share           ? "gpu-memory-utilization"
                         : s->most_requests ? "max-num-seqs"
                         : s->most_tokens   ? "max-num-batched-tokens"
                         : s->lora_slots    ? "max-loras"
                         : s->vllm          ? "vllm"
                                            : NULL;

    if (option && !s->serve)
        return complain_with(false, "%s: --%s applies to servers only; add --serve vllm", command, option);
    *share = s->serve ? 0.9 : 0; /* vLLM's default */
    if (s->share) {
        end = units_read_decimal(s->share, share);
        if (end && strcmp(end, "%") == 0) {
            *share /= 100;
            end = "";
        }
    }
    if (!s->serve || (end && !*end && *share > 0 && *share <= 1)) return true;
    return complain_with(false, "%s: --gpu-memory-utilization: '%s' is not a share; give 0.9 or 90%%", command,
                         s->share);
}

/* Checks the options that only some models have, and applies them to the model's shape. */
static bool options_fit_model(const char *command, const struct plan_settings *s, struct model *m)
{
    if (s->one_kernel_gelu && m->shape.family != MODEL_GPT)
        return complain_with(false, "%s: --one-kernel-gelu: only models of GPT-2's kind have gelu_new", command);
    m->shape.one_kernel_gelu = m->shape.one_kernel_gelu || s->one_kernel_gelu;
    m->shape.new_gelu = m->shape.new_gelu && !s->one_kernel_gelu;
    if (s->tuple_cache && (!s->inference || s->cache_block))
        return complain_with(false, "%s: --tuple-cache: %s", command,
                             s->inference ? "blocks (--cache-block) are not copied"
                                          : "training has no KV cache; add --inference");
    m->shape.tuple_cache = m->shape.tuple_cache || s->tuple_cache;
    const bool megatron = s->runtime && strcmp(s->runtime, "megatron") == 0;
    if (megatron && (s->inference ||
                     (m->shape.family != MODEL_GPT && m->shape.family != MODEL_LLAMA && m->shape.family != MODEL_BERT)))
        return complain_with(
            false, "%s: --runtime: megatron applies to the training of models like GPT, Llama and BERT", command);
    const bool litgpt = s->runtime && strcmp(s->runtime, "litgpt") == 0;
    if (litgpt && !s->inference)
        m->shape.fused_qkv = true; /* litgpt/model.py: one product makes queries, keys, values */
    if (s->runtime && !megatron && (s->cache_block || (!s->inference && !litgpt)))
        return complain_with(false, "%s: --runtime applies to --inference without --cache-block", command);
    if (s->seq && (m->shape.family == MODEL_VIT || m->shape.family == MODEL_CONV)) {
        return complain_with(
            false,
            "%s: --seq: an image model has no sequence; use --image for the images' size, --batch for their number",
            command);
    }
    return true;
}

/* "4.49" is 449, or 44900 with_patch, 0 without a text. Only libraries whose example `such` has it have a version 0. */
static bool read_library_version(const char *command, const char *option, const char *such, const char *text,
                                 bool with_patch, unsigned *version)
{
    unsigned major, minor, patch = 0;

    *version = 0;
    if (!text) return true;
    if (!isdigit((unsigned char)*text) || sscanf(text, "%4u.%4u.%2u", &major, &minor, &patch) < 2 ||
        (!major && *such != '0') || minor > 99 ||
        text[strspn(text, "0123456789.+_-abcdefghijklmnopqrstuvwxyz")]) /* 2.4.0+cu121 */
        return complain_with(false, "%s: --%s: '%s' is not a version; give %s", command, option, text, such);
    *version = 100 * major + minor;
    if (with_patch) *version = 100 * *version + patch;
    return true;
}

/* zero_grad() sets gradients to None by default since PyTorch 2.0; softmax's derivative needs the type of its input
 * instead of the input since 1.11 (derivatives.yaml). 1.13 is the first built with CUDA 11.7, which loads kernels
 * lazily. */
static bool read_torch(const char *command, const char *text, struct plan *p)
{
    unsigned version = 0;

    if (!read_library_version(command, "torch", "1.13 or 2.4", text, false, &version)) return false;
    p->torch = text;
    p->zeroes_gradients = version && version < 200;
    p->adds_out_of_place = version == 200; /* before it, foreach was not the default */
    p->keeps_softmax_input = version && version < 111;
    p->loads_all_kernels = version && version < 113;
    return true;
}

/* The first version of transformers whose class for a model has scaled_dot_product_attention (_supports_sdpa), which is
 * used unless another kernel is chosen: by the beginning of the name, the longest first. Before it, attention is eager.
 */
static unsigned first_with_sdpa(const struct model *m)
{
    static const struct {
        const char *name;
        unsigned version;
    } firsts[] = {
        {"mistral", 437},  {"mixtral", 437}, {"qwen1.5", 437},    {"qwen2", 437},      {"gemma-2-", 442},
        {"gemma", 438},    {"phi-3", 445},   {"phi-", 439},       {"olmo-2", 447},     {"olmo", 440},
        {"stablelm", 439}, {"command", 439}, {"dbrx", 440},       {"starcoder2", 439}, {"pythia", 442},
        {"gpt-neox", 442}, {"gpt2", 442},    {"distilgpt2", 442}, {"bert-", 441},      {"roberta", 445},
        {"xlm-", 445},     {"opt-", 446},    {"distilbert", 446}, {"vit-", 441},
    };

    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
        if (strncmp(m->name, firsts[i].name, strlen(firsts[i].name)) == 0) return firsts[i].version;
    return 436;
}

/* What needs no parsing. */
static struct plan plain_plan(const struct plan_settings *s, const struct model *m)
{
    return (struct plan){
        .model = m,
        .inference = s->inference || s->serve,
        .precision_given = s->model.precision != estimate_default_precision,
        .master_weights = s->model.master_weights,
        .step = setting_word_index(s->step, plan_steps),
        .batch = s->batch,
        .seq = m->shape.family == MODEL_DENOISER ? 0 : s->seq, /* a denoiser's is its text's: set_size() */
        .accumulation = at_least_one_setting(s->accumulation),
        .attention = attention_of(s->attention),
        .checkpoint = setting_word_index(s->checkpointing, plan_checkpoints),
        .not_reentrant = s->not_reentrant,
        .transformers_text = s->transformers,
        .fused_layers = s->fused_layers,
        .fused_norms = s->fused_norms,
        .bitsandbytes_text = s->bitsandbytes,
        .fused_loss = s->fused_loss,
        .chunked_loss = s->chunked_loss,
        .away = s->away,
        .by_module = s->by_module,
        .varying_lengths = s->varying_lengths ? PLAN_RECORDS : 0,
        .drop_outputs = s->drop_outputs,
        .late_zero_grad = s->late_zero_grad,
        .no_cache = s->no_cache,
        .gpus = settings_gpus(s),
        .gpus_per_node = s->per_node,
        .tp = at_least_one_setting(s->tp),
        .pp = at_least_one_setting(s->pp),
        .cp = at_least_one_setting(s->cp),
        .ep = at_least_one_setting(s->ep),
        .expert_tp = s->expert_tp,
        .interleave = at_least_one_setting(s->interleave),
        .first_layers = s->first_layers,
        .last_layers = s->last_layers,
        .remade = s->remade,
        .remade_every = s->remade_every,
        .sequence_parallel = s->sequence_parallel,
        .sharding = sharding_of(s->sharding),
        .flat = is_setting_word(s->sharding, "fsdp") || is_setting_word(s->sharding, "fsdp-grad-op"),
        .fsdp = s->sharding && strncmp(s->sharding, "fsdp", 4) == 0,
        .separate = s->separate,
        .offload = setting_word_index(s->offload, plan_offloads),
        .bucket_view = s->bucket_view,
        .expandable = s->expandable,
        .half_reduce = s->half_reduce,
        .half_states = s->half_states,
        .quantised_experts = s->quantised_experts,
        .half_adapters = s->half_adapters,
        .resident = s->resident                ? (enum plan_resident)setting_word_index(s->resident, plan_residents)
                    : s->inference || s->serve ? PLAN_RESIDENT_ALL
                                               : PLAN_RESIDENT_DENOISER,
        .decoding = setting_word_index(s->vae, plan_decodings),
        .runtime = setting_word_index(s->runtime, plan_runtimes),
        .guided = m->shape.family == MODEL_DENOISER && model_pipeline_of(m)->guidance && !s->no_guidance,
        .saved = setting_word_index(s->saved, plan_saved),
        .ema = s->ema,
        .frozen = setting_word_index(s->frozen, plan_frozen_words),
        .cache_block = s->cache_block
                           ?: s->serve ? 16
                                       : 0,
        .prompt = s->prompt,
        .most_requests = s->most_requests,
        .lora_slots = s->lora_slots,
        .most_tokens = s->most_tokens,
        .context = (double)s->context_size,
        .memory = (double)s->memory,
    };
}

bool plan_from_settings(const char *command, const struct plan_settings *s, struct plan *p, struct model *m,
                        int *exit_code)
{
    if (!find_model(command, s, m, exit_code)) return false;
    *exit_code = EXIT_USAGE;
    if (!options_fit_model(command, s, m)) return false;
    if (is_setting_word(s->runtime, "litgpt") && !s->inference && !model_untie(command, m, exit_code)) return false;
    *p = plain_plan(s, m);
    if (!estimate_parts_of(command, &s->model, &p->optimizer, &p->precision)) return false;
    /* trainers on FSDP2 have torchao's float8 (torchtitan's converters, accelerate's backend AO) */
    if (strcmp(p->precision->name, "amp-fp8") == 0 && p->fsdp && !p->flat && p->runtime != PLAN_RUNTIME_MEGATRON)
        p->precision = estimate_precision("amp-float8");
    if (p->inference && !p->precision_given) p->precision = estimate_precision("bf16"); /* float32 only on request */
    if (!quantisation_of(command, "weights", s->weights, &p->weights) ||
        !quantisation_of(command, "text-weights", s->text_weights, &p->text_weights) ||
        !quantisation_of(command, "kv-cache", s->cache, &p->cache))
        return false;
    if (!read_torch(command, s->torch, p) ||
        !read_library_version(command, "transformers", "4.49 or 5.0", s->transformers, false, &p->transformers) ||
        !read_library_version(command, "bitsandbytes", "0.43.2", s->bitsandbytes, true, &p->bitsandbytes) ||
        !read_library_version(command, "vllm", "0.19", s->vllm, false, &p->vllm))
        return false;
    if (p->transformers && p->transformers < first_with_sdpa(m) && !s->attention) p->attention = PLAN_ATTENTION_EAGER;
    /* exp(x) / sum keeps the exponentials, and the product with v the quotient. Autocast makes the quotient's cast,
     * which is kept instead of it, as of softmax. */
    if (is_setting_word(s->attention, "handwritten") && p->precision->weights == 4 &&
        p->precision->cast != PRECISION_CAST_AUTOCAST)
        p->keeps_softmax_input = true;
    /* integrations/sdpa_attention.py has enable_gqa since 4.54; FlashAttention 2 takes grouped keys */
    p->repeats_keys =
        p->transformers && p->transformers < 454 && (!s->attention || is_setting_word(s->attention, "sdpa"));
    p->casts_queries = is_setting_word(s->attention, "flash_attention_2");
    if (!set_adapter(command, s, p)) return false;
    if (!adapter_size_of(command, s, p) || !read_dropout(command, s, p)) return false;
    if (!read_memory_share(command, s, &p->share)) return false;
    return plan_check(command, p);
}
