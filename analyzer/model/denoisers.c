/* Denoisers: a walk lists the operations of the forward pass in their order, and the tensors. */
#include "analyzer/model/denoisers.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"

enum { TIME = 256 }; /* width of a time step's sinusoidal embedding */

struct walk {
    struct model *m;
    const struct model_shape *s;
    const struct model_denoiser *d;
    struct model_op *ops;
    size_t n, cap;
    bool lists; /* lists tensors, too */
    bool failed;
    enum model_tensor_place place;
    unsigned layer, block;          /* from 1; 0: none */
    uint64_t places, text;          /* number of positions of the image, of the text */
    uint64_t height, width, frames; /* of the latent image or video */
};

static void walk_tensor(struct walk *w, const char *name, enum model_tensor_role role, uint64_t rows, uint64_t cols,
                        unsigned dims)
{
    if (w->lists && rows && cols && !model_add_one(w->m, name, role, w->place, w->layer, rows, cols, dims))
        w->failed = true;
}

static uint32_t put_denoiser_op(struct walk *w, struct model_op op)
{
    op.block = w->block;
    op.in_layer = w->place == TENSOR_IN_LAYER;
    *ARENA_PUSH(w->ops, w->n, w->cap) = op;
    return (uint32_t)w->n;
}

static const struct model_op *operation_at(const struct walk *w, uint32_t op)
{
    return &w->ops[op - 1];
}

/* An operation whose output has the shape of its first input. */
static uint32_t walk_alike(struct walk *w, struct model_op op)
{
    op.width = operation_at(w, op.from)->width;
    op.places = operation_at(w, op.from)->places;
    return put_denoiser_op(w, op);
}

/* Notes that a variable keeps the output of `x` until the last operation has run. */
static void release_operation(struct walk *w, uint32_t x)
{
    struct model_op *last = &w->ops[w->n - 1];

    for (size_t i = 0; x && i < sizeof last->lets_go / sizeof *last->lets_go; i++)
        if (!last->lets_go[i]) {
            last->lets_go[i] = x;
            return;
        }
}

/* Notes this for several outputs. */
#define RELEASE(w, ...)                                                                                           \
    do {                                                                                                          \
        const uint32_t released_[] = {__VA_ARGS__};                                                               \
        for (size_t i_ = 0; i_ < sizeof released_ / sizeof *released_; i_++) release_operation(w, released_[i_]); \
    } while (0)

/* An input of the model, without a gradient. */
static uint32_t walk_input(struct walk *w, uint64_t width, uint64_t places)
{
    return put_denoiser_op(w, (struct model_op){.kind = MODEL_OP_MAP, .width = width, .places = places});
}

static uint32_t linear_as(struct walk *w, uint32_t x, const char *name, enum model_tensor_role role, uint64_t out,
                          bool bias)
{
    const uint64_t in = operation_at(w, x)->width, places = operation_at(w, x)->places;

    walk_tensor(w, name, role, out, in, 2);
    if (bias) walk_tensor(w, "bias", TENSOR_BIAS, out, 1, 1);
    return put_denoiser_op(w, (struct model_op){.kind = MODEL_OP_LINEAR,
                                                .width = out,
                                                .places = places,
                                                .from = x,
                                                .rows = out,
                                                .cols = in,
                                                .bias = bias ? out : 0,
                                                .role = role,
                                                .name = name});
}

static uint32_t walk_linear(struct walk *w, uint32_t x, uint64_t out)
{
    return linear_as(w, x, "linear", TENSOR_OTHER, out, true);
}

/* `window`: elements of the kernel; `groups` equal to the channels: depthwise; `places`: of the output. */
static uint32_t walk_conv(struct walk *w, uint32_t x, uint64_t out, uint64_t window, uint64_t groups, uint64_t places,
                          bool bias)
{
    const uint64_t cols = operation_at(w, x)->width / groups * window;

    walk_tensor(w, "conv", TENSOR_CONV, out, cols, 4);
    if (bias) walk_tensor(w, "conv bias", TENSOR_BIAS, out, 1, 1);
    return put_denoiser_op(w, (struct model_op){.kind = MODEL_OP_CONV,
                                                .width = out,
                                                .places = places,
                                                .from = x,
                                                .rows = out,
                                                .cols = cols,
                                                .bias = bias ? out : 0,
                                                .name = "conv",
                                                .role = TENSOR_CONV});
}

