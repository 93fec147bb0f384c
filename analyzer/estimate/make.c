/* From a plan to lines, phases and the peak. */
#include <math.h>
#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/base/arena.h"
#include "analyzer/estimate/calibration.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/shard.h"

#define TOO_MUCH 9.2e18 /* 2^63 bytes */

static void add_up_phases(const struct plan *p, struct estimate_result *r)
{
    unsigned occurring = estimate_phases(p);

    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        for (size_t i = 0; i < r->lines_n && (occurring & 1u << phase); i++)
            if (!r->lines[i].host && (r->lines[i].phases & 1u << phase))
                r->phase[phase] = estimate_interval_add(r->phase[phase], r->lines[i].bytes);
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        if (r->phase[phase].likely > r->phase[r->peak_phase].likely) r->peak_phase = phase;
    r->peak = r->phase[r->peak_phase];
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) { /* another phase may have the larger low or high end */
        r->peak.low = r->phase[phase].low > r->peak.low ? r->phase[phase].low : r->peak.low;
        r->peak.high = r->phase[phase].high > r->peak.high ? r->phase[phase].high : r->peak.high;
    }
    for (size_t i = 0; i < r->lines_n; i++)
        if (!r->lines[i].host && (r->lines[i].phases & 1u << r->peak_phase))
            r->part[r->lines[i].part] = estimate_interval_add(r->part[r->lines[i].part], r->lines[i].bytes);
}

static void add_notes(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;

    if (s->context && s->vocab && p->seq > s->context)
        estimate_note(r, "--seq %ju is longer than the %ju tokens that the model was trained for", (uintmax_t)p->seq,
                      (uintmax_t)s->context);
    if (!p->inference && p->pp > 1 && p->batch && p->accumulation < p->pp)
        estimate_note(
            r,
            "with --accumulation %ju, that many micro-batches are in flight; --accumulation %ju would fill the "
            "%ju pipeline stages and need more memory",
            (uintmax_t)p->accumulation, (uintmax_t)p->pp, (uintmax_t)p->pp);
    if (!p->inference && p->pp > 1 && plan_dp(p) > 1 && p->sharding >= PLAN_SHARDING_ZERO2 && !p->fsdp) {
        /* PipelineEngine.__init__ asserts it (deepspeed/runtime/pipe/engine.py) */
        estimate_note(r,
                      "--sharding %s with --pp means FSDP: DeepSpeed refuses ZeRO-2 and ZeRO-3 with pipelines; for "
                      "DeepSpeed and Megatron-LM use --sharding zero1",
                      p->sharding == PLAN_SHARDING_ZERO2 ? "zero2" : "zero3");
        if (p->sharding ==
            PLAN_SHARDING_ZERO3) /* torchtitan/distributed/fsdp.py: reshard_after_forward = not pp_enabled */
            estimate_note(
                r, "With --pp, torchtitan keeps gathered weights from forward until backward, much like --sharding "
                   "zero2, unless fsdp_reshard_after_forward is \"always\"");
    }
    if (p->prepared_remakes)
        estimate_note(r, "peft's prepare_model_for_kbit_training turns on checkpointing; --checkpointing none is for "
                         "use_gradient_checkpointing=False");
    if (p->model->shape.tower)
        estimate_note(r, "Of the image tower only the weights%s are counted: the memory that images need is left out",
                      p->inference || p->frozen == PLAN_FROZEN_TOWER || p->adapter != PLAN_ADAPTER_NONE
                          ? ""
                          : ", gradients and states");
    if (s->stored && p->inference && !p->weights)
        estimate_note(r, "The published checkpoint has weights in %s; here they are in 16 or 32 bits: --weights %s",
                      s->stored, s->stored);
    if (*p->model->note) estimate_note(r, "%s", p->model->note);
}

/* DeepSpeed moves a model that was not made inside zero.Init to the GPU as it is, and divides it there
 * (runtime/engine.py, _configure_distributed_model). */
