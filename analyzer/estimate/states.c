/* Weights, gradients, optimizer states: what does not depend on the batch.
 *
 * Each GPU of a pipeline stage holds its part by tensor and expert parallelism (shard.c). ZeRO's stage determines what
 * of that is divided again among the GPUs with other data: 1 optimizer states and master weights, 2 gradients too, 3
 * weights too (Rajbhandari et al. 2020, section 5). */

#include <math.h>
#include <stdio.h>
#include "analyzer/base/units.h"
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/states.h"

#define BUCKET 5e8   /* elements: DeepSpeed's reduce_bucket_size */
#define LIVE 1e9     /* elements: DeepSpeed's stage3_max_live_parameters */
#define FSDP_UNITS 3 /* whole at once: the one that runs, and two gathers in flight (torch fsdp/_limiter_utils.py) */
#define TILE 1e9     /* elements: DeepSpeed's sub_group_size */

static const char zero[] = "ZeRO, Rajbhandari et al. 2020, section 3.1 and 5";

struct estimate_local_params estimate_local_params(const struct plan *p, uint64_t stage)
{
    const struct estimate_shard_sum sum = estimate_shard_sum(p, stage, NULL);

    return (struct estimate_local_params){.dense = sum.dense, .experts = sum.experts};
}

double estimate_states_element(const struct plan *p)
{
    return p->half_states ? 2 : p->master_weights ? 4 : p->precision->weights;
}

/* "8,030,261,248 parameters · 2 B", "… (dense) + … (experts)", and the number of GPUs that divide them. */
void estimate_states_explain(struct estimate_line *line, const char *source, const struct plan *p,
                             const struct estimate_shard_sum *n, const char *each, bool divided)
{
    char dense[UNITS_TEXT], parts[128] = "", of_experts[64] = "";
    double group = estimate_shard_group(p, false), expert_group = estimate_shard_group(p, true);

    divided = divided && group > 1;
    units_format_count(dense, units_whole(n->dense));
    if (p->ep > 1 || plan_expert_tp(p) != p->tp)
        snprintf(of_experts, sizeof of_experts, ", ep %ju, expert-tp %ju", (uintmax_t)p->ep,
                 (uintmax_t)plan_expert_tp(p));
    if (p->tp > 1 || p->pp > 1)
        snprintf(parts, sizeof parts, " (tp %ju, pp %ju%s)", (uintmax_t)p->tp, (uintmax_t)p->pp, of_experts);
    if (n->experts > 0 && divided && group != expert_group)
        estimate_explain(line, source, "(%s parameters / %.0f GPUs + %s of experts%s / %.0f GPUs) · %s", dense, group,
                         UNITS_COUNT(units_whole(n->experts)), parts, expert_group, each);
    else if (divided)
        estimate_explain(line, source, "%s parameters%s · %s / %.0f GPUs",
                         units_format_count(dense, units_whole(n->all)), parts, each, group);
    else
        estimate_explain(line, source, "%s parameters%s · %s", units_format_count(dense, units_whole(n->all)), parts,
                         each);
}

static double part_of(const struct estimate_shard_sum *n, bool divided)
{
    return divided ? n->own : n->all;
}

static void add_weight_lines(const struct plan *p, const struct estimate_shard_sum *n, struct estimate_result *r)
{
    bool divided = p->sharding == PLAN_SHARDING_ZERO3 || estimate_shard_gathers_until_backward(p);
    double bytes = ceil(part_of(n, divided) * p->precision->weights);
    struct estimate_line *line;
    char each[32];

    line = estimate_add(r, ESTIMATE_WEIGHTS, IN_TRAINING, "weights", EXACTLY(bytes));
    line->host = p->offload == PLAN_OFFLOAD_ALL;
    snprintf(each, sizeof each, "%u B", p->precision->weights);
    estimate_states_explain(line, p->precision->source, p, n, each, divided);
}

/* What float32 needs in addition to the gradients' 16 bits, if they are summed in float32. */
static void add_main_gradients(const struct plan *p, const struct estimate_shard_sum *n, bool divided, unsigned phases,
                               struct estimate_result *r)
{
    unsigned more = 4 - p->precision->gradients;
    bool likely = plan_sums_in_float32(p), sure = likely && p->runtime == PLAN_RUNTIME_MEGATRON;
    double bytes = ceil(part_of(n, divided) * more);
    struct estimate_line *line;
    char each[32];