/* `affine`, per channel of `width`: 0: none, 1: a factor, 2: a factor and an addend. */
static uint32_t walk_norm(struct walk *w, enum model_op_kind kind, uint32_t x, uint64_t width, unsigned affine)
{
    if (affine) walk_tensor(w, "norm", TENSOR_NORM, width, 1, 1);
    if (affine > 1) walk_tensor(w, "norm bias", TENSOR_BIAS, width, 1, 1);
    return walk_alike(w, (struct model_op){.kind = kind,
                                           .from = x,
                                           .rows = affine ? width : 0,
                                           .cols = affine ? 1 : 0,
                                           .bias = affine > 1 ? width : 0,
                                           .name = "norm",
                                           .role = TENSOR_NORM});
}

static uint32_t walk_unary(struct walk *w, uint32_t x)
{
    return walk_alike(w, (struct model_op){.kind = MODEL_OP_UNARY, .from = x});
}

static uint32_t walk_map(struct walk *w, uint32_t x, unsigned turns)
{
    return walk_alike(w, (struct model_op){.kind = MODEL_OP_MAP, .from = x, .turns = turns});
}

static uint32_t walk_wide(struct walk *w, uint32_t op)
{
    w->ops[op - 1].wide = true;
    return op;
}

static uint32_t walk_narrow(struct walk *w, uint32_t x)
{
    return walk_alike(w, (struct model_op){.kind = MODEL_OP_MAP, .from = x, .narrow = true});
}

/* A sum or a product of two operands. */
static uint32_t walk_binary(struct walk *w, enum model_op_kind kind, uint32_t x, uint32_t other)
{
    return walk_alike(w, (struct model_op){.kind = kind, .from = x, .others = {other}});
}

static uint32_t walk_add(struct walk *w, uint32_t x, uint32_t y)
{
    return walk_binary(w, MODEL_OP_ADD, x, y);
}

static uint32_t walk_part(struct walk *w, uint32_t x, uint64_t width, uint64_t places)
{
    return put_denoiser_op(w, (struct model_op){.kind = MODEL_OP_PART, .width = width, .places = places, .from = x});
}

static uint32_t walk_view(struct walk *w, uint32_t x, uint64_t width, uint64_t places)
{
    uint32_t op = walk_part(w, x, width, places);

    w->ops[op - 1].view = true;
    return op;
}

/* Joins along the positions or (`beside`) along the channels. */
static uint32_t walk_join(struct walk *w, uint32_t x, uint32_t y, bool beside)
{
    return put_denoiser_op(
        w, (struct model_op){.kind = MODEL_OP_JOIN,
                             .width = operation_at(w, x)->width + (beside ? operation_at(w, y)->width : 0),
                             .places = operation_at(w, x)->places + (beside ? 0 : operation_at(w, y)->places),
                             .from = x,
                             .others = {y}});
}

static void mlp_of_vector(struct walk *w, uint64_t in, uint64_t inner, uint64_t out)
{
    walk_linear(w, walk_unary(w, walk_linear(w, walk_input(w, in, 1), inner)), out);
}

static uint32_t walk_table(struct walk *w, uint64_t rows, uint64_t cols)
{
    walk_tensor(w, "scale_shift_table", TENSOR_OTHER, rows, cols, 2);
    return put_denoiser_op(
        w, (struct model_op){
               .kind = MODEL_OP_MAP, .width = cols, .places = rows, .rows = rows, .cols = cols, .name = "table"});
}

static uint32_t walk_attention(struct walk *w, uint32_t q, uint32_t k, uint32_t v, uint64_t heads)
{
    return walk_alike(w, (struct model_op){.kind = MODEL_OP_ATTENTION,
                                           .from = q,
                                           .others = {k, v},
                                           .heads = heads,
                                           .keys = operation_at(w, k)->places});
}

struct qkv {
    uint32_t q, k, v;
};

/* How a denoiser projects to queries, keys and values. */
struct projections {
    bool bias, added;        /* added: of the text in a layer for image and text */
    enum model_op_kind norm; /* of queries and keys; MODEL_OP_MAP: none */
    uint64_t norm_width;     /* of one head, or of all heads */
    unsigned affine;
    uint64_t inner;
    uint64_t heads; /* 0: as many as the model has everywhere */
};

static struct qkv walk_projected(struct walk *w, uint32_t x, uint32_t y, const struct projections *p)
{
    enum model_tensor_role role = p->added ? TENSOR_MLP : TENSOR_ATTENTION;
    struct qkv r = {.q = linear_as(w, x, p->added ? "add_q_proj" : "to_q", role, p->inner, p->bias)};

