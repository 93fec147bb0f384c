/* One forward and backward pass over the tapes of a model's layers: what is kept, and the moment of backward at which
 * most bytes are live. Gradients of parameters appear while activations are freed, so both ends of backward, and the
 * temporary memory of the operations between them, are candidates for the peak. */
#include <math.h>
#include <string.h>
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/shard.h"

struct walk {
    double live;                        /* kept activations and gradients of activations */
    double grads;                       /* gradients of parameters made in this pass */
    double all;                         /* their sum at the end */
    enum { EARLY, BETWEEN, LATE } when; /* first half of backward; last layer and what comes after it */
    bool accumulates;                   /* gradients of an earlier pass exist: a new one is added and freed */
    bool copies; /* autocast makes 16-bit copies of weights; not of gathered ones, which are gathered in 16 bits */
    double first_peak, second_peak;
};

static void see_pass_peak(struct walk *w, double more, double new_grads)
{
    double at = w->live + more + (w->accumulates ? new_grads : w->grads + new_grads);

    /* layers in between are alike, so the sum of what they free and allocate is largest at one of the two ends */
    if (w->when == LATE)
        w->second_peak = fmax(w->second_peak, at - (w->accumulates ? 0 : w->all));
    else if (w->when == EARLY)
        w->first_peak = fmax(w->first_peak, at);
}

static bool is_copied(const struct estimate_act_op *op)
{
    return op->group != ACT_NORM && !op->uncast;
}

static double params_of(const struct estimate_act_tape *t, bool copied)
{
    double sum = 0;

    for (size_t i = 0; i < t->n; i++) sum += copied && !is_copied(&t->ops[i]) ? 0 : t->ops[i].params;
    return sum;
}

/* Autocast's copies of a tape's weights, which autograd keeps until their product's backward. */
static double casts_of(const struct walk *w, const struct estimate_act_tape *t, const struct estimate_act_sizes *z)
{
    return w->copies ? z->compute * params_of(t, true) : 0;
}

/* The layer's forward runs again, and then the live bytes include what it keeps. */
static void walk_forward(struct walk *w, const struct estimate_act_tape *t, const struct estimate_act_sizes *z)
{
    const double kept = estimate_act_saved(t) + casts_of(w, t, z), before = w->live;
    double sum = 0;

    for (size_t i = 0; i < t->n; i++) {
        sum += t->ops[i].saved + (w->copies && is_copied(&t->ops[i]) ? t->ops[i].params * z->compute : 0);
        if (t->ops[i].around > 0) see_pass_peak(w, sum + t->ops[i].around, 0);
    }
    w->live = before + kept;
    see_pass_peak(w, 0, 0);
}

/* Backward of one tape: each operation receives the gradient that the operation after it made. The gradient of the
 * residual stream is not among them. Under autocast the gradient of a weight is made in 16 bits and cast. */
static void walk_backward(struct walk *w, const struct estimate_act_tape *t, const struct estimate_act_sizes *z)
{
    double taken = 0;

    for (size_t i = t->n; i-- > 0;) {
        const struct estimate_act_op *op = &t->ops[i];
        double cast = w->copies && is_copied(op) ? op->params * z->compute : 0;
        see_pass_peak(w, op->in + op->work + cast, cast > 0 ? 0 : op->params * z->gradient);
        w->live += op->in - taken - op->saved - cast;
        see_pass_peak(w, cast, op->params * z->gradient);
        w->grads += op->params * z->gradient;
        taken = op->in;
    }
    w->live -= taken;
}

bool estimate_act_bare_loss(const struct model_shape *m)
{
    return m->family == MODEL_T5 || m->family == MODEL_WHISPER || (m->family == MODEL_BERT && m->positions);
}

/* litgpt's finetune/lora.py: lm_head_chunk_size=128, and a cross entropy for each piece of so many positions. */
#define LITGPT_PIECE 128
#define PIECES_MAX 64

unsigned estimate_act_loss_pieces(const struct plan *p)
{
    if (p->runtime != PLAN_RUNTIME_LITGPT || p->adapter == PLAN_ADAPTER_NONE || p->inference || p->fused_loss) return 1;
    return (unsigned)fmin(PIECES_MAX, fmax(1, ceil((double)p->seq / LITGPT_PIECE)));
}

