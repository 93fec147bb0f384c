/* Activations under tensor, sequence and pipeline parallelism: closed forms for Megatron-LM's fused kernels.
 * Korthikanti et al. 2022, table 2, with each term's width taken from the model. For GPT (h = a·d, f = 4h) the sums
 * below equal theirs, 10 + 24/t + 5as/(ht). With FSDP and without pipelines: PyTorch's DTensor, whose loss makes more
 * copies of the logits (torch/distributed/tensor/parallel/loss.py). */
#include <math.h>
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/shard.h"

#define KORTHIKANTI "Korthikanti et al. 2022 (arXiv:2205.05198), table 2"
#define CLOSED "a closed form for fused kernels (Megatron-LM)"
/* How far the layers' bytes can be from the closed form. 18 peaks of Megatron-LM's own tests on H100s are within 6 %.
 */
#define DOUBT 0.2
#define DOUBT_MEGATRON 0.15

/* PyTorch's tensor parallelism (DTensor), which is what divides a model that FSDP shards. Pipelines keep the closed
 * form of Megatron-LM. */
static bool is_dtensor(const struct plan *p)
{
    return p->tp > 1 && p->pp == 1 && p->fsdp && estimate_shard_gathers(p);
}

/* FSDP2 computes in 16 bits by MixedPrecisionPolicy instead of autocast: tensors between layers have 16 bits, too
 * (torchtitan parallelize.py: apply_fsdp). */
static struct estimate_act_sizes parallel_sizes(const struct plan *p, enum estimate_act_variant variant)
{
    struct estimate_act_sizes z = estimate_act_sizes_of(p, variant);

    if (is_dtensor(p) && z.amp) z.stream = z.compute;
    return z;
}

/* loss_parallel's backward computes (grad_input + exp(x)) * grad_output: four float32 tensors of the logits' size exist
 * at once. A compiled loss fuses them. */
static double dtensor_loss(const struct plan *p, double logits)
{
    return is_dtensor(p) && !p->fused_loss && !p->chunked_loss ? 4 * 4 * logits : 0;
}

/* Bytes per token of one layer: `whole` is on every tensor-parallel GPU, or divided if sequences are divided too;
 * `divided` is divided among them; the scores. */
struct layer_bytes {
    double whole, divided, scores;
    double routed, read; /* parts of `whole`: what experts read, what other matrices read */
};

static struct layer_bytes layer_bytes(const struct plan *p, const struct estimate_act_sizes *z)
{
    const struct model_shape *m = &p->model->shape;
    double h = (double)m->hidden, heads = (double)m->heads, c = z->compute;
    double q = heads * (double)m->head_dim, k = (double)(m->kv_heads * m->head_dim), v = k, out = q;
    double f = (double)m->ffn, used = 1, masks = m->family == MODEL_GPT || m->family == MODEL_BERT ? 2 * h : 0;
    struct layer_bytes b;

    if (m->kv_rank) {
        q = k = heads * (double)(m->nope_dim + m->rope_dim);
        v = out = heads * (double)m->v_dim;
    }
    if (m->experts) {
        used = (double)m->experts_used;
        f = used * (double)m->expert_ffn + (double)(m->shared_ffn ? m->shared_ffn : m->shared_experts * m->expert_ffn);
    }
    b.routed = m->experts ? z->read * used * h : 0;
    b.read = z->read * (m->experts ? m->shared_experts > 0 ? 2 : 1 : 2) * h;
    b.whole = 2 * z->stream * h + z->read * (1 + used) * h + masks;
    b.divided = c * (q + k + v + out) + (m->gated ? 2 * c + z->read : c + z->read) * f;
    if (is_dtensor(p) && m->gated && !p->fused_layers) /* silu(x) and its product with y are two operations */
        b.divided += c * f;
    if (m->experts && !is_dtensor(p)) /* moe/experts.py: what the activation returns, which probabilities multiply */
        b.divided += c * used * (double)m->expert_ffn;
    b.scores = (masks > 0 ? 2 * c + 1 : 2 * c) * heads * z->seq;
    return b;
}

/* `whole` on one GPU. Experts that are divided among the tensor-parallel GPUs read all tokens of these GPUs
 * (moe/token_dispatcher.py: all-gather). DTensor's products save the input that they gathered (style.py:
 * ColwiseParallel); Megatron-LM's gather it again in backward. */