    r.k = linear_as(w, y, p->added ? "add_k_proj" : "to_k", role, p->inner, p->bias);
    r.v = linear_as(w, y, p->added ? "add_v_proj" : "to_v", role, p->inner, p->bias);
    if (p->norm != MODEL_OP_MAP) {
        r.q = walk_norm(w, p->norm, r.q, p->norm_width, p->affine);
        r.k = walk_norm(w, p->norm, r.k, p->norm_width, p->affine);
    }
    return r;
}

/* Rotary positions; 0: none. */
static void turn_queries(struct walk *w, struct qkv *r, unsigned turns)
{
    if (!turns) return;
    r->q = walk_map(w, r->q, turns);
    r->k = walk_map(w, r->k, turns);
}

static uint32_t out_of(struct walk *w, uint32_t x, uint64_t width, bool added)
{
    return linear_as(w, x, added ? "to_add_out" : "to_out", added ? TENSOR_MLP : TENSOR_ATTENTION, width, true);
}

/* Queries from `x`, keys from `y` (0: `x`). `divides`: diffusers' own processors divide by 1 afterwards. */
static uint32_t walk_attends(struct walk *w, uint32_t x, uint32_t y, const struct projections *p, unsigned turns,
                             bool divides)
{
    const uint64_t heads = p->heads ? p->heads : w->s->heads, width = operation_at(w, x)->width;
    struct qkv r = walk_projected(w, x, y ? y : x, p);

    turn_queries(w, &r, turns);
    x = out_of(w, walk_attention(w, r.q, r.k, r.v, heads), width, false);
    x = divides ? walk_map(w, x, 0) : x;
    RELEASE(w, r.q, r.k, r.v);
    return x;
}

static uint32_t walk_resnet_block(struct walk *w, uint32_t x, uint64_t out)
{
    const uint64_t in = operation_at(w, x)->width, places = operation_at(w, x)->places;
    const unsigned outside = w->block;

    w->block = outside ? outside : ++w->layer;
    uint32_t h = walk_norm(w, MODEL_OP_GROUP_NORM, x, in, 2);
    h = walk_conv(w, walk_unary(w, h), out, 9, 1, places, true);
    const uint32_t time = walk_linear(w, walk_input(w, 4 * w->d->width[0], 1), out);
    h = walk_norm(w, MODEL_OP_GROUP_NORM, walk_binary(w, MODEL_OP_SHIFT, h, time), out, 2);
    h = walk_conv(w, walk_unary(w, h), out, 9, 1, places, true);
    if (in != out) x = walk_conv(w, x, out, 1, 1, places, true);
    h = walk_map(w, walk_add(w, x, h), 0); /* the division by output_scale_factor, 1 */
    w->block = outside;
    return h;
}

static uint32_t walk_gated(struct walk *w, uint32_t x, uint64_t width)
{
    return put_denoiser_op(
        w, (struct model_op){.kind = MODEL_OP_GATED, .width = width, .places = operation_at(w, x)->places, .from = x});
}

static uint32_t feed_forward(struct walk *w, uint32_t x, uint64_t inner, bool gated)
{
    const uint64_t width = operation_at(w, x)->width;
    uint32_t h = linear_as(w, x, "ff_in", TENSOR_MLP, (gated ? 2 : 1) * inner, true);

    return linear_as(w, gated ? walk_gated(w, h, inner) : walk_unary(w, h), "ff_out", TENSOR_MLP, width, true);
}

static uint32_t walk_transformer(struct walk *w, uint32_t x, uint64_t depth, uint64_t heads)
{
    const uint64_t width = operation_at(w, x)->width, places = operation_at(w, x)->places;
    const struct projections own = {.inner = width, .norm = MODEL_OP_MAP, .heads = heads};
    const uint32_t start = x, text = walk_input(w, w->d->text, w->text);

    x = walk_norm(w, MODEL_OP_GROUP_NORM, x, width, 2);
    x = w->d->linear_in ? linear_as(w, x, "proj_in", TENSOR_OTHER, width, true)
                        : walk_map(w, walk_conv(w, x, width, 1, 1, places, true), 0);
    for (uint64_t i = 0; i < depth; i++) {
        w->block = ++w->layer;
        const uint32_t before = x;
        const uint32_t one = walk_norm(w, MODEL_OP_LAYER_NORM, x, width, 2), a = walk_attends(w, one, 0, &own, 0, true);
        x = walk_add(w, a, x);
        const uint32_t two = walk_norm(w, MODEL_OP_LAYER_NORM, x, width, 2);
        RELEASE(w, one);
        const uint32_t b = walk_attends(w, two, text, &own, 0, true);
        RELEASE(w, a);
        x = walk_add(w, b, x);
        const uint32_t three = walk_norm(w, MODEL_OP_LAYER_NORM, x, width, 2);
        RELEASE(w, two);
        x = walk_add(w, feed_forward(w, three, 4 * width, true), x);
        RELEASE(w, three, b, before);
        w->block = 0;
    }
    x = w->d->linear_in ? walk_map(w, linear_as(w, x, "proj_out", TENSOR_OTHER, width, true), 0)
                        : walk_conv(w, walk_map(w, x, 0), width, 1, 1, places, true);
    return walk_add(w, x, start);
}

