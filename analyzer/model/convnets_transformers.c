/* Networks of images as transformers builds them: ConvNeXt V2, Swin; and torchvision's Swin. */
#include "analyzer/model/conv_walk.h"

/* Where autocast casts to the half type. */
static void cast_map(struct model_walk *w)
{
    w->wide = false;
    put_conv_map(w, CONV_CAST, true, map_size(w));
}

/* Global response normalisation: scale · (x · norm of x / mean of norms) + shift + x. */
static void response_norm(struct model_walk *w)
{
    struct model_branch in = branch_here(w);
    uint64_t read = map_size(w);

    w->wide = true;
    w->height = w->width = 1;
    put_conv_map(w, CONV_VECTOR_NORM, false, read);
    size_t factor = w->last;
    go_to(w, in);
    put_both(w, CONV_MULTIPLY, false, factor);
    w->held += read;
    put_tensor(w, "grn", TENSOR_NORM, w->channels, 1, 4);
    put_conv_map(w, CONV_MULTIPLY, false, read);
    put_tensor(w, "grn bias", TENSOR_BIAS, w->channels, 1, 4);
    put_conv_map(w, CONV_ADD, false, read);
    put_both(w, CONV_ADD, false, in.last);
    cast_map(w);
    w->held -= read;
}

static void convnext_v2_block(struct model_walk *w, bool wide)
{
    uint64_t channels = w->channels, read = map_size(w);
    size_t in = w->last;

    next_block(w);
    if (wide) cast_map(w);
    put_conv(w, channels, 7, 1, 3, channels, true);
    w->held += read;
    layer_norm(w);
    put_conv_linear(w, 4 * channels, false);
    put_conv_map(w, CONV_GELU, false, map_size(w));
    response_norm(w);
    put_conv_linear(w, channels, false);
    w->wide = wide;
    put_both(w, CONV_ADD, false, in);
    w->wide = false;
    w->held -= read;
}

/* transformers' ConvNextV2. Under autocast the stem's norm makes the first stage's sums float32. */
void model_walk_convnext_v2(struct model_walk *w, const int n[NUMBERS])
{
    uint64_t embedded;

    put_conv(w, (uint64_t)n[0], 4, 4, 0, 1, true);
    w->wide = true;
    layer_norm(w);
    w->wide = false;
    embedded = map_size(w);
    for (int stage = 0; stage < 4; stage++) {
        const uint64_t read = stage ? embedded + map_size(w) : embedded;
        if (stage) {
            next_block(w);
            w->held = embedded;
            layer_norm(w);
            w->held = read;
            put_conv(w, 2 * w->channels, 2, 2, 0, 1, true);
        }
        for (int i = 0; i < n[stage == 2 ? 2 : 1]; i++) {
            w->held = stage || i ? read : 0;
            convnext_v2_block(w, !stage);
        }
    }
    w->held = embedded;
    after_blocks(w);
    average_pool(w, 1);
    layer_norm(w);
    if (w->classes) put_conv_linear(w, w->classes, true);
}

/* A copy: padded, rolled, or in another order. */
static void copy_map(struct model_walk *w)
{
    put_conv_map(w, CONV_COPY, false, map_size(w));
}

static void cast_linear(struct model_walk *w, uint64_t outputs, bool bias)
{
    cast_map(w);
    put_tensor(w, "linear", TENSOR_MLP, outputs, w->channels, 2);
    if (bias) put_tensor(w, "linear bias", TENSOR_BIAS, outputs, 1, 1);
    uint64_t inputs = map_size(w);
    w->channels = outputs;
    put_conv_map(w, CONV_LINEAR, false, inputs);
}

static void wide_norm(struct model_walk *w)
{
    w->wide = true;
    layer_norm(w);
}

/* Queries, keys or values of each window: a product, and the copy by which heads are apart. */
static size_t window_heads(struct model_walk *w, struct model_branch windows)
{
    go_to(w, windows);
    cast_linear(w, w->channels, true);
    copy_map(w);
    return w->last;
}

/* One of the three in a product of all: copied by scaling queries, by torch.matmul() for keys and values. */
static size_t part_of_product(struct model_walk *w, struct model_branch all, uint64_t channels)
{
    go_to(w, all);
    w->channels = channels;
    copy_map(w);
    return w->last;
}

