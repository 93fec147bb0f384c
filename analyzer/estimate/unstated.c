#include "analyzer/estimate/unstated.h"

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

    for (size_t i = 0; p->batch && i < sizeof rows / sizeof *rows; i++) {
        struct plan changed = *p;
        if (!rows[i].applies(p) || is_typed(rows[i].option, argc, argv)) continue;
        rows[i].change(&changed);
        if (!plan_possible(&changed) || !estimate_make(&changed, &other) || other.peak.high <= SHOWN * r->peak.high ||
            (p->memory > 0 && estimate_fit(&other, p->memory).verdict <= estimate_fit(r, p->memory).verdict))
            continue;
        estimate_note(r, "the high end becomes %s if %s: %s", UNITS_BYTES(units_whole(other.peak.high)), rows[i].words,
                      rows[i].option);
    }
}