static void denoise_unet(struct walk *w)
{
    enum { SKIPS = 64 };
    const struct model_denoiser *d = w->d;
    uint32_t skip[SKIPS], x;
    size_t skips = 0;

    mlp_of_vector(w, d->width[0], 4 * d->width[0], 4 * d->width[0]);
    if (d->pooled) mlp_of_vector(w, d->pooled, 4 * d->width[0], 4 * d->width[0]);
    x = walk_conv(w, walk_input(w, d->latent, w->places), d->width[0], 9, 1, w->places, true);
    skip[skips++] = x;
    w->place = TENSOR_IN_LAYER;
    for (uint64_t i = 0; i < d->levels; i++) {
        for (uint64_t k = 0; k < d->block_layers; k++) {
            x = walk_resnet_block(w, x, d->width[i]);
            if (d->depth[i]) x = walk_transformer(w, x, d->depth[i], d->split[i]);
            skip[skips++] = x;
        }
        if (i + 1 < d->levels)
            skip[skips++] = x = walk_conv(w, x, d->width[i], 9, 1, operation_at(w, x)->places / 4, true);
    }
    x = walk_resnet_block(w, x, d->width[d->levels - 1]);
    uint64_t deepest = 0;
    for (uint64_t i = 0; i < d->levels; i++) deepest = d->depth[i] ? d->depth[i] : deepest;
    x = walk_transformer(w, x, deepest, d->split[d->levels - 1]);
    x = walk_resnet_block(w, x, d->width[d->levels - 1]);
    for (uint64_t i = d->levels; i-- > 0;) {
        const uint32_t before = x;
        for (uint64_t k = 0; k <= d->block_layers; k++) {
            x = walk_resnet_block(w, walk_join(w, x, skip[--skips], true), d->width[i]);
            if (d->depth[i]) x = walk_transformer(w, x, d->depth[i], d->split[i]);
        }
        if (i) {
            x = put_denoiser_op(w, (struct model_op){.kind = MODEL_OP_UPSAMPLE,
                                                     .width = d->width[i],
                                                     .places = 4 * operation_at(w, x)->places,
                                                     .from = x});
            x = walk_conv(w, x, d->width[i], 9, 1, operation_at(w, x)->places, true);
        }
        RELEASE(w, before);
    }
    w->place = TENSOR_AFTER;
    x = walk_unary(w, walk_norm(w, MODEL_OP_GROUP_NORM, x, d->width[0], 2));
    walk_conv(w, x, d->out, 9, 1, w->places, true);
}

static uint32_t walk_modulated(struct walk *w, uint32_t x, uint32_t by)
{
    return walk_binary(w, MODEL_OP_SHIFT, walk_binary(w, MODEL_OP_SCALE, x, by), by);
}

static uint32_t gated_add(struct walk *w, uint32_t x, uint32_t y, uint32_t by)
{
    return walk_add(w, x, walk_binary(w, MODEL_OP_SCALE, y, by));
}

/* Factors and addends per image, computed from the time step. */
static uint32_t walk_modulation(struct walk *w, uint64_t in, uint64_t times)
{
    return walk_linear(w, walk_unary(w, walk_input(w, in, 1)), times * w->s->hidden);
}

static void begin_layer(struct walk *w)
{
    w->place = TENSOR_IN_LAYER;
    w->block = ++w->layer;
}

static void after_layers(struct walk *w)
{
    w->place = TENSOR_AFTER;
    w->block = 0;
}

static uint32_t walk_mlp(struct walk *w, uint32_t x)
{
    return feed_forward(w, x, w->s->ffn, false);
}

static uint32_t plain_norm(struct walk *w, uint32_t x)
{
    return walk_norm(w, MODEL_OP_LAYER_NORM, x, w->s->hidden, 0);
}

/* Tokens of 2 x 2 places of the latent image. */
static uint32_t walk_patches(struct walk *w)
{
    return walk_conv(w, walk_input(w, w->d->latent, w->places * 4), w->s->hidden, 4, 1, w->places, true);
}

struct streams {
    uint32_t image, text;
};