    if (likely && p->half_reduce) return;
    if (!likely) /* the step has its own line */
        phases &= ~IN_PHASE(STEP);
    line = estimate_add(r, ESTIMATE_GRADIENTS, phases, "float32 instead of 16 bits",
                        (struct estimate_interval){sure ? bytes : 0, likely ? bytes : 0, bytes});
    snprintf(each, sizeof each, "%u B", more);
    estimate_states_explain(
        line, "Megatron-LM training/arguments.py: accumulate_allreduce_grads_in_fp32; DeepSpeed grad_accum_dtype", p, n,
        each, divided);
    line->why = likely ? "Megatron-LM sums bfloat16 gradients in float32, except with --grad-reduce-in-bf16"
                       : "Megatron-LM, and DeepSpeed with grad_accum_dtype fp32, sum gradients in float32";
}

/* Bytes per parameter of FSDP's units that are gathered or reduced. */
static double unit_element(const struct plan *p)
{
    return p->precision->cast == PRECISION_CAST_AUTOCAST ? 2 : p->precision->weights;
}

/* Bytes of a whole gradient: the first version sums and reduces what it computes with (accelerate: MixedPrecision's
 * reduce_dtype), the second what MixedPrecisionPolicy's reduce_dtype says. */
static double reduced_element(const struct plan *p)
{
    return p->flat || p->half_reduce ? unit_element(p) : p->precision->gradients;
}

/* In a pipeline they surely stay: PyTorch's schedules turn the reduction off until a stage's last micro-batch
 * (pipelining/stage.py, backward_maybe_with_nosync). */
static void add_whole_gradients(const struct plan *p, unsigned phases, double n, double each, double kept,
                                struct estimate_result *r)
{
    const double bytes = fmax(0, ceil(n * each) - kept);
    struct estimate_line *line;

    if (bytes <= 0) return;
    line = estimate_add(r, ESTIMATE_GRADIENTS, phases, "gradients that stay whole",
                        (struct estimate_interval){p->pp > 1 ? bytes : 0, bytes, bytes});
    estimate_explain(line, "torch/distributed/fsdp/fully_sharded_data_parallel.py: no_sync keeps unsharded gradients",
                     "%s parameters · %.3g B, on top of the own shard", UNITS_COUNT(units_whole(n)), each);
    line->why = "none if gradients are reduced after each micro-batch (accelerate's sync_each_batch=True)";
}

void estimate_states_no_sync(const struct plan *p, const struct estimate_shard_sum *n, double each, double kept,
                             struct estimate_result *r)
{
    const double made = p->pp > 1 ? estimate_act_fullest(p, r->stage).gradients : 1;

    if (!p->fsdp || p->accumulation <= 1 || estimate_shard_group(p, false) <= 1) return;
    add_whole_gradients(p, made < 1 ? IN_PHASE(BACKWARD) : IN_PHASE(FORWARD) | IN_PHASE(BACKWARD), n->all, each, kept,
                        r);
    if (made < 1) add_whole_gradients(p, IN_PHASE(FORWARD), made * n->all, each, kept, r);
}

/* With the step in backward, each gradient is freed after its parameter has stepped. The estimate of activations
 * includes it; without activations the largest one is counted. */
static void add_fleeting_gradients(const struct plan *p, const struct estimate_optimizer_sum *sum,
                                   struct estimate_result *r)
{
    const bool walked = p->batch && p->model->shape.layers && p->model->shape.family != MODEL_CONV;
    struct estimate_line *line =
        estimate_add(r, ESTIMATE_GRADIENTS, IN_PHASE(BACKWARD), "the gradient that the optimizer step reads",
                     EXACTLY(walked ? 0 : ceil(sum->largest * p->precision->gradients)));

    estimate_explain(line, "torchtune training/memory.py: register_optim_in_bwd_hooks",
                     "the largest tensor · %u B; with activations, it is part of what backward allocates",
                     p->precision->gradients);
}

/* FSDP's first version copies each shard of gradients to the host and keeps it on the GPU until backward ends. */
static void add_gradients_on_their_way(const struct plan *p, double shard, struct estimate_result *r)
{
    struct estimate_line *line = estimate_add(r, ESTIMATE_GRADIENTS, IN_PHASE(BACKWARD), "gradients not yet freed",
                                              EXACTLY(ceil(shard * p->precision->gradients)));

    estimate_explain(line, "torch/distributed/fsdp/_runtime_utils.py: _saved_grad_shard, until post-backward's end",
                     "%s of this GPU's parameters · %u B, also those that --offload has copied to the host",
                     UNITS_COUNT(units_whole(shard)), p->precision->gradients);
}

