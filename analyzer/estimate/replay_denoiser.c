/* The operations of a denoiser in one pass, from the model's list: the type in which each runs, what it keeps, and its
 * adapters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/replay.h"
#include "analyzer/model/denoisers.h"

struct build {
    const struct plan *p;
    struct estimate_replay_list *list;
    const struct model_op *ops;
    double batch;
    double stored;   /* bytes of an element of the weights, and of what is not computed in another type */
    bool amp;        /* autocast: products in 16 bits, norms in float32 */
    bool trains;     /* all weights; else only adapters, if any */
    uint32_t *at;    /* the replay's index of each of the model's operations */
    double *element; /* bytes of an element, of each operation of the replay */
    size_t element_cap;
    uint32_t block;
};

static uint32_t put_denoiser_node(struct build *b, struct estimate_replay_op op, double element)
{
    uint32_t at;

    op.checkpoint = b->p->checkpoint == PLAN_CHECKPOINT_FULL && !b->p->inference ? b->block : 0;
    at = estimate_replay_put(b->list, op);
    if (at >= b->element_cap) {
        b->element_cap = 2 * at + 1024;
        b->element = arena_realloc(b->element, b->element_cap, sizeof *b->element);
    }
    b->element[at] = element;
    return at;
}

static bool is_op_trained(const struct build *b, uint32_t at)
{
    return at && !(b->list->ops[at - 1].flags & REPLAY_NO_GRADIENT);
}

/* The same numbers in another type. */
static uint32_t put_denoiser_cast(struct build *b, uint32_t at, double element)
{
    if (!at || b->element[at] == element) return at;
    return put_denoiser_node(
        b,
        (struct estimate_replay_op){.flags = is_op_trained(b, at) ? 0 : REPLAY_NO_GRADIENT,
                                    .from = at,
                                    .bytes = b->list->ops[at - 1].bytes / b->element[at] * element},
        element);
}

static bool put_denoiser_adapted(const struct build *b, const struct model_op *o)
{
    const struct model_tensor t = {.role = o->role, .dims = 2, .rows = o->rows, .cols = o->cols};
    struct model_tensor named = t;

    if (b->p->inference || b->p->adapter == PLAN_ADAPTER_NONE || o->kind != MODEL_OP_LINEAR) return false;
    snprintf(named.name, sizeof named.name, "%s", o->name);
    return estimate_adapter_is_target(b->p, &named);
}

/* peft's LoRA beside a product: its input in float32, and back in 16 bits under autocast; both products, their scaled
 * result, and the sum. */
static uint32_t with_adapter(struct build *b, const struct model_op *o, uint32_t in, uint32_t out)
{
    const double rank = (double)b->p->rank, places = b->batch * (double)o->places, c = b->element[out];
    const double width = (double)o->width * places * c;
    uint32_t x = put_denoiser_cast(b, put_denoiser_cast(b, in, 4), c);

    x = put_denoiser_node(b,
                          (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_PRODUCT,
                                                      .from = x,
                                                      .bytes = rank * places * c,
                                                      .parameters = {rank * (double)o->cols},
                                                      .cast = b->amp ? 2 * rank * (double)o->cols : 0},
                          c);
    x = put_denoiser_node(b,
                          (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_PRODUCT,
                                                      .from = x,
                                                      .bytes = width,
                                                      .parameters = {rank * (double)o->rows},
                                                      .cast = b->amp ? 2 * rank * (double)o->rows : 0},
                          c);
    x = put_denoiser_node(b, (struct estimate_replay_op){.from = x, .bytes = width}, c);
    return put_denoiser_node(
        b, (struct estimate_replay_op){.flags = REPLAY_PASSES_ON, .from = out, .others = {x}, .bytes = width}, c);
}

/* Bytes of a frozen weight and its bias. */
static double frozen_bytes(const struct build *b, const struct model_op *o)
{
    struct model_tensor t = {.role = o->role,
                             .place = o->in_layer ? TENSOR_IN_LAYER : TENSOR_AFTER,
                             .dims = o->kind == MODEL_OP_CONV ? 4 : 2,
                             .rows = o->rows,
                             .cols = o->cols};
    const struct plan *p = b->p;
    const double bits = p->weights ? estimate_quantisation_bits(p->weights, p->model, &t, 16) : 8 * b->stored;

    return (double)(o->rows * o->cols) * bits / 8 + (double)o->bias * b->stored;
}

