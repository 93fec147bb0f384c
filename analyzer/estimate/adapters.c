/* Adapters: frozen weights as they are stored, and small matrices beside them that are trained (adapter_kinds.c).
 *
 * The adapters have float32, as peft makes them beside 16-bit weights (autocast_adapter_dtype). */
#include "analyzer/estimate/adapters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/states.h"

#define FLOAT32 ADAPTERS_BYTES

struct frozen {
    struct estimate_shard_sum n;
    double quantised, plain;             /* parameters of this GPU's part, of each sort */
    double quantised_bytes, plain_bytes; /* plain ones in 16 bits, or in --precision */
    double largest;                      /* parameters of the largest quantised matrix */
    double experts, experts_least;       /* parameters of experts that stay in 16 bits; their bytes if they did not */
};

/* transformers before 5 has a torch.nn.Linear for each matrix of an expert. */
static bool keeps_experts(const struct plan *p)
{
    return estimate_quantisation_skips_experts(p) && !p->quantised_experts &&
           (!p->transformers || p->transformers >= 500);
}

static struct frozen frozen_of(const struct plan *p, uint64_t stage, bool divided)
{
    struct frozen f = {.n = estimate_shard_sum(p, stage, NULL)};
    struct estimate_shard s;

    EACH_IN (t, p->model->tensors) {
        double plain = p->weights ? 16 : 8.0 * p->precision->weights, bits, n;
        if (!estimate_shard_of(p, stage, t, &s)) continue;
        n = s.count * s.rows * s.cols / (divided ? estimate_shard_group(p, s.expert) : 1);
        bits = p->weights ? estimate_quantisation_bits_in(p, t, plain) : plain;
        if (t->role == TENSOR_EXPERT && bits < 16 && keeps_experts(p)) {
            f.experts += n;
            f.experts_least += n * bits / 8;
        } else if (p->weights && bits < 16 && t->dims >= 2) {
            f.quantised += n;
            f.quantised_bytes += n * bits / 8;
            f.largest = fmax(f.largest, s.rows * s.cols);
        } else {
            f.plain += n;
            f.plain_bytes += n * bits / 8;
        }
    }
    return f;
}

static void add_frozen(const struct plan *p, const struct frozen *f, struct estimate_result *r)
{
    bool divided = p->sharding == PLAN_SHARDING_ZERO3, upcast = p->weights && f->quantised > 0,
         one_type = p->flat && estimate_shard_gathers(p) && !p->prepared; /* as in widens_stream() */
    struct estimate_line *line;
    double bytes = ceil(f->plain_bytes);

    if (f->quantised > 0) {
        char name[56];
        snprintf(name, sizeof name, "frozen weights, %s", p->weights->word);
        line = estimate_add(r, ESTIMATE_WEIGHTS, IN_TRAINING, name, EXACTLY(ceil(f->quantised_bytes)));
        estimate_explain(line, p->weights->source, "%s weights of matrices%s · %.6g bits",
                         UNITS_COUNT(units_whole(f->quantised)), divided ? " on each GPU" : "",
                         8 * f->quantised_bytes / f->quantised);
        line->host = p->offload == PLAN_OFFLOAD_ALL;
    }
    if (f->experts > 0) {
        line = estimate_add(r, ESTIMATE_WEIGHTS, IN_TRAINING, "experts, not quantised",
                            (struct estimate_interval){p->transformers ? 2 * f->experts : ceil(f->experts_least),
                                                       2 * f->experts, 2 * f->experts});
        estimate_explain(line, "bitsandbytes issue 1849: transformers 5 holds a layer's experts in one tensor",
                         "%s weights of experts%s · 2 B", UNITS_COUNT(units_whole(f->experts)),
                         divided ? " on each GPU" : "");
        line->host = p->offload == PLAN_OFFLOAD_ALL;
        line->why =
            "low: transformers before 5 (--transformers), or a loader that quantises them (--quantised-experts)";
    }
    if (f->plain <= 0) return;
    line = estimate_add(r, ESTIMATE_WEIGHTS, IN_TRAINING, upcast ? "frozen weights, not quantised" : "frozen weights",
                        upcast ? (struct estimate_interval){bytes, p->prepared ? ceil(f->plain * FLOAT32) : bytes,
                                                            one_type ? bytes : ceil(f->plain * FLOAT32)}
                               : EXACTLY(bytes));
    line->host = p->offload == PLAN_OFFLOAD_ALL;
    estimate_explain(line, upcast ? "peft prepare_model_for_kbit_training" : p->precision->source, "%s %s%s · %.3g B",
                     UNITS_COUNT(units_whole(f->plain)),
                     upcast ? "of embeddings, norms and the output layer" : "weights", divided ? " on each GPU" : "",
                     f->plain_bytes / f->plain);
    if (upcast && !one_type)
        line->why = "peft's prepare_model_for_kbit_training converts them to float32; torchtune and Unsloth do not";
}