static void add_gradients(const struct plan *p, const struct estimate_shard_sum *n, struct estimate_result *r)
{
    bool divided = p->sharding >= PLAN_SHARDING_ZERO2, views = estimate_shard_views_buckets(p);
    bool away = divided && p->offload != PLAN_OFFLOAD_NONE;
    unsigned each = away && p->master_weights ? 4 : p->precision->gradients;
    unsigned phases = IN_PHASE(BACKWARD) | IN_PHASE(STEP);
    struct estimate_line *line;
    char text[64];

    if (plan_keeps_gradients(p) || views) /* they are kept between passes */
        phases |= IN_PHASE(FORWARD);
    line = estimate_add(r, ESTIMATE_GRADIENTS, phases, views ? "gradients, views of DDP's buckets" : "gradients",
                        EXACTLY(ceil(part_of(n, divided) * each)));
    line->host = away;
    if (away && p->flat) add_gradients_on_their_way(p, part_of(n, divided), r);
    snprintf(text, sizeof text, "%u B%s", each,
             p->accumulation > 1   ? ", kept across the micro-batches of a step"
             : p->zeroes_gradients ? ", zeroed in the step"
                                   : "");
    estimate_states_explain(line, p->precision->source, p, n, text, divided);
    if (views && p->sharding == PLAN_SHARDING_DDP) {
        line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(FORWARD), "a second copy of the buckets",
                            (struct estimate_interval){0, 0, ceil(n->all * each)});
        estimate_states_explain(line, "measured: in some steps of DDP with views, PyTorch 2.11", p, n, text, false);
        line->why = "the buckets exist twice in some steps, once in others";
    }
    if (p->master_weights && !away) add_main_gradients(p, n, divided, phases, r);
    estimate_states_no_sync(p, n, reduced_element(p), away && !p->flat ? 0 : ceil(part_of(n, divided) * each), r);
}

static void add_states(const struct plan *p, const struct estimate_shard_sum *n,
                       const struct estimate_optimizer_sum *sum, struct estimate_result *r)
{
    bool divided = p->sharding != PLAN_SHARDING_DDP, away = p->offload != PLAN_OFFLOAD_NONE;
    struct estimate_interval states = {ceil(sum->states.low), ceil(sum->states.likely), ceil(sum->states.high)};
    struct estimate_line *line;
    char each[64];

    if (states.high > 0) {
        line = estimate_add(r, ESTIMATE_OPTIMIZER, IN_TRAINING, "optimizer states", states);
        line->host = away;
        snprintf(each, sizeof each, "%.6g B%s", sum->states.likely / part_of(n, divided),
                 p->optimizer->form == OPTIMIZER_EVEN ? "" : " on average");
        estimate_states_explain(line, p->optimizer->source, p, n, each, divided);
        if (states.low < states.high)
            line->why = p->optimizer->form == OPTIMIZER_MUON
                            ? "it is unknown which parameters are hidden matrices; the others have Adam's two states"
                        : p->optimizer->form == OPTIMIZER_FACTORED ? "the kernel sizes of convolutions are unknown"
                                                                   : "pages move to the host if the GPU has no room";
    }
    const double master = p->master_weights ? 4 * part_of(n, divided) : 0, more = sum->whole - states.likely - master;
    if (p->optimizer->form == OPTIMIZER_MUON && p->runtime == PLAN_RUNTIME_MEGATRON && divided && more > 0) {
        line = estimate_add(r, ESTIMATE_OPTIMIZER, IN_TRAINING, "states of a whole tensor",
                            (struct estimate_interval){0, ceil(more), ceil(more)});
        line->host = away;
        estimate_explain(line, "Megatron-LM layer_wise_optimizer.py: whole tensors are divided among GPUs",
                         "the largest tensor has %.0f B of states, more than one GPU's part of all", sum->whole);
        line->why = "most GPUs have less than the one that has the largest tensor";
    }
    if (p->master_weights) {
        line = estimate_add(r, ESTIMATE_MASTER, IN_TRAINING, "float32 weights of the optimizer",
                            EXACTLY(ceil(part_of(n, divided) * 4)));
        line->host = away;
        estimate_states_explain(line, zero, p, n, "4 B", divided);
    }
}

/* Gradients in float32 for master weights. DeepSpeed makes them for the step out of a flat copy in 16 bits: stages 1
 * and 2 of all of its part at once, stage 3 of one tile after the other. Megatron-LM has them, or half of them,
 * already. */