static double whole_here(const struct plan *p, const struct layer_bytes *b)
{
    const double gathered = is_dtensor(p) ? b->read : plan_expert_tp(p) > 1 ? b->routed : 0;

    return p->sequence_parallel ? (b->whole - gathered) / (double)p->tp + gathered : b->whole;
}

/* Micro-batches whose activations a stage holds at once: all those on their way to the last stage and back. With
 * interleaved chunks, (p - stage - 1) * 2 + (chunks - 1) * p of one chunk are on their way before the first backward
 * (Megatron-LM's schedules.py: get_pp_rank_microbatches), and one more runs forward. */
double estimate_act_in_flight(const struct plan *p, uint64_t stage)
{
    double stages = (double)p->pp, deep = stages - (double)stage;

    if (p->pp <= 1) return 1;
    if (p->interleave > 1) deep = stages + (stages - 1 - 2 * (double)stage) / (double)p->interleave;
    return fmin(deep, (double)p->accumulation); /* at most the micro-batches of a step */
}

/* What a stage keeps of one micro-batch's layers, roughly: only the choice of the moment depends on it. */
static double micro_batch_bytes(const struct plan *p, uint64_t stage)
{
    const struct estimate_act_sizes z = parallel_sizes(p, ACT_EAGER);
    const struct layer_bytes b = layer_bytes(p, &z);
    const double t = (double)p->tp, shared = p->sequence_parallel ? t : 1,
                 layers = (double)estimate_shard_layers(p, stage),
                 remade = (double)plan_remade_layers(p, (uint64_t)layers),
                 input = z.tokens * z.stream * (double)p->model->shape.hidden / shared;

    return remade * input + (layers - remade) * z.tokens * (whole_here(p, &b) + b.divided / t);
}

/* With as many micro-batches as stages, a stage of torchtitan's schedules runs all forward passes of its chunks but the
 * last before its first backward, when no gradient exists yet. Then activations go and gradients come: chunk after
 * chunk from the last one, all of whose micro-batches have been through backward when the chunk before it begins
 * (torch/distributed/pipelining/schedules.py: Schedule1F1B, ScheduleInterleaved1F1B). */
struct estimate_act_moment estimate_act_fullest(const struct plan *p, uint64_t stage)
{
    const double all = (double)p->accumulation, flight = estimate_act_in_flight(p, stage),
                 chunks = (double)p->interleave, of_last = chunks * flight - (chunks - 1) * all;
    struct estimate_act_moment fullest = {flight, 1};
    double most, one, gradients;

    if (p->pp == 1 || !p->fsdp || p->master_weights || !p->batch || p->accumulation <= 1 || p->accumulation > p->pp ||
        (chunks > 1 ? of_last < 1 : flight < all))
        return fullest;
    one = micro_batch_bytes(p, stage);
    gradients = estimate_shard_sum(p, stage, NULL).all * p->precision->gradients;
    fullest.gradients = 0;
    most = flight * one;
    for (double left = chunks; left >= 1; left--) { /* chunks that hold micro-batches; the last one's first is done */
        const double held = left < chunks ? all * left : all * (left - 1) + of_last;
        const struct estimate_act_moment now = {(held - 1) / chunks, (chunks - left + 1) / chunks};
        const double bytes = now.flight * one + now.gradients * gradients;
        if (bytes <= most) continue;
        most = bytes;
        fullest = now;
    }
    return fullest;
}

static struct estimate_line *add_parallel_line(struct estimate_result *r, enum estimate_part part, unsigned phases,
                                               const char *name, double low, double likely, double high)
{
    struct estimate_line *line = estimate_add(r, part, phases, name, (struct estimate_interval){low, likely, high});

    line->why = CLOSED; /* dropped if low and high are equal */
    return line;
}

/* Checkpointing of chosen operations: a matrix that is divided by rows returns sums of the full width for all tokens,
 * which are kept in addition to the result of the reduce-scatter. Compiled layers keep only what backward reads. */
static double operations_kept(const struct plan *p, enum estimate_act_variant variant)
{
    struct estimate_act_sizes z = parallel_sizes(p, variant);
    struct plan whole = *p; /* without adapters, as a note reports */
    double t = (double)p->tp, width = z.tokens * (double)p->model->shape.hidden;
    struct estimate_act_kept kept;

    whole.adapter = PLAN_ADAPTER_NONE;
    estimate_act_kept(&whole, &z, p->model->shape.experts > 0, &kept);
    return kept.whole + (kept.sum - kept.whole) / t + (p->sequence_parallel ? 2 * z.compute * width / t : 0);
}

