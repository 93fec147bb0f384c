#include "analyzer/estimate/recipe.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/recipe_value.h"
#include "analyzer/estimate/recipe_values.h"
#include "analyzer/model/model.h"

enum { KEYS_MAX = 4000, PATH_PARTS = 256 };

static bool is_written_for(const struct estimate_recipe *r, const char *tool)
{
    return strstr(r->tools, tool) != NULL;
}

static bool has_trait(const struct estimate_recipe *r, enum estimate_recipe_trait trait)
{
    return (r->traits & trait) != 0;
}

/* "TheBloke/Llama-2-7B-GPTQ" is Llama-2-7B with --weights=gptq, "…/hub/models--a--b/snapshots/…" is a/b. */
static void put_model_name(struct estimate_recipe *r, const char *name, bool quantized)
{
    char cached[PATH_PARTS];
    const char *folder = strstr(name, "models--");

    if (folder) {
        snprintf(cached, sizeof cached, "%.*s", (int)strcspn(folder + 8, "/"), folder + 8);
        char *dashes = strstr(cached, "--");
        if (dashes) memmove(dashes + 1, dashes + 2, strlen(dashes + 1));
        if (dashes) *dashes = '/';
        name = cached;
    }
    char file[PATH_PARTS];
    const char *slash = strrchr(name, '/'), *weights;
    size_t kept = strlen(name);

    /* a checkpoint of one file, which is usually elsewhere, has the model's name */
    if (has_trait(r, RECIPE_DENOISER) && (text_ends_with(name, ".safetensors") || text_ends_with(name, ".ckpt"))) {
        slash = slash ? slash + 1 : name;
        snprintf(file, sizeof file, "%.*s", (int)(strrchr(slash, '.') - slash), slash);
        name = file;
    }
    if (quantized && estimate_recipe_stored(name, &kept, &weights)) {
        estimate_recipe_add(r, "--model=%.*s", (int)kept, name);
        if (!weights && has_trait(r, RECIPE_SERVES)) weights = "nf4";
        if (weights) estimate_recipe_add(r, "--weights=%s", weights);
        return;
    }
    estimate_recipe_add(r, "--model=%s", name);
}

/* Which part of a model with an image tower is not trained: LLaMA-Factory freezes the tower by default, and a training
 * without images computes no gradient for it. */
static void put_frozen(struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    const bool tower = s->frozen_tower >= 0
                           ? s->frozen_tower > 0
                           : has_trait(r, RECIPE_FROZEN_TOWER) || (is_written_for(r, "axolotl") && !s->processor);

    if (json_is_false(s->decoder_trained) || is_recipe_word(s->decoder_trained, "frozen"))
        estimate_recipe_add(r, "--frozen=text");
    else if (tower)
        estimate_recipe_add(r, "--frozen=tower");
}

/* Megatron-LM takes the number of words from --vocab-size or the tokenizer, and rounds it up (vocab_size_with_padding).
 */
static void put_vocab(struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    const int64_t words = s->vocab > 0 && s->vocab < 1 << 30
                              ? s->vocab
                              : estimate_recipe_vocab(recipe_text_of(s->tokenizer), recipe_text_of(s->tokenizer_model),
                                                      recipe_text_of(s->words)),
                  step = (s->vocab_step > 0 && s->vocab_step < 1 << 20 ? s->vocab_step : 128) *
                         (s->tp > 0 && s->tp < 1 << 20 ? s->tp : 1);

    estimate_recipe_add(r, "--vocab=%" PRId64, s->padded > 0 ? s->padded : (words + step - 1) / step * step);
    if (s->padded <= 0 && s->vocab <= 0)
        estimate_recipe_leave_out(r, "the tokenizer, which is assumed to have %" PRId64 " words", words);
}

/* Mamba's among them, in an order of which a shape knows nothing. */
static bool has_other_layers(const struct estimate_recipe_values *s)
{
    return s->hybrid > 0 || s->pattern;
}

static void put_model(struct estimate_recipe *r, const struct estimate_recipe_values *s, bool adapters, bool answers)
{
    char name[512] = "";

    if (*recipe_text_of(s->model) && !is_recipe_word(s->model, "scratch") && !is_recipe_word(s->model, "resume"))
        snprintf(name, sizeof name, "%s", recipe_text_of(s->model));
    else if (s->component || s->folder)
        estimate_recipe_torchtune_model(recipe_text_of(s->folder), recipe_text_of(s->component), name, sizeof name);
    else if (s->titan_name && s->titan_flavor)
        estimate_recipe_titan_model(recipe_text_of(s->titan_name), recipe_text_of(s->titan_flavor), name, sizeof name);
    if (is_written_for(r, "torchtitan") && s->component)
        estimate_recipe_leave_out(r, "what config_registry.py sets for %s", recipe_text_of(s->component));
    if (*name) {
        put_model_name(r, name, adapters || has_trait(r, RECIPE_SERVES));
        if (!adapters && !answers && model_has_tower(name)) put_frozen(r, s);
        return;
    }
    const bool gated = s->gated > 0 || value_has_word(s->activation, "glu");
    const struct {
        const char *option;
        int64_t n;
    } shape[] = {{"layers", s->layers},
                 {"hidden", s->hidden},
                 {"heads", s->heads},
                 {"kv-heads", s->kv_heads},
                 {"head-dim", s->head_dim},
                 {"ffn", s->experts > 0 && s->expert_ffn > 0 ? s->expert_ffn : s->ffn},
                 {"context", s->context > 0 || gated ? s->context : s->seq},
                 {"experts", s->experts},
                 {"experts-used", s->experts_used}};
    if (has_other_layers(s) || is_written_for(r, "peft")) return; /* which layers, or of which model, is unknown */
    if (s->layers > 0 && !gated) estimate_recipe_add(r, "--family=gpt");
    for (size_t i = 0; s->layers > 0 && i < COUNT_OF(shape); i++)
        if (shape[i].n > 0) estimate_recipe_add(r, "--%s=%" PRId64, shape[i].option, shape[i].n);
    const bool untied = s->untied > 0 || json_is_false(s->shared);
    if (s->layers > 0 && gated != untied) estimate_recipe_add(r, gated ? "--tied" : "--untied");
    if (s->layers > 0) put_vocab(r, s);
    const bool has_ffn = s->ffn > 0 || (s->experts > 0 && s->expert_ffn > 0);
    if (s->layers > 0 && !has_ffn && s->hidden > 0 && s->hidden < 1 << 24) /* Megatron-LM's arguments.py */
        estimate_recipe_add(r, "--ffn=%" PRId64, gated ? s->hidden * 8 / 3 / 64 * 64 : s->hidden * 4);
}

