#include "analyzer/estimate/recipe.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/recipe_value.h"
#include "analyzer/model/model.h"

enum { KEYS_MAX = 4000, PATH_PARTS = 256, UNSET = -1 };

/* The values of the keys. TEXT: a JSON value of any kind, NULL if unset; the others: UNSET if unset. */
struct values {
    const json_t *model, *folder, *component, *titan_name, *titan_flavor, *activation;
    const json_t *bf16, *fp16, *mixed, *dtype, *quantization, *recipe_form, *cache, *share, *rl, *rejected, *beta,
        *accelerators;
    const json_t *adapter, *target, *saved, *optimizer, *checkpointing, *attention, *engine, *loss, *plugins;
    const json_t *dropout, *reentrant, *remade_every, *remaking, *remade_modules, *schedule, *shared, *pattern, *stage;
    const json_t *processor, *decoder_trained, *tokenizer, *tokenizer_model, *words, *serves, *predicts, *trains;
    const json_t *fsdp, *distribution, *strategy, *reshard, *deepspeed, *offload_optimizer, *offload_param,
        *megatron_strategy, *gradients, *moments;
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, padded, vocab_step, context, experts, experts_used, expert_ffn,
        gated;
    int64_t pure, fp8, galore, apollo, muon, adam_mini, badam, galore_rank, master, four_bits, eight_bits, bits,
        frozen_tower, lora, dora, rank, init_rank, oft_rank, block_size, virtual_tokens, all_linear, fused_step,
        step_in_backward, distributed, batch, stage_batch, global_batch, accumulation, seq, packed_seq, requests,
        pass_tokens, serves_lora, lora_slots, slot_rank, hybrid, head_dim, untied, remade, chunks, chunk_layers,
        first_layers, last_layers, checkpointing_on, away, selective, flash, eager, liger, chunked, compiled,
        fused_loss, packs, pads, gpus, devices, nodes, tp, pp, cp, ep, expert_tp, reduces_half, quantised_experts,
        shards, replicas, sequence_parallel, fsdp_version, offload, zero, megatron_fsdp, torch_fsdp2;
};

enum kind { TEXT, COUNT, FLAG, UNFLAG, NOTHING };

static const struct key {
    const char *path;
    enum kind kind;
    size_t at;
} keys[] = {
#define KEY(path, kind, field) {path, kind, offsetof(struct values, field)},
#define SILENT(path) {path, NOTHING, 0},
#include "analyzer/estimate/recipe_keys.def"
#undef KEY
#undef SILENT
};

static int64_t recipe_count_of(const json_t *value)
{
    char *end;

    if (json_is_integer(value)) return json_integer_value(value) >= 0 ? json_integer_value(value) : UNSET;
    if (json_is_real(value) && json_real_value(value) >= 0 && json_real_value(value) < 1e15)
        return (int64_t)json_real_value(value);
    const long long n = strtoll(recipe_text_of(value), &end, 10);
    return *recipe_text_of(value) && !*end && n >= 0 ? n : UNSET;
}

static void keep_value(struct values *values, const struct key *key, const json_t *value)
{
    char *field = (char *)values + key->at;

    if (json_is_null(value) || key->kind == NOTHING) return;
    if (key->kind == TEXT)
        memcpy(field, &value, sizeof value);
    else {
        const int64_t n = key->kind == COUNT ? recipe_count_of(value) : says_yes(value) == (key->kind == FLAG);
        memcpy(field, &n, sizeof n);
    }
}

static void add_recipe_text(char **list, size_t *n, size_t max, size_t *more, const char *format, va_list arguments)
{
    char text[400];

    vsnprintf(text, sizeof text, format, arguments);
    for (size_t i = 0; i < *n; i++)
        if (strcmp(list[i], text) == 0) return;
    if (*n < max)
        list[(*n)++] = arena_copy(text);
    else if (more)
        ++*more;
}

__attribute__((format(printf, 2, 3))) static void put_recipe_option(struct estimate_recipe *r, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_recipe_text(r->option, &r->options_n, RECIPE_OPTIONS_MAX, NULL, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 2, 3))) static void leave_out(struct estimate_recipe *r, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_recipe_text(r->unused, &r->unused_n, RECIPE_UNUSED_MAX, &r->unused_more, format, arguments);
    va_end(arguments);
}

/* Lists a key without a row. Null, false and "none" are not listed: they turn something off. */
static void note_unknown_key(struct estimate_recipe *r, const char *path, const json_t *value)
{
    if (json_is_null(value) || json_is_false(value) || json_is_object(value) || is_recipe_word(value, "none") ||
        !estimate_recipe_may_matter(path))
        return;
    if (json_is_string(value))
        leave_out(r, "%s=%.60s", path, recipe_text_of(value));
    else if (json_is_integer(value))
        leave_out(r, "%s=%" JSON_INTEGER_FORMAT, path, json_integer_value(value));
    else if (json_is_real(value))
        leave_out(r, "%s=%g", path, json_real_value(value));
    else
        leave_out(r, "%s", path);
}