static void add_operations(const struct plan *p, double layers, double flight, double input, double whole_input,
                           struct estimate_result *r)
{
    double one = input + operations_kept(p, ACT_EAGER), least = input + operations_kept(p, ACT_FUSED),
           n = layers * flight;
    struct estimate_line *line = add_parallel_line(
        r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "kept by the checkpointed layers",
        n * fmax(input, fmin(least, 0.9 * one)), n * one, n * fmax(1.1 * one, one - input + whole_input));

    line->why = "low: compiled layers keep only what is read; high: other products or whole inputs are kept";
    estimate_explain(line, ACT_KEPT_SOURCE,
                     "%.0f layers · %.4g micro-batches · (%.0f B of input + %.0f B of operations)", layers, flight,
                     input, one - input);
}

static void add_stage_layers(const struct plan *p, const struct estimate_act_sizes *z, uint64_t stage,
                             struct estimate_result *r)
{
    struct layer_bytes b = layer_bytes(p, z);
    double t = (double)p->tp, layers = (double)estimate_shard_layers(p, stage),
           flight = estimate_act_fullest(p, stage).flight;
    bool scores = p->attention == PLAN_ATTENTION_EAGER || estimate_act_falls_back(p, z),
         full = p->checkpoint == PLAN_CHECKPOINT_FULL;
    bool operations = p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP;
    bool kept = scores && p->checkpoint == PLAN_CHECKPOINT_NONE;
    double whole = whole_here(p, &b), divided = (b.divided + (kept ? b.scores : 0)) / t;
    double one = z->tokens * (whole + divided), input = z->tokens * z->stream * (double)p->model->shape.hidden;
    double live = z->tokens * (whole + (b.divided + (scores ? b.scores : 0)) / t);
    /* what backward recomputes of its layer, whose input is kept */
    double shared = p->sequence_parallel ? t : 1, again = full ? live - input / shared : live - one;
    double again_low = again; /* compiled layers keep less and recompute more */
    if (operations) {         /* all that is not kept of the layer, recomputed at once */
        again_low = fmax(0, live - input / shared - operations_kept(p, ACT_FUSED));
        again = fmax(0, live - input / shared - operations_kept(p, ACT_EAGER));
    }
    const double remade = full ? (double)plan_remade_layers(p, estimate_shard_layers(p, stage)) : 0;
    const double total = flight * (remade * plan_kept_inputs(p) * input / shared + (layers - remade) * one);
    const double doubt = p->runtime == PLAN_RUNTIME_MEGATRON ? DOUBT_MEGATRON : DOUBT;
    struct estimate_line *line;

    if (operations) {
        add_operations(p, layers, flight, input / shared, input, r);
    } else {
        line = add_parallel_line(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD),
                                 full ? "inputs of the checkpointed layers" : "activations of the layers",
                                 full && remade == layers ? total : total * (1 - doubt), total,
                                 full && remade == layers ? total : total * (1 + doubt));
        if (full && remade < layers)
            estimate_explain(line, KORTHIKANTI,
                             "%.4g micro-batches · %.0f tokens · (%.0f layers · %.0f B + %.0f others · %.0f B)", flight,
                             z->tokens, remade, input / shared / z->tokens, layers - remade, one / z->tokens);
        else if (full)
            estimate_explain(line, KORTHIKANTI, "%.0f layers · %.4g micro-batches · %.0f tokens · %.0f B", layers,
                             flight, z->tokens, input / shared / z->tokens);
        else
            estimate_explain(line, KORTHIKANTI, "%.0f layers · %.4g micro-batches · %.0f tokens · (%.0f + %.0f/%ju) B",
                             layers, flight, z->tokens, whole, b.divided + (kept ? b.scores : 0), (uintmax_t)p->tp);
    }
    const double freed = dtensor_loss(p, z->tokens * (double)p->model->shape.vocab / t); /* before the last layer's */
    line = add_parallel_line(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "the layer that backward computes",
                             fmax(0, fmin(0.8 * again_low + 0.3 * live, again + 0.5 * live) - freed),
                             fmax(0, again + 0.5 * live - freed), fmax(0, 1.2 * again + live - freed));
    estimate_explain(line, KORTHIKANTI, "%.0f tokens · (%.0f B recomputed, and gradients of %.0f B)", z->tokens,
                     again / z->tokens, live / z->tokens);
    line = add_parallel_line(r, ESTIMATE_TEMPORARIES, IN_PHASE(BACKWARD), "the layer that backward ends with",
                             0.8 * live, 1.3 * live, 2 * live);
    estimate_explain(line, KORTHIKANTI, "%.0f tokens · %.0f B, and its gradients", z->tokens, live / z->tokens);
}