/* Attention in windows of `side` positions, from their copy to the product after it. */
static void window_attention(struct model_walk *w, uint64_t side, uint64_t heads, bool masked, bool joined)
{
    const struct model_branch windows = branch_here(w);
    const uint64_t width = map_size(w);
    size_t q, k, v;

    if (joined) {
        cast_linear(w, 3 * w->channels, true);
        const struct model_branch all = branch_here(w);
        q = part_of_product(w, all, windows.channels);
        k = part_of_product(w, all, windows.channels);
        v = part_of_product(w, all, windows.channels);
    } else {
        q = window_heads(w, windows);
        k = window_heads(w, windows);
        v = window_heads(w, windows);
    }
    w->held += 3 * width;
    w->channels = heads * side * side;
    w->last = q;
    put_both(w, CONV_MATMUL, false, k);
    copy_map(w); /* scaled */
    w->wide = true;
    put_tensor(w, "relative positions", TENSOR_OTHER, (2 * side - 1) * (2 * side - 1), heads, 2);
    w->weight = 0;
    copy_map(w);
    if (masked) copy_map(w);
    put_conv_map(w, CONV_SOFTMAX, false, map_size(w));
    cast_map(w);
    const uint64_t scores = map_size(w);
    w->channels = windows.channels;
    w->other = v;
    put_conv_map(w, CONV_MATMUL, false, scores);
    copy_map(w);
    w->held -= 3 * width;
    cast_linear(w, w->channels, true);
}

static void swin_block(struct model_walk *w, uint64_t side, uint64_t heads, bool shifts, bool wide, bool joined)
{
    const struct model_branch in = branch_here(w);
    const uint64_t read = map_size(w), before = w->held;
    const uint64_t height = (w->height + side - 1) / side * side, width = (w->width + side - 1) / side * side;

    next_block(w);
    wide_norm(w);
    w->held += read;
    w->height = height;
    w->width = width;
    copy_map(w); /* F.pad() copies even if it adds nothing */
    w->held += map_size(w);
    if (shifts) copy_map(w);
    if (shifts) w->held += map_size(w);
    if (width > side) {
        copy_map(w);
        w->held += map_size(w);
    }
    window_attention(w, side, heads, shifts, joined);
    if (width > side) copy_map(w);
    if (shifts) copy_map(w);
    const bool padded = height != in.height || width != in.width;
    w->height = in.height;
    w->width = in.width;
    if (padded) copy_map(w);
    if (w->blocks > 1) put_conv_map(w, CONV_DROP_PATH, false, map_size(w));
    /* variables of the module's forward: the windows, what they are copies of, what attention returns, its copies */
    w->held = before + read + (width > side ? 4 : 2) * height * width * in.channels + (padded || shifts ? read : 0);
    w->wide = wide;
    put_both(w, CONV_ADD, false, in.last);
    const size_t sum = w->last;
    wide_norm(w);
    w->held += read;
    cast_linear(w, 4 * w->channels, true);
    w->held += read;
    put_conv_map(w, CONV_GELU, false, map_size(w));
    w->held -= read;
    cast_linear(w, in.channels, true);
    w->wide = wide;
    put_both(w, CONV_ADD, false, sum);
    w->held = before;
}

/* transformers' Swin, and torchvision's, whose queries, keys and values are one product. Under autocast the stem's norm
 * makes the first stage's sums float32. */
void model_walk_swin(struct model_walk *w, const int n[NUMBERS])
{
    const uint64_t side = (uint64_t)n[3];
    uint64_t embedded;

    w->height = (w->height + 3) / 4 * 4;
    w->width = (w->width + 3) / 4 * 4;
    put_conv(w, (uint64_t)n[0], 4, 4, 0, 1, true);
    wide_norm(w);
    embedded = map_size(w);
    for (int stage = 0; stage < 4; stage++) {
        w->held = stage ? embedded + map_size(w) : embedded;
        if (w->height < side || w->width < side) w->failed = true; /* its table of positions would not fit */
        const bool one = w->height <= side || w->width <= side;
        for (int i = 0; i < n[stage == 2 ? 2 : 1]; i++)
            swin_block(w, side, (uint64_t)n[4] << stage, i % 2 && !one, !stage, n[5]);
        if (stage == 3) break;
        w->channels *= 4;
        w->height = (w->height + 1) / 2;
        w->width = (w->width + 1) / 2;
        copy_map(w);
        wide_norm(w);
        cast_linear(w, w->channels / 2, false);
    }
    w->held = embedded;
    after_blocks(w);
    wide_norm(w);
    average_pool(w, 1);
    w->wide = false;
    if (w->classes) put_conv_linear(w, w->classes, true);
}