/* Reads the keys, those of sections as "section.key"; `left` limits the number of keys that a file with aliases can
 * expand to. */
static void walk_recipe(struct estimate_recipe *r, struct values *values, const json_t *object, const char *before,
                        unsigned *left)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)object, name, value)
    {
        char path[PATH_PARTS];
        if (!*left || snprintf(path, sizeof path, "%s%s%s", before, *before ? "." : "", name) >= (int)sizeof path)
            return;
        --*left;
        for (char *c = path; *c; c++) *c = *c == '-' ? '_' : *c;
        const struct key *key = FIND_OF(k, keys, COUNT_OF(keys), recipe_pattern_matches(k->path, path));
        const json_t *expression = recipe_expression_of(value);
        if (key && key->kind != NOTHING && expression) leave_out(r, "%s=%.60s", path, recipe_text_of(expression));
        if (expression) continue;
        if (key)
            keep_value(values, key, value);
        else
            note_unknown_key(r, path, value);
        if (json_is_object(value) && !(key && key->kind == NOTHING)) walk_recipe(r, values, value, path, left);
    }
}

static bool is_written_for(const struct estimate_recipe *r, const char *tool)
{
    return strstr(r->tools, tool) != NULL;
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
    const char *weights;
    size_t kept;

    if (quantized && estimate_recipe_stored(name, &kept, &weights)) {
        put_recipe_option(r, "--model=%.*s", (int)kept, name);
        if (!weights && strcmp(r->tools, "vLLM") == 0) weights = "nf4";
        if (weights) put_recipe_option(r, "--weights=%s", weights);
        return;
    }
    put_recipe_option(r, "--model=%s", name);
}

/* Which part of a model with an image tower is not trained: LLaMA-Factory freezes the tower by default, and a training
 * without images computes no gradient for it. */
static void put_frozen(struct estimate_recipe *r, const struct values *s)
{
    const bool tower = s->frozen_tower >= 0 ? s->frozen_tower > 0
                                            : is_written_for(r, "LLaMA-Factory") || is_written_for(r, "ms-swift") ||
                                                  (is_written_for(r, "axolotl") && !s->processor);

    if (json_is_false(s->decoder_trained) || is_recipe_word(s->decoder_trained, "frozen"))
        put_recipe_option(r, "--frozen=text");
    else if (tower)
        put_recipe_option(r, "--frozen=tower");
}

/* Megatron-LM takes the number of words from --vocab-size or the tokenizer, and rounds it up (vocab_size_with_padding).
 */
static void put_vocab(struct estimate_recipe *r, const struct values *s)
{
    const int64_t words = s->vocab > 0 && s->vocab < 1 << 30
                              ? s->vocab
                              : estimate_recipe_vocab(recipe_text_of(s->tokenizer), recipe_text_of(s->tokenizer_model),
                                                      recipe_text_of(s->words)),
                  step = (s->vocab_step > 0 && s->vocab_step < 1 << 20 ? s->vocab_step : 128) *
                         (s->tp > 0 && s->tp < 1 << 20 ? s->tp : 1);

    put_recipe_option(r, "--vocab=%" PRId64, s->padded > 0 ? s->padded : (words + step - 1) / step * step);
    if (s->padded <= 0 && s->vocab <= 0)
        leave_out(r, "the tokenizer, which is assumed to have %" PRId64 " words", words);
}

/* Mamba's among them, in an order of which a shape knows nothing. */
static bool has_other_layers(const struct values *s)
{
    return s->hybrid > 0 || s->pattern;
}

static void put_model(struct estimate_recipe *r, const struct values *s, bool adapters, bool answers)
{
    char name[512] = "";

    if (*recipe_text_of(s->model))
        snprintf(name, sizeof name, "%s", recipe_text_of(s->model));
    else if (s->component || s->folder)
        estimate_recipe_torchtune_model(recipe_text_of(s->folder), recipe_text_of(s->component), name, sizeof name);
    else if (s->titan_name && s->titan_flavor)
        estimate_recipe_titan_model(recipe_text_of(s->titan_name), recipe_text_of(s->titan_flavor), name, sizeof name);
    if (*name) {
        put_model_name(r, name, adapters || strcmp(r->tools, "vLLM") == 0);
        if (!adapters && !answers && model_has_tower(name)) put_frozen(r, s);
        return;
    }
    const struct {
        const char *option;
        int64_t n;
    } shape[] = {{"layers", s->layers},
                 {"hidden", s->hidden},
                 {"heads", s->heads},
                 {"kv-heads", s->kv_heads},
                 {"head-dim", s->head_dim},
                 {"ffn", s->experts > 0 && s->expert_ffn > 0 ? s->expert_ffn : s->ffn},
                 {"context", s->context},
                 {"experts", s->experts},
                 {"experts-used", s->experts_used}};
    const bool gated = s->gated > 0 || value_has_word(s->activation, "glu");
    if (has_other_layers(s) || is_written_for(r, "peft")) return; /* which layers, or of which model, is unknown */
    if (s->layers > 0 && !gated) put_recipe_option(r, "--family=gpt");
    for (size_t i = 0; s->layers > 0 && i < COUNT_OF(shape); i++)
        if (shape[i].n > 0) put_recipe_option(r, "--%s=%" PRId64, shape[i].option, shape[i].n);
    const bool untied = s->untied > 0 || json_is_false(s->shared);
    if (s->layers > 0 && gated != untied) put_recipe_option(r, gated ? "--tied" : "--untied");
    if (s->layers > 0) put_vocab(r, s);
    const bool has_ffn = s->ffn > 0 || (s->experts > 0 && s->expert_ffn > 0);
    if (s->layers > 0 && !has_ffn && s->hidden > 0 && s->hidden < 1 << 24) /* Megatron-LM's arguments.py */
        put_recipe_option(r, "--ffn=%" PRId64, gated ? s->hidden * 8 / 3 / 64 * 64 : s->hidden * 4);
}