static void add_step_gradients(const struct plan *p, const struct estimate_shard_sum *n, struct estimate_result *r)
{
    const bool divided = p->sharding != PLAN_SHARDING_DDP, half = plan_sums_in_float32(p);
    const bool tiles = p->sharding == PLAN_SHARDING_ZERO3 && part_of(n, divided) > TILE, megatron = plan_is_megatron(p);
    const double part = part_of(n, divided),
                 bytes = half && !p->half_reduce ? 2 * part : (megatron ? 4 : 6) * (tiles ? TILE : part);
    if (half && p->runtime == PLAN_RUNTIME_MEGATRON && !p->half_reduce) return;
    const bool sure =
        !half || (p->half_reduce && !p->half_states); /* Megatron-LM's precision-aware optimizer has none */
    struct estimate_line *line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(STEP), "gradients in float32",
                                              (struct estimate_interval){0, sure ? ceil(bytes) : 0, ceil(bytes)});

    if (tiles)
        estimate_explain(line, "DeepSpeed stage3.py: _prepare_fp32_grad_for_sub_group, sub_group_size 1e9",
                         "1,000,000,000 parameters at once · %s", megatron ? "4 B" : "(4 + 2) B");
    else
        estimate_states_explain(
            line, "DeepSpeed stage_1_and_2.py: gradients are flattened, then converted for the step", p, n,
            half       ? "2 B"
            : megatron ? "4 B"
                       : "(4 + 2) B",
            divided);
    line->why = "DeepSpeed converts them for the step; optimizers that read 16-bit gradients need none";
}

/* GaLore finds its projection by torch.linalg.svd() of the gradient in float32, in some steps. */
static void add_decomposition(const struct plan *p, const struct estimate_optimizer_sum *sum, struct estimate_result *r)
{
    const unsigned phases = p->step == PLAN_STEP_IN_BACKWARD ? IN_PHASE(FORWARD) | IN_PHASE(BACKWARD) : IN_PHASE(STEP);
    const double bytes = ceil(4 * sum->decomposed);
    struct estimate_line *line;

    if (bytes < 1 || p->offload != PLAN_OFFLOAD_NONE) return;
    line = estimate_add(r, ESTIMATE_TEMPORARIES, phases, "decomposition of a gradient",
                        (struct estimate_interval){0, bytes, 1.5 * bytes});
    estimate_explain(line, "GaLore galore_projector.py: torch.linalg.svd() of the gradient as float32",
                     "%s elements of the largest projected gradient, its copy, U and V · 4 B",
                     UNITS_COUNT(units_whole(sum->decomposed)));
    line->why = "low: steps without a new projection; high: workspaces of cuSOLVER";
}

/* What the step allocates and frees: the optimizer's temporaries, and gradients in float32 for master weights. */
void estimate_states_step(const struct plan *p, const struct estimate_shard_sum *n,
                          const struct estimate_optimizer_sum *sum, double element, struct estimate_result *r)
{
    const char *how;
    struct estimate_interval bytes = estimate_optimizer_temporaries(p, sum, element, &how);
    struct estimate_line *line;

    add_decomposition(p, sum, r);
    if (p->offload != PLAN_OFFLOAD_NONE) return; /* the host runs the step */
    if (p->runtime == PLAN_RUNTIME_MEGATRON && p->optimizer->form == OPTIMIZER_EVEN) bytes = EXACTLY(0); /* FusedAdam */
    if (p->master_weights) {
        add_step_gradients(p, n, r);
        if (p->step == PLAN_STEP_FOREACH) bytes.low = bytes.likely = 0;
    }
    if (bytes.high <= 0) return;
    line = estimate_add(r, ESTIMATE_TEMPORARIES, p->step == PLAN_STEP_IN_BACKWARD ? IN_PHASE(BACKWARD) : IN_PHASE(STEP),
                        "optimizer step",
                        (struct estimate_interval){ceil(bytes.low), ceil(bytes.likely), ceil(bytes.high)});
    estimate_explain(line, "measured: torch.optim, torch.cuda.max_memory_allocated around step()",
                     "%s: %s parameters here, the largest tensor %s, %.0f B each", how,
                     UNITS_COUNT(units_whole(sum->elements)), UNITS_COUNT(units_whole(sum->largest)), element);
    if (p->master_weights && bytes.low < bytes.high)
        line->why = "DeepSpeed's, apex's and Megatron's optimizers are fused; torch.optim's foreach is not";
    else if (bytes.low < bytes.high && p->optimizer->steps != STEPS_TORCH && p->optimizer->steps != STEPS_FUSED)
        line->why = "depends on the implementation, and on whether it processes all tensors at once";
    else if (bytes.low < bytes.high)
        line->why = "depends on the order of the tensors: the previous tensor's temporary is still live";
    if (p->step != PLAN_STEP_IN_BACKWARD) return;
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "steps of the last tensors",
                        (struct estimate_interval){0, 0, ceil(bytes.likely)});
    line->why = "high: the first step in backward is one of a large tensor, while all activations are live";
    estimate_explain(line, "torchtune training/memory.py: register_optim_in_bwd_hooks", "as the optimizer step");
}

void estimate_states_buckets(const struct plan *p, const struct estimate_shard_sum *n, unsigned each,
                             struct estimate_result *r)
{
    struct estimate_line *line;