static uint32_t put_product(struct build *b, const struct model_op *o, uint32_t in)
{
    const double c = b->amp ? 2 : b->stored, numbers = b->batch * (double)(o->width * o->places);
    const double weight = (double)(o->rows * o->cols);
    const bool needs = b->trains || is_op_trained(b, in);
    uint32_t x = b->amp ? put_denoiser_cast(b, in, 2) : in, out;

    out = put_denoiser_node(b,
                            (struct estimate_replay_op){
                                /* a convolution's backward needs its input even if the weight is frozen */
                                .flags = (b->trains || (needs && o->kind == MODEL_OP_CONV) ? REPLAY_KEEPS_INPUT : 0) |
                                         (o->kind == MODEL_OP_LINEAR ? REPLAY_PRODUCT : 0) |
                                         (needs ? 0 : REPLAY_NO_GRADIENT),
                                .from = x,
                                .bytes = numbers * c,
                                .parameters = {b->trains ? weight : 0, b->trains ? (double)o->bias : 0},
                                .stored = b->trains || b->p->inference ? 0 : frozen_bytes(b, o),
                                .cast = (b->amp && b->stored > 2) ? 2 * weight : 0,
                            },
                            c);
    return put_denoiser_adapted(b, o) ? with_adapter(b, o, in, out) : out;
}

static uint32_t put_denoiser_norm(struct build *b, const struct model_op *o, uint32_t in)
{
    const bool wide = o->wide || (b->amp && o->kind != MODEL_OP_RMS_NORM);
    const double numbers = b->batch * (double)(o->width * o->places);
    uint32_t x = wide ? put_denoiser_cast(b, in, 4) : in;
    const bool needs = b->trains || is_op_trained(b, in);
    const double c = b->element[x];
    /* diffusers' own norm without a weight squares a float32 copy */
    const double copy = o->kind == MODEL_OP_RMS_NORM && !o->rows ? 4 * numbers : 0;

    return put_denoiser_node(
        b,
        (struct estimate_replay_op){
            .flags = (needs ? REPLAY_KEEPS_INPUT : REPLAY_NO_GRADIENT),
            .from = x,
            .bytes = numbers * c,
            .extra = needs ? b->batch * 8 * (double)(o->kind == MODEL_OP_GROUP_NORM ? 32 : o->places) + copy : 0,
            .parameters = {b->trains ? (double)o->rows : 0, b->trains ? (double)o->bias : 0},
            .stored = b->trains || b->p->inference ? 0 : (double)(o->rows + o->bias) * b->stored,
        },
        c);
}

/* Without a fused kernel, scores of each head and pair; with `sliced`, of half of the heads of one input at a time. */
static uint32_t put_denoiser_attention(struct build *b, const struct model_op *o)
{
    const double c = b->amp ? 2 : b->stored, numbers = b->batch * (double)(o->width * o->places);
    const double rows = b->batch * (double)(o->heads * o->places), scores = rows * (double)o->keys * c;
    uint32_t q = put_denoiser_cast(b, b->at[o->from], c), k = put_denoiser_cast(b, b->at[o->others[0]], c),
             v = put_denoiser_cast(b, b->at[o->others[1]], c);
    const bool needs = is_op_trained(b, q) || is_op_trained(b, k) || is_op_trained(b, v),
               eager = b->p->attention != PLAN_ATTENTION_FLASH;
    const double at_once = b->p->attention == PLAN_ATTENTION_SLICED ? scores / fmax(2, 2 * b->batch) : scores;

    return put_denoiser_node(
        b,
        (struct estimate_replay_op){
            .flags = needs ? REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS | (eager ? 0 : REPLAY_KEEPS_OUTPUT)
                           : REPLAY_NO_GRADIENT,
            .from = q,
            .others = {k, v},
            .bytes = numbers * c,
            .extra = !needs  ? 0
                     : eager ? scores
                             : 4 * rows,
            .passing = eager ? 2 * at_once : 4 * rows,
            .work = eager ? 2 * scores : 0,
        },
        c);
}