/* torchtune's recipes are the only ones here that step in backward and compute a loss of pieces. Its pieces are
 * ordinary operations: what the loss keeps of them lives until backward (compiled, the logits; otherwise float32
 * log-probabilities, and the logits until the loss is computed). Backward of all losses runs before that of the
 * products, whose gradients of the weight are added out of place: at the second, a sum, two terms and the gradients of
 * six pieces are live. */
static void walk_pieces_in_backward(const struct plan *p, const struct estimate_act_sizes *z, struct walk *w,
                                    struct estimate_act_pass *out)
{
    const struct model_shape *m = &p->model->shape;
    const double logits = z->tokens * (double)m->vocab, c = z->compute, piece = logits / 8;
    const double weight = (double)m->vocab * estimate_act_table_width(m) * z->gradient;

    out->logits = p->fused_layers ? c * (logits + piece) : (c + 4) * logits + 4 * piece;
    see_pass_peak(w, out->logits, 0);
    w->live += c * z->tokens * (double)m->hidden;
    see_pass_peak(w, 6 * c * piece, 3 * weight);
    out->at_loss = true;
    w->grads += weight;
    if (m->tied) w->live += weight; /* until the embedding's */
}

/* A loss that makes the logits in pieces of so few tokens that they are as large as the hidden states. Liger's and
 * Apple's kernels free the logits of a piece with it; high: they are kept for backward. Those beside adapters were not
 * in 13 published rows of kernels and 4 of torchtune. */
static void walk_pieces(const struct plan *p, const struct estimate_act_sizes *z, struct walk *w,
                        struct estimate_act_pass *out)
{
    const struct model_shape *m = &p->model->shape;
    const bool full = p->adapter == PLAN_ADAPTER_NONE;
    const double logits = z->tokens * (double)m->vocab, c = z->compute, input = c * z->tokens * (double)m->hidden;
    const double weight = full ? (double)m->vocab * estimate_act_table_width(m) : 0;
    const double kept = full && z->variant == (p->fused_layers ? ACT_EAGER : ACT_PADDED) ? c * logits : 0;
    const double made = (c + 8) * fmin(logits, z->tokens * (double)m->hidden) + kept;

    if (full && p->step == PLAN_STEP_IN_BACKWARD && z->variant >= (p->fused_layers ? ACT_FUSED : ACT_EAGER)) {
        walk_pieces_in_backward(p, z, w, out);
        return;
    }
    out->logits = made + input;
    w->live += input; /* the gradient of the input is made immediately */
    see_pass_peak(w, made, weight * z->gradient);
    out->at_loss = true;
    w->live -= w->copies ? weight * c : 0; /* autocast's copy is freed after the product */
    w->grads += weight * z->gradient;
}

/* The loss over the vocabulary. The script holds the logits in the matrix product's type (`held`); float32
 * log-probabilities are kept; backward makes two more float32 matrices, of log-probabilities and logits. */
static void walk_loss(const struct plan *p, const struct estimate_act_sizes *z, struct walk *w,
                      struct estimate_act_pass *out)
{
    const struct model_shape *m = &p->model->shape;
    double logits = z->tokens * (double)m->vocab, c = z->compute;
    double weight = p->adapter != PLAN_ADAPTER_NONE ? 0 : (double)m->vocab * estimate_act_table_width(m);
    /* Hugging Face's losses convert logits to float32; a bare cross_entropy takes them in their own type. Autocast runs
     * its log_softmax in that type, because cross_entropy passes it on, and nll_loss in float32: log-probabilities are
     * kept in both types, and backward makes only one float32 matrix. */
    bool bare = p->fused_loss || (z->variant == ACT_FUSED && !p->fused_layers) || estimate_act_bare_loss(m),
         both = bare && z->amp && !m->logits_bias;
    const bool widened =
        m->logits_bias && z->amp && z->variant != ACT_FUSED; /* the float32 bias is a buffer, not a parameter */
    double wide = bare && !z->amp ? c : 4, made = both ? wide : 2 * wide, narrow = both ? c : 0;
    double before = w->live, tanh_kept = estimate_act_caps_logits(p, z) ? c * logits : 0, held = c * logits;
    /* in registers, as float32; litgpt and Lightning Thunder compile the model and not the loss */
    const bool compiled = p->fused_loss && p->fused_layers && p->runtime != PLAN_RUNTIME_LITGPT;