/* A layer of MMDiT. `last`: the last one of SD3, which has no text output. `dual`: with an additional self-attention of
 * the image. */
static struct streams joint_layer(struct walk *w, struct streams x, const struct projections *p, unsigned turns,
                                  bool dual, bool last)
{
    const uint64_t h = w->s->hidden;
    const struct streams before = x;
    struct projections added = *p;

    added.added = true;
    begin_layer(w);
    const uint32_t by = walk_modulation(w, h, dual ? 9 : 6), text_by = walk_modulation(w, h, last ? 2 : 6);
    uint32_t normed = plain_norm(w, x.image);
    const uint32_t second = dual ? walk_modulated(w, normed, by) : 0;
    normed = walk_modulated(w, normed, by);
    uint32_t text = walk_modulated(w, plain_norm(w, x.text), text_by);
    struct qkv i = walk_projected(w, normed, normed, p);
    const struct qkv t = walk_projected(w, text, text, &added);
    i = (struct qkv){walk_join(w, i.q, t.q, false), walk_join(w, i.k, t.k, false), walk_join(w, i.v, t.v, false)};
    turn_queries(w, &i, turns);
    const uint32_t a = walk_attention(w, i.q, i.k, i.v, w->s->heads);
    const uint32_t text_a = last ? 0 : walk_part(w, a, h, w->text);
    const uint32_t image_a = out_of(w, walk_part(w, a, h, w->places), h, false);
    if (!last) text = out_of(w, text_a, h, true);
    RELEASE(w, i.q, i.k, i.v);
    const uint32_t gated = walk_binary(w, MODEL_OP_SCALE, image_a, by);
    x.image = walk_add(w, x.image, gated);
    if (dual) x.image = gated_add(w, x.image, walk_attends(w, second, 0, p, 0, false), by);
    const uint32_t again = walk_modulated(w, plain_norm(w, x.image), by);
    RELEASE(w, normed);
    x.image = gated_add(w, x.image, walk_mlp(w, again), by);
    if (!last) {
        x.text = gated_add(w, x.text, text, text_by);
        x.text = gated_add(w, x.text, walk_mlp(w, walk_modulated(w, plain_norm(w, x.text), text_by)), text_by);
    }
    RELEASE(w, again, gated, before.image, last ? a : before.text); /* the last one returns a view of it */
    return x;
}

/* Attention and MLP in parallel, on the joined streams. */
static struct streams single_layer(struct walk *w, struct streams x, const struct projections *p, unsigned turns)
{
    const uint64_t h = w->s->hidden;
    const struct streams before = x;

    begin_layer(w);
    uint32_t joined = walk_join(w, x.text, x.image, false);
    const uint32_t by = walk_modulation(w, h, 3), normed = walk_modulated(w, plain_norm(w, joined), by);
    const uint32_t m = walk_unary(w, linear_as(w, normed, "proj_mlp", TENSOR_MLP, w->s->ffn, true));
    struct qkv r = walk_projected(w, normed, normed, p);
    turn_queries(w, &r, turns);
    const uint32_t both = walk_join(w, walk_attention(w, r.q, r.k, r.v, w->s->heads), m, true);
    RELEASE(w, r.v, r.k);
    joined = gated_add(w, joined, linear_as(w, both, "proj_out", TENSOR_MLP, h, true), by);
    RELEASE(w, normed, m, before.image, before.text);
    return (struct streams){.image = walk_view(w, joined, h, w->places), .text = walk_view(w, joined, h, w->text)};
}

static void walk_final(struct walk *w, uint32_t x, bool continuous, uint64_t out)
{
    const uint64_t h = w->s->hidden;

    after_layers(w);
    const uint32_t by = continuous ? walk_modulation(w, w->d->time ? w->d->time : h, 2) : walk_table(w, 2, h);
    linear_as(w, walk_modulated(w, plain_norm(w, x), by), "proj_out", TENSOR_HEAD, out, true);
}

/* All layers of two streams, then those of one. */
static void walk_streams(struct walk *w, struct streams x, const struct projections *p, uint64_t out)
{
    for (uint64_t i = 0; i < w->s->layers - w->d->single; i++) x = joint_layer(w, x, p, 3, false, false);
    for (uint64_t i = 0; i < w->d->single; i++) x = single_layer(w, x, p, 3);
    walk_final(w, x.image, true, out);
}

/* With an RMSNorm of queries and keys. */
static struct projections normed_projections(const struct walk *w, uint64_t width)
{
    return (struct projections){
        .bias = true, .norm = MODEL_OP_RMS_NORM, .norm_width = width, .affine = 1, .inner = w->s->hidden};
}