    /* DDP ignores experts that no other GPU has (axolotl expert_parallel/shard.py) */
    const double shared = estimate_shard_group(p, true) > 1 ? n->all : n->dense;
    if (p->bucket_view || p->runtime == PLAN_RUNTIME_MEGATRON) return; /* gradients are in the buckets */
    line = estimate_add(r, ESTIMATE_BUCKETS, IN_TRAINING, "DDP's buckets", EXACTLY(ceil(shared * each)));
    estimate_explain(line, "torch/csrc/distributed/c10d/reducer.cpp: flat buckets of 1 MiB, then 25 MiB, kept",
                     "a second copy of all gradients: %s · %u B (none with gradient_as_bucket_view=True)",
                     UNITS_COUNT(units_whole(shared)), each);
}

static double after_loss_of(const struct plan *p, enum estimate_act_variant variant)
{
    struct estimate_act_pass pass;

    if (!p->batch || plan_is_megatron(p) || !p->model->shape.layers || p->model->shape.family == MODEL_CONV ||
        p->model->shape.family == MODEL_DENOISER)
        return 0;
    estimate_act_pass(p, variant, &pass);
    return pass.after_loss;
}

/* By how much the loss's backward, during which no layer is gathered, needs more than that of the layers after it: the
 * larger of the two moments counts as the beginning of backward. Under tensor and pipeline parallelism the two are not
 * distinguished. */
static double after_loss(const struct plan *p)
{
    return after_loss_of(p, p->fused_layers ? ACT_FUSED : ACT_EAGER);
}

/* The least of all variants, for a high end: what is live after the loss is not live beside it. */
static double least_after_loss(const struct plan *p)
{
    double least = INFINITY;

    for (int variant = 0; variant < ACT_VARIANTS_N; variant++) least = fmin(least, after_loss_of(p, variant));
    return least;
}

/* Gradients on their way to the GPU that keeps them. DeepSpeed flattens them into one or two buckets; FSDP reduces a
 * unit's while the next one's are already made; Megatron-LM reduces in place. */
static void add_reduced(const struct plan *p, uint64_t stage, const struct estimate_shard_sum *n,
                        struct estimate_result *r)
{
    bool away = p->offload != PLAN_OFFLOAD_NONE && p->sharding >= PLAN_SHARDING_ZERO2; /* this GPU's own part too */
    bool units = p->sharding != PLAN_SHARDING_ZERO1 && !p->master_weights; /* FSDP's; else all gradients exist anyway */
    const bool deepspeed = p->master_weights && !p->fsdp;                  /* or Megatron-LM */
    double layer = estimate_shard_layer(p, stage), root = estimate_shard_outside(p, stage), unit = fmax(layer, root);
    double each = p->precision->gradients, others = n->all - (away ? 0 : n->own);
    double bucket = fmin(n->all, BUCKET) * each, two = fmin(2 * unit, others) * reduced_element(p), begin;
    struct estimate_interval bytes = {0,
                                      plan_sums_in_float32(p) ? 0
                                      : p->master_weights     ? bucket
                                      : units                 ? two
                                                              : 0,
                                      (units && p->fsdp ? fmin(unit + (FSDP_UNITS - 1) * layer, others)
                                       : deepspeed      ? 2 * BUCKET
                                                        : fmin(n->all, 2 * BUCKET)) *
                                          each};
    struct estimate_line *line;

    if (p->runtime == PLAN_RUNTIME_MEGATRON) return; /* reduces in place */
    if (bytes.high < bytes.likely) bytes.high = bytes.likely;
    line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(BACKWARD), "gradients being reduced", bytes);
    estimate_explain(line, "DeepSpeed: reduce_bucket_size 5e8, twice with overlap_comm; torch FSDP: units",
                     "a bucket of %s, or two units of %s parameters, · %.0f B",
                     UNITS_COUNT(units_whole(fmin(n->all, BUCKET))), UNITS_COUNT(units_whole(unit)), each);
    line->why = "reduced in place (Megatron-LM), in units in flight (FSDP) or in one or two buckets (DeepSpeed)";
    if (deepspeed) { /* stage_1_and_2.py, backward(): before the pass, at any size of the model */
        line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(FORWARD), "DeepSpeed's empty buckets",
                            (struct estimate_interval){0, 0, ceil(2 * BUCKET * each)});
        estimate_explain(line, "DeepSpeed stage_1_and_2.py, stage3.py: torch.empty(reduce_bucket_size)",
                         "2 · %s · %.0f B", UNITS_COUNT(units_whole(BUCKET)), each);
        line->why = "Hugging Face's \"auto\" makes them as small as hidden · hidden";
    }
    if (!units) return;
    const double most = fmin(2 * unit, others) * each - (p->fsdp ? least_after_loss(p) : 0);
    two = fmin(2 * layer, others) * unit_element(p);
    begin = fmax(0, two - fmax(0, after_loss(p) - (p->sharding == PLAN_SHARDING_ZERO3 ? two : 0)));
    line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(FORWARD), "first gradients being reduced",
                        (struct estimate_interval){0, floor(begin), ceil(fmax(begin, most))});
    estimate_explain(line, "measured: FSDP's units in flight as backward begins, PyTorch 2.11",
                     "two layers of %s parameters · %.0f B, minus what the loss has freed by then",
                     UNITS_COUNT(units_whole(layer)), unit_element(p));
    line->why = "the loss's backward, which comes first, may need more";
}