/* The embedding's dropout on the first stage; the loss on the last, with the logits of the last micro-batch only. */
static void add_ends(const struct plan *p, const struct estimate_act_sizes *z, uint64_t stage,
                     struct estimate_result *r)
{
    const struct model_shape *m = &p->model->shape;
    double t = (double)p->tp, h = (double)m->hidden, logits = z->tokens * (double)m->vocab / t;
    double shared = p->sequence_parallel ? t : 1, mask = m->family == MODEL_GPT ? z->tokens * h / shared : 0;
    /* the output layer saves its input, which DTensor gathers from all tokens (style.py: ColwiseParallel) */
    double gathered = is_dtensor(p) && p->sequence_parallel ? z->tokens * z->compute * h : 0;
    double head = z->tokens * (z->stream + z->read) * h / shared + gathered;
    struct estimate_line *line;

    if (stage == 0 && mask > 0) {
        line = add_parallel_line(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "the embedding's dropout mask", 0,
                                 estimate_act_in_flight(p, 0) * mask, estimate_act_in_flight(p, 0) * mask);
        estimate_explain(line, "Megatron-LM theoretical_memory_usage.py", "%.4g micro-batches · %.0f tokens · %.0f B",
                         estimate_act_in_flight(p, 0), z->tokens, h / shared);
    }
    if (stage + 1 != p->pp || !m->vocab || m->family == MODEL_VIT) return;
    line = add_parallel_line(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "last norm and input of the output layer",
                             head, head, head);
    line->why = NULL;
    estimate_explain(line, "Megatron-LM theoretical_memory_usage.py", "%.0f tokens · %.0f B", z->tokens,
                     head / z->tokens);
    if (p->chunked_loss) logits = fmin(logits, z->tokens * h / t);
    if (dtensor_loss(p, logits) > 0) {
        const double four = dtensor_loss(p, logits), script = p->drop_outputs ? 0 : z->compute * logits;
        line = add_parallel_line(r, ESTIMATE_LOGITS, IN_PHASE(FORWARD), "logits and loss", 3 * four / 4, four + script,
                                 four + z->compute * logits);
        line->why = "low: what exp(x) leaves is reused by the product; high: the script holds the logits as well";
        estimate_explain(line, "torch/distributed/tensor/parallel/loss.py: (grad_input + exp(x)) * grad_output",
                         "%.0f tokens · %ju words / tp %ju · (4 · 4 + %.0f) B", z->tokens, (uintmax_t)m->vocab,
                         (uintmax_t)p->tp, p->drop_outputs ? 0 : z->compute);
        return;
    }
    /* Megatron-LM's gradient too is made in place; fused_cross_entropy.py converts it out of place. */
    const bool in_place = p->runtime == PLAN_RUNTIME_MEGATRON;
    const double wide = in_place && p->fused_loss ? 8 : 4;
    /* Megatron-LM's arguments.py: no fused loss by default, and Transformer Engine's is one */
    const double least = in_place && !p->fused_loss ? wide + z->compute : 4;
    line = add_parallel_line(r, ESTIMATE_LOGITS, IN_PHASE(FORWARD), "logits and loss", least * logits,
                             (wide + z->compute) * logits, ((in_place ? wide : 8) + z->compute) * logits);
    line->why = in_place
                    ? "low: Transformer Engine's loss"
                    : "low: float32 logits overwritten in place (Megatron-LM); high: logits and a separate gradient";
    estimate_explain(line, "Megatron-LM tensor_parallel/cross_entropy.py: the vocabulary is divided",
                     "%.0f tokens · %ju words / tp %ju · (%.0f + %.0f) B", z->tokens, (uintmax_t)m->vocab,
                     (uintmax_t)p->tp, wide, z->compute);
}

void estimate_act_parallel(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    struct estimate_act_sizes z = parallel_sizes(p, ACT_EAGER);

    add_stage_layers(p, &z, stage, r);
    add_ends(p, &z, stage, r);
    if (p->adapter != PLAN_ADAPTER_NONE)
        estimate_note(r, "with tensor or pipeline parallelism, activations are counted as if no weight were frozen");
}