static void denoise_flux(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections p = normed_projections(w, w->s->head_dim);
    struct streams x = {.image = walk_linear(w, walk_input(w, w->d->latent, w->places), h),
                        .text = walk_linear(w, walk_input(w, w->d->text, w->text), h)};

    mlp_of_vector(w, TIME, h, h);
    if (w->d->guidance) mlp_of_vector(w, TIME, h, h);
    mlp_of_vector(w, w->d->pooled, h, h);
    walk_streams(w, x, &p, w->d->out);
}

static void denoise_sd3(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    struct projections p = normed_projections(w, w->s->head_dim);
    struct streams x = {.image = walk_map(w, walk_patches(w), 0),
                        .text = walk_linear(w, walk_input(w, w->d->text, w->text), h)};

    if (!w->d->qk_norm) p.norm = MODEL_OP_MAP;
    mlp_of_vector(w, TIME, h, h);
    mlp_of_vector(w, w->d->pooled, h, h);
    for (uint64_t i = 0; i < w->s->layers; i++) x = joint_layer(w, x, &p, 0, i < w->d->dual, i + 1 == w->s->layers);
    walk_final(w, x.image, true, 4 * w->d->out);
}

/* The text's embedding that all layers read. */
static uint32_t walk_caption(struct walk *w)
{
    const uint64_t h = w->s->hidden;

    return walk_linear(w, walk_unary(w, walk_linear(w, walk_input(w, w->d->text, w->text), h)), h);
}

/* adaLN-single: one matrix for all layers, and one table per layer. */
static void time_single(struct walk *w, bool sizes)
{
    const uint64_t h = w->s->hidden;

    mlp_of_vector(w, TIME, h, h);
    if (sizes) {
        mlp_of_vector(w, TIME, h / 3, h / 3);
        mlp_of_vector(w, TIME, h / 3, h / 3);
    }
    walk_modulation(w, h, 6);
}

static void denoise_pixart(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections p = {.bias = true, .norm = MODEL_OP_MAP, .inner = h};
    uint32_t x = walk_map(w, walk_patches(w), 0), text = walk_caption(w);

    time_single(w, w->d->sizes);
    for (uint64_t i = 0; i < w->s->layers; i++) {
        begin_layer(w);
        const uint32_t before = x, by = walk_table(w, 6, h), normed = walk_modulated(w, plain_norm(w, x), by);
        x = gated_add(w, x, walk_attends(w, normed, 0, &p, 0, true), by);
        const uint32_t a = walk_attends(w, x, text, &p, 0, true);
        RELEASE(w, normed);
        x = walk_add(w, a, x);
        const uint32_t again = walk_modulated(w, plain_norm(w, x), by);
        x = gated_add(w, x, walk_mlp(w, again), by);
        RELEASE(w, again, a, before);
    }
    walk_final(w, x, false, 4 * w->d->out);
}

/* Sana's MLP: convolutions, one of which reads neighbours. */
static uint32_t mix_ffn(struct walk *w, uint32_t x)
{
    const uint64_t h = w->s->hidden, inner = w->s->ffn, places = w->places;
    uint32_t y = walk_unary(w, walk_conv(w, x, 2 * inner, 1, 1, places, true));

    y = walk_conv(w, y, 2 * inner, 9, 2 * inner, places, true);
    return walk_conv(w, walk_gated(w, y, inner), h, 1, 1, places, false);
}

static void denoise_sana(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections own = {.norm = MODEL_OP_MAP, .inner = h},
                             cross = {.bias = true, .norm = MODEL_OP_MAP, .inner = h};
    uint32_t x = walk_map(w, walk_conv(w, walk_input(w, w->d->latent, w->places), h, 1, 1, w->places, true), 0),
             text = walk_caption(w);

    time_single(w, false);
    text = walk_norm(w, MODEL_OP_RMS_NORM, text, h, 1);
    for (uint64_t i = 0; i < w->s->layers; i++) {
        begin_layer(w);
        const uint32_t before = x, by = walk_table(w, 6, h), normed = walk_modulated(w, plain_norm(w, x), by);
        struct qkv r = walk_projected(w, normed, normed, &own);
        r.q = walk_alike(w, (struct model_op){.kind = MODEL_OP_RELU, .from = r.q});
        r.k = walk_alike(w, (struct model_op){.kind = MODEL_OP_RELU, .from = r.k});
        uint32_t a = put_denoiser_op(w, (struct model_op){.kind = MODEL_OP_MIX,
                                                          .width = h,
                                                          .places = w->places,
                                                          .from = r.q,
                                                          .others = {r.k, r.v},
                                                          .heads = w->s->heads,
                                                          .keys = w->s->head_dim});
        x = gated_add(w, x, out_of(w, a, h, false), by);
        a = walk_attends(w, x, text, &cross, 0, true);
        x = walk_add(w, a, x);
        const uint32_t again = walk_modulated(w, plain_norm(w, x), by);
        RELEASE(w, normed);
        x = gated_add(w, x, mix_ffn(w, again), by);
        RELEASE(w, again, a, before);
    }
    walk_final(w, x, false, w->d->out);
}