static bool has_deepspeed(const struct estimate_recipe_values *s)
{
    return s->zero >= 0 || value_has_word(s->distribution, "deepspeed") || *recipe_text_of(s->deepspeed);
}

static bool has_fsdp(const struct estimate_recipe_values *s)
{
    return is_value_given(s->fsdp) || s->strategy || value_has_word(s->distribution, "fsdp") || s->fsdp_version > 0 ||
           s->torch_fsdp2 > 0;
}

static const char *recipe_adapter_of(const struct estimate_recipe_values *s)
{
    const char *component = strrchr(recipe_text_of(s->component), '.');
    const bool four = s->four_bits > 0 || s->bits == 4 || value_has_word(s->component, ".qlora_");

    component = component ? component + 1 : "";
    if (s->dora > 0) return "dora";
    if (is_recipe_word(s->adapter, "qlora") || strncmp(component, "qlora_", 6) == 0) return "qlora";
    if (is_recipe_word(s->adapter, "dora")) return "dora";
    const char *ours = estimate_recipe_adapter(recipe_text_of(s->adapter));
    if (ours) return ours;
    if (is_recipe_word(s->adapter, "lora") || value_has_word(s->adapter, ".PeftConfig") || s->lora > 0 || *s->targets ||
        value_has_word(s->adapter, "networks.lora") || value_has_word(s->adapter, "lycoris") ||
        strncmp(component, "lora_", 5) == 0)
        return four ? "qlora" : "lora";
    return NULL;
}

/* If the file does not set it: TRL's SFTConfig has bf16 unless fp16 is set; torchtitan's FSDP computes in bfloat16. */
static bool bf16_is_on(const struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    if (s->bf16) return says_yes(s->bf16);
    if (s->amp_type && says_yes(s->fp16)) return value_has_word(s->amp_type, "bf");
    if (has_trait(r, RECIPE_BF16_ALWAYS)) return true;
    if (s->mixed || s->dtype) return value_has_word(s->mixed, "bf") || value_has_word(s->dtype, "bf");
    return has_trait(r, RECIPE_BF16) && !says_yes(s->fp16);
}

static bool fp16_is_on(const struct estimate_recipe_values *s)
{
    return says_yes(s->fp16) ||
           (!s->bf16 && (value_has_word(s->mixed, "16") || is_recipe_word(s->mixed, "16") ||
                         value_has_word(s->dtype, "float16"))) ||
           json_integer_value(s->mixed) == 16;
}

/* The types of parameters, gradients and states, as each tool makes them; sources are in docs/estimate.md. */
static void put_precision(struct estimate_recipe *r, const struct estimate_recipe_values *s, bool adapters)
{
    const bool bf16 = bf16_is_on(r, s), fp16 = !bf16 && fp16_is_on(s), half = bf16 || fp16;
    const char *word = bf16 ? "bf16" : "fp16";

    if (!half) {
        estimate_recipe_add(r, value_has_word(s->mixed, "fp8") ? "--precision=amp-fp8" : "--precision=fp32");
        return;
    }
    if (s->fp8 > 0) estimate_recipe_leave_out(r, "fp8");
    if ((has_deepspeed(s) || has_trait(r, RECIPE_MEGATRON)) && !adapters) {
        estimate_recipe_add(r, "--precision=%s", word);
        estimate_recipe_add(r, "--master-weights");
        return;
    }
    /* all in 16 bits: loaded so, and trained parameters are not converted to float32 */
    const bool whole = (adapters && !has_trait(r, RECIPE_AUTOCAST)) || s->pure > 0 ||
                       value_has_word(s->mixed, "-true") ||
                       (has_trait(r, RECIPE_WHOLE) && !value_has_word(s->dtype, "32")) ||
                       (!has_fsdp(s) && (has_trait(r, RECIPE_WHOLE_ALONE) || value_has_word(s->dtype, "16")));
    estimate_recipe_add(r, "--precision=%s%s", whole ? "" : "amp-", word);
}

static void put_step(struct estimate_recipe *r, bool fused, bool in_backward)
{
    if (in_backward || fused) estimate_recipe_add(r, "--step=%s", in_backward ? "in-backward" : "fused");
}