static uint32_t put_rest(struct build *b, const struct model_op *o)
{
    const double numbers = b->batch * (double)(o->width * o->places);
    uint32_t x = o->from ? b->at[o->from] : 0, y = o->others[0] ? b->at[o->others[0]] : 0;
    double c = x ? b->element[x] : b->amp ? 2 : b->stored;
    struct estimate_replay_op op = {.from = x,
                                    .flags = is_op_trained(b, x) || is_op_trained(b, y) ? 0 : REPLAY_NO_GRADIENT};

    if (!x && o->rows) { /* a learned table */
        op.flags = b->trains ? 0 : REPLAY_NO_GRADIENT;
        op.parameters[0] = b->trains ? numbers / b->batch : 0;
        op.stored = b->trains || b->p->inference ? 0 : numbers / b->batch * b->stored;
        c = b->stored;
    }
    if (o->wide) c = 4;
    if (o->narrow) c = b->amp ? 2 : b->stored;
    const bool needs = !(op.flags & REPLAY_NO_GRADIENT);
    switch (o->kind) {
    case MODEL_OP_UNARY: op.flags |= needs ? REPLAY_KEEPS_INPUT : 0; break;
    case MODEL_OP_RELU: op.flags |= needs ? REPLAY_KEEPS_OUTPUT : 0; break;
    case MODEL_OP_GATED:
        op.flags |= needs ? REPLAY_KEEPS_INPUT : 0;
        op.extra = numbers * c;
        op.work = numbers * c;
        break;
    case MODEL_OP_SCALE:
        op.flags |= b->trains ? REPLAY_KEEPS_INPUT : 0;
        op.work = b->trains ? numbers * c : 0; /* summed up for each channel */
        op.others[0] = b->trains ? y : 0;
        break;
    case MODEL_OP_SHIFT: op.flags |= needs ? REPLAY_PASSES_ON : 0; break;
    case MODEL_OP_ADD:
    case MODEL_OP_JOIN:
        c = fmax(c, b->element[y]);
        op.flags |= needs ? REPLAY_PASSES_ON : 0;
        op.others[0] = y;
        break;
    case MODEL_OP_MIX:
        op.flags |= needs ? REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS : 0;
        op.others[0] = y;
        op.others[1] = b->at[o->others[1]];
        op.passing = 3 * 4 * numbers;
        op.extra = needs ? 3 * 4 * numbers : 0; /* float32 copies */
        break;
    default: break;
    }
    if (o->turns) op.passing = (4 * o->turns + (o->turns > 2 ? c : 0)) * numbers;
    if (o->view) op.flags |= REPLAY_IN_PLACE;
    op.bytes = numbers * c;
    return put_denoiser_node(b, op, c);
}

static uint32_t put_one_operation(struct build *b, const struct model_op *o)
{
    switch (o->kind) {
    case MODEL_OP_LINEAR:
    case MODEL_OP_CONV: return put_product(b, o, b->at[o->from]);
    case MODEL_OP_GROUP_NORM:
    case MODEL_OP_LAYER_NORM:
    case MODEL_OP_RMS_NORM: return put_denoiser_norm(b, o, b->at[o->from]);
    case MODEL_OP_ATTENTION: return put_denoiser_attention(b, o);
    default: return put_rest(b, o);
    }
}

/* Trainers of diffusion models run everything under accelerate's autocast, even if weights have 16 bits. */
void estimate_replay_denoiser(const struct plan *p, struct estimate_replay_list *list)
{
    size_t n;
    struct model_op *ops = model_denoiser_ops(p->model, &n);
    struct build b = {.p = p,
                      .list = list,
                      .ops = ops,
                      .batch = (double)p->batch * (p->inference && p->guided ? 2 : 1),
                      .stored = p->precision->weights,
                      .amp = !p->inference && (p->precision->weights < 4 || p->precision->cast != PRECISION_CAST_NONE),
                      .trains = !p->inference && p->adapter == PLAN_ADAPTER_NONE,
                      .at = arena_realloc(NULL, n + 1, sizeof *b.at)};

    for (size_t i = 0; i < n; i++) {
        b.block = ops[i].block;
        b.at[i + 1] = put_one_operation(&b, &ops[i]);
        for (size_t k = 0; k < sizeof ops[i].lets_go / sizeof *ops[i].lets_go; k++)
            list->ops[list->n - 1].lets_go[k] = ops[i].lets_go[k] ? b.at[ops[i].lets_go[k]] : 0;
    }
    free(b.at);
    free(b.element);
    free(ops);
}