static bool has_deepspeed(const struct values *s)
{
    return s->zero >= 0 || value_has_word(s->distribution, "deepspeed") || *recipe_text_of(s->deepspeed);
}

static bool has_fsdp(const struct values *s)
{
    return is_value_given(s->fsdp) || s->strategy || value_has_word(s->distribution, "fsdp") || s->fsdp_version > 0 ||
           s->torch_fsdp2 > 0;
}

static const char *recipe_adapter_of(const struct values *s)
{
    const char *component = strrchr(recipe_text_of(s->component), '.');
    const bool four = s->four_bits > 0 || s->bits == 4 || value_has_word(s->component, ".qlora_");

    component = component ? component + 1 : "";
    if (s->dora > 0) return "dora";
    if (is_recipe_word(s->adapter, "qlora") || strncmp(component, "qlora_", 6) == 0) return "qlora";
    if (is_recipe_word(s->adapter, "dora")) return "dora";
    const char *ours = estimate_recipe_adapter(recipe_text_of(s->adapter));
    if (ours) return ours;
    if (is_recipe_word(s->adapter, "lora") || value_has_word(s->adapter, ".PeftConfig") || s->lora > 0 ||
        strncmp(component, "lora_", 5) == 0)
        return four ? "qlora" : "lora";
    return NULL;
}

/* If the file does not set it: TRL's SFTConfig has bf16 unless fp16 is set; torchtitan's FSDP computes in bfloat16. */
static bool bf16_is_on(const struct estimate_recipe *r, const struct values *s)
{
    if (s->bf16) return says_yes(s->bf16);
    if (is_written_for(r, "AutoModel")) return true; /* the default is the checkpoint's; FSDP2 computes in bfloat16 */
    if (s->mixed || s->dtype) return value_has_word(s->mixed, "bf") || value_has_word(s->dtype, "bf");
    return is_written_for(r, "torchtitan") || (is_written_for(r, "TRL") && !says_yes(s->fp16));
}

static bool fp16_is_on(const struct values *s)
{
    return says_yes(s->fp16) ||
           (!s->bf16 && (value_has_word(s->mixed, "16") || is_recipe_word(s->mixed, "16") ||
                         value_has_word(s->dtype, "float16"))) ||
           json_integer_value(s->mixed) == 16;
}

/* The types of parameters, gradients and states, as each tool makes them; sources are in docs/estimate.md. */
static void put_precision(struct estimate_recipe *r, const struct values *s, bool adapters)
{
    const bool bf16 = bf16_is_on(r, s), fp16 = !bf16 && fp16_is_on(s), half = bf16 || fp16;
    const char *word = bf16 ? "bf16" : "fp16";

    if (!half) {
        put_recipe_option(r, value_has_word(s->mixed, "fp8") ? "--precision=amp-fp8" : "--precision=fp32");
        return;
    }
    if (s->fp8 > 0) leave_out(r, "fp8");
    const bool megatron = is_written_for(r, "Megatron-LM") || is_written_for(r, "NeMo");
    if ((has_deepspeed(s) || megatron) && !adapters) {
        put_recipe_option(r, "--precision=%s", word);
        put_recipe_option(r, "--master-weights");
        return;
    }
    /* all in 16 bits: loaded so, and trained parameters are not converted to float32 */
    const bool whole = (adapters && !is_written_for(r, "verl")) || is_written_for(r, "torchtune") || s->pure > 0 ||
                       (is_written_for(r, "AutoModel") && !value_has_word(s->dtype, "32")) ||
                       (!has_fsdp(s) && (is_written_for(r, "axolotl") || value_has_word(s->dtype, "16")));
    put_recipe_option(r, "--precision=%s%s", whole ? "" : "amp-", word);
}

static void put_step(struct estimate_recipe *r, bool fused, bool in_backward)
{
    if (in_backward || fused) put_recipe_option(r, "--step=%s", in_backward ? "in-backward" : "fused");
}