/* Instead of the trainer's (LLaMA-Factory's trainer_utils.py: create_custom_optimizer). */
static const char *own_optimizer(struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    if (s->apollo > 0) estimate_recipe_leave_out(r, "use_apollo: its states are counted as GaLore's");
    return s->galore > 0 || s->apollo > 0 ? "galore_adamw" : *s->own_optimizer ? s->own_optimizer : NULL;
}

static void put_optimizer(struct estimate_recipe *r, const struct estimate_recipe_values *s, bool in_backward)
{
    const char *name = recipe_text_of(s->optimizer), *ours, *own = own_optimizer(r, s);
    bool fused = false;
    char lower[64];

    if (own) name = own;
    if (!*name) {
        if (json_is_object(s->optimizer)) return; /* a section: its own keys set it */
        if (has_trait(r, RECIPE_ADAMW)) estimate_recipe_add(r, "--optimizer=adamw");
        return;
    }
    ours = estimate_recipe_optimizer(name, lower, sizeof lower, &fused);
    if (ours) {
        estimate_recipe_add(r, "--optimizer=%s", ours);
        if ((s->galore > 0 || s->apollo > 0) && s->galore_rank > 0)
            estimate_recipe_add(r, "--lora-rank=%" PRId64, s->galore_rank);
        put_step(r, fused || s->fused_step > 0, in_backward);
        return;
    }
    if (is_written_for(r, "timm") && strcmp(lower, "sgd") == 0) strcpy(lower, "sgd-momentum");
    if (!estimate_any_optimizer(lower)) {
        estimate_recipe_leave_out(r, "optimizer=%s: Adam's two states are counted", name);
        return;
    }
    estimate_recipe_add(r, "--optimizer=%s", lower);
    put_step(r, s->fused_step > 0 || has_trait(r, RECIPE_FUSED), in_backward);
}

/* The matrices of a text: names separated by commas or blanks, or a pattern. */
static unsigned matrices_of_text(struct estimate_recipe *r, const char *text)
{
    unsigned found = 0;

    if (strchr(text, '(') || strchr(text, '|'))
        return strstr(text, "up") || strstr(text, "mlp") ? PLAN_LINEAR : PLAN_QKV | PLAN_OUTPUT;
    for (size_t length; *text; text += length + (text[length] != 0)) {
        const size_t any = strspn(text, "*."); /* "*.q_proj"; "*_proj" and "*" are all */
        text += any;
        length = strcspn(text, ", ");
        if (any && (length == 0 || strncmp(text, "_proj", length) == 0)) return PLAN_LINEAR;
        /* beside many experts that have no adapters; of an image tower, whose adapters are not counted */
        const bool others = memmem(text, length, "shared_expert", 13) || memmem(text, length, "vision", 6);
        const unsigned matrices = others ? 0 : estimate_adapter_find_matrices(text, length);
        if (length && !matrices)
            estimate_recipe_leave_out(r, "adapters of %.*s", (int)(length < 60 ? length : 60), text);
        found |= matrices;
    }
    return found;
}

/* IA3's factors of the MLP come in addition to the named ones. */
static void put_target(struct estimate_recipe *r, const struct estimate_recipe_values *s, bool factors)
{
    const bool attention_only = is_written_for(r, "torchtune"); /* its MLP has a key of its own */
    unsigned found = matrices_of_text(r, recipe_text_of(s->target)) | matrices_of_text(r, s->targets),
             usual = factors ? PLAN_KEYS | PLAN_VALUES : PLAN_LINEAR;
    char text[ESTIMATE_MATRICES_TEXT];
    size_t i;
    json_t *item;

    json_array_foreach((json_t *)s->target, i, item) found |= matrices_of_text(r, recipe_text_of(item));
    if (s->all_linear > 0) found = attention_only && found ? found | PLAN_MLP : 0;
    if (factors) found &= PLAN_QKV | PLAN_OUTPUT;
    if (found && found != usual) estimate_recipe_add(r, "--target=%s", estimate_adapter_name_matrices(found, text));
}

/* lora_dropout, where a kind of adapters has it. */
static void put_recipe_dropout(struct estimate_recipe *r, const json_t *given, const char *adapter)
{
    const double p = json_is_string(given) ? atof(json_string_value(given)) : json_number_value(given);

    if (!strstr(adapter, "lora") && strcmp(adapter, "dora") != 0 && strcmp(adapter, "vera") != 0) return;
    if (given) estimate_recipe_add(r, "--lora-dropout=%g", p);
}