struct adapted {
    struct estimate_shard_sum n;
    struct estimate_optimizer_sum optimizer, least; /* least: of adapters in 16 bits */
    double matrices;                                /* weights that have adapters */
    double temporary;                               /* temporary bytes of the largest of them */
    double frozen;                                  /* adapter parameters that are not trained */
    double rows, cols;                              /* the most outputs and inputs of any weight */
};

/* Bytes of an adapter's number: beside 16-bit weights, torchtune, litgpt and peft before 0.12 use their type. */
static double least_element(const struct plan *p)
{
    return p->precision->weights == 2 ? 2 : FLOAT32;
}

static double likely_element(const struct plan *p)
{
    return p->half_adapters ? least_element(p) : FLOAT32;
}

/* One of the small matrices. */
static void take_adapted(const struct plan *p, const struct estimate_shard *of, double rows, double cols,
                         struct adapted *a)
{
    struct model_tensor t = {.role = TENSOR_OTHER, .place = TENSOR_IN_LAYER, .dims = cols > 1 ? 2 : 1};
    struct estimate_shard s = {.tensor = &t, .count = of->count, .rows = rows, .cols = cols, .expert = of->expert};
    double n = s.count * rows * cols, group = estimate_shard_group(p, of->expert);

    a->n.all += n;
    a->n.own += n / group;
    *(of->expert ? &a->n.experts : &a->n.dense) += n;
    estimate_optimizer_take(p, &s, likely_element(p), p->sharding == PLAN_SHARDING_DDP ? 1 : group, &a->optimizer);
    estimate_optimizer_take(p, &s, least_element(p), p->sharding == PLAN_SHARDING_DDP ? 1 : group, &a->least);
}

struct taking {
    const struct plan *p;
    const struct estimate_shard *of;
    struct adapted *a;
};

static void take_trained(void *context, double rows, double cols)
{
    const struct taking *k = context;

    take_adapted(k->p, k->of, rows, cols, k->a);
}

/* Temporary memory of the products for one weight. DoRA: the weight, B·A, its scaled copy and their sum, and the
 * identity from which B·A is made; LoHa and LoKr: the gradients of the product and of its factors. */
static double temporary_weight_bytes(const struct plan *p, double rows, double cols)
{
    if (p->adapter == PLAN_ADAPTER_DORA) return (4 * rows * cols + cols * cols) * FLOAT32;
    return estimate_adapter_kind(p)->weight * 3 * rows * cols * FLOAT32;
}

/* Prompts: an embedding for each virtual token; or keys and values in each layer. */
static void take_prompt(const struct plan *p, struct adapted *a)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_shard one = {.count = 1};
    const double width =
        p->adapter == PLAN_ADAPTER_PREFIX ? 2 * (double)(m->layers * m->kv_heads * m->head_dim) : (double)m->hidden;

    take_adapted(p, &one, (double)p->rank, width, a);
}

static struct adapted adapted_of(const struct plan *p, uint64_t stage)
{
    const struct estimate_adapter_kind *kind = estimate_adapter_kind(p);
    struct adapted a = {0};
    struct estimate_shard s;