/* All weights are gathered, from forward on. */
static void add_gathered_until_backward(const struct plan *p, const struct estimate_shard_sum *n, double each,
                                        struct estimate_result *r)
{
    /* torchtitan, whose pipelines are estimated, has a MixedPrecisionPolicy instead of autocast (parallelize.py) */
    const bool policy = p->fsdp && p->pp > 1;
    double whole = p->precision->weights, casts = p->precision->cast == PRECISION_CAST_AUTOCAST ? 2 : 0;
    struct estimate_line *line;
    char all[UNITS_TEXT];

    units_format_count(all, units_whole(n->all));
    line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(FORWARD), "gathered weights",
                        (struct estimate_interval){ceil((n->all - n->own) * each), ceil(n->all * each),
                                                   ceil(n->all * (policy ? each : whole + casts))});
    estimate_explain(
        line, "torch FSDP: SHARD_GRAD_OP, reshard_after_forward=False (also under --pp); measured on PyTorch 2.11",
        "%s parameters · %.3g B, on top of the own shard", all, each);
    line->why = "in place (DeepSpeed) or in addition to the shard (FSDP); 16 bits with FSDP's MixedPrecision";
    line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(STEP), "weights that stay whole",
                        (struct estimate_interval){0, 0, p->fsdp ? 0 : ceil((n->all - n->own) * whole)});
    estimate_explain(line, "DeepSpeed stage_1_and_2.py; torch FSDP frees them in backward", "%s parameters · %.0f B",
                     all, whole);
    line->why = "DeepSpeed keeps weights whole; FSDP frees a unit's weights after its backward";
}

/* Weights that are whole temporarily: the root unit (embedding, last norm, output layer) stays, unless it is freed
 * after forward as well. When backward begins two layers are whole, the running one and the next; at the end there is
 * no next one. */
void estimate_states_gathered(const struct plan *p, uint64_t stage, const struct estimate_shard_sum *n, double each,
                              struct estimate_result *r)
{
    double unit = estimate_shard_layer(p, stage), root = estimate_shard_outside(p, stage),
           live = fmin(n->all, LIVE) * each;
    double one = fmin(root + unit, n->all) * each, two = fmin(root + 2 * unit, n->all) * each;
    double begin = fmax(fmin(root, n->all) * each, two - after_loss(p));
    const bool second = p->fsdp && !p->flat; /* frees the root unit only after backward */
    /* DeepSpeed's stage3_max_reuse_distance keeps the last layers' weights, which backward needs first */
    if (p->master_weights && !p->fsdp) begin = fmax(begin, live);
    bool until_backward = estimate_shard_gathers_until_backward(p);
    double high = until_backward ? n->all * p->precision->weights
                  : p->fsdp      ? fmin(root + FSDP_UNITS * unit, n->all) * each
                                 : fmax(live, two);
    /* FSDP frees the layers before the loss, and gathers them again after it */
    const double first = p->fsdp && !until_backward ? fmax(begin, high - least_after_loss(p)) : high;
    char outside[UNITS_TEXT], layer[UNITS_TEXT];
    struct estimate_line *line;

    units_format_count(outside, units_whole(root));
    units_format_count(layer, units_whole(unit));
    if (until_backward)
        add_gathered_until_backward(p, n, each, r);
    else {
        line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(FORWARD), "gathered weights",
                            (struct estimate_interval){second ? ceil(begin / 2) : 0, ceil(begin), ceil(first)});
        estimate_explain(line, "torch FSDP: root unit and two layers in flight; DeepSpeed: stage3_max_live_parameters",
                         "(%s outside of the layers + 2 layers · %s) · %.3g B, minus what the loss has freed by then",
                         outside, layer, each);
        line->why = "the root unit may be freed after forward; DeepSpeed keeps up to 1e9 parameters";
    }
    line = estimate_add(r, ESTIMATE_BUCKETS, IN_PHASE(BACKWARD), "gathered weights of the first layer",
                        (struct estimate_interval){0, ceil(one), ceil(high)});
    estimate_explain(line, "torch FSDP: root unit and the current layer; DeepSpeed: stage3_max_live_parameters",
                     "(%s outside of the layers + a layer of %s) · %.3g B", outside, layer, each);
    line->why = "a unit may be freed after its backward; DeepSpeed keeps up to 1e9 parameters";
}