    if (p->chunked_loss) {
        walk_pieces(p, z, w, out);
        return;
    }
    /* transformers before 4.46 returned float32 logits (`logits = logits.float()`); high: an unknown version */
    const bool returns_wide = p->transformers ? p->transformers < 446 : z->variant == ACT_PADDED;
    if (m->family == MODEL_MAMBA || m->wide_logits || widened || (returns_wide && !bare)) held = 4 * logits;
    if ((z->variant == ACT_FUSED && !p->fused_layers) || z->variant == ACT_LEAN || p->drop_outputs) held = 0;
    if (compiled) { /* the logits are kept for backward, which makes only their gradient */
        wide = 0;
        made = c;
        narrow = held > 0 ? 0 : c;
    }
    const unsigned pieces = z->variant == ACT_PADDED ? 1 : estimate_act_loss_pieces(p);
    if (pieces > 1) { /* Fabric returns the logits in float32; backward makes the gradients of one piece at a time */
        held = held > 0 ? 4 * logits : 0;
        made /= pieces;
    }
    out->held = held;
    w->live += held + tanh_kept + (wide + narrow) * logits;
    /* loss_utils.py of transformers 4.46 to 4.48: the caller's 16-bit logits live beside float32 ones and a copy of
     * those without the last token */
    const bool copies = p->transformers ? p->transformers >= 446 && p->transformers < 449 : z->variant == ACT_PADDED;
    if (!bare && copies && p->batch > 1 && (held <= 0 || !p->transformers) && c < 4) made += c;
    see_pass_peak(w, made * logits, 0);
    out->logits = w->live + made * logits - before;
    out->at_loss = true;
    w->live -= wide * logits; /* log-probabilities are freed; the gradient of the logits stays, cast */
    w->live += c * logits / pieces;
    see_pass_peak(w, c < wide ? wide * logits / pieces : 0, 0);
    w->live -= narrow * logits;
    w->live -= tanh_kept;
    see_pass_peak(w, c * z->tokens * (double)m->hidden + (w->copies ? weight * c : 0),
                  w->copies ? 0 : weight * z->gradient);
    w->live += c * z->tokens * (double)m->hidden - c * logits / pieces - (w->copies ? weight * c : 0);
    see_pass_peak(w, w->copies ? weight * c : 0, weight * z->gradient);
    w->grads += weight * z->gradient;
    if (p->step == PLAN_STEP_IN_BACKWARD && m->tied) w->live += weight * z->gradient; /* until the embedding's */
}

bool estimate_act_has_logits(const struct model_shape *m)
{
    return (m->family == MODEL_GPT || m->family == MODEL_LLAMA || m->family == MODEL_T5 || m->family == MODEL_WHISPER ||
            m->family == MODEL_MAMBA || m->masked_lm) &&
           !m->headless;
}

/* Whether gradients exist elsewhere (of an earlier pass, in DDP's buckets, on the host) or are freed immediately (each
 * parameter steps in backward). */
static bool gradients_stay_elsewhere(const struct plan *p)
{
    return plan_keeps_gradients(p) || p->step == PLAN_STEP_IN_BACKWARD || estimate_shard_views_buckets(p) ||
           (p->offload != PLAN_OFFLOAD_NONE && p->sharding >= PLAN_SHARDING_ZERO2);
}

/* What Whisper keeps before and after its encoder's layers: the spectrogram, twice as long as the sequence made of it;
 * the outputs of two convolutions and of their GELUs; the encoder's last norm, and the encoder's output. */
