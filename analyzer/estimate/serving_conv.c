/* What a convolutional network keeps at once without gradients: what its largest operation reads and writes, and
 * tensors that wait for a later operation. */
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/serving.h"
#include "analyzer/model/convnets.h"

/* Whether the output is the input: in place, or dropout, which does nothing outside of training. */
static bool nothing_new(const struct model_conv_map *map)
{
    return map->in_place || map->op == CONV_DROPOUT || map->op == CONV_DROP_PATH;
}

/* Bytes of one image while operation `i` runs. The caller holds the image all the time. */
static double live_map_bytes(const struct model_conv_map *maps, size_t i, double image, double size)
{
    const struct model_conv_map *map = &maps[i];
    double elements = (double)map->inputs + (double)map->held + (i ? image : 0);

    if (!nothing_new(map)) elements += (double)map->elements;
    /* max_pool2d always returns the index of each maximum, in 8 bytes */
    return elements * size + (map->op == CONV_MAX_POOL ? 8 * (double)map->elements : 0);
}

bool estimate_serving_conv(const struct plan *p, double size, struct estimate_result *r)
{
    static struct model_conv_map maps[CONV_MAPS_MAX];
    uint64_t side = p->model->shape.image ? p->model->shape.image : 224;
    size_t n = model_conv_maps(p->model, side, side, maps, CONV_MAPS_MAX), at = 0;
    double image = 3 * (double)side * (double)side, images = (double)p->batch;
    struct estimate_interval most = {0};
    struct estimate_line *line;

    if (!n || n > CONV_MAPS_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        double now = live_map_bytes(maps, i, image, size), copied = now;
        /* low: the norm is part of the convolution before it (a compiler, TensorRT) */
        if (!(maps[i].op == CONV_BATCH_NORM || maps[i].op == CONV_LAYER_NORM) && now > most.low) most.low = now;
        if (now > most.likely) {
            most.likely = now;
            at = i;
        }
        /* high: a convolution's kernel needs channels last, and copies what it reads and writes */
        if (maps[i].op == CONV_CONV) copied += size * (double)(maps[i].inputs + maps[i].elements);
        most.high = copied > most.high ? copied : most.high;
    }
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(PREFILL), "activations, forward",
                        (struct estimate_interval){images * most.low, images * most.likely, images * most.high});
    line->why =
        "low: a compiler (TensorRT) folds norms into convolutions; high: cuDNN copies to channels last and back";
    estimate_explain(line, "the maximum live in the modules of torchvision or transformers under inference_mode()",
                     "batch %ju · (image %.0f + %s: reads %ju, writes %ju, others live %ju) · %.0f B%s",
                     (uintmax_t)p->batch, at ? image : 0, model_conv_op_word(maps[at].op), (uintmax_t)maps[at].inputs,
                     (uintmax_t)(nothing_new(&maps[at]) ? 0 : maps[at].elements), (uintmax_t)maps[at].held, size,
                     maps[at].op == CONV_MAX_POOL ? " + 8 B for the index of each maximum" : "");
    return true;
}