static bool may_come_whole(const struct plan *p)
{
    return !p->inference && p->sharding == PLAN_SHARDING_ZERO3 && p->master_weights && !p->fsdp &&
           p->runtime != PLAN_RUNTIME_MEGATRON;
}

static double whole_model(const struct plan *p, uint64_t stage)
{
    return estimate_shard_sum(p, stage, NULL).all * p->precision->weights;
}

/* High: that moment, if a step needs less. Not where the GPU has no room for it: such a training uses zero.Init. */
static void add_whole_model(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    double more = whole_model(p, stage);
    struct estimate_line *line;

    if (!may_come_whole(p) || (p->memory > 0 && more > p->memory)) return;
    EACH_IN (l, r->lines)
        if (!l->host && l->phases & IN_PHASE(FORWARD) && l->part != ESTIMATE_CONTEXT &&
            l->part != ESTIMATE_COMMUNICATION && l->part != ESTIMATE_ALLOCATOR)
            more -= l->bytes.high;
    if (more < 1) return;
    line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(FORWARD), "the whole model, before it is divided",
                        (struct estimate_interval){0, 0, ceil(more)});
    estimate_explain(line, "DeepSpeed runtime/engine.py: _configure_distributed_model",
                     "%.2f GiB, minus what forward needs at most", whole_model(p, stage) / 0x1p30);
    line->why = "none with deepspeed.zero.Init";
}

static void note_whole_model(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const double whole = whole_model(p, stage);

    if (!may_come_whole(p) || whole <= r->peak.likely) return;
    estimate_note(
        r,
        "DeepSpeed first puts the whole model, %s, on each GPU unless it is made inside deepspeed.zero.Init, as "
        "transformers does if TrainingArguments exist before the model",
        UNITS_BYTES(units_whole(whole)));
}

static void make_stage(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    memset(r, 0, sizeof *r);
    r->stage = stage;
    r->peak_phase = !p->inference                              ? PHASE_FORWARD
                    : p->model->shape.family == MODEL_DENOISER ? PHASE_DENOISE
                                                               : PHASE_PREFILL;
    estimate_states(p, stage, r);
    estimate_adapters(p, stage, r);
    estimate_activations(p, stage, r);
    estimate_calibrate(p, r);
    estimate_serving(p, stage, r);
    estimate_fixed(p, stage, r);
    add_whole_model(p, stage, r);
    add_notes(p, r);
    for (size_t i = 0; i < r->lines_n; i++) /* low equals high: a share of nothing, or equal variants */
        if (!(r->lines[i].bytes.low < r->lines[i].bytes.high)) r->lines[i].why = NULL;
    add_up_phases(p, r);
    note_whole_model(p, stage, r);
}

static bool layers_differ(const struct model *m)
{
    return ANY_IN(t, m->tensors, t->kind && t->place == TENSOR_IN_LAYER);
}

/* The first stage holds the embedding and most micro-batches, the last the logits. A stage between them has fewer
 * micro-batches than those before it: it can be the fullest only with more parameters than all of them, for example if
 * the first layers have no experts. */
bool estimate_make(const struct plan *p, struct estimate_result *r)
{
    static struct estimate_result other;
    bool between = p->pp > 2 && (layers_differ(p->model) || p->first_layers || p->last_layers ||
                                 p->model->shape.layers % (p->pp * p->interleave));
    double most = 0, high = 0;

    for (uint64_t stage = 0; stage < p->pp; stage = between || stage + 1 == p->pp ? stage + 1 : p->pp - 1) {
        double params = between ? estimate_shard_sum(p, stage, NULL).all : 1;
        if (params <= most && stage + 1 < p->pp) continue;
        most = params > most ? params : most;
        make_stage(p, stage, stage ? &other : r);
        high = fmax(high, (stage ? &other : r)->peak.high);
        if (stage && other.peak.likely > r->peak.likely) *r = other;
    }
    r->peak.high = high;            /* of any stage: that fits, too, if the high end does */
    return r->peak.high < TOO_MUCH; /* also false for NaN */
}