/* The product with factors and the sum of a residual in float32; inputs and output have the weights' type. */
static uint32_t wide_gated_add(struct walk *w, uint32_t x, uint32_t y, uint32_t by)
{
    return walk_narrow(w, walk_wide(w, walk_add(w, walk_wide(w, walk_map(w, x, 0)),
                                                walk_wide(w, walk_binary(w, MODEL_OP_SCALE, y, by)))));
}

static void denoise_wan(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections p = normed_projections(w, h);
    uint32_t x = walk_map(w, walk_patches(w), 0), text;

    mlp_of_vector(w, TIME, h, h);
    walk_modulation(w, h, 6);
    text = walk_caption(w);
    for (uint64_t i = 0; i < w->s->layers; i++) {
        begin_layer(w);
        const uint32_t before = x, by = walk_wide(w, walk_table(w, 6, h));
        const uint32_t one = walk_narrow(w, walk_modulated(w, walk_wide(w, plain_norm(w, x)), by)),
                       a = walk_attends(w, one, 0, &p, 2, false);
        x = wide_gated_add(w, x, a, by);
        const uint32_t two = walk_narrow(w, walk_wide(w, walk_norm(w, MODEL_OP_LAYER_NORM, x, h, 2)));
        RELEASE(w, one);
        const uint32_t b = walk_attends(w, two, text, &p, 0, false);
        RELEASE(w, a);
        x = walk_add(w, x, b);
        const uint32_t three = walk_narrow(w, walk_modulated(w, walk_wide(w, plain_norm(w, x)), by));
        RELEASE(w, two);
        x = wide_gated_add(w, x, walk_mlp(w, three), by);
        RELEASE(w, three, b, before);
    }
    walk_final(w, x, false, 4 * w->d->out);
}

static void denoise_ltx(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections p = normed_projections(w, h);
    uint32_t x = walk_linear(w, walk_input(w, w->d->latent, w->places), h), text = walk_caption(w);
    const uint32_t turns =
        walk_wide(w, walk_input(w, 2 * h, w->places)); /* cosines and sines per position and channel */

    time_single(w, false);
    for (uint64_t i = 0; i < w->s->layers; i++) {
        begin_layer(w);
        const uint32_t before = x, by = walk_table(w, 6, h);
        const uint32_t one = walk_modulated(w, walk_norm(w, MODEL_OP_RMS_NORM, x, h, 0), by);
        x = gated_add(w, x, walk_attends(w, one, 0, &p, 3, false), by);
        const uint32_t a = walk_attends(w, x, text, &p, 0, false);
        x = walk_add(w, x, a);
        const uint32_t two = walk_modulated(w, walk_norm(w, MODEL_OP_RMS_NORM, x, h, 0), by);
        RELEASE(w, one);
        x = gated_add(w, x, walk_mlp(w, two), by);
        RELEASE(w, two, a, before);
    }
    walk_final(w, x, false, w->d->out);
    RELEASE(w, turns);
}

/* CogVideoX: both streams share one set of matrices, with separate factors. */
static void denoise_cogvideox(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections p = {
        .bias = true, .norm = MODEL_OP_LAYER_NORM, .norm_width = w->s->head_dim, .affine = 2, .inner = h};
    struct streams x = {.image = walk_patches(w), .text = walk_linear(w, walk_input(w, w->d->text, w->text), h)};

    mlp_of_vector(w, h, w->d->time, w->d->time);
    for (uint64_t i = 0; i < w->s->layers; i++) {
        begin_layer(w);
        const struct streams before = x;
        for (int half = 0; half < 2; half++) {
            uint32_t by = walk_modulation(w, w->d->time, 6);
            uint32_t image = walk_modulated(w, walk_norm(w, MODEL_OP_LAYER_NORM, x.image, h, 2), by);
            uint32_t text = plain_norm(w, x.text); /* with the parameters of the image's norm */
            text = walk_modulated(w, text, by);
            uint32_t joined = walk_join(w, text, image, false), y;
            y = half ? walk_mlp(w, joined) : walk_attends(w, joined, 0, &p, w->d->rotary ? 3 : 0, true);
            x.image = gated_add(w, x.image, walk_view(w, y, h, w->places), by);
            x.text = gated_add(w, x.text, walk_view(w, y, h, w->text), by);
            RELEASE(w, image, text, joined);
        }
        RELEASE(w, before.image);
    }
    after_layers(w);
    uint32_t last = walk_norm(w, MODEL_OP_LAYER_NORM, walk_join(w, x.text, x.image, false), h, 2);
    last = walk_part(w, last, h, w->places);
    uint32_t by = walk_modulation(w, w->d->time, 2);
    last = walk_modulated(w, walk_norm(w, MODEL_OP_LAYER_NORM, last, h, 2), by);
    linear_as(w, last, "proj_out", TENSOR_HEAD, 4 * w->d->out, true);
}