/* Instead of the trainer's (LLaMA-Factory's trainer_utils.py: create_custom_optimizer). */
static const char *own_optimizer(struct estimate_recipe *r, const struct values *s)
{
    if (s->apollo > 0) leave_out(r, "use_apollo: its states are counted as GaLore's");
    return s->galore > 0 || s->apollo > 0 ? "galore_adamw"
           : s->muon > 0                  ? "muon"
           : s->adam_mini > 0             ? "adam_mini"
           : s->badam > 0                 ? "badam"
                                          : NULL;
}

static void put_optimizer(struct estimate_recipe *r, const struct values *s, bool in_backward)
{
    const char *name = recipe_text_of(s->optimizer), *ours, *own = own_optimizer(r, s);
    bool fused = false;
    char lower[64];

    if (own) name = own;
    if (!*name) {
        if (json_is_object(s->optimizer)) return; /* a section: its own keys set it */
        if (is_written_for(r, "TRL") || is_written_for(r, "LLaMA-Factory") || is_written_for(r, "Transformers"))
            put_recipe_option(r, "--optimizer=adamw"); /* TrainingArguments' default */
        return;
    }
    ours = estimate_recipe_optimizer(name, lower, sizeof lower, &fused);
    if (ours) {
        put_recipe_option(r, "--optimizer=%s", ours);
        if ((s->galore > 0 || s->apollo > 0) && s->galore_rank > 0)
            put_recipe_option(r, "--lora-rank=%" PRId64, s->galore_rank);
        put_step(r, fused || s->fused_step > 0, in_backward);
        return;
    }
    if (!estimate_any_optimizer(lower)) {
        leave_out(r, "optimizer=%s: Adam's two states are counted", name);
        return;
    }
    put_recipe_option(r, "--optimizer=%s", lower);
    put_step(r, s->fused_step > 0 || is_written_for(r, "torchtitan"), in_backward);
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
        if (length && !matrices) leave_out(r, "adapters of %.*s", (int)(length < 60 ? length : 60), text);
        found |= matrices;
    }
    return found;
}

/* IA3's factors of the MLP come in addition to the named ones. */
static void put_target(struct estimate_recipe *r, const struct values *s, bool factors)
{
    const bool attention_only = is_written_for(r, "torchtune"); /* its MLP has a key of its own */
    unsigned found = matrices_of_text(r, recipe_text_of(s->target)),
             usual = factors ? PLAN_KEYS | PLAN_VALUES : PLAN_LINEAR;
    char text[ESTIMATE_MATRICES_TEXT];
    size_t i;
    json_t *item;

    json_array_foreach((json_t *)s->target, i, item) found |= matrices_of_text(r, recipe_text_of(item));
    if (s->all_linear > 0) found = attention_only && found ? found | PLAN_MLP : 0;
    if (factors) found &= PLAN_QKV | PLAN_OUTPUT;
    if (found && found != usual) put_recipe_option(r, "--target=%s", estimate_adapter_name_matrices(found, text));
}

/* lora_dropout, where a kind of adapters has it. TRL's ModelConfig has 0.05 unless it is given, the others none. */
static void put_recipe_dropout(struct estimate_recipe *r, const json_t *given, const char *adapter)
{
    const double p = json_is_string(given) ? atof(json_string_value(given)) : json_number_value(given);

    if (!strstr(adapter, "lora") && strcmp(adapter, "dora") != 0 && strcmp(adapter, "vera") != 0) return;
    if (given || is_written_for(r, "TRL")) put_recipe_option(r, "--lora-dropout=%g", given ? p : 0.05);
}

static void put_adapter(struct estimate_recipe *r, const struct values *s, const char *adapter)
{
    if (!adapter) {
        if (*recipe_text_of(s->adapter) && !is_recipe_word(s->adapter, "full") && !is_recipe_word(s->adapter, "none"))
            leave_out(r, "adapter=%s", recipe_text_of(s->adapter));
        return;
    }
    const bool blocks = strstr(adapter, "oft"), prompts = *adapter == 'p', factors = strcmp(adapter, "ia3") == 0;
    const int64_t rank = strcmp(adapter, "adalora") == 0 ? s->init_rank : s->rank;
    /* axolotl's loaders/model.py converts embeddings back to 16 bits after peft's prepare_model_for_kbit_training; the
     * others do not call it. */
    const bool plain = strcmp(adapter, "qlora") == 0 &&
                       (is_written_for(r, "axolotl") || is_written_for(r, "LLaMA-Factory") ||
                        is_written_for(r, "TRL") || is_written_for(r, "torchtune") || is_written_for(r, "AutoModel"));
    put_recipe_option(r, "--adapter=%s", plain ? "lora" : adapter);
    if (plain) put_recipe_option(r, "--weights=%s", strcmp(r->tools, "TRL") == 0 ? "nf4" : "nf4-double");
    if (rank > 0 && !blocks && !prompts && !factors) put_recipe_option(r, "--lora-rank=%" PRId64, rank);
    put_recipe_dropout(r, s->dropout, adapter);
    if (is_written_for(r, "torchtune") && value_has_word(s->dtype, "16")) put_recipe_option(r, "--half-adapters");
    if (s->block_size > 0 && blocks) put_recipe_option(r, "--block-size=%" PRId64, s->block_size);
    if (s->oft_rank > 0 && blocks) leave_out(r, "oft_rank=%" PRId64 ": blocks of 32 inputs are counted", s->oft_rank);
    if (s->virtual_tokens > 0 && prompts) put_recipe_option(r, "--virtual-tokens=%" PRId64, s->virtual_tokens);
    if (s->eight_bits > 0 || s->bits == 8) put_recipe_option(r, "--weights=int8");
    if (s->quantised_experts > 0 || value_has_word(s->model, "Linearized")) put_recipe_option(r, "--quantised-experts");
    if (!strstr(adapter, "lora") && (s->four_bits > 0 || s->bits == 4)) put_recipe_option(r, "--weights=nf4-double");
    if (prompts) return;
    put_target(r, s, factors);
    if (value_has_word(s->saved, "embed") || value_has_word(s->saved, "lm_head") || value_has_word(s->saved, "wte"))
        put_recipe_option(r, "--modules-to-save=embeddings");
}