static void save_encoder_ends(const struct plan *p, const struct estimate_act_sizes *e, struct estimate_act_pass *out)
{
    const struct model_shape *m = &p->model->shape;
    double width = (double)m->hidden, spectrogram = 2 * e->tokens * (double)m->channels;
    struct estimate_act_tape end;

    if (m->family == MODEL_CLIP) { /* the pixels, norms before (CLIP's) and after the layers */
        const double pixels = e->batch * (double)(m->channels * m->image * m->image);
        out->saved[ACT_NORM] += (e->stream + (e->amp ? e->compute : 0)) * pixels +
                                (m->projection ? 2 : 1) * e->stream * e->tokens * (double)m->image_hidden;
        return;
    }
    estimate_act_last_norm(p, e, &end);
    out->saved[ACT_NORM] += estimate_act_saved(&end) + e->stream * e->tokens * width;
    if (p->adapter == PLAN_ADAPTER_NONE) { /* the decoder reads the encoder's output itself, not a copy */
        out->saved[ACT_NORM] -= e->compute * e->tokens * width;
        out->saved[ACT_CONV] += 5 * e->compute * e->tokens * width + (e->amp ? e->compute : 0) * spectrogram;
    }
    out->saved[ACT_CONV] += e->stream * spectrogram;
}

/* The layers of a model, dense ones and those of experts; of Whisper, the encoder's and the decoder's. */
struct layers {
    const struct plan *p;
    const struct model_shape *m;
    struct estimate_act_sizes z, e;
    struct estimate_act_tape dense, moe, last; /* last: the norm after all of them */
    struct estimate_act_kept of_dense, of_moe; /* of recomputed ones */
    struct estimate_act_tape group;            /* of a model whose layers are grouped: one of them */
    double dense_n, moe_n;
    double stream, encoder_stream; /* bytes of one layer's input */
    double embedding;              /* trained elements */
    bool sound, again, has_logits; /* sound, or images of CLIP: two lengths; again: layers are recomputed */
};

static void read_layers(const struct plan *p, enum estimate_act_variant variant, struct layers *l)
{
    const struct model_shape *m = &p->model->shape;
    uint64_t sparse = estimate_act_moe_layers(m);

    *l = (struct layers){.p = p, .m = m, .z = estimate_act_sizes_of(p, variant)};
    l->e = estimate_act_encoder_sizes(p, &l->z);
    l->dense_n = (double)(m->layers - sparse);
    l->moe_n = (double)sparse;
    l->stream = l->z.stream * l->z.tokens * (double)m->hidden;
    l->encoder_stream = l->e.stream * l->e.tokens * (double)(m->family == MODEL_CLIP ? m->image_hidden : m->hidden);
    l->embedding = p->adapter != PLAN_ADAPTER_NONE ? 0 : (double)m->vocab * estimate_act_table_width(m);
    l->sound = m->family == MODEL_WHISPER || m->family == MODEL_CLIP;
    l->again = plan_remakes_layers(p);
    l->has_logits = estimate_act_has_logits(m);
    estimate_act_layer(p, &l->e, false, &l->dense);
    estimate_act_layer(p, &l->z, true, &l->moe);
    estimate_act_last_norm(p, &l->z, &l->last);
    if (p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP) {
        estimate_act_kept(p, &l->e, false, &l->of_dense);
        estimate_act_kept(p, &l->z, true, &l->of_moe);
    }
}

static void save_layers(const struct layers *l, struct estimate_act_pass *out)
{
    const struct estimate_act_sizes *z = &l->z;

    const double dense = (double)plan_remade_layers(l->p, (uint64_t)l->dense_n),
                 moe = (double)plan_remade_layers(l->p, l->m->layers) - dense;

    out->inputs = plan_kept_inputs(l->p) * (dense * l->encoder_stream + moe * l->stream);
    for (int g = 0; g < ACT_GROUPS_N; g++)
        out->saved[g] = dense * l->of_dense.group[g] + moe * l->of_moe.group[g] +
                        (l->dense_n - dense) * estimate_act_group_saved(&l->dense, g) +
                        (l->moe_n - moe) * estimate_act_group_saved(&l->moe, g);
    out->head = estimate_act_saved(&l->last);
    if (estimate_act_embedding_dropout(l->p, z)) out->saved[ACT_MASKS] += z->tokens * (double)l->m->hidden;
    if (l->m->family == MODEL_T5) { /* the encoder's own end, with its output; dropout at both ends of both stacks */
        out->saved[ACT_NORM] += out->head;
        if (estimate_act_embedding_dropout(l->p, z)) /* BART's stacks have none at their end */
            out->saved[ACT_MASKS] += (l->m->buckets ? 3 : 1) * z->tokens * (double)l->m->hidden;
        if (l->m->embedding_norm && l->m->final_norm) out->saved[ACT_NORM] += 2 * l->stream;
    }
    if (l->sound) save_encoder_ends(l->p, &l->e, out);
}