static void put_adapter(struct estimate_recipe *r, const struct estimate_recipe_values *s, const char *adapter)
{
    if (!adapter) {
        if (*recipe_text_of(s->adapter) && !is_recipe_word(s->adapter, "full") && !is_recipe_word(s->adapter, "none"))
            estimate_recipe_leave_out(r, "adapter=%s", recipe_text_of(s->adapter));
        return;
    }
    const bool blocks = strstr(adapter, "oft"), prompts = *adapter == 'p', factors = strcmp(adapter, "ia3") == 0;
    const int64_t rank = strcmp(adapter, "adalora") == 0 ? s->init_rank : s->rank;
    /* axolotl's loaders/model.py converts embeddings back to 16 bits after peft's prepare_model_for_kbit_training; the
     * others do not call it. */
    const bool plain = strcmp(adapter, "qlora") == 0 && has_trait(r, RECIPE_FOUR_BITS);
    estimate_recipe_add(r, "--adapter=%s", plain ? "lora" : adapter);
    if (plain || (s->nested == 0 && strcmp(adapter, "qlora") == 0))
        estimate_recipe_add(r, "--weights=%s", s->nested == 0 ? "nf4" : "nf4-double");
    if (value_has_word(s->adapter, "lycoris")) estimate_recipe_leave_out(r, "lycoris.kohya: LoRA is estimated");
    if (rank > 0 && !blocks && !prompts && !factors) estimate_recipe_add(r, "--lora-rank=%" PRId64, rank);
    put_recipe_dropout(r, s->dropout, adapter);
    if (has_trait(r, RECIPE_HALF_ADAPTERS) && bf16_is_on(r, s)) estimate_recipe_add(r, "--half-adapters");
    if (s->block_size > 0 && blocks) estimate_recipe_add(r, "--block-size=%" PRId64, s->block_size);
    if (s->oft_rank > 0 && blocks)
        estimate_recipe_leave_out(r, "oft_rank=%" PRId64 ": blocks of 32 inputs are counted", s->oft_rank);
    if (s->virtual_tokens > 0 && prompts) estimate_recipe_add(r, "--virtual-tokens=%" PRId64, s->virtual_tokens);
    if (s->eight_bits > 0 || s->bits == 8) estimate_recipe_add(r, "--weights=int8");
    if (s->quantised_experts > 0 || value_has_word(s->model, "Linearized"))
        estimate_recipe_add(r, "--quantised-experts");
    if (!strstr(adapter, "lora") && (s->four_bits > 0 || s->bits == 4)) estimate_recipe_add(r, "--weights=nf4-double");
    if (prompts) return;
    put_target(r, s, factors);
    if (value_has_word(s->saved, "embed") || value_has_word(s->saved, "lm_head") || value_has_word(s->saved, "wte"))
        estimate_recipe_add(r, "--modules-to-save=embeddings");
}

/* These tools pad a batch only to its longest sample, unless they pack samples. LLaMA-Factory packs in pre-training;
 * DeepSpeed-Chat, whose scripts are read as TRL's, pads to the maximum. */
static bool lengths_vary(const struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    if (is_written_for(r, "TRL") && !is_written_for(r, "ms-swift") && has_deepspeed(s)) return false;
    return has_trait(r, RECIPE_PADS) && s->packs <= 0 && s->pads <= 0 &&
           !(s->packs < 0 && is_recipe_word(s->stage, "pt"));
}

/* What a training on preferences or rewards is called; NULL: the training is on text. */
static const char *preference_of(const struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    const char *loss = recipe_text_of(s->loss), *stage = recipe_text_of(s->stage);

    if (has_trait(r, RECIPE_PREFERENCES) && *recipe_text_of(s->rl)) return recipe_text_of(s->rl);
    if (s->task) return estimate_recipe_preference(recipe_text_of(s->task));
    if (is_written_for(r, "LLaMA-Factory") && *stage && strcmp(stage, "sft") != 0 && strcmp(stage, "pt") != 0)
        return stage;
    if (is_written_for(r, "OpenRLHF") && s->rejected) return s->beta ? "dpo" : "rm";
    if (!is_written_for(r, "torchtune") || !strstr(loss, ".rlhf.")) return NULL;
    return strstr(loss, "DPO") ? "dpo" : "ppo";
}

static bool has_pairs(const struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    const char *name = preference_of(r, s);

    return name && estimate_recipe_has_pairs(name);
}

static void note_preference(struct estimate_recipe *r, const struct estimate_recipe_values *s, bool adapters)
{
    const char *name = preference_of(r, s);

    if (!name) return;
    if (!has_pairs(r, s))
        estimate_recipe_leave_out(r, "%s: one model's training on text is estimated", name);
    else if (!adapters && (strcmp(name, "dpo") == 0 || strcmp(name, "ipo") == 0))
        estimate_recipe_leave_out(r, "the reference model of %s", name);
}

static int64_t recipe_gpus(const struct estimate_recipe_values *s)
{
    const int64_t divided = count_product(count_product(s->tp, s->pp), s->cp);

    if (s->gpus > 0) return s->gpus;
    if (s->devices > 0 && s->devices < 1 << 20 && s->nodes < 1 << 20) { /* a template's one node can be too few */
        const int64_t n = s->devices * count_or_one(s->nodes);
        return divided < 1 << 20 && n % divided == 0 && n >= count_product(s->ep, s->pp) ? n : 0;
    }
    if (s->shards > 1 && s->shards < 1 << 20 && divided < 1 << 20 && s->replicas < 1 << 20)
        return s->shards * divided * count_or_one(s->replicas);
    return 0;
}

static void put_batches(struct estimate_recipe *r, const struct estimate_recipe_values *s, int64_t data_parallel)
{
    int64_t batch = s->batch, passes = s->accumulation;

    if (is_written_for(r, "torchtitan") && s->pp > 1 && batch > 0 &&
        batch % s->pp == 0) { /* as many micro-batches as stages */
        batch /= s->pp;
        passes = s->pp;
    }
    const int64_t at_once = is_written_for(r, "AutoModel") ? count_or_one(s->stage_batch) : 0;
    if (at_once > 0 && s->pp > 1 && batch > at_once && batch % at_once == 0) {
        passes = batch / at_once;
        batch = at_once;
    }
    if (passes <= 0 && s->global_batch > 0 && batch > 0 && data_parallel > 0)
        passes = s->global_batch / batch / data_parallel;
    const int64_t at_least = count_product(batch, recipe_gpus(s));
    if (is_written_for(r, "ms-swift on TRL") && passes <= 0) /* a step has 16 samples */
        passes = at_least < 16 ? (16 + at_least - 1) / at_least : 1;
    if (has_pairs(r, s) && batch < INT64_MAX / 2) batch = count_or_one(batch) * 2;
    if (batch > 0) estimate_recipe_add(r, "--batch=%" PRId64, batch);
    if (passes > 1) estimate_recipe_add(r, "--accumulation=%" PRId64, passes);
    const int64_t seq = s->packed_seq > 0 ? s->packed_seq : s->seq;
    if (seq > 0) estimate_recipe_add(r, "--seq=%" PRId64, seq);
    if (s->seq > 0 && lengths_vary(r, s)) estimate_recipe_add(r, "--varying-lengths");
}

