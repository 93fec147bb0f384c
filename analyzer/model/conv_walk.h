/* The walk over a network's operations: what they do to its current output, and which tensors they have. */
#pragma once

#include "analyzer/model/convnets.h"

enum { NUMBERS = 10, SIDE_LARGEST = 1 << 20 };

/* The state of a walk, which fills `m` (tensors) or `out` (outputs), or only counts operations. */
struct model_walk {
    struct model *m;
    struct model_conv_map *out;
    size_t n, max;
    size_t last;                      /* the operation that made the current output, from 1; 0: the image */
    size_t other;                     /* the second input of the next operation */
    uint64_t weight, bias;            /* elements of the next operation's tensors */
    uint64_t window;                  /* of the next operation, as in struct model_conv_map */
    uint64_t channels, height, width; /* of the current output */
    unsigned block;                   /* from 1; 0: before the first */
    unsigned blocks;                  /* number of blocks so far */
    uint64_t held;                    /* elements, as in struct model_conv_map */
    bool wide;                        /* of the next operations, as in struct model_conv_map */
    uint64_t classes;
    enum model_tensor_place place;
    bool failed;
};

static inline void put_tensor(struct model_walk *w, const char *name, enum model_tensor_role role, uint64_t rows,
                              uint64_t cols, unsigned dims)
{
    *(role == TENSOR_BIAS ? &w->bias : &w->weight) = rows * cols;
    if (w->m && !model_add_one(w->m, name, role, w->place, w->block, rows, cols, dims)) w->failed = true;
}

static inline void put_conv_map(struct model_walk *w, enum model_conv_op op, bool in_place, uint64_t inputs)
{
    struct model_conv_map map = {
        .op = op,
        .in_place = in_place,
        .wide = w->wide,
        .channels = w->channels,
        .height = w->height,
        .width = w->width,
        .elements = w->channels * w->height * w->width,
        .inputs = inputs,
        .held = w->held,
        .from = w->last,
        .other = w->other,
        .weight = w->weight,
        .bias = w->bias,
        .window = w->window,
    };

    if (w->n < w->max) w->out[w->n] = map;
    w->last = ++w->n;
    w->other = 0;
    w->weight = w->bias = w->window = 0;
}

static inline uint64_t map_size(const struct model_walk *w)
{
    return w->channels * w->height * w->width;
}

static inline void next_block(struct model_walk *w)
{
    w->block = ++w->blocks;
    w->place = TENSOR_IN_LAYER;
}

static inline void after_blocks(struct model_walk *w)
{
    w->block = 0;
    w->place = TENSOR_AFTER;
}

static inline uint64_t slid_side(struct model_walk *w, uint64_t side, uint64_t kernel, uint64_t stride,
                                 uint64_t padding)
{
    if (side + 2 * padding < kernel) {
        w->failed = true; /* the image is too small for this network */
        return 1;
    }
    return (side + 2 * padding - kernel) / stride + 1;
}

static inline void put_conv(struct model_walk *w, uint64_t outputs, uint64_t kernel, uint64_t stride, uint64_t padding,
                            uint64_t groups, bool bias)
{
    uint64_t inputs = map_size(w);

    put_tensor(w, "conv", TENSOR_CONV, outputs, w->channels / groups * kernel * kernel, 4);
    if (bias) put_tensor(w, "conv bias", TENSOR_BIAS, outputs, 1, 1);
    w->channels = outputs;
    w->height = slid_side(w, w->height, kernel, stride, padding);
    w->width = slid_side(w, w->width, kernel, stride, padding);
    w->window = groups == 1 ? kernel * kernel : 0;
    put_conv_map(w, CONV_CONV, false, inputs);
}

static inline void scale_and_shift(struct model_walk *w, enum model_conv_op op)
{
    put_tensor(w, "norm", TENSOR_NORM, w->channels, 1, 1);
    put_tensor(w, "norm bias", TENSOR_BIAS, w->channels, 1, 1);
    put_conv_map(w, op, false, map_size(w));
}

static inline void layer_norm(struct model_walk *w)
{
    scale_and_shift(w, CONV_LAYER_NORM);
}

/* To an output of a given side, for any input. */
static inline void average_pool(struct model_walk *w, uint64_t side)
{
    uint64_t inputs = map_size(w);

    w->height = w->width = side;
    put_conv_map(w, CONV_AVERAGE_POOL, false, inputs);
}

/* Applies to the channels of each position, or to a flattened image. */
static inline void put_conv_linear(struct model_walk *w, uint64_t outputs, bool head)
{
    uint64_t inputs = map_size(w);

    put_tensor(w, head ? "head" : "linear", head ? TENSOR_HEAD : TENSOR_MLP, outputs, w->channels, 2);
    put_tensor(w, head ? "head bias" : "linear bias", TENSOR_BIAS, outputs, 1, 1);
    w->channels = outputs;
    put_conv_map(w, CONV_LINEAR, false, inputs);
}

/* An earlier point of the network, where a branch begins. */
struct model_branch {
    uint64_t channels, height, width;
    size_t last;
};

static inline struct model_branch branch_here(const struct model_walk *w)
{
    return (struct model_branch){w->channels, w->height, w->width, w->last};
}

static inline void go_to(struct model_walk *w, struct model_branch b)
{
    w->channels = b.channels;
    w->height = b.height;
    w->width = b.width;
    w->last = b.last;
}

/* An operation on the current output and the end of another branch. */
static inline void put_both(struct model_walk *w, enum model_conv_op op, bool in_place, size_t other)
{
    w->other = other;
    put_conv_map(w, op, in_place, map_size(w));
}

/* The networks of transformers. */
void model_walk_convnext_v2(struct model_walk *w, const int n[NUMBERS]);
void model_walk_swin(struct model_walk *w, const int n[NUMBERS]);
