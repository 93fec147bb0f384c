/* The roofline (Williams, Waterman and Patterson 2009): a kernel that computes F operations and moves B bytes of the
 * device's memory has the intensity F/B. A GPU of P operations/s and W bytes/s computes it at min(P, F/B · W) at most.
 * The two meet at the ridge, P/W.
 *
 * An operator can be implemented in several ways, which differ in the bytes that they move (naive attention also
 * computes what a causal mask hides). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/gpu.h"

/* DIM(field, option, meaning): the numbers of all operators' shapes; 0: not given. */
#define ROOF_DIMS(DIM)                                                                           \
    DIM(m, "m", "matmul: rows of A and C")                                                       \
    DIM(n, "n", "matmul: columns of B and C")                                                    \
    DIM(k, "k", "matmul: columns of A, rows of B")                                               \
    DIM(tile, "tile", "matmul: also with square tiles of this size in shared memory")            \
    DIM(batch, "batch", "matmul, attention, conv2d: batch size; default 1")                      \
    DIM(heads, "heads", "attention: heads of queries")                                           \
    DIM(kv_heads, "kv-heads", "attention: heads of keys and values; default: all heads")         \
    DIM(seq, "seq", "attention: queries, tokens")                                                \
    DIM(kv_seq, "kv-seq", "attention: keys and values; default: --seq (decode: --seq 1)")        \
    DIM(head_dim, "head-dim", "attention: size of a head")                                       \
    DIM(rows, "rows", "layernorm, rmsnorm, softmax: rows (tokens)")                              \
    DIM(cols, "cols", "layernorm, rmsnorm, softmax: columns (hidden size)")                      \
    DIM(size, "size", "elementwise, reduce: elements")                                           \
    DIM(inputs, "inputs", "elementwise: tensors read; default 2")                                \
    DIM(steps, "steps", "elementwise: operations on each element, one after another; default 1") \
    DIM(in_channels, "in-channels", "conv2d: channels of the input")                             \
    DIM(out_channels, "out-channels", "conv2d: channels of the output")                          \
    DIM(height, "height", "conv2d: height of the input")                                         \
    DIM(width, "width", "conv2d: width of the input; default: the height")                       \
    DIM(kernel, "kernel", "conv2d: size of the square kernel")                                   \
    DIM(stride, "stride", "conv2d: default 1")                                                   \
    DIM(padding, "padding", "conv2d: default 0")                                                 \
    DIM(groups, "groups", "conv2d: default 1")

#define DIM(field, option, what) ROOF_##field,
enum estimate_roof_dim { ROOF_DIMS(DIM) ROOF_DIMS_N };
#undef DIM
extern const char *const estimate_roof_dim_option[ROOF_DIMS_N];
#define ROOF_DIM_MAX 1e12

struct estimate_roof_shape {
    uint64_t of[ROOF_DIMS_N];
    bool causal;
};

enum { ROOF_WAYS_MAX = 4 };

struct estimate_roof_way {
    const char *name; /* "naive", "flash"; "" if there is only one */
    double flops, bytes;
    char flops_formula[96], bytes_formula[128];
    const char *source; /* of the formula; static */
};

struct estimate_roof_op {
    const char *word, *what;
    bool tensor;           /* on tensor cores; else on the ordinary cores, in float32 */
    uint32_t needs, takes; /* bits of enum estimate_roof_dim: required; optional */
    bool causal;           /* accepts --causal */
    const char *letters;   /* letters of its formulas, if they are not the options' names; NULL */
    size_t (*ways)(const struct estimate_roof_shape *s, double e, struct estimate_roof_way out[ROOF_WAYS_MAX]);
};

extern const struct estimate_roof_op estimate_roof_ops[];
extern const size_t estimate_roof_op_count;
extern const char estimate_roof_op_words[];
const struct estimate_roof_op *estimate_roof_op_find(const char *word); /* NULL: none */

/* Whether the numbers make sense for that operator; if not, `why` has the rest of a sentence: "needs --m". */
bool estimate_roof_check(const struct estimate_roof_op *op, const struct estimate_roof_shape *s, char *why,
                         size_t size);
/* Fills in the ways and returns how many there are; elements have `element` bytes. estimate_roof_check must have
 * accepted the shape. */
size_t estimate_roof_ways(const struct estimate_roof_op *op, const struct estimate_roof_shape *s, double element,
                          struct estimate_roof_way out[ROOF_WAYS_MAX]);

/* The position of a way under a GPU's roof. */
struct estimate_roof_point {
    double intensity, ridge; /* operations per byte */
    double attainable;       /* operations/s at most */
    double compute_s, memory_s, least_s;
    bool by_memory; /* memory bounds it, not compute */
};
struct estimate_roof_point estimate_roof_point(double flops, double bytes, double flops_per_s, double bytes_per_s);
