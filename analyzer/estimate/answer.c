#include "analyzer/estimate/answer.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/unstated.h"
#include "schema/shell_word.h"

#define PART(id, key, title) key,
const char *const estimate_part_key[] = {ESTIMATE_PARTS(PART)};
#undef PART
#define PART(id, key, title) title,
const char *const estimate_part_title[] = {ESTIMATE_PARTS(PART)};
#undef PART
#define PHASE(id, key, title) key,
const char *const estimate_phase_key[] = {ESTIMATE_PHASES(PHASE)};
#undef PHASE
#define PHASE(id, key, title) title,
const char *const estimate_phase_title[] = {ESTIMATE_PHASES(PHASE)};
#undef PHASE

struct estimate_interval estimate_answer_part(const struct estimate_result *r, enum estimate_part part,
                                              unsigned *phases)
{
    struct estimate_interval most = {0};

    *phases = 0;
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        struct estimate_interval sum = {0};
        if (r->phase[phase].high <= 0) continue;
        EACH_IN (line, r->lines) {
            if (line->part == part && !line->host && (line->phases & 1u << phase)) {
                sum = estimate_interval_add(sum, line->bytes);
                *phases |= 1u << phase;
            }
        }
        if (sum.likely > most.likely || (sum.likely == most.likely && sum.high > most.high)) most = sum;
    }
    return most;
}

double estimate_answer_state_bytes(const struct estimate_answer *a)
{
    static const enum estimate_part states[] = {ESTIMATE_WEIGHTS,   ESTIMATE_MASTER,   ESTIMATE_GRADIENTS,
                                                ESTIMATE_OPTIMIZER, ESTIMATE_ADAPTERS, ESTIMATE_EMA};
    double sum = 0;

    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        unsigned phases;
        sum += estimate_answer_part(&a->result, states[i], &phases).likely;
    }
    return sum;
}

bool estimate_answer_lacks_activations(const struct estimate_answer *a)
{
    unsigned phases;

    return estimate_answer_part(&a->result, ESTIMATE_ACTIVATIONS, &phases).high <= 0 &&
           estimate_answer_part(&a->result, ESTIMATE_LOGITS, &phases).high <= 0;
}

double estimate_answer_host_bytes(const struct estimate_result *r)
{
    double sum = 0;

    for (size_t i = 0; i < r->lines_n; i++) sum += r->lines[i].host ? r->lines[i].bytes.likely : 0;
    return sum;
}

static bool too_much(const char *command)
{
    return complain_with(false, "%s: this needs more than 2^63 bytes on one GPU; check the numbers", command);
}

/* The plan on another GPU. */
static bool compare_with_gpu(const struct estimate_answer *a, const struct estimate_gpu *gpu, double memory,
                             struct estimate_target *t)
{
    static struct estimate_result other;
    const struct estimate_result *r = &a->result;
    struct plan on = a->plan;

    on.gpu = gpu;
    on.memory = memory;
    if (gpu != a->plan.gpu || memory != a->plan.memory) {
        if (!estimate_make(&on, &other)) return false;
        r = &other;
    }
    *t = (struct estimate_target){.gpu = gpu, .memory = memory, .peak = r->peak, .fit = estimate_fit(r, memory)};
    memcpy(t->part, r->part, sizeof t->part);
    if (on.share > 0 && !estimate_server(&on, memory, &t->server)) t->server.request = 0;
    return true;
}

#define WORD(id, word, what) word,
static const char *const attentions[] = {PLAN_ATTENTIONS(WORD)}, *const checkpoints[] = {PLAN_CHECKPOINTS(WORD)},
                         *const steps[] = {PLAN_STEPS(WORD)}, *const adapters[] = {PLAN_ADAPTERS(WORD)},
                         *const frozen[] = {PLAN_FROZEN(WORD)}, *const saved[] = {PLAN_SAVED(WORD)};
#undef WORD

/* " --model gpt2 --batch 8 --seq 1024": what the estimate depends on, as options of gpuspy report. Empty if it has no
 * such options: for several GPUs, offload and diffusion models. */
