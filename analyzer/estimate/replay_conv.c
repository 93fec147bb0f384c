/* The operations of a convolutional network, from its maps. */
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/activations_conv.h"
#include "analyzer/estimate/replay.h"

static unsigned flags_of(const struct model_conv_map *map)
{
    return (map->in_place ? REPLAY_IN_PLACE : 0) | (estimate_conv_keeps_input(map->op) ? REPLAY_KEEPS_INPUT : 0) |
           (estimate_conv_keeps_output(map->op) ? REPLAY_KEEPS_OUTPUT : 0) |
           (map->op == CONV_MULTIPLY || map->op == CONV_MATMUL ? REPLAY_KEEPS_OTHERS : 0) |
           (map->op == CONV_ADD || map->op == CONV_JOIN || (map->op == CONV_CAST && map->in_place) ? REPLAY_PASSES_ON
                                                                                                   : 0) |
           (map->op == CONV_JOIN ? REPLAY_JOINS : 0) |
           (map->op == CONV_LINEAR || map->op == CONV_MATMUL ? REPLAY_PRODUCT : 0) |
           (map->op == CONV_DROPOUT ? REPLAY_MASKS : 0);
}

/* cuDNN's kernels for gradients, at least on Hopper for windows wider than 1, read channels last and copy tensors of
 * another order. Forward has kernels for both (measured on an H200: ResNets, VGG). */
static struct estimate_replay_op op_of(const struct model_conv_map *map, const struct estimate_act_sizes *z)
{
    double elements = z->batch * (double)map->elements, size = map->wide ? 4 : z->compute;
    bool matrix = map->op == CONV_CONV || map->op == CONV_LINEAR;

    return (struct estimate_replay_op){
        .flags = flags_of(map),
        .from = (uint32_t)map->from,
        .others = {(uint32_t)map->other},
        .bytes = elements * size,
        /* indices of the maxima; a mask */
        .extra = map->op == CONV_MAX_POOL                      ? 8 * elements
                 : map->op == CONV_DROPOUT                     ? elements
                 : map->op == CONV_SOFTMAX && z->softmax_input ? size * elements
                                                               : 0,
        .work = map->op == CONV_MULTIPLY      ? size * elements /* summed up for each channel */
                : map->op == CONV_VECTOR_NORM ? size * z->batch * (double)map->inputs
                : map->window > 1             ? z->compute * (z->batch * (double)map->inputs + elements)
                                              : 0,
        .parameters = {(double)map->weight, (double)map->bias},
        .cast = z->amp && matrix ? 2 * (double)map->weight : 0,
    };
}

void estimate_replay_conv(const struct plan *p, struct estimate_replay_list *list)
{
    static struct model_conv_map maps[CONV_MAPS_MAX];
    const struct estimate_act_sizes z = estimate_act_sizes_of(p, ACT_EAGER);
    const uint64_t side = p->model->shape.image ? p->model->shape.image : 224;
    const size_t n = estimate_conv_maps(p, z.amp, maps);

    list->input = z.batch * 3 * (double)side * (double)side * 4;
    for (size_t i = 0; i < n; i++) {
        uint32_t at = estimate_replay_put(list, op_of(&maps[i], &z));
        if (maps[i].op == CONV_CONV && !list->converts) list->ops[at - 1].work = 0;
    }
}