/* These tools pad a batch only to its longest sample, unless they pack samples. LLaMA-Factory packs in pre-training;
 * DeepSpeed-Chat, whose scripts are read as TRL's, pads to the maximum. */
static bool lengths_vary(const struct estimate_recipe *r, const struct values *s)
{
    const bool pads_to_longest = is_written_for(r, "axolotl") || is_written_for(r, "LLaMA-Factory") ||
                                 is_written_for(r, "TRL") || is_written_for(r, "torchtune") ||
                                 is_written_for(r, "verl");

    if (is_written_for(r, "TRL") && !is_written_for(r, "ms-swift") && has_deepspeed(s)) return false;
    return pads_to_longest && s->packs <= 0 && s->pads <= 0 && !(s->packs < 0 && is_recipe_word(s->stage, "pt"));
}

/* What a training on preferences or rewards is called; NULL: the training is on text. */
static const char *preference_of(const struct estimate_recipe *r, const struct values *s)
{
    const char *loss = recipe_text_of(s->loss), *stage = recipe_text_of(s->stage);

    if ((is_written_for(r, "axolotl") || is_written_for(r, "TRL") || is_written_for(r, "ms-swift")) &&
        *recipe_text_of(s->rl))
        return recipe_text_of(s->rl);
    if (is_written_for(r, "LLaMA-Factory") && *stage && strcmp(stage, "sft") != 0 && strcmp(stage, "pt") != 0)
        return stage;
    if (is_written_for(r, "OpenRLHF") && s->rejected) return s->beta ? "dpo" : "rm";
    if (!is_written_for(r, "torchtune") || !strstr(loss, ".rlhf.")) return NULL;
    return strstr(loss, "DPO") ? "dpo" : "ppo";
}

static bool has_pairs(const struct estimate_recipe *r, const struct values *s)
{
    const char *name = preference_of(r, s);

    return name && estimate_recipe_has_pairs(name);
}

static void note_preference(struct estimate_recipe *r, const struct values *s, bool adapters)
{
    const char *name = preference_of(r, s);

    if (!name) return;
    if (!has_pairs(r, s))
        leave_out(r, "%s: one model's training on text is estimated", name);
    else if (!adapters && (strcmp(name, "dpo") == 0 || strcmp(name, "ipo") == 0))
        leave_out(r, "the reference model of %s", name);
}

static void put_batches(struct estimate_recipe *r, const struct values *s, int64_t data_parallel)
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
    if (has_pairs(r, s) && batch < INT64_MAX / 2) batch = count_or_one(batch) * 2;
    if (batch > 0) put_recipe_option(r, "--batch=%" PRId64, batch);
    if (passes > 1) put_recipe_option(r, "--accumulation=%" PRId64, passes);
    const int64_t seq = s->packed_seq > 0 ? s->packed_seq : s->seq;
    if (seq > 0) put_recipe_option(r, "--seq=%" PRId64, seq);
    if (s->seq < 0 && strcmp(r->tools, "TRL") == 0) put_recipe_option(r, "--seq=1024"); /* SFTConfig's max_length */
    if ((s->seq > 0 || strcmp(r->tools, "TRL") == 0) && lengths_vary(r, s)) put_recipe_option(r, "--varying-lengths");
}

/* Chunks of layers that each pipeline stage has; torchtitan's interleaved schedules have two. */
static int64_t recipe_chunks(const struct values *s)
{
    if (s->pp <= 1) return 1;
    if (s->chunk_layers > 0 && s->layers > 0 && s->layers / s->pp > s->chunk_layers && s->pp < 1 << 20)
        return s->layers / s->pp / s->chunk_layers;
    if (strncasecmp(recipe_text_of(s->schedule), "interleaved", 11) == 0) return 2;
    return count_or_one(s->chunks);
}

/* Layers that are checkpointed, if not all are. torchtitan's selective_ac_option is "op" or a number; Megatron-LM's
 * "block" remakes so many layers of each chunk of a stage, "uniform" keeps an input for so many layers. */