static void format_beside_model(const struct plan *p, const char *model, char *out, size_t size)
{
    char targets[ESTIMATE_MATRICES_TEXT];
    size_t at;

    out[0] = 0;
    if (p->gpus > 1 || p->offload != PLAN_OFFLOAD_NONE || p->model->shape.family == MODEL_DENOISER) return;
    at = model ? (size_t)snprintf(out, size, " --model %s", model)
               : (size_t)snprintf(out, size, " --params %ju", (uintmax_t)p->model->params);

    if (at < size)
        at += (size_t)snprintf(out + at, size - at, " --precision %s --optimizer %s%s", p->precision->name,
                               p->optimizer->name, p->master_weights ? " --master-weights" : "");
    if (p->batch && at < size) at += (size_t)snprintf(out + at, size - at, " --batch %ju", (uintmax_t)p->batch);
    if (p->batch && p->seq && at < size) at += (size_t)snprintf(out + at, size - at, " --seq %ju", (uintmax_t)p->seq);
    if (p->accumulation > 1 && at < size)
        at += (size_t)snprintf(out + at, size - at, " --accumulation %ju", (uintmax_t)p->accumulation);
    const struct {
        bool given;
        const char *option, *word;
    } words[] = {
        {p->attention != PLAN_ATTENTION_FLASH, "attention", attentions[p->attention]},
        {p->checkpoint != PLAN_CHECKPOINT_NONE, "checkpointing", checkpoints[p->checkpoint]},
        {p->by_module, "checkpoint-modules", NULL},
        {p->step != PLAN_STEP_FOREACH, "step", steps[p->step]},
        {p->fused_layers, "fused-layers", NULL},
        {p->fused_norms, "fused-norms", NULL},
        {p->fused_loss, "fused-loss", NULL},
        {p->chunked_loss, "chunked-loss", NULL},
        {p->away, "offload-activations", NULL},
        {p->varying_lengths, "varying-lengths", NULL},
        {p->drop_outputs, "drop-outputs", NULL},
        {p->late_zero_grad, "late-zero-grad", NULL},
        {p->no_cache, "no-cache", NULL},
        {p->expandable, "expandable-segments", NULL},
        {p->torch, "torch", p->torch},
        {p->transformers, "transformers", p->transformers_text},
        {p->bitsandbytes, "bitsandbytes", p->bitsandbytes_text},
        {p->model->shape.masked_lm, "masked-lm", NULL},
        {p->ema, "ema", NULL},
        {p->frozen != PLAN_FROZEN_NONE, "frozen", frozen[p->frozen]},
        {p->adapter != PLAN_ADAPTER_NONE, "adapter", adapters[p->adapter]},
        {p->adapter != PLAN_ADAPTER_NONE && p->targets != estimate_adapter_usual_matrices(p), "target",
         estimate_adapter_name_matrices(p->targets, targets)},
        {p->weights, "weights", p->weights ? p->weights->word : NULL},
        {p->saved != PLAN_SAVED_NONE, "modules-to-save", saved[p->saved]},
        {p->half_adapters, "half-adapters", NULL},
        {p->quantised_experts, "quantised-experts", NULL},
        {p->half_states, "half-states", NULL},
        {p->dropout != PLAN_DROPOUT_UNKNOWN, "lora-dropout", p->dropout == PLAN_DROPOUT_SOME ? "0.05" : "0"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words && at < size; i++)
        if (words[i].given)
            at += (size_t)snprintf(out + at, size - at, " --%s%s%s", words[i].option, words[i].word ? " " : "",
                                   words[i].word ? words[i].word : "");
    if (p->remade && at < size)
        at += (size_t)snprintf(out + at, size - at, " --checkpointed-layers %ju", (uintmax_t)p->remade);
    if (p->remade_every && at < size)
        at += (size_t)snprintf(out + at, size - at, " --checkpoint-every %ju", (uintmax_t)p->remade_every);
    if (estimate_adapter_option(p) && p->rank != estimate_adapter_kind(p)->size && at < size)
        snprintf(out + at, size - at, " --%s %ju", estimate_adapter_option(p), (uintmax_t)p->rank);
}

/* Finds what would help on the first target whose verdict is not "fits". */
static bool find_changes(struct estimate_answer *a)
{
    static struct estimate_result other_result;
    struct plan on = a->plan;

    for (size_t i = a->targets_n; i-- > 0;)
        if (a->targets[i].fit.verdict != FIT_YES) a->helped = i;
    if (a->helped == 0 || !(a->plan.memory > 0)) { /* the plan's own GPU, or too many GPUs to choose one */
        estimate_find_changes(&a->plan, &a->result, &a->changes);
        return true;
    }
    on.gpu = a->targets[a->helped].gpu;
    on.memory = a->targets[a->helped].memory;
    if (!estimate_make(&on, &other_result)) return false;
    estimate_find_changes(&on, &other_result, &a->changes);
    return true;
}

static void note_assumed(struct estimate_answer *a)
{
    if (a->plan.pp > 1)
        estimate_note(&a->result, "the figures are for pipeline stage %ju of %ju, the fullest",
                      (uintmax_t)a->result.stage + 1, (uintmax_t)a->plan.pp);
    if (a->plan.inference && plan_dp(&a->plan) > 1 && a->plan.ep == 1)
        estimate_note(&a->result, "%ju GPUs serve %ju copies of the model; --tp and --pp divide a copy among GPUs",
                      (uintmax_t)a->plan.gpus, (uintmax_t)plan_dp(&a->plan));
    if (a->plan.model->tensors_n == 1 && a->plan.sharding == PLAN_SHARDING_ZERO3 && !a->plan.inference)
        estimate_note(&a->result, "the weights gathered for a layer are left out: a number of parameters does not "
                                  "determine a layer's size");
    if (a->plan.model->shape.family == MODEL_UNKNOWN && (a->plan.batch || a->plan.seq))
        estimate_note(&a->result, "--batch and --seq have no effect without a shape: add --model or --layers, "
                                  "--hidden, --heads");
    if (a->assumed.batch && a->assumed.seq)
        estimate_note(&a->result, "assumed: --batch %ju --seq %ju", (uintmax_t)a->plan.batch, (uintmax_t)a->plan.seq);
    else if (a->assumed.batch)
        estimate_note(&a->result, "assumed: --batch %ju", (uintmax_t)a->plan.batch);
    else if (a->assumed.seq)
        estimate_note(&a->result, "assumed: --seq %ju", (uintmax_t)a->plan.seq);
}

bool estimate_answer_build(const char *command, const struct plan *plan, const struct estimate_answer_request *wish,
                           struct estimate_answer *a)
{
    const struct estimate_gpu *const *named = wish->gpus;
    size_t n = wish->gpus_n;

    *a = (struct estimate_answer){.plan = *plan};
    plan_assume(&a->plan, &a->assumed);
    if (n > 0 && n <= ANSWER_FEW) {
        a->plan.gpu = named[0];
        a->plan.memory = plan->memory > 0 ? plan->memory : estimate_fit_usable(named[0]);
    }
    if (!estimate_make(&a->plan, &a->result)) return too_much(command);
    a->floor = estimate_floor(plan->model, plan->optimizer, plan->precision, plan->master_weights);
    a->targets_n = n ? n : plan->memory > 0;
    a->targets = arena_zeroed(a->targets_n + 1, sizeof *a->targets);
    for (size_t i = 0; i < a->targets_n; i++)
        if (!compare_with_gpu(a, n ? named[i] : NULL, plan->memory > 0 ? plan->memory : estimate_fit_usable(named[i]),
                              &a->targets[i]))
            return too_much(command);
    if (a->plan.share > 0 && !a->targets_n) {
        return complain_with(false, "%s: --serve: the size of the cache depends on the GPU; add --gpu or --memory",
                             command);
    }
    estimate_wires_build(&a->plan, wish->network, &a->wires);
    if (!wish->lines && !find_changes(a)) return too_much(command);
    note_assumed(a);
    if (!wish->lines) estimate_note_unstated(&a->plan, wish->argc, wish->argv, &a->result);
    a->argc = wish->argc;
    a->argv = wish->argv;
    format_beside_model(&a->plan, wish->model, a->beside, sizeof a->beside);
    a->solved = wish->solve >= 0;
    if (a->solved && n > ANSWER_FEW && !(a->plan.memory > 0)) {
        return complain_with(false, "%s: --solve takes one GPU, and these are %zu; name one, such as --gpu h100-80g",
                             command, n);
    }
    if (a->solved && !estimate_solve(command, &a->plan, (enum estimate_solve_what)wish->solve, &a->solution))
        return false;
    return true;
}

void estimate_answer_free(struct estimate_answer *a)
{
    free(a->targets);
    a->targets = NULL;
    a->targets_n = 0;
}

bool estimate_answer_fits(const struct estimate_answer *a)
{
    bool fits = a->targets_n == 0;

    for (size_t i = 0; i < a->targets_n; i++) fits = fits || a->targets[i].fit.verdict != FIT_NO;
    return fits;
}

/* Whether `word` is an option in `options` ("--batch 1 --ema without --tied"). `value`: whether the next word is its
 * value. */
static bool is_option_replaced(const char *word, const char *options, bool *value)
{
    size_t n = strcspn(word, "=");

    for (const char *p = options; n > 2 && strncmp(word, "--", 2) == 0 && (p = strstr(p, "--")); p += 2) {
        if (strncmp(p, word, n) != 0 || (p[n] && p[n] != ' ')) continue;
        *value = p[n] && strncmp(p + n, " --", 3) != 0 && !word[n];
        return true;
    }
    return false;
}

char *estimate_answer_command(const struct estimate_answer *a, const char *options, char *out, size_t size)
{
    static const char shown[] = "--solve WORD --html FILE --color WHEN --json --csv --no-pager --explain";
    size_t at = (size_t)snprintf(out, size, "gpuspy estimate");

    for (int i = 0; i < a->argc && at < size; i++) {
        char word[512];
        bool value = false, option = a->argv[i][0] == '-';
        if (is_option_replaced(a->argv[i], options, &value) || is_option_replaced(a->argv[i], shown, &value)) {
            i += value;
            continue;
        }
        at += (size_t)snprintf(out + at, size - at, " %s",
                               option ? gs_shell_word(word, sizeof word, a->argv[i])
                                      : text_path_here(word, sizeof word, a->argv[i]));
    }
    /* "without --master-weights": the loop above already left it out */
    for (const char *p = options; *p && at < size;) {
        size_t n = strcspn(p, " ");
        if (strncmp(p, "without ", 8) == 0)
            n += 1 + strcspn(p + n + 1, " ");
        else
            at += (size_t)snprintf(out + at, size - at, " %.*s", (int)n, p);
        p += n + (p[n] == ' ');
    }
    return out;
}

char *estimate_answer_way(const struct estimate_answer *a, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (size_t i = 0; i < a->changes.way_n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? " " : "", a->changes.way[i].option);
    return out;
}