    EACH_IN (t, p->model->tensors) {
        if (!estimate_adapter_is_target(p, t) || !estimate_shard_of(p, stage, t, &s)) continue;
        if (p->tp > 1 && (strstr(t->name, "o_proj") || strstr(t->name, "down_proj"))) { /* divided by inputs */
            s.cols /= (double)t->rows / s.rows;
            s.rows = (double)t->rows;
        }
        kind->trained(p, t, s.rows, s.cols, take_trained, &(struct taking){p, &s, &a});
        a.temporary = fmax(a.temporary, temporary_weight_bytes(p, s.rows, s.cols));
        a.frozen += s.count * estimate_adapter_frozen(p, s.rows, s.cols);
        a.rows = fmax(a.rows, s.rows);
        a.cols = fmax(a.cols, s.cols);
        a.matrices += s.count;
    }
    if (p->adapter == PLAN_ADAPTER_VERA) a.frozen = (double)p->rank * (a.rows + a.cols); /* one shared pair */
    if (kind->size_is == ADAPTER_HAS_TOKENS) take_prompt(p, &a);
    return a;
}

struct estimate_adapters_moved estimate_adapters_moved(const struct plan *p, uint64_t stage)
{
    struct frozen f = frozen_of(p, stage, false);

    return (struct estimate_adapters_moved){adapted_of(p, stage).n.all, f.quantised_bytes + f.plain_bytes};
}

static void add_trained_adapters(const struct plan *p, const struct adapted *a, struct estimate_result *r)
{
    bool states_divided = p->sharding != PLAN_SHARDING_DDP, away = p->offload != PLAN_OFFLOAD_NONE;
    bool gradients_divided = p->sharding >= PLAN_SHARDING_ZERO2, whole = p->sharding != PLAN_SHARDING_ZERO3;
    unsigned kept = plan_keeps_gradients(p) ? IN_TRAINING : IN_PHASE(BACKWARD) | IN_PHASE(STEP);
    const double least = least_element(p), likely = likely_element(p), trained = whole ? a->n.all : a->n.own,
                 made = gradients_divided ? a->n.own : a->n.all;
    struct estimate_interval states = {ceil(a->least.states.low), ceil(a->optimizer.states.likely),
                                       ceil(a->optimizer.states.high)};
    static const char *const sizes[] = {"", "rank ", "blocks of "};
    static const char sixteen[] = "low: in 16 bits, as in torchtune, litgpt and peft before 0.12";
    const struct estimate_adapter_kind *kind = estimate_adapter_kind(p);
    struct estimate_line *line;
    char each[80];

    line =
        estimate_add(r, ESTIMATE_ADAPTERS, IN_TRAINING, likely < FLOAT32 ? "adapters, 16 bits" : "adapters, float32",
                     (struct estimate_interval){ceil(trained * least), ceil(trained * likely), ceil(trained * likely)});
    line->why = sixteen;
    if (kind->size_is == ADAPTER_HAS_TOKENS)
        snprintf(each, sizeof each, "%.0f B (%ju virtual tokens)", likely, (uintmax_t)p->rank);
    else
        snprintf(each, sizeof each, "%.0f B (%s%.0ju%s%.0f matrices)", likely, sizes[kind->size_is], (uintmax_t)p->rank,
                 kind->size_is ? ", " : "", a->matrices);
    estimate_states_explain(line, kind->source, p, &a->n, each, !whole);
    if (a->frozen > 0) {
        line = estimate_add(r, ESTIMATE_ADAPTERS, IN_TRAINING, "frozen parts of adapters, float32",
                            EXACTLY(ceil(a->frozen * FLOAT32)));
        estimate_explain(line, kind->source, "%s numbers · 4 B",
                         units_format_count((char[UNITS_TEXT]){0}, units_whole(a->frozen)));
    }
    line = estimate_add(r, ESTIMATE_GRADIENTS, kept, "gradients of the adapters",
                        (struct estimate_interval){ceil(made * least), ceil(made * likely), ceil(made * likely)});
    line->why = sixteen;
    estimate_states_explain(line, "torch: a gradient has its parameter's type", p, &a->n,
                            likely < FLOAT32 ? "2 B" : "4 B", gradients_divided);
    if (states.high > 0) {
        line = estimate_add(r, ESTIMATE_OPTIMIZER, IN_TRAINING, "optimizer states of the adapters", states);
        line->host = away;
        snprintf(each, sizeof each, "%.6g B", states.likely / (states_divided ? a->n.own : a->n.all));
        estimate_states_explain(line, p->optimizer->source, p, &a->n, each, states_divided);
        line->why = a->optimizer.states.low < states.high ? "pages move to the host if the GPU has no room" : sixteen;
    }
    if (p->sharding == PLAN_SHARDING_DDP && estimate_shard_group(p, false) > 1)
        estimate_states_buckets(p, &a->n, (unsigned)likely, r);
    estimate_states_step(p, &a->n, &a->optimizer, likely, r);
}