static void put_some_layers(struct estimate_recipe *r, const struct values *s)
{
    if (s->remade <= 0) return;
    if (is_recipe_word(s->remaking, "block"))
        put_recipe_option(r, "--checkpointed-layers=%" PRId64, s->remade * count_or_one(recipe_chunks(s)));
    else if (s->remade > 1)
        leave_out(r, "recompute_num_layers=%" PRId64 ": the input of each layer is counted", s->remade);
}

static void put_activations(struct estimate_recipe *r, const struct values *s)
{
    const int every = atoi(recipe_text_of(s->remade_every));
    const char *mode = recipe_text_of(s->checkpointing);
    const bool whole = json_is_true(s->checkpointing) || !strcasecmp(mode, "full") || !strcasecmp(mode, "true") ||
                       !strcasecmp(mode, "offload") || !strcasecmp(mode, "unsloth");

    const bool operations = is_written_for(r, "torchtitan") || is_written_for(r, "AutoModel");

    if (s->remade_modules && !is_only_word(s->remade_modules, "core_attn"))
        leave_out(r, "recompute_modules: only core_attn is known");
    if (s->selective > 0 || (!strcasecmp(mode, "selective") && !operations)) {
        if (!s->remade_modules || value_has_word(s->remade_modules, "core_attn"))
            put_recipe_option(r, "--checkpointing=selective");
    } else if (strcasecmp(mode, "selective") == 0 && every > 0) {
        put_recipe_option(r, "--checkpointing=full");
        if (every > 1) put_recipe_option(r, "--checkpoint-every=%d", every);
    } else if (!strcasecmp(mode, "selective"))
        put_recipe_option(r, "--checkpointing=selective-op");
    else if (whole || s->checkpointing_on > 0 ||
             ((is_written_for(r, "LLaMA-Factory") || is_written_for(r, "TRL")) && s->checkpointing_on != 0 &&
              !json_is_false(s->checkpointing)))
        put_recipe_option(r, "--checkpointing=full"); /* the default of these two */
    if (whole) put_some_layers(r, s);
    if (is_written_for(r, "AutoModel") && whole && estimate_recipe_by_module(recipe_text_of(s->model)))
        put_recipe_option(r, "--checkpoint-modules");
    const bool away = s->away > 0 || strcasecmp(mode, "offload") == 0;
    if (away && (s->tp > 1 || s->pp > 1))
        leave_out(r, "offloaded activations");
    else if (away)
        put_recipe_option(r, "--offload-activations");
    if (is_written_for(r, "axolotl") || is_written_for(r, "LLaMA-Factory") || is_written_for(r, "TRL") ||
        is_written_for(r, "torchtune") || is_written_for(r, "torchtitan") || is_written_for(r, "Transformers") ||
        is_written_for(r, "verl"))
        put_recipe_option(r, "--drop-outputs"); /* their loops do so, as Hugging Face's Trainer does */
    if (is_written_for(r, "AutoModel") ||
        strcmp(r->tools, "verl") == 0) /* auto_model.py, dp_actor.py: use_cache=False */
        put_recipe_option(r, "--no-cache");
    if (s->eager > 0 || is_recipe_word(s->attention, "eager") || is_recipe_word(s->attention, "disabled") ||
        (is_recipe_word(s->engine, "local") && s->flash <= 0) || is_recipe_word(s->attention, "unfused") ||
        is_recipe_word(s->attention, "local"))
        put_recipe_option(r, "--attention=eager");
    if (s->liger > 0 || value_has_word(s->plugins, "liger") || s->compiled > 0) put_recipe_option(r, "--fused-layers");
    if (s->compiled > 0 || (s->fused_loss > 0 && !is_recipe_word(s->loss, "te"))) put_recipe_option(r, "--fused-loss");
    if (s->chunked > 0 || s->liger > 0 || value_has_word(s->plugins, "cut_cross_entropy") ||
        value_has_word(s->loss, "chunked") || value_has_word(s->loss, "LinearCrossEntropy"))
        put_recipe_option(r, "--chunked-loss");
}

/* The number of all GPUs; 0: not stated. */
static int64_t recipe_gpus(const struct values *s)
{
    const int64_t divided = count_or_one(s->tp) * count_or_one(s->pp) * count_or_one(s->cp);

    if (s->gpus > 0) return s->gpus;
    if (s->devices > 0 && s->devices < 1 << 20 && s->nodes < 1 << 20) { /* a template's one node can be too few */
        const int64_t n = s->devices * count_or_one(s->nodes);
        return divided < 1 << 20 && n % divided == 0 && n >= count_or_one(s->ep) * count_or_one(s->pp) ? n : 0;
    }
    if (s->shards > 1 && s->shards < 1 << 20 && divided < 1 << 20 && s->replicas < 1 << 20)
        return s->shards * divided * count_or_one(s->replicas);
    return 0;
}

/* Replicas of a sharded model, each of more than one GPU (else they are those of DDP): each GPU has what it has in one
 * of them. */