/* Chunks of layers that each pipeline stage has; torchtitan's interleaved schedules have two. */
static int64_t recipe_chunks(const struct estimate_recipe_values *s)
{
    if (s->pp <= 1) return 1;
    if (s->chunk_layers > 0 && s->layers > 0 && s->layers / s->pp > s->chunk_layers && s->pp < 1 << 20)
        return s->layers / s->pp / s->chunk_layers;
    if (strncasecmp(recipe_text_of(s->schedule), "interleaved", 11) == 0) return 2;
    return count_or_one(s->chunks);
}

/* Layers that are checkpointed, if not all are. torchtitan's selective_ac_option is "op" or a number; Megatron-LM's
 * "block" remakes so many layers of each chunk of a stage, "uniform" keeps an input for so many layers. */
static void put_some_layers(struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    if (s->remade <= 0) return;
    if (is_recipe_word(s->remaking, "block"))
        estimate_recipe_add(r, "--checkpointed-layers=%" PRId64, count_product(s->remade, recipe_chunks(s)));
    else if (s->remade > 1)
        estimate_recipe_leave_out(r, "recompute_num_layers=%" PRId64 ": the input of each layer is counted", s->remade);
}

static void put_activations(struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    const int every = atoi(recipe_text_of(s->remade_every));
    const char *mode = recipe_text_of(s->checkpointing);
    const bool whole = json_is_true(s->checkpointing) || !strcasecmp(mode, "full") || !strcasecmp(mode, "true") ||
                       !strcasecmp(mode, "offload") || !strcasecmp(mode, "unsloth");

    const bool operations = has_trait(r, RECIPE_OPERATIONS);

    if (s->remade_modules && !is_only_word(s->remade_modules, "core_attn"))
        estimate_recipe_leave_out(r, "recompute_modules: only core_attn is known");
    if (s->selective > 0 || (!strcasecmp(mode, "selective") && !operations)) {
        if (!s->remade_modules || value_has_word(s->remade_modules, "core_attn"))
            estimate_recipe_add(r, "--checkpointing=selective");
    } else if (strcasecmp(mode, "selective") == 0 && every > 0) {
        estimate_recipe_add(r, "--checkpointing=full");
        if (every > 1) estimate_recipe_add(r, "--checkpoint-every=%d", every);
    } else if (!strcasecmp(mode, "selective"))
        estimate_recipe_add(r, "--checkpointing=selective-op");
    else if (whole || s->checkpointing_on > 0 ||
             (has_trait(r, RECIPE_REMADE) && s->checkpointing_on != 0 && !json_is_false(s->checkpointing)))
        estimate_recipe_add(r, "--checkpointing=full");
    if (whole) put_some_layers(r, s);
    if (is_written_for(r, "AutoModel") && whole && estimate_recipe_by_module(recipe_text_of(s->model)))
        estimate_recipe_add(r, "--checkpoint-modules");
    const bool away = s->away > 0 || strcasecmp(mode, "offload") == 0;
    if (away && (s->tp > 1 || s->pp > 1))
        estimate_recipe_leave_out(r, "offloaded activations");
    else if (away)
        estimate_recipe_add(r, "--offload-activations");
    if (has_trait(r, RECIPE_DROPS)) estimate_recipe_add(r, "--drop-outputs");
    if (has_trait(r, RECIPE_NO_CACHE)) estimate_recipe_add(r, "--no-cache");
    if (value_has_word(s->allocator, "expandable_segments:True") || (has_trait(r, RECIPE_EXPANDS) && !s->allocator))
        estimate_recipe_add(r, "--expandable-segments");
    const bool unfused = is_written_for(r, "sd-scripts") && !is_written_for(r, "FLUX") && s->flash <= 0;
    if (unfused || s->eager > 0 || is_recipe_word(s->attention, "eager") || is_recipe_word(s->attention, "disabled") ||
        (is_recipe_word(s->engine, "local") && s->flash <= 0) || is_recipe_word(s->attention, "unfused") ||
        is_recipe_word(s->attention, "local"))
        estimate_recipe_add(r, "--attention=eager");
    if (s->liger > 0 || value_has_word(s->plugins, "liger") || s->compiled > 0)
        estimate_recipe_add(r, "--fused-layers");
    if (s->compiled > 0 || (s->fused_loss > 0 && !is_recipe_word(s->loss, "te")))
        estimate_recipe_add(r, "--fused-loss");
    if (s->chunked > 0 || s->liger > 0 || value_has_word(s->plugins, "cut_cross_entropy") ||
        value_has_word(s->loss, "chunked") || value_has_word(s->loss, "LinearCrossEntropy"))
        estimate_recipe_add(r, "--chunked-loss");
}