/* FSDP's first version joins the parameters of a unit into one, whose gradient also covers the frozen ones: litgpt's
 * units are whole layers. Hugging Face's Trainer takes peft's wrapping policy (trainer.py:
 * _fsdp_qlora_plugin_updates), which keeps them apart; quantised weights have no gradient, and cannot be joined with
 * those that have one (_flat_param.py: "uniform requires_grad"). */
static void add_flat_gradients(const struct plan *p, const struct frozen *f, struct estimate_result *r)
{
    static const char why[] = "none with FSDP2, or with --separate-adapters (peft's wrapping policy)";
    const double each = (f->plain_bytes + f->quantised_bytes) / fmax(1, f->plain + f->quantised);
    const double own = ceil(f->n.own * each);
    struct estimate_line *line;

    if (estimate_shard_group(p, false) <= 1 || p->separate || f->quantised > 0) return;
    line = estimate_add(r, ESTIMATE_GRADIENTS, IN_PHASE(BACKWARD) | IN_PHASE(STEP), "gradients of frozen weights",
                        (struct estimate_interval){0, own, own});
    estimate_explain(line, "torch/distributed/fsdp/_flat_param.py: a FlatParameter has one gradient",
                     "%s weights · %.3g B", UNITS_COUNT(units_whole(f->n.own)), each);
    line->why = why;
    estimate_states_no_sync(p, &f->n, each, own, r);
}

/* DeepSpeed's flat gradient buffers have this size even if few parameters are trained. */
static void add_bucket(struct estimate_result *r)
{
    struct estimate_line *line = estimate_add(r, ESTIMATE_BUCKETS, IN_TRAINING, "DeepSpeed's gradient buffers",
                                              (struct estimate_interval){0, 0, 2 * 5e8 * 2});

    estimate_explain(line, "DeepSpeed stage3.py: torch.empty(reduce_bucket_size), 5e8, twice with overlap_comm",
                     "2 · 500,000,000 · 2 B");
    line->why = "Hugging Face's \"auto\" makes them as small as hidden · hidden";
}

static bool is_saved(const struct plan *p, const struct model_tensor *t)
{
    return (t->role == TENSOR_EMBEDDING || t->role == TENSOR_HEAD) && t->dims == 2 && t->rows == p->model->shape.vocab;
}

/* The copies have the type of the original, and so do their gradients and states. A tied matrix has two: peft copies
 * the embedding and the output layer separately. */