static int64_t recipe_replicas(const struct values *s)
{
    const int64_t gpus = recipe_gpus(s);

    return s->replicas > 1 && gpus != s->replicas && gpus % s->replicas == 0 ? s->replicas : 1;
}

static void put_sharding(struct estimate_recipe *r, const struct values *s, int64_t gpus)
{
    static const char *const zero[] = {"ddp", "zero1", "zero2", "zero3"};
    const bool fsdp =
                   has_fsdp(s) || is_written_for(r, "torchtitan") || (is_written_for(r, "torchtune") && s->offload > 0),
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
                           : fsdp && (s->fsdp_version == 2 || s->torch_fsdp2 > 0 || is_written_for(r, "torchtitan") ||
                                      is_written_for(r, "torchtune") || value_has_word(s->distribution, "fsdp2") ||
                                      is_recipe_word(s->fsdp, "fsdp2"))
                               ? "fsdp2"
                           : fsdp               ? "fsdp"
                           : s->distributed > 0 ? "zero1"
                                                : NULL;

    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (parts[i].n > 1 || (parts[i].n == 1 && (i >= STAGES || (i == EXPERT_TP && s->tp > 1))))
            put_recipe_option(r, "--%s=%" PRId64, parts[i].option, parts[i].n);
    if (gpus > 1) put_recipe_option(r, "--gpus=%" PRId64, gpus);
    if (s->tp > 1 && (s->sequence_parallel > 0 || is_written_for(r, "torchtitan")))
        put_recipe_option(r, "--sequence-parallel");
    if (sharding) put_recipe_option(r, "--sharding=%s", sharding);
    /* LLaMA-Factory's own FSDP2, as torchtitan's, reduces float32 */
    const bool accelerates =
        is_written_for(r, "axolotl") || is_written_for(r, "TRL") || is_written_for(r, "accelerate");
    if (s->reduces_half > 0 || value_has_word(s->gradients, "16") ||
        (sharding && strcmp(sharding, "fsdp2") == 0 && accelerates && !recipe_adapter_of(s) && s->pure <= 0 &&
         (bf16_is_on(r, s) || fp16_is_on(s))))
        put_recipe_option(r, "--half-reduce");
    if (value_has_word(s->moments, "16")) put_recipe_option(r, "--half-states");
    if (sharding && strcmp(sharding, "fsdp") == 0 && recipe_adapter_of(s)) {
        put_recipe_option(r, "--separate-adapters");
        if (json_is_false(s->reentrant)) put_recipe_option(r, "--no-reentrant");
    }
    const bool divides_batch = s->accumulation <= 0 && s->batch > 0 && s->global_batch > s->batch;
    if ((sharding || divides_batch) && gpus <= 0)
        leave_out(r, "the number of GPUs, which the file does not state: add --gpus N");
    if ((s->offload > 0 || is_on_host(s->offload_param)) && (s->zero == 3 || (fsdp && !grad_op)))
        put_recipe_option(r, "--offload=all");
    else if (is_on_host(s->offload_optimizer))
        put_recipe_option(r, "--offload=optimizer");
}

/* Unless the model's name states the format. */
static void put_served_weights(struct estimate_recipe *r, const char *form)
{
    const char *weights = estimate_recipe_weights(form);

    if (!*form || strcmp(form, "bf16") == 0) return;
    for (size_t i = 0; i < r->options_n; i++)
        if (strncmp(r->option[i], "--weights=", 10) == 0) return;
    if (weights)
        put_recipe_option(r, "--weights=%s", weights);
    else
        leave_out(r, "quantization=%s: add --weights, the format of the checkpoint", form);
}

static void put_serving(struct estimate_recipe *r, const struct values *s)
{
    put_recipe_option(r, "--serve=vllm");
    if (s->share) put_recipe_option(r, "--gpu-memory-utilization=%g", json_number_value(s->share));
    if (s->seq > 0) put_recipe_option(r, "--seq=%" PRId64, s->seq);
    if (s->tp > 1) put_recipe_option(r, "--tp=%" PRId64, s->tp);
    if (s->pp > 1) put_recipe_option(r, "--pp=%" PRId64, s->pp);
    if (value_has_word(s->cache, "fp8")) put_recipe_option(r, "--kv-cache=fp8");
    put_served_weights(r, recipe_text_of(s->quantization));
    if (s->recipe_form) put_served_weights(r, recipe_text_of(s->recipe_form));
    if (s->recipe_form && s->tp <= 1) leave_out(r, "the number of GPUs, which the file does not state: add --tp N");
    if (s->requests > 0) put_recipe_option(r, "--max-num-seqs=%" PRId64, s->requests);
    if (s->pass_tokens > 0) put_recipe_option(r, "--max-num-batched-tokens=%" PRId64, s->pass_tokens);
    if (s->serves_lora > 0) put_recipe_option(r, "--max-loras=%" PRId64, count_or_one(s->lora_slots));
    if (s->serves_lora > 0 && s->slot_rank > 0) put_recipe_option(r, "--lora-rank=%" PRId64, s->slot_rank);
}