/* A recomputed layer of each group in the place of one with the mean tape `mean`: groups follow each other in short
 * periods, so the largest is near both ends of backward. */
static void see_groups(struct layers *l, struct walk *w, const struct estimate_act_tape *mean, double apart)
{
    for (unsigned i = 0; i < l->m->blocks_n; i++) {
        struct walk one = *w;
        if (!l->m->blocks[i].layers) continue;
        estimate_act_group_layer(l->p, &l->z, i, &l->group);
        if (w->when == LATE) one.grads += l->z.gradient * (params_of(mean, false) - params_of(&l->group, false));
        one.live -= l->stream - apart;
        walk_forward(&one, &l->group, &l->z);
        walk_backward(&one, &l->group, &l->z);
        w->first_peak = fmax(w->first_peak, one.first_peak);
        w->second_peak = fmax(w->second_peak, one.second_peak);
    }
}

/* FSDP's first version reshards a unit without trained parameters by a hook on its inputs, which it holds until
 * backward ends (_runtime_utils.py: _register_post_backward_reshard_only_hook). A reentrant checkpoint around the unit
 * runs it again on a detached input, so the hook keeps that input and its gradient. Since transformers 4.52 (Llama,
 * Qwen2; 4.53 others) the checkpoint is inside the unit (GradientCheckpointingLayer). High: an unknown version. */
static bool hooks_keep_inputs(const struct plan *p, enum estimate_act_variant variant)
{
    const bool frozen_units =
        p->flat && p->adapter != PLAN_ADAPTER_NONE && (p->separate || p->weights) && estimate_shard_gathers(p);

    if (!frozen_units || p->not_reentrant || p->checkpoint != PLAN_CHECKPOINT_FULL) return false;
    return p->transformers ? p->transformers < 453 : variant == ACT_PADDED;
}

/* Half of a layer whose modules are checkpointed one by one: a norm, and attention or the MLP. */
static void walk_half(struct layers *l, struct walk *w, const struct estimate_act_tape *t, size_t from, size_t to,
                      double apart)
{
    l->group.n = to - from;
    memcpy(l->group.ops, t->ops + from, l->group.n * sizeof *t->ops);
    w->live -= plan_kept_inputs(l->p) / 2 * l->stream - apart;
    walk_forward(w, &l->group, &l->z);
    walk_backward(w, &l->group, &l->z);
    w->live -= apart;
}

/* Backward of all layers and the embedding. The embedding's gradient is dense. If the output layer is tied, the two are
 * added before they reach the parameter: out of place, unless autocast's cast gave the output layer's gradient a tensor
 * of its own. */