static void add_communication(const struct plan *p, uint64_t stage, const struct estimate_shard_sum *n,
                              struct estimate_result *r)
{
    double unit = estimate_shard_layer(p, stage);

    if (estimate_shard_group(p, false) <= 1 && (p->offload == PLAN_OFFLOAD_NONE || p->sharding < PLAN_SHARDING_ZERO2))
        return; /* nothing is received or sent */
    if (p->sharding == PLAN_SHARDING_DDP) {
        estimate_states_buckets(p, n, p->precision->gradients, r);
        return;
    }
    if (unit <= 0) { /* only a number of parameters is known */
        if (estimate_shard_gathers(p))
            estimate_note(r, "the size of the largest layer is unknown: add --model to count the weights that sharding "
                             "gathers for it");
        return;
    }
    add_reduced(p, stage, n, r);
    if (estimate_shard_gathers(p)) estimate_states_gathered(p, stage, n, unit_element(p), r);
}

static bool in_float8(const struct plan *p, const struct model_tensor *t)
{
    return t->dims == 0 || t->role == TENSOR_ATTENTION || t->role == TENSOR_MLP || t->role == TENSOR_EXPERT;
}

static bool is_tensor_unknown(const struct plan *p, const struct model_tensor *t)
{
    return t->dims == 0;
}

static bool multiplied_outside(const struct plan *p, const struct model_tensor *t)
{
    return estimate_shard_multiplied(p, t) && t->place != TENSOR_IN_LAYER;
}

/* transformers 5 computes experts by PyTorch's grouped product, which autocast does not cover. */
/* Products with quantised weights unpack them, which is counted there. */
static bool may_be_cast(const struct plan *p, const struct model_tensor *t)
{
    return estimate_shard_multiplied(p, t) &&
           (!p->weights || estimate_quantisation_bits(p->weights, p->model, t, 16) >= 16);
}

static bool is_cast(const struct plan *p, const struct model_tensor *t)
{
    return may_be_cast(p, t) && t->role != TENSOR_EXPERT;
}

/* Weights of which autocast makes copies for backward. A checkpointed layer's are freed with its first forward;
 * activations.c counts those of its second. */
static double copied_for_backward(const struct plan *p, uint64_t stage,
                                  bool (*is_copied)(const struct plan *, const struct model_tensor *))
{
    const double all = estimate_shard_sum(p, stage, is_copied).all,
                 outside = estimate_shard_sum(p, stage, multiplied_outside).all;
    const uint64_t layers = p->model->shape.layers ? estimate_shard_layers(p, stage) : 0;

    if (!plan_remakes_layers(p)) return all;
    return outside + (layers ? (all - outside) * (double)(layers - plan_remade_layers(p, layers)) / (double)layers : 0);
}

static void add_autocast(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const struct estimate_shard_sum hidden = estimate_shard_sum(p, stage, is_tensor_unknown);
    const double n = copied_for_backward(p, stage, is_cast),
                 most = ceil(copied_for_backward(p, stage, may_be_cast) * p->precision->cast_copy);
    double bytes = ceil(n * p->precision->cast_copy);
    struct estimate_line *line;
    char count[UNITS_TEXT];

    units_format_count(count, units_whole(n));
    if (estimate_shard_gathers(p)) return; /* FSDP's MixedPrecision gathers 16-bit weights: estimate_states_gathered */
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "autocast's 16-bit weights",
                        (struct estimate_interval){hidden.all > 0 ? 0 : bytes, bytes, most});
    estimate_explain(line, "aten/src/ATen/autocast_mode.cpp: cached_cast; linear saves the copy for backward",
                     "%s weights used in matrix products · %u B", count, p->precision->cast_copy);
    if (hidden.all > 0)
        line->why = "it is unknown which parameters are used in matrix products";
    else if (most > bytes)
        line->why = "high: experts are linear layers, as before transformers 5, instead of a grouped product";
    if (p->adapter != PLAN_ADAPTER_NONE) return; /* the cache keeps only what needs a gradient */
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(BACKWARD), "autocast's cache, if backward runs inside",
                        (struct estimate_interval){0, 0, most});
    estimate_explain(line, "aten/src/ATen/autocast_mode.cpp: clear_cache at the outermost region's end",
                     "%s weights used in matrix products · %u B", count, p->precision->cast_copy);
    line->why = "none if autocast ends before backward, as in PyTorch's examples";
}

