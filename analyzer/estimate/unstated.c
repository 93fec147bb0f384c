#include "analyzer/estimate/unstated.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/estimate/fit.h"

#define SHOWN 1.05 /* times the high end: smaller differences are not noted */

/* Servers and Megatron-LM bring their own attention; of diffusion models only UNets had none but eager. */
static bool may_be_eager(const struct plan *p)
{
    const enum model_family family = p->model->shape.family;

    return p->attention == PLAN_ATTENTION_FLASH && !p->transformers && p->share <= 0 && !plan_is_megatron(p) &&
           family != MODEL_UNKNOWN && family != MODEL_CONV &&
           (family != MODEL_DENOISER || p->model->shape.denoiser.levels);
}

static bool may_vary(const struct plan *p)
{
    return !p->inference && !p->varying_lengths && p->seq > 1 && p->model->shape.vocab &&
           p->model->shape.family != MODEL_DENOISER && !plan_is_megatron(p);
}

/* FSDP's and DeepSpeed's gradients are other tensors than those that zero_grad() keeps. */
static bool may_zero(const struct plan *p)
{
    return !p->inference && !p->torch && !plan_keeps_gradients(p) && p->step != PLAN_STEP_IN_BACKWARD && !p->fsdp &&
           !p->master_weights && p->sharding == PLAN_SHARDING_DDP;
}

static void set_eager(struct plan *p)
{
    p->attention = PLAN_ATTENTION_EAGER;
}

static void set_varying(struct plan *p)
{
    p->varying_lengths = PLAN_RECORDS;
}

static void set_zeroed(struct plan *p)
{
    p->zeroes_gradients = true;
}

static bool is_typed(const char *option, int argc, char **argv)
{
    const size_t n = strcspn(option, " ");

    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], option, n) == 0 && (!argv[i][n] || argv[i][n] == '=')) return true;
    return false;
}

static bool is_same_estimate(const struct estimate_result *a, const struct estimate_result *b)
{
    bool same = a->lines_n == b->lines_n;

    for (size_t i = 0; same && i < a->lines_n; i++) {
        const struct estimate_line *x = &a->lines[i], *y = &b->lines[i];
        same = x->part == y->part && x->phases == y->phases && x->host == y->host && x->bytes.low == y->bytes.low &&
               x->bytes.likely == y->bytes.likely && x->bytes.high == y->bytes.high;
    }
    return same;
}

/* Options that change no line of this estimate. Each is left out, if its value is one that a plan can be without. */
static void note_without_effect(const struct plan *p, int argc, char **argv, struct estimate_result *r)
{
    static struct estimate_result other;
#define FIELD(member) offsetof(struct plan, member), sizeof((struct plan *)0)->member
    static const struct {
        const char *option;
        size_t at, size; /* 0: without effect in inference */
    } rows[] = {{"--fused-layers", FIELD(fused_layers)},
                {"--fused-norms", FIELD(fused_norms)},
                {"--fused-loss", FIELD(fused_loss)},
                {"--chunked-loss", FIELD(chunked_loss)},
                {"--offload-activations", FIELD(away)},
                {"--varying-lengths", FIELD(varying_lengths)},
                {"--no-cache", FIELD(no_cache)},
                {"--checkpoint-modules", FIELD(by_module)},
                {"--drop-outputs", FIELD(drop_outputs)},
                {"--late-zero-grad", FIELD(late_zero_grad)},
                {"--expandable-segments", FIELD(expandable)},
                {"--no-reentrant", FIELD(not_reentrant)},
                {"--checkpointing", FIELD(checkpoint)},
                {"--bucket-view", FIELD(bucket_view)},
                {"--sharding", FIELD(sharding)}, /* with one GPU */
                {"--sequence-parallel", FIELD(sequence_parallel)},
                {"--half-reduce", FIELD(half_reduce)},
                {"--half-states", FIELD(half_states)},
                {"--half-adapters", FIELD(half_adapters)},
                {"--quantised-experts", FIELD(quantised_experts)},
                {"--frozen", FIELD(frozen)},
                {"--lora-dropout", FIELD(dropout)},
                {"--modules-to-save", FIELD(saved)},
                {"--kv-cache", FIELD(cache)},
                {"--cache-block", FIELD(cache_block)},
                {"--vae", FIELD(decoding)},
                {"--text-weights", FIELD(text_weights)},
                {"--optimizer", 0, 0},
                {"--step", 0, 0}};
#undef FIELD
    char names[160] = "";

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan changed = *p;
        if (!is_typed(rows[i].option, argc, argv) || (!rows[i].size && !p->inference)) continue;
        memset((char *)&changed + rows[i].at, 0, rows[i].size);
        const bool same = rows[i].size == 0 || (memcmp(&changed, p, sizeof changed) != 0 && plan_possible(&changed) &&
                                                estimate_make(&changed, &other) && is_same_estimate(&other, r));
        const size_t n = strlen(names);
        if (same) snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", rows[i].option);
    }
    if (*names) estimate_note(r, "without effect here: %s", names);
}

void estimate_note_unstated(const struct plan *p, int argc, char **argv, struct estimate_result *r)
{
    static struct estimate_result other;
    static const struct {
        const char *option, *words;
        bool (*applies)(const struct plan *p);
        void (*change)(struct plan *p);
    } rows[] = {
        {"--attention eager", "attention is eager (no sdpa in the model's class, output_attentions=True)", may_be_eager,
         set_eager},
        {"--varying-lengths", "samples have all lengths up to --seq", may_vary, set_varying},
        {"--torch 1.13", "gradients are zeroed, not freed (PyTorch before 2.0, set_to_none=False)", may_zero,
         set_zeroed},
    };

    /* then no other setting makes the verdict worse */
    const bool worst = p->memory > 0 && estimate_fit(r, p->memory).verdict == FIT_NO;

    for (size_t i = 0; p->batch && !worst && i < sizeof rows / sizeof *rows; i++) {
        struct plan changed = *p;
        if (!rows[i].applies(p) || is_typed(rows[i].option, argc, argv)) continue;
        rows[i].change(&changed);
        if (!plan_possible(&changed) || !estimate_make(&changed, &other) || other.peak.high <= SHOWN * r->peak.high ||
            (p->memory > 0 && estimate_fit(&other, p->memory).verdict <= estimate_fit(r, p->memory).verdict))
            continue;
        estimate_note(r, "the high end becomes %s if %s: %s", UNITS_BYTES(units_whole(other.peak.high)), rows[i].words,
                      rows[i].option);
    }
    note_without_effect(p, argc, argv, r);
}