/* What is on the GPU beside a denoiser, and the size of what it makes. */
static void put_denoiser(struct estimate_recipe *r, const struct estimate_recipe_values *s, bool adapters)
{
    static const char *const resident[2][2] = {{"all", "text"}, {"vae", "denoiser"}};
    const bool away = s->text_away > 0 && !(s->text_trained > 0 && is_written_for(r, "diffusers"));
    const char *text = *s->stored_text || !is_written_for(r, "ai-toolkit") ? s->stored_text : s->stored;

    if (s->image > 0) estimate_recipe_add(r, "--image=%" PRId64, s->image);
    if (s->frames > 0) estimate_recipe_add(r, "--frames=%" PRId64, s->frames);
    if (s->ema > 0 && !adapters) estimate_recipe_add(r, "--ema");
    if (!has_trait(r, RECIPE_DENOISER)) return;
    estimate_recipe_add(r, "--resident=%s", resident[away][s->vae_away > 0]);
    if (*s->stored && adapters) estimate_recipe_add(r, "--weights=%.*s", (int)strcspn(s->stored, ","), s->stored);
    if (*text && !away) estimate_recipe_add(r, "--text-weights=%s", text);
    if (s->text_trained > 0 && !away)
        estimate_recipe_leave_out(r, "the text encoders' %s, which are trained too", adapters ? "adapters" : "weights");
    if (s->swapped > 0) estimate_recipe_leave_out(r, "blocks_to_swap=%" PRId64, s->swapped);
}

/* Replicas of a sharded model, each of more than one GPU (else they are those of DDP): each GPU has what it has in one
 * of them. */
static int64_t recipe_replicas(const struct estimate_recipe_values *s)
{
    const int64_t gpus = recipe_gpus(s);

    return s->replicas > 1 && gpus != s->replicas && gpus % s->replicas == 0 ? s->replicas : 1;
}

