/* Convolutional networks by name: their tensors, and the outputs of their operations. */
#pragma once

#include "analyzer/model/model.h"

/* OP(id, word, what it is) */
#define CONV_OPS(OP)                                                             \
    OP(CONV, "conv", "convolution")                                              \
    OP(BATCH_NORM, "batch_norm", "norm over the batch")                          \
    OP(LAYER_NORM, "layer_norm", "norm over the channels of each position")      \
    OP(RELU, "relu", "")                                                         \
    OP(RELU6, "relu6", "")                                                       \
    OP(SILU, "silu", "")                                                         \
    OP(GELU, "gelu", "")                                                         \
    OP(SIGMOID, "sigmoid", "")                                                   \
    OP(HARDSWISH, "hardswish", "")                                               \
    OP(HARDSIGMOID, "hardsigmoid", "")                                           \
    OP(MAX_POOL, "max_pool", "")                                                 \
    OP(AVERAGE_POOL, "average_pool", "")                                         \
    OP(LINEAR, "linear", "fully connected, or on the channels of each position") \
    OP(ADD, "add", "a residual connection")                                      \
    OP(MULTIPLY, "multiply", "by a gate or a scale of each channel")             \
    OP(JOIN, "join", "of channels (torch.cat)")                                  \
    OP(DROPOUT, "dropout", "")                                                   \
    OP(DROP_PATH, "drop_path", "stochastic depth: one random number per image")  \
    OP(CAST, "cast", "under autocast, to the half type")                         \
    OP(VECTOR_NORM, "vector_norm", "of each channel")                            \
    OP(COPY, "copy", "or another operation of which backward needs nothing")     \
    OP(MATMUL, "matmul", "of two inputs")                                        \
    OP(SOFTMAX, "softmax", "")

#define OP(id, word, what) CONV_##id,
enum model_conv_op { CONV_OPS(OP) };
#undef OP

/* The output of one operation for one image. The operations are in the order of the forward pass; a residual block's
 * shortcut convolution comes before the addition. */
struct model_conv_map {
    enum model_conv_op op;
    bool in_place;                    /* replaces its input: no memory of its own */
    bool wide;                        /* under autocast its output is float32 */
    uint64_t channels, height, width; /* of the output */
    uint64_t elements;                /* of the output: the product of the three */
    uint64_t inputs;                  /* elements of its input; of two inputs, those of the larger one */
    /* Elements that are live at the same time without gradients, besides its input, its output and the image: the input
     * of a residual block, the argument of an nn.Sequential, the features that a dense block gathers. */
    uint64_t held;
    /* The operation whose output it reads, from 1; 0: the image. `other`: its second input, or 0; of a CONV_JOIN the
     * previous join, whose inputs it reads, too. */
    size_t from, other;
    uint64_t weight, bias; /* elements of its tensors */
    uint64_t window;       /* of a convolution over all channels: number of positions that its kernel reads; else 0 */
};

/* Fills at most `max` rows of `out` for an image of that size. Returns the number of rows in total (perhaps more than
 * `max`, at most CONV_MAPS_MAX); 0: the model is not a known convolutional network, or the image is smaller than its
 * kernels or larger than 2^20. */
size_t model_conv_maps(const struct model *m, uint64_t height, uint64_t width, struct model_conv_map *out, size_t max);
enum { CONV_MAPS_MAX = 1024 };
const char *model_conv_op_word(enum model_conv_op op);

/* The row of convnets.def, from 1, with that name, or with that builder and first numbers; 0: none. */
unsigned model_convnet_called(const char *name);
unsigned model_convnet_like(const char *builder, const uint64_t *numbers, size_t n);
/* The side of the images for which a row is published. */
uint64_t model_convnet_image(unsigned row);
/* Lists the tensors of the network of m->shape.conv_net; false: the image is too small, or out of memory. */
bool model_convnet_make(struct model *m);