static void settle_recipe(struct estimate_recipe *r, const struct values *s, bool model_given)
{
    const char *adapter = recipe_adapter_of(s);
    const int64_t gpus = recipe_gpus(s);
    const int64_t divided = count_or_one(s->tp) * count_or_one(s->pp) * count_or_one(s->cp);

    const bool answers = !says_yes(s->trains) && (s->serves || says_yes(s->predicts)); /* LLaMA-Factory */
    if (!model_given) put_model(r, s, adapter != NULL, answers);
    if (strcmp(r->tools, "vLLM") == 0) {
        put_serving(r, s);
        return;
    }
    if ((s->layers > 0 || is_written_for(r, " on Megatron-LM")) && !has_other_layers(s) &&
        (is_written_for(r, "Megatron-LM") || is_written_for(r, "NeMo")))
        put_recipe_option(r, "--runtime=megatron");
    if (!answers) put_precision(r, s, adapter != NULL);
    if (answers || (is_written_for(r, "torchtune") && !s->optimizer && !s->loss && !adapter)) {
        put_recipe_option(r, "--inference");
        if (s->batch > 0) put_recipe_option(r, "--batch=%" PRId64, s->batch);
        if (s->seq > 0) put_recipe_option(r, "--seq=%" PRId64, s->seq);
        return;
    }
    const bool in_backward = s->step_in_backward > 0 && !adapter && gpus <= 1 && s->accumulation <= 1;
    put_optimizer(r, s, in_backward);
    if (s->step_in_backward > 0 && !in_backward) leave_out(r, "optimizer_in_bwd");
    put_adapter(r, s, adapter);
    put_batches(r, s, gpus > 0 ? gpus / divided : 0);
    note_preference(r, s, adapter != NULL);
    put_activations(r, s);
    put_sharding(r, s, gpus / recipe_replicas(s));
    if (recipe_replicas(s) > 1) leave_out(r, "%" PRId64 " replicas, of which one is estimated", s->replicas);
}

static void add_tool(struct estimate_recipe *r, const char *tool)
{
    const size_t n = strlen(r->tools);

    if (*tool && !strstr(r->tools, tool)) snprintf(r->tools + n, sizeof r->tools - n, "%s%s", n ? ", " : "", tool);
}

bool estimate_recipe_read(const char *command, const char *const *paths, size_t n, bool model_given, uint64_t gpus,
                          struct estimate_recipe *r)
{
    json_t *roots[16], *named = NULL;
    struct values values;
    unsigned left = KEYS_MAX;
    size_t read = 0;
    char why[200] = "";

    *r = (struct estimate_recipe){.options_n = 0};
    memset(&values, 0, sizeof values);
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (keys[i].kind != TEXT && keys[i].kind != NOTHING)
            memcpy((char *)&values + keys[i].at, &(int64_t){UNSET}, sizeof(int64_t));
    for (; read < n && read < COUNT_OF(roots); read++) {
        roots[read] = estimate_recipe_load(paths[read], why, sizeof why);
        if (!roots[read]) break;
        add_tool(r, estimate_recipe_tool(roots[read]));
        walk_recipe(r, &values, roots[read], "", &left);
    }
    const bool all = read == n;
    if (!all)
        complain("%s: --config: cannot read '%s': %s", command, paths[read], *why ? why : "too many files; at most 16");
    if (all && *recipe_text_of(values.deepspeed) && values.zero < 0) {
        named = estimate_recipe_load_named(paths[0], recipe_text_of(values.deepspeed));
        if (named) {
            add_tool(r, "DeepSpeed");
            walk_recipe(r, &values, named, "", &left);
        } else {
            values.zero = estimate_recipe_stage_named(recipe_text_of(values.deepspeed));
            leave_out(r, "%s, which was not found: its stage is taken from its name", recipe_text_of(values.deepspeed));
        }
    }
    if (all && !*r->tools)
        complain("%s: --config: '%s' is not the configuration of a tool that gpuspy knows ('gpuspy help estimate' "
                 "lists them); "
                 "give a model's config.json with --model",
                 command, paths[0]);
    const bool known = all && *r->tools;
    if (gpus && gpus <= INT64_MAX) values.gpus = (int64_t)gpus;
    if (is_written_for(r, "OpenRLHF") && values.rank > 0) values.lora = 1;
    const char *each = strchr(recipe_text_of(values.accelerators), ':');
    if (each && values.devices <= 0) values.devices = strtoll(each + 1, NULL, 10);
    if (known) settle_recipe(r, &values, model_given);
    for (size_t i = 0; i < read; i++) json_decref(roots[i]);
    json_decref(named);
    return known;
}

void estimate_recipe_free(struct estimate_recipe *r)
{
    for (size_t i = 0; i < r->options_n; i++) free(r->option[i]);
    for (size_t i = 0; i < r->unused_n; i++) free(r->unused[i]);
    *r = (struct estimate_recipe){.options_n = 0};
}