static void add_saved(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    static const char source[] = "peft utils/other.py: ModulesToSaveWrapper copies a module and trains the copy";
    const bool states_divided = p->sharding != PLAN_SHARDING_DDP, whole = p->sharding != PLAN_SHARDING_ZERO3;
    const double element = p->prepared ? FLOAT32 : p->weights ? 2 : p->precision->weights;
    struct estimate_shard_sum n = estimate_shard_sum(p, stage, is_saved);
    struct estimate_optimizer_sum sum = {0};
    struct estimate_shard s;
    struct estimate_line *line;
    char each[UNITS_TEXT];

    if (p->saved == PLAN_SAVED_NONE || n.all <= 0) return;
    for (size_t i = 0; i < p->model->tensors_n; i++) {
        if (!is_saved(p, &p->model->tensors[i]) || !estimate_shard_of(p, stage, &p->model->tensors[i], &s)) continue;
        if (p->model->shape.tied) s.count *= 2;
        estimate_optimizer_take(p, &s, element, states_divided ? estimate_shard_group(p, false) : 1, &sum);
    }
    if (p->model->shape.tied) n = (struct estimate_shard_sum){2 * n.all, 2 * n.own, 2 * n.dense, 2 * n.experts};
    snprintf(each, sizeof each, "%.0f B", element);
    line = estimate_add(r, ESTIMATE_ADAPTERS, IN_TRAINING, "trained copies of embedding and output layer",
                        EXACTLY(ceil((whole ? n.all : n.own) * element)));
    estimate_states_explain(line, source, p, &n, each, !whole);
    line = estimate_add(
        r, ESTIMATE_GRADIENTS, plan_keeps_gradients(p) ? IN_TRAINING : IN_PHASE(BACKWARD) | IN_PHASE(STEP),
        "gradients of these copies", EXACTLY(ceil((p->sharding >= PLAN_SHARDING_ZERO2 ? n.own : n.all) * element)));
    estimate_states_explain(line, source, p, &n, each, p->sharding >= PLAN_SHARDING_ZERO2);
    if (sum.states.high > 0) {
        line = estimate_add(
            r, ESTIMATE_OPTIMIZER, IN_TRAINING, "optimizer states of these copies",
            (struct estimate_interval){ceil(sum.states.low), ceil(sum.states.likely), ceil(sum.states.high)});
        line->host = p->offload != PLAN_OFFLOAD_NONE;
        snprintf(each, sizeof each, "%.6g B", sum.states.likely / (states_divided ? n.own : n.all));
        estimate_states_explain(line, p->optimizer->source, p, &n, each, states_divided);
        if (sum.states.low < sum.states.high) line->why = "pages move to the host if the GPU has no room";
    }
    estimate_states_step(p, &n, &sum, element, r);
    if (p->step != PLAN_STEP_FOREACH || p->offload != PLAN_OFFLOAD_NONE || sum.elements <= 0) return;
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(STEP), "a second copy during the step",
                        (struct estimate_interval){0, 0, ceil(sum.elements * element)});
    estimate_explain(line, "torch/optim/adamw.py of PyTorch 2.0: _multi_tensor_adamw's denom is a separate list",
                     "%s parameters here · %.0f B", units_format_count(each, units_whole(sum.elements)), element);
    line->why = "none with PyTorch 2.1 and later, which adds in place";
}

/* Published peaks of Q-LoRA by axolotl, torchtune and Hugging Face's Trainer are up to so much above the sum, for an
 * unknown reason. fms-acceleration's 40 peaks with FSDP are not. */
#define UNEXPLAINED 1.5e9

/* bitsandbytes' products keep their input as an attribute of their graph's node (autograd/_functions.py: ctx.tensors),
 * which autograd does not free when the node's backward has run but when the graph dies, with the loss: after backward,
 * or, in a loop that holds its loss, when the next forward has ended. */
static bool may_hold_inputs(const struct plan *p)
{
    const struct estimate_act_sizes most = estimate_act_sizes_of(p, p->fused_layers ? ACT_FUSED : ACT_PADDED);
    const enum model_family family = p->model->shape.family;

    return estimate_act_keeps_frozen(p, &most) && p->batch && p->checkpoint == PLAN_CHECKPOINT_NONE && !p->away &&
           !p->model->shape.experts && (family == MODEL_GPT || family == MODEL_LLAMA);
}

static bool holds_inputs(const struct plan *p)
{
    return may_hold_inputs(p) && !p->drop_outputs;
}

static void add_kept_inputs(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_act_sizes likely = estimate_act_sizes_of(p, p->fused_layers ? ACT_FUSED : ACT_EAGER);
    const double norms = (double)m->hidden * (m->norms == 1 ? 1 : 2),
                 width = norms + (double)(m->heads * m->head_dim + m->ffn);
    const double bytes = ceil(likely.tokens * (double)m->layers / (double)p->pp * width * likely.compute);
    const bool keeps = p->bitsandbytes && estimate_act_keeps_frozen(p, &likely);
    struct estimate_line *line;

    if (!may_hold_inputs(p)) return;
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(BACKWARD) | (holds_inputs(p) ? IN_PHASE(FORWARD) : 0),
                        "inputs that quantised products still hold",
                        (struct estimate_interval){0, keeps ? bytes : 0, bytes});
    estimate_explain(line, "bitsandbytes autograd/_functions.py: ctx.tensors, freed with the graph",
                     "%ju layers · %.0f tokens · %.0f inputs · %.0f B", (uintmax_t)m->layers, likely.tokens, width,
                     likely.compute);
    line->why = "low: the loop drops its loss before the next forward pass; expected: two long micro-batches in a row";
}