static void walk_layers(struct layers *l, struct walk *w)
{
    const struct model_shape *m = l->m;
    const struct estimate_act_sizes *z = &l->z;
    const uint64_t decoder = (uint64_t)l->dense_n; /* the first layer that is not dense */
    /* input of a recomputed layer that does not keep it */
    double apart = estimate_act_keeps_input(l->p, z) ? 0 : l->stream;
    bool held_apart = w->accumulates && l->p->step != PLAN_STEP_IN_BACKWARD; /* the output layer's is in no sum */
    double twice = m->tied && l->has_logits ? l->embedding * z->gradient : 0;

    const bool keeps_inputs = hooks_keep_inputs(l->p, z->variant);

    twice *= (w->copies ? 0 : 1) + (held_apart ? 1 : 0);
    walk_backward(w, &l->last, z);
    w->live += l->stream - (l->has_logits ? z->compute * z->tokens * (double)m->hidden : 0);
    w->live += m->family == MODEL_WHISPER ? l->encoder_stream
                                          : 0; /* the gradient of the encoder's output, summed up layer by layer */
    for (uint64_t i = m->layers; i-- > 0;) {
        const bool moe = i >= decoder;
        const struct estimate_act_tape *t = moe ? &l->moe : &l->dense;
        const bool again = plan_remakes_layer(l->p, i);
        w->when = i == 0 ? LATE : i < m->layers / 2 && !l->sound ? BETWEEN : EARLY;
        if (l->sound && i + 1 == decoder) { /* end of the decoder: its stream's gradient is freed */
            see_pass_peak(w, twice, l->embedding * z->gradient);
            w->live -= l->stream;
            w->live += m->family == MODEL_CLIP ? l->encoder_stream : 0;
            w->grads += m->family == MODEL_CLIP ? l->embedding * z->gradient : 0;
            apart = 0;
        }
        if (again && w->when != BETWEEN) see_groups(l, w, t, apart);
        if (again && l->p->by_module) {
            walk_half(l, w, t, t->mlp, t->n, apart);
            walk_half(l, w, t, 0, t->mlp, apart);
            continue;
        }
        if (again) { /* kept results are part of what is recomputed, or are freed then */
            w->live -= (moe ? l->stream : l->encoder_stream) - apart + (moe ? &l->of_moe : &l->of_dense)->sum;
            walk_forward(w, t, z);
        }
        walk_backward(w, t, z);
        if (again) w->live += keeps_inputs ? 2 * l->stream - apart : -apart;
    }
    w->when = LATE;
    if (m->family == MODEL_WHISPER) /* convolutions: two gradients of the longer one */
        see_pass_peak(w, 2 * 2 * l->e.compute * l->e.tokens * (double)m->hidden, 0);
    else
        see_pass_peak(w, twice, l->sound ? 0 : l->embedding * z->gradient);
}

void estimate_act_pass(const struct plan *p, enum estimate_act_variant variant, struct estimate_act_pass *out)
{
    struct layers l;
    const struct estimate_act_sizes *z = &l.z;
    memset(out, 0, sizeof *out);
    read_layers(p, variant, &l);
    save_layers(&l, out);

    struct walk w = {.accumulates = gradients_stay_elsewhere(p), .copies = z->amp && !estimate_shard_gathers(p)};
    w.live = out->inputs + out->head;
    for (int g = 0; g < ACT_GROUPS_N; g++) w.live += out->saved[g];
    double kept = w.live;
    double dense = l.dense_n - (double)plan_remade_layers(p, (uint64_t)l.dense_n),
           moe = (double)l.m->layers - (double)plan_remade_layers(p, l.m->layers) - dense;
    double casts = dense * casts_of(&w, &l.dense, z) + moe * casts_of(&w, &l.moe, z);
    if (w.copies && l.has_logits) casts += l.embedding * z->compute;
    w.live += casts;
    w.all = z->gradient * (l.dense_n * params_of(&l.dense, false) + l.moe_n * params_of(&l.moe, false) +
                           params_of(&l.last, false) + l.embedding * (l.m->tied ? 1 : 2));
    if (l.again && w.copies && l.has_logits) /* autocast holds its copies of all weights until it ends */
        see_pass_peak(&w,
                      z->compute * (l.dense_n * params_of(&l.dense, true) + l.moe_n * params_of(&l.moe, true)) +
                          (p->chunked_loss ? 0 : (z->compute + 8) * z->tokens * (double)l.m->vocab),
                      0);
    if (l.has_logits) walk_loss(p, z, &w, out);
    double at_loss = w.first_peak;
    w.first_peak = 0;
    walk_layers(&l, &w);
    out->at_loss = out->at_loss && at_loss >= w.first_peak;
    out->first = fmax(at_loss, w.first_peak) - kept - casts;
    out->after_loss = fmax(0, at_loss - w.first_peak);
    out->second = w.second_peak - out->held;
}