static void add_float8(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    double n = estimate_shard_sum(p, stage, in_float8).all;
    struct estimate_line *line;

    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "float8 weights and their transposes",
                        (struct estimate_interval){ceil(n), ceil(2 * n), ceil(2 * n)});
    estimate_explain(line, "Transformer Engine pytorch/module/linear.py: rowwise for forward, columnwise for backward",
                     "%s weights of linear layers · 2 · 1 B", UNITS_COUNT(units_whole(n)));
    line->why = "the copy for forward stays if micro-batches share it (is_first_microbatch)";
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(BACKWARD) | IN_PHASE(STEP), "cached float8 weights",
                        (struct estimate_interval){0, 0, ceil(2 * n)});
    estimate_explain(line, "Transformer Engine pytorch/module/base.py: get_weight_workspace with a cache",
                     "%s weights of linear layers · 2 · 1 B", UNITS_COUNT(units_whole(n)));
    line->why = "only with is_first_microbatch (Megatron-LM)";
}

void estimate_states_casts(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    if (p->model->shape.family == MODEL_DENOISER) return; /* counted with its activations */
    if (p->precision->cast == PRECISION_CAST_AUTOCAST) add_autocast(p, stage, r);
    if (p->precision->cast == PRECISION_CAST_FP8) add_float8(p, stage, r);
}

static void add_ema(const struct plan *p, const struct estimate_shard_sum *n, struct estimate_result *r)
{
    bool divided = p->sharding == PLAN_SHARDING_ZERO3;
    struct estimate_line *line =
        estimate_add(r, ESTIMATE_EMA, IN_TRAINING, "moving average, float32", EXACTLY(ceil(part_of(n, divided) * 4)));

    estimate_states_explain(line, "torch.optim.swa_utils.AveragedModel: a copy of the parameters", p, n, "4 B",
                            divided);
}

static bool is_tensor_trained(const struct plan *p, const struct model_tensor *t)
{
    return !t->fixed && p->frozen != (t->tower ? PLAN_FROZEN_TOWER : PLAN_FROZEN_TEXT);
}

static void add_trained_states(const struct plan *p, uint64_t stage, const struct estimate_shard_sum *n,
                               struct estimate_result *r)
{
    struct estimate_optimizer_sum sum = {0};
    struct estimate_shard s;

    for (size_t i = 0; i < p->model->tensors_n; i++)
        if (is_tensor_trained(p, &p->model->tensors[i]) && estimate_shard_of(p, stage, &p->model->tensors[i], &s))
            estimate_optimizer_take(p, &s, estimate_states_element(p),
                                    p->sharding == PLAN_SHARDING_DDP ? 1 : estimate_shard_group(p, s.expert), &sum);
    if (p->step == PLAN_STEP_IN_BACKWARD)
        add_fleeting_gradients(p, &sum, r);
    else
        add_gradients(p, n, r);
    add_states(p, n, &sum, r);
    add_communication(p, stage, n, r);
    estimate_states_step(p, n, &sum, estimate_states_element(p), r);
}

struct estimate estimate_floor(const struct model *m, const struct estimate_optimizer *optimizer,
                               const struct estimate_precision *precision, bool master_weights)
{
    struct plan p = PLAN_DEFAULT;
    struct estimate_optimizer_sum sum = {0};
    struct estimate_shard s;
    uint64_t fixed = 0;

    for (size_t i = 0; i < m->tensors_n; i++)
        fixed += m->tensors[i].fixed ? m->tensors[i].rows * m->tensors[i].cols * m->tensors[i].count : 0;
    struct estimate e = estimate_training(m->params - fixed, optimizer, precision, master_weights);
    e.params = m->params;
    e.weights += fixed * precision->weights;
    e.total += fixed * precision->weights;
    if (!optimizer->shaped) return e;
    p.model = m;
    p.optimizer = optimizer;
    for (size_t i = 0; i < m->tensors_n; i++)
        if (is_tensor_trained(&p, &m->tensors[i]) && estimate_shard_of(&p, 0, &m->tensors[i], &s))
            estimate_optimizer_take(&p, &s, e.master ? 4 : precision->weights, 1, &sum);
    e.total -= e.optimizer;
    e.optimizer = (uint64_t)ceil(sum.states.likely);
    e.total += e.optimizer;
    return e;
}

void estimate_states(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    struct estimate_shard_sum n, learning;

    if (p->inference || p->adapter != PLAN_ADAPTER_NONE) /* serving.c; adapters.c */
        return;
    n = estimate_shard_sum(p, stage, NULL);
    learning = estimate_shard_sum(p, stage, is_tensor_trained);
    add_weight_lines(p, &n, r);
    add_trained_states(p, stage, &learning, r);
    if (p->ema) add_ema(p, &n, r);
    estimate_states_casts(p, stage, r);
}