/* GPTQ's and AWQ's layers, whose kernels for inference are off in training, unpack by PyTorch's operations: shifted
 * integers of 32 bits, their values in 8 and 16 bits, and products with scales (auto_gptq/nn_modules/qlinear). */
#define UNPACKED_BYTES 10

static void add_temporaries(const struct plan *p, const struct frozen *f, const struct adapted *a,
                            struct estimate_result *r)
{
    struct estimate_line *line;

    if (f->largest > 0) {
        const bool packed =
            p->weights && (strncmp(p->weights->word, "gptq", 4) == 0 || strcmp(p->weights->word, "awq") == 0);
        /* litgpt's plugin quantises float16, which each product converts */
        const bool litgpt = p->runtime == PLAN_RUNTIME_LITGPT;
        const double copies = litgpt && strcmp(p->precision->name, "fp16") != 0 ? 4 : 2,
                     unexplained = p->flat || litgpt || holds_inputs(p) ? 0 : UNEXPLAINED;
        line = estimate_add(
            r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD) | IN_PHASE(BACKWARD), "one matrix in 16 bits",
            (struct estimate_interval){2 * f->largest, copies * f->largest,
                                       packed ? UNPACKED_BYTES * f->largest : copies * f->largest + unexplained});
        estimate_explain(line,
                         packed ? "auto_gptq/nn_modules/qlinear: weights are unpacked for each product"
                                : "bitsandbytes autograd/_functions.py: MatMul4Bit dequantises in forward and backward",
                         "the largest, %s · 2 B", UNITS_COUNT(units_whole(f->largest)));
        line->why = packed ? "high: with the integers of 8 and 32 bits that unpacking makes"
                           : "high: some published peaks of Q-LoRA are that much larger";
    }
    if (a->temporary > 0 && p->adapter != PLAN_ADAPTER_DORA) {
        line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD) | IN_PHASE(BACKWARD), "products of adapters",
                            (struct estimate_interval){a->temporary / 3, a->temporary * 2 / 3, a->temporary});
        estimate_explain(line, "peft loha/layer.py, lokr/layer.py: get_delta_weight",
                         "of the largest matrix: 1 to 3 · rows · cols · 4 B");
        line->why = "backward makes gradients of the product and of its factors";
    }
    if (a->temporary > 0 && (p->adapter == PLAN_ADAPTER_DORA)) {
        line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD) | IN_PHASE(BACKWARD), "DoRA's weight norms",
                            (struct estimate_interval){a->temporary / 2, a->temporary, a->temporary});
        estimate_explain(line, "peft lora/dora.py: get_lora_weight, get_weight_norm",
                         "of the largest matrix: (4 rows · cols + cols · cols) · 4 B");
        line->why = "half as much under autocast or with 16-bit adapters";
    }
}

void estimate_adapters(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    struct frozen f;
    struct adapted a;

    if (p->inference || p->adapter == PLAN_ADAPTER_NONE) return;
    f = frozen_of(p, stage, p->sharding == PLAN_SHARDING_ZERO3);
    a = adapted_of(p, stage);
    add_frozen(p, &f, r);
    add_trained_adapters(p, &a, r);
    add_saved(p, stage, r);
    if (p->flat) add_flat_gradients(p, &f, r);
    if (estimate_shard_gathers(p) && f.plain + f.quantised > 0)
        estimate_states_gathered(p, stage, &f.n, (f.plain_bytes + f.quantised_bytes) / (f.plain + f.quantised), r);
    if (!p->fsdp && p->sharding >= PLAN_SHARDING_ZERO2 && estimate_shard_group(p, false) > 1) add_bucket(r);
    add_temporaries(p, &f, &a, r);
    add_kept_inputs(p, r);
    if (!p->weights || (p->prepared && p->precision->cast == PRECISION_CAST_AUTOCAST)) /* of float32 ones */
        estimate_states_casts(p, stage, r);
}
