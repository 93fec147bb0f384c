/* Activations of convolutional networks: each operation's output is kept if autograd needs it, as the result
 * of the operation itself (ReLU) or as the input of the next (convolutions, batch norms, products). */
#include <math.h>
#include <string.h>
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/activations_conv.h"

bool estimate_conv_keeps_input(enum model_conv_op op)
{
    return op != CONV_RELU && op != CONV_ADD && op != CONV_JOIN && op != CONV_DROPOUT && op != CONV_DROP_PATH &&
           op != CONV_AVERAGE_POOL && op != CONV_SIGMOID && op != CONV_CAST && op != CONV_COPY && op != CONV_SOFTMAX;
}

bool estimate_conv_keeps_output(enum model_conv_op op)
{
    return op == CONV_RELU || op == CONV_SIGMOID || op == CONV_SOFTMAX;
}

size_t estimate_conv_maps(const struct plan *p, bool amp, struct model_conv_map *maps)
{
    const uint64_t side = p->model->shape.image ? p->model->shape.image : 224;
    const size_t n = model_conv_maps(p->model, side, side, maps, CONV_MAPS_MAX);

    if (n > CONV_MAPS_MAX) return 0;
    for (size_t i = 0; i < n; i++) { /* under autocast a layer norm casts what it reads to float32 */
        maps[i].wide = amp && (maps[i].wide || (i + 1 < n && maps[i + 1].op == CONV_LAYER_NORM));
        if (maps[i].op == CONV_CAST && amp) maps[i].in_place = false;
    }
    return n;
}

/* Queries and keys, which a product reads after the values are made. */
static bool is_read_by_product(const struct model_conv_map *maps, size_t i, size_t n)
{
    for (size_t k = i + 1; maps[i].op == CONV_COPY && k < n; k++)
        if (maps[k].op == CONV_MATMUL && (maps[k].from == i + 1 || maps[k].other == i + 1)) return true;
    return false;
}

/* A cast that casts nothing, of what an earlier one is of: it is the same tensor. */
static bool is_counted_before(const struct model_conv_map *maps, size_t i)
{
    for (size_t k = i; maps[i].op == CONV_CAST && maps[i].in_place && k-- > 0;)
        if (maps[k].op == CONV_CAST && maps[k].from == maps[i].from) return true;
    return false;
}

/* Is the output of operation `i` of `n` read by something that needs it in backward? */
static bool is_map_needed(const struct model_conv_map *maps, size_t i, size_t n)
{
    const struct model_conv_map *next = i + 1 < n ? &maps[i + 1] : NULL;

    if (estimate_conv_keeps_output(maps[i].op) || !next || is_read_by_product(maps, i, n)) return true;
    if (next->op == CONV_AVERAGE_POOL) /* squeeze and excitation: this output is also multiplied later */
        return i + 2 < n && maps[i + 2].op == CONV_CONV;
    if (next->op == CONV_CONV && next->inputs != maps[i].elements)
        return false; /* the shortcut's convolution reads something else */
    return estimate_conv_keeps_input(next->op);
}

/* Bytes for one image that this operation's output adds to what is kept. */
static double kept_map_bytes(const struct model_conv_map *maps, size_t i, size_t n, const struct estimate_act_sizes *z)
{
    const struct model_conv_map *map = &maps[i];
    double elements = (double)map->elements, extra = 0, c = map->wide ? 4 : z->compute;

    if (map->op == CONV_MAX_POOL) extra = 8 * elements; /* the index of each maximum */
    if (map->op == CONV_DROPOUT) extra = elements;
    if (map->op == CONV_SOFTMAX && z->softmax_input) extra = c * elements;
    if (map->in_place && estimate_conv_keeps_input(map->op))
        extra += c * elements; /* a copy of the input that it overwrites */
    if (is_counted_before(maps, i)) return extra;
    if (i + 1 < n && maps[i + 1].in_place && maps[i + 1].from == i + 1)
        return extra; /* counted with the operation that writes over it */
    return extra + (is_map_needed(maps, i, n) ? c * elements : 0);
}

/* Apex, by which such networks were trained before autocast, also computes GELU in float32 (apex/amp/lists), and
 * softmax kept what it reads. Two published Swins are as large as with both. */
static double kept_by_apex(const struct plan *p, const struct model_conv_map *map, bool amp)
{
    if (!amp || !p->torch || !p->zeroes_gradients) return 0; /* before PyTorch 2.0 */
    return map->op == CONV_GELU                                 ? 2 * (double)map->elements
           : map->op == CONV_SOFTMAX && !p->keeps_softmax_input ? 4 * (double)map->elements
                                                                : 0;
}

bool estimate_act_conv(const struct plan *p, enum estimate_act_variant variant, struct estimate_act_pass *out)
{
    static struct model_conv_map maps[CONV_MAPS_MAX];
    struct estimate_act_sizes z = estimate_act_sizes_of(p, variant);
    uint64_t side = p->model->shape.image ? p->model->shape.image : 224;
    size_t n = estimate_conv_maps(p, z.amp, maps);
    double images = (double)p->batch, weights = 0, apex = 0, live, sum = 3 * (double)(side * side) * z.compute;

    memset(out, 0, sizeof *out);
    if (!n) return false;
    for (size_t i = 0; i < n; i++) sum += kept_map_bytes(maps, i, n, &z);
    for (size_t i = 0; variant == ACT_PADDED && i < n; i++) apex += kept_by_apex(p, &maps[i], z.amp);
    out->saved[ACT_CONV] = images * (sum + apex);
    /* measured on the simulated GPU: within 3.3 % of 44 trainings, except AlexNet (docs/accuracy.md) */
    out->saved[ACT_CONV] *= variant == ACT_PADDED ? 1.04 : variant == ACT_FUSED ? 0.97 : 1;
    /* backward: the gradient that arrives, the one that it makes, and one more while a residual waits */
    live = sum;
    for (size_t i = n; i-- > 0;) {
        double work = z.compute * (double)(maps[i].elements + maps[i].inputs +
                                           (variant == ACT_PADDED ? maps[i].elements + maps[i].inputs : 0));
        if (variant == ACT_FUSED) work = z.compute * (double)maps[i].inputs;
        /* the first gradients are those of the classifier, large in older networks */
        if (maps[i].op == CONV_LINEAR && maps[i].height == 1)
            weights += z.gradient * (double)maps[i].inputs * (double)maps[i].elements;
        if (i >= n / 2)
            out->first = fmax(out->first, images * (live + work - sum) + weights);
        else if (i < 8)
            out->second = fmax(out->second, images * (live + work));
        live -= kept_map_bytes(maps, i, n, &z);
    }
    return true;
}