/* Layers that only the text passes through, at the beginning. */
static uint32_t walk_refined(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections p = {.bias = true, .norm = MODEL_OP_MAP, .inner = h};
    uint32_t text = walk_input(w, w->d->text, w->text);

    mlp_of_vector(w, TIME, h, h);
    mlp_of_vector(w, w->d->text, h, h);
    text = walk_linear(w, text, h);
    for (uint64_t i = 0; i < w->d->refiner; i++) {
        uint32_t by, y = walk_attends(w, walk_norm(w, MODEL_OP_LAYER_NORM, text, h, 2), 0, &p, 0, true);
        by = walk_modulation(w, h, 2);
        text = gated_add(w, text, y, by);
        text = gated_add(w, text, walk_mlp(w, walk_norm(w, MODEL_OP_LAYER_NORM, text, h, 2)), by);
    }
    return text;
}

static void denoise_hunyuan(struct walk *w)
{
    const uint64_t h = w->s->hidden;
    const struct projections p = normed_projections(w, w->s->head_dim);
    struct streams x = {.image = walk_map(w, walk_patches(w), 0)};

    x.text = walk_refined(w);
    mlp_of_vector(w, TIME, h, h);
    mlp_of_vector(w, w->d->pooled, h, h);
    if (w->d->guidance) mlp_of_vector(w, TIME, h, h);
    walk_streams(w, x, &p, 4 * w->d->out);
}

static const struct model_pipeline pipelines[] = {
#define PIPELINE(id, ...) {#id, __VA_ARGS__},
#include "analyzer/model/denoisers.def"
};

const struct model_pipeline *model_pipeline_of(const struct model *m)
{
    return &pipelines[m->shape.denoiser.pipeline];
}

static bool measure_denoiser(struct walk *w)
{
    const struct model_pipeline *p = &pipelines[w->d->pipeline];
    const uint64_t high = w->s->image ? w->s->image : p->image, across = w->d->width_pixels ? w->d->width_pixels : high;
    const uint64_t frames = w->d->frames ? w->d->frames : p->frames, patch = w->d->patch ? w->d->patch : 1;

    if (high > 1 << 16 || across > 1 << 16 || frames > 1 << 16) return false;
    w->height = high / p->shrink / patch;
    w->width = across / p->shrink / patch;
    w->frames = (frames - 1) / p->shrink_frames + 1;
    w->places = w->height * w->width * w->frames;
    w->text = w->d->text_tokens ? w->d->text_tokens : p->text_tokens;
    return w->height && w->width;
}

static bool walk_denoiser(struct walk *w)
{
#define DENOISER(id, walk, name) denoise_##walk,
    static void (*const walks[])(struct walk *) = {MODEL_DENOISERS(DENOISER)};
#undef DENOISER

    if (!measure_denoiser(w)) return false;
    w->place = TENSOR_BEFORE;
    walks[w->d->kind](w);
    return !w->failed;
}

struct model_op *model_denoiser_ops(const struct model *m, size_t *n)
{
    struct walk w = {.s = &m->shape, .d = &m->shape.denoiser};

    *n = 0;
    if (m->shape.family != MODEL_DENOISER || !walk_denoiser(&w)) {
        free(w.ops);
        return NULL;
    }
    *n = w.n;
    return w.ops;
}

bool model_denoiser_make(struct model *m)
{
    struct walk w = {.m = m, .s = &m->shape, .d = &m->shape.denoiser, .lists = true};
    bool ok = walk_denoiser(&w);

    if (m->shape.denoiser.kind == MODEL_DENOISER_UNET) m->shape.layers = w.layer;
    free(w.ops);
    return ok;
}