static void put_sharding(struct estimate_recipe *r, const struct estimate_recipe_values *s, int64_t gpus)
{
    static const char *const zero[] = {"ddp", "zero1", "zero2", "zero3"};
    const bool fsdp = has_fsdp(s) || has_trait(r, RECIPE_SHARDS) ||
                      (has_trait(r, RECIPE_FSDP2) && (s->offload > 0 || gpus > 1)),
               grad_op = value_has_word(s->strategy, "GRAD_OP") || json_is_false(s->reshard);
    enum { EXPERT_TP = 4, STAGES = 6 };
    const struct {
        const char *option;
        int64_t n;
    } parts[] = {{"tp", s->tp},
                 {"pp", s->pp},
                 {"cp", s->cp},
                 {"ep", s->ep},
                 {"expert-tp", s->experts > 0 || s->ep > 1 ? s->expert_tp : 0},
                 {"interleave", recipe_chunks(s)},
                 {"first-stage-layers", s->pp > 1 ? s->first_layers : 0},
                 {"last-stage-layers", s->pp > 1 ? s->last_layers : 0}};
    static const char *const parts_of[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"}; /* Megatron-LM */
    size_t of_megatron = 0;
    while (of_megatron < 3 && !is_recipe_word(s->megatron_strategy, parts_of[of_megatron])) of_megatron++;
    const char *sharding = s->megatron_fsdp > 0           ? zero[s->megatron_strategy ? of_megatron : 0]
                           : s->zero >= 0 && s->zero <= 3 ? zero[s->zero]
                           : fsdp && grad_op              ? "fsdp-grad-op"
                           : fsdp && (s->fsdp_version == 2 || s->torch_fsdp2 > 0 || has_trait(r, RECIPE_FSDP2) ||
                                      value_has_word(s->distribution, "fsdp2") || is_recipe_word(s->fsdp, "fsdp2"))
                               ? "fsdp2"
                           : fsdp               ? "fsdp"
                           : s->distributed > 0 ? "zero1"
                                                : NULL;

    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (parts[i].n > 1 || (parts[i].n == 1 && (i >= STAGES || (i == EXPERT_TP && s->tp > 1))))
            estimate_recipe_add(r, "--%s=%" PRId64, parts[i].option, parts[i].n);
    if (gpus > 1) estimate_recipe_add(r, "--gpus=%" PRId64, gpus);
    if (s->tp > 1 && (s->sequence_parallel > 0 || has_trait(r, RECIPE_SHARDS)))
        estimate_recipe_add(r, "--sequence-parallel");
    if (s->zero > 3) estimate_recipe_leave_out(r, "ZeRO's stage %" PRId64 ": stages are 0 to 3", s->zero);
    if (sharding) estimate_recipe_add(r, "--sharding=%s", sharding);
    /* LLaMA-Factory's own FSDP2, as torchtitan's, reduces float32 */
    const bool of_accelerate = has_trait(r, RECIPE_ACCELERATE);
    if (s->reduces_half > 0 || value_has_word(s->gradients, "16") ||
        (sharding && strcmp(sharding, "fsdp2") == 0 && of_accelerate && !recipe_adapter_of(s) && s->pure <= 0 &&
         (bf16_is_on(r, s) || fp16_is_on(s))))
        estimate_recipe_add(r, "--half-reduce");
    if (value_has_word(s->moments, "16")) estimate_recipe_add(r, "--half-states");
    if (sharding && strcmp(sharding, "fsdp") == 0 && recipe_adapter_of(s))
        estimate_recipe_add(r, "--separate-adapters");
    if (sharding && strcmp(sharding, "fsdp") == 0 && recipe_adapter_of(s) && json_is_false(s->reentrant))
        estimate_recipe_add(r, "--no-reentrant");
    const bool divides_batch = s->accumulation <= 0 && s->batch > 0 && s->global_batch > s->batch;
    if ((sharding || divides_batch) && gpus <= 0)
        estimate_recipe_leave_out(r, "the number of GPUs, which the file does not state: add --gpus N");
    if ((s->offload > 0 || is_on_host(s->offload_param)) && (s->zero == 3 || (fsdp && !grad_op)))
        estimate_recipe_add(r, "--offload=all");
    else if (is_on_host(s->offload_optimizer))
        estimate_recipe_add(r, "--offload=optimizer");
}

/* Unless the model's name states the format. */
static void put_served_weights(struct estimate_recipe *r, const char *form)
{
    const char *weights = estimate_recipe_weights(form);

    if (!*form || strcmp(form, "bf16") == 0) return;
    for (size_t i = 0; i < r->options_n; i++)
        if (strncmp(r->option[i], "--weights=", 10) == 0) return;
    if (weights)
        estimate_recipe_add(r, "--weights=%s", weights);
    else
        estimate_recipe_leave_out(r, "quantization=%s: add --weights, the format of the checkpoint", form);
}

static void put_serving(struct estimate_recipe *r, const struct estimate_recipe_values *s)
{
    estimate_recipe_add(r, "--serve=vllm");
    if (s->share) estimate_recipe_add(r, "--gpu-memory-utilization=%g", json_number_value(s->share));
    if (s->seq > 0) estimate_recipe_add(r, "--seq=%" PRId64, s->seq);
    if (s->tp > 1) estimate_recipe_add(r, "--tp=%" PRId64, s->tp);
    if (s->pp > 1) estimate_recipe_add(r, "--pp=%" PRId64, s->pp);
    if (value_has_word(s->cache, "fp8")) estimate_recipe_add(r, "--kv-cache=fp8");
    put_served_weights(r, recipe_text_of(s->quantization));
    if (s->recipe_form) put_served_weights(r, recipe_text_of(s->recipe_form));
    if (s->recipe_form && s->tp <= 1)
        estimate_recipe_leave_out(r, "the number of GPUs, which the file does not state: add --tp N");
    if (s->requests > 0) estimate_recipe_add(r, "--max-num-seqs=%" PRId64, s->requests);
    if (s->pass_tokens > 0) estimate_recipe_add(r, "--max-num-batched-tokens=%" PRId64, s->pass_tokens);
    if (s->serves_lora > 0) estimate_recipe_add(r, "--max-loras=%" PRId64, count_or_one(s->lora_slots));
    if (s->serves_lora > 0 && s->slot_rank > 0) estimate_recipe_add(r, "--lora-rank=%" PRId64, s->slot_rank);
}

/* litgpt's fine-tuning on several GPUs shards and checkpoints layers (finetune/lora.py, full.py, pretrain.py). */
static void put_litgpt(struct estimate_recipe *r, const struct estimate_recipe_values *s, int64_t gpus)
{
    estimate_recipe_add(r, "--runtime=litgpt");
    if (gpus > 1) r->traits |= RECIPE_SHARDS | (*s->targets ? RECIPE_FSDP2 : 0);
    if (gpus > 1 && !is_written_for(r, "litgpt's")) r->traits |= RECIPE_REMADE;
    put_served_weights(r, recipe_text_of(s->quantization));
    if (s->quantization) estimate_recipe_add(r, "--bitsandbytes=0.42");
}

static bool is_inference(const struct estimate_recipe_values *s)
{
    return !says_yes(s->trains) && (is_value_given(s->serves) || says_yes(s->predicts));
}

static void settle_recipe(struct estimate_recipe *r, const struct estimate_recipe_values *s, bool model_given)
{
    const char *adapter = recipe_adapter_of(s);
    const int64_t gpus = recipe_gpus(s);
    const int64_t divided = count_product(count_product(s->tp, s->pp), s->cp);

    const bool answers = is_inference(s);
    if (!model_given) put_model(r, s, adapter != NULL, answers);
    if (has_trait(r, RECIPE_SERVES)) {
        put_serving(r, s);
        return;
    }
    if ((s->layers > 0 || is_written_for(r, " on Megatron-LM")) && !has_other_layers(s) &&
        has_trait(r, RECIPE_MEGATRON))
        estimate_recipe_add(r, "--runtime=megatron");
    if (is_written_for(r, "litgpt")) put_litgpt(r, s, gpus);
    if (!answers) put_precision(r, s, adapter != NULL);
    if (answers || (is_written_for(r, "torchtune") && !s->optimizer && !s->loss && !adapter)) {
        estimate_recipe_add(r, "--inference");
        if (s->batch > 0) estimate_recipe_add(r, "--batch=%" PRId64, s->batch);
        if (s->seq > 0) estimate_recipe_add(r, "--seq=%" PRId64, s->seq);
        return;
    }
    const bool in_backward = s->step_in_backward > 0 && !adapter && gpus <= 1 && s->accumulation <= 1;
    put_optimizer(r, s, in_backward);
    if (s->step_in_backward > 0 && !in_backward) estimate_recipe_leave_out(r, "optimizer_in_bwd");
    put_adapter(r, s, adapter);
    put_batches(r, s, gpus > 0 ? gpus / divided : 0);
    note_preference(r, s, adapter != NULL);
    put_activations(r, s);
    put_denoiser(r, s, adapter != NULL);
    put_sharding(r, s, gpus / recipe_replicas(s));
    if (recipe_replicas(s) > 1)
        estimate_recipe_leave_out(r, "%" PRId64 " replicas, of which one is estimated", s->replicas);
}

static void add_tool(struct estimate_recipe *r, const struct estimate_recipe_tool *tool)
{
    const size_t n = strlen(r->tools);

    if (!tool || tool->advice) return;
    r->traits |= tool->traits;
    if (!strstr(r->tools, tool->name)) snprintf(r->tools + n, sizeof r->tools - n, "%s%s", n ? ", " : "", tool->name);
}

/* One file after another. */
struct reading {
    const char *command;
    json_t *roots[17], *kept; /* of up to 16 files, and of one that they name; what tools assume */
    size_t n;
    unsigned left;
    struct estimate_recipe_values values;
};

static bool read_recipe_file(struct reading *g, const char *path, struct estimate_recipe *r)
{
    char why[200] = "";
    json_t *root = g->n < COUNT_OF(g->roots) - 1 ? estimate_recipe_load(path, why, sizeof why) : NULL;

    if (!root) {
        complain("%s: --config: cannot read '%s': %s", g->command, path, *why ? why : "too many files; at most 16");
        return false;
    }
    const struct estimate_recipe_tool *tool = estimate_recipe_tool(root);
    g->roots[g->n++] = root;
    if (tool && tool->advice) {
        complain("%s: --config: '%s' is %s, which gpuspy does not read; %s", g->command, path, tool->name,
                 tool->advice);
        return false;
    }
    add_tool(r, tool);
    estimate_recipe_walk(r, &g->values, tool, root, &g->left);
    return true;
}

/* DeepSpeed's file that another one names. */
static void read_named_file(struct reading *g, const char *from, struct estimate_recipe *r)
{
    const char *name = recipe_text_of(g->values.deepspeed);
    const bool own = !strchr(name, '.') && !strchr(name, '/'); /* one that comes with ms-swift: "zero3_offload" */
    json_t *root = *name && !own && g->values.zero < 0 ? estimate_recipe_load_named(from, name) : NULL;

    if (root) {
        add_tool(r, estimate_recipe_tool(root));
        g->roots[g->n++] = root;
        estimate_recipe_walk(r, &g->values, NULL, root, &g->left);
    } else if (*name && g->values.zero < 0) {
        g->values.zero = estimate_recipe_stage_named(name);
        if (strstr(name, "offload")) g->values.offload_optimizer = g->values.offload_param = json_true();
        if (!own || g->values.zero < 0)
            estimate_recipe_leave_out(r, "%s, which was not found: its stage and offloading are taken from its name",
                                      name);
    }
}

bool estimate_recipe_read(const char *command, const char *const *paths, size_t n, bool model_given, uint64_t gpus,
                          struct estimate_recipe *r)
{
    struct reading *g = ARENA_NEW(struct reading, .command = command, .kept = json_array(), .left = KEYS_MAX);
    struct estimate_recipe_values *values = &g->values;
    bool all = true;

    *r = (struct estimate_recipe){.options_n = 0};
    estimate_recipe_clear(values);
    for (size_t i = 0; i < n && all; i++) all = read_recipe_file(g, paths[i], r);
    if (all) read_named_file(g, paths[0], r);
    const char *other = all && g->n == 1 ? json_string_value(json_object_get(g->roots[0], "config_file")) : NULL;
    if (all && !*r->tools && other)
        complain("%s: --config: '%s' starts a program whose configuration is '%s', which is not there; give that file",
                 command, paths[0], other);
    else if (all && !*r->tools)
        complain("%s: --config: '%s' is not the configuration of a tool that gpuspy knows ('gpuspy help estimate' "
                 "lists them); "
                 "give a model's config.json with --model",
                 command, paths[0]);
    const bool known = all && *r->tools, ranked = values->rank > 0;
    for (size_t i = 0; i < g->n && known && !is_inference(values); i++)
        estimate_recipe_fill(values, estimate_recipe_tool(g->roots[i]), g->kept);
    if (gpus && gpus <= INT64_MAX) values->gpus = (int64_t)gpus;
    const bool has_adapters =
        is_written_for(r, "OpenRLHF") || is_written_for(r, "verl") ||
        (is_written_for(r, "Transformers") && values->lora < 0 && ranked); /* FastChat's train_lora.py */
    if (has_adapters && values->rank > 0) values->lora = 1;
    if (values->zero < 0 && value_has_word(values->distribution, "deepspeed_stage"))
        values->zero = estimate_recipe_stage_named(recipe_text_of(values->distribution));
    const char *each = strchr(recipe_text_of(values->accelerators), ':');
    if (each && values->devices <= 0) values->devices = strtoll(each + 1, NULL, 10);
    if (ranked && !values->adapter && !recipe_adapter_of(values))
        estimate_recipe_leave_out(r, "the rank of adapters: no key states that there are any");
    if (known) settle_recipe(r, values, model_given);
    for (size_t i = 0; i < g->n; i++) json_decref(g->roots[i]);
    json_decref(g->kept);
    free(g);
    return known;
}

void estimate_recipe_free(struct estimate_recipe *r)
{
    for (size_t i = 0; i < r->options_n; i++) free(r->option[i]);
    for (size_t i = 0; i < r->unused_n; i++) free(r->unused[i]);
    *r = (struct estimate_recipe){.options_n = 0};
}
