/* Convolutional networks, each walked operation by operation as its forward pass does. A walk lists the tensors, or the
 * sizes of the operations' outputs. */
#include <string.h>
#include "analyzer/base/words.h"
#include "analyzer/base/each.h"
#include "analyzer/model/conv_walk.h"
#include "analyzer/model/convnets.h"

static void put_act(struct model_walk *w, enum model_conv_op op)
{
    put_conv_map(w, op, true, map_size(w));
}

static void max_pool(struct model_walk *w, uint64_t kernel, uint64_t stride, uint64_t padding)
{
    uint64_t inputs = map_size(w);

    w->height = slid_side(w, w->height, kernel, stride, padding);
    w->width = slid_side(w, w->width, kernel, stride, padding);
    put_conv_map(w, CONV_MAX_POOL, false, inputs);
}

static void put_flatten(struct model_walk *w)
{
    w->channels = map_size(w);
    w->height = w->width = 1;
}

static void put_conv_norm(struct model_walk *w)
{
    scale_and_shift(w, CONV_BATCH_NORM);
}

/* Whether something keeps the input of the convolution alive during the norm and the activation: the module was called
 * with it; or nothing does, because the variable has the next value already. */
enum reader { CALLED_WITH, LET_GO };

static void conv_norm(struct model_walk *w, uint64_t outputs, uint64_t kernel, uint64_t stride, uint64_t groups,
                      enum reader reader)
{
    uint64_t kept = reader == CALLED_WITH ? map_size(w) : 0;

    put_conv(w, outputs, kernel, stride, (kernel - 1) / 2, groups, false);
    w->held += kept;
    put_conv_norm(w);
    w->held -= kept;
}

static void conv_norm_act(struct model_walk *w, uint64_t outputs, uint64_t kernel, uint64_t stride, uint64_t groups,
                          enum model_conv_op op, enum reader reader)
{
    conv_norm(w, outputs, kernel, stride, groups, reader);
    put_act(w, op);
}

static void residual_block(struct model_walk *w, uint64_t planes, uint64_t stride, bool bottleneck, uint64_t groups,
                           uint64_t group_width)
{
    uint64_t outputs = bottleneck ? 4 * planes : planes, inner = planes * group_width / 64 * groups;
    struct model_branch in = branch_here(w), out;
    uint64_t read = map_size(w);

    next_block(w);
    conv_norm_act(w, inner, bottleneck ? 1 : 3, bottleneck ? 1 : stride, 1, CONV_RELU, CALLED_WITH);
    w->held += read;
    if (bottleneck) {
        conv_norm_act(w, inner, 3, stride, groups, CONV_RELU, LET_GO);
        conv_norm(w, outputs, 1, 1, 1, LET_GO);
    } else {
        conv_norm(w, planes, 3, 1, 1, LET_GO);
    }
    out = branch_here(w);
    if (stride != 1 || in.channels != outputs) {
        uint64_t made = map_size(w);
        go_to(w, in);
        w->held += made - read; /* the shortcut's input */
        conv_norm(w, outputs, 1, stride, 1, CALLED_WITH);
        w->held += read; /* besides the shortcut's output, which has the size of `made` */
        size_t shortcut = w->last;
        go_to(w, out);
        put_both(w, CONV_ADD, true, shortcut);
        w->held -= made;
    } else {
        put_both(w, CONV_ADD, true, in.last);
    }
    w->held -= read;
    put_act(w, CONV_RELU);
}

static void walk_resnet(struct model_walk *w, const int n[NUMBERS])
{
    put_conv(w, 64, 7, 2, 3, 1, false);
    put_conv_norm(w);
    put_act(w, CONV_RELU);
    max_pool(w, 3, 2, 1);
    for (int stage = 0; stage < 4; stage++) {
        uint64_t read = map_size(w);
        for (int i = 0; i < n[stage]; i++) {
            w->held = i ? read : 0;
            residual_block(w, 64u << stage, stage && !i ? 2 : 1, n[4], (uint64_t)n[5], (uint64_t)n[6]);
        }
        w->held = 0;
    }
    after_blocks(w);
    average_pool(w, 1);
    put_conv_linear(w, w->classes, true);
}

static void hidden_linear(struct model_walk *w, uint64_t outputs)
{
    put_conv_linear(w, outputs, false);
    put_act(w, CONV_RELU);
}

static void walk_alexnet(struct model_walk *w, const int n[NUMBERS])
{
    static const struct {
        int outputs, kernel, stride, padding;
        bool pool;
    } rows[] = {
        {64, 11, 4, 2, true}, {192, 5, 1, 2, true}, {384, 3, 1, 1, false}, {256, 3, 1, 1, false}, {256, 3, 1, 1, true}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        next_block(w);
        put_conv(w, (uint64_t)rows[i].outputs, (uint64_t)rows[i].kernel, (uint64_t)rows[i].stride,
                 (uint64_t)rows[i].padding, 1, true);
        put_act(w, CONV_RELU);
        if (rows[i].pool) max_pool(w, 3, 2, 0);
    }
    after_blocks(w);
    average_pool(w, 6);
    put_flatten(w);
    put_conv_map(w, CONV_DROPOUT, false, map_size(w));
    hidden_linear(w, 4096);
    put_conv_map(w, CONV_DROPOUT, false, map_size(w));
    hidden_linear(w, 4096);
    put_conv_linear(w, w->classes, true);
}

static void walk_vgg(struct model_walk *w, const int n[NUMBERS])
{
    static const uint64_t channels[] = {64, 128, 256, 512, 512};

    for (int stage = 0; stage < 5; stage++) {
        next_block(w);
        for (int i = 0; i < n[stage]; i++) {
            put_conv(w, channels[stage], 3, 1, 1, 1, true);
            if (n[5]) put_conv_norm(w);
            put_act(w, CONV_RELU);
        }
        max_pool(w, 2, 2, 0);
    }
    after_blocks(w);
    average_pool(w, 7);
    put_flatten(w);
    hidden_linear(w, 4096);
    put_conv_map(w, CONV_DROPOUT, false, map_size(w));
    hidden_linear(w, 4096);
    put_conv_map(w, CONV_DROPOUT, false, map_size(w));
    put_conv_linear(w, w->classes, true);
}

/* A layer of a dense block: reads all earlier outputs, joined, and adds `growth` channels to them. */
static void dense_layer(struct model_walk *w, uint64_t growth, size_t *join)
{
    uint64_t channels = w->channels, gathered = map_size(w), joined = gathered;

    next_block(w);
    put_both(w, CONV_JOIN, false, *join);
    *join = w->last;
    w->held = gathered;
    put_conv_norm(w);
    w->held = gathered + joined;
    put_act(w, CONV_RELU);
    put_conv(w, 4 * growth, 1, 1, 0, 1, false);
    w->held = gathered;
    put_conv_norm(w);
    put_act(w, CONV_RELU);
    put_conv(w, growth, 3, 1, 1, 1, false);
    w->held = 0;
    w->channels = channels + growth;
}

static void walk_densenet(struct model_walk *w, const int n[NUMBERS])
{
    uint64_t inputs;

    put_conv(w, (uint64_t)n[0], 7, 2, 3, 1, false);
    put_conv_norm(w);
    put_act(w, CONV_RELU);
    max_pool(w, 3, 2, 1);
    for (int block = 0; block < 4; block++) {
        size_t join = 0;
        for (int i = 0; i < n[2 + block]; i++) dense_layer(w, (uint64_t)n[1], &join);
        put_both(w, CONV_JOIN, false, join);
        if (block == 3) break;
        next_block(w);
        put_conv_norm(w);
        w->held = map_size(w);
        put_act(w, CONV_RELU);
        put_conv(w, w->channels / 2, 1, 1, 0, 1, false);
        inputs = map_size(w);
        w->height = slid_side(w, w->height, 2, 2, 0);
        w->width = slid_side(w, w->width, 2, 2, 0);
        put_conv_map(w, CONV_AVERAGE_POOL, false, inputs);
        w->held = 0;
    }
    after_blocks(w);
    put_conv_norm(w);
    put_act(w, CONV_RELU);
    average_pool(w, 1);
    put_conv_linear(w, w->classes, true);
}

/* The nearest multiple of 8 that is not more than a tenth smaller. */
static uint64_t round_channels(uint64_t hundredths)
{
    uint64_t eights = (hundredths + 400) / 800 * 8;

    eights = eights < 8 ? 8 : eights;
    return eights * 1000 < hundredths * 9 ? eights + 8 : eights;
}

static void squeeze_excite(struct model_walk *w, uint64_t squeezed, bool efficient, enum model_conv_op gate)
{
    struct model_branch in = branch_here(w);
    uint64_t read = map_size(w);

    average_pool(w, 1);
    w->held += read;
    put_conv(w, squeezed, 1, 1, 0, 1, true);
    put_conv_map(w, efficient ? CONV_SILU : CONV_RELU, efficient, map_size(w));
    put_conv(w, in.channels, 1, 1, 0, 1, true);
    put_conv_map(w, gate, false, map_size(w));
    w->held -= read;
    size_t factor = w->last;
    go_to(w, in);
    put_both(w, CONV_MULTIPLY, false, factor);
}

/* MobileNet's block: expand, filter each channel, squeeze and excite, project. */
struct inverted {
    uint64_t expanded, outputs, kernel, stride, squeezed; /* squeezed 0: no squeeze and excite */
    enum model_conv_op act, gate;
    bool efficient;  /* torchvision's EfficientNet: in-place SiLU in the squeezed branch, and stochastic depth */
    bool adds_apart; /* torchvision's MobileNetV2: x + y instead of y += x */
};

static void inverted_residual(struct model_walk *w, const struct inverted *b)
{
    uint64_t inputs = w->channels, read = map_size(w), before = w->held;
    size_t in = w->last;

    next_block(w);
    if (b->expanded != inputs) {
        conv_norm_act(w, b->expanded, 1, 1, 1, b->act, CALLED_WITH);
        w->held = before + read;
    }
    conv_norm_act(w, b->expanded, b->kernel, b->stride, b->expanded, b->act, CALLED_WITH);
    w->held = before + read;
    if (b->squeezed) squeeze_excite(w, b->squeezed, b->efficient, b->gate);
    conv_norm(w, b->outputs, 1, 1, 1, b->adds_apart ? LET_GO : CALLED_WITH);
    if (b->stride == 1 && inputs == b->outputs) {
        if (b->efficient) put_conv_map(w, CONV_DROP_PATH, false, map_size(w));
        put_both(w, CONV_ADD, !b->adds_apart, in);
    }
    w->held = before;
}

/* Stages of such blocks, each of which begins with its stride: `width` and `depth` are percentages of the numbers of
 * channels and of blocks. */
struct inverted_stage {
    unsigned expand, kernel, stride, outputs, blocks;
};

static void inverted_stages(struct model_walk *w, const struct inverted_stage *stages, size_t n, unsigned width,
                            unsigned depth, struct inverted like)
{
    EACH (stage, stages, n) {
        const uint64_t read = map_size(w);
        for (unsigned block = 0; block < (stage->blocks * depth + 99) / 100; block++) {
            like.expanded = w->channels * stage->expand;
            like.outputs = round_channels(stage->outputs * (uint64_t)width);
            like.kernel = stage->kernel;
            like.stride = block ? 1 : stage->stride;
            like.squeezed = like.efficient ? w->channels / 4 : 0;
            w->held = like.efficient && block ? read : 0;
            inverted_residual(w, &like);
        }
        w->held = 0;
    }
}

static void walk_mobilenet_v2(struct model_walk *w, const int n[NUMBERS])
{
    static const struct inverted_stage stages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 3, 2, 32, 3},
                                                   {6, 3, 2, 64, 4}, {6, 3, 1, 96, 3}, {6, 3, 2, 160, 3},
                                                   {6, 3, 1, 320, 1}};

    conv_norm_act(w, 32, 3, 2, 1, CONV_RELU6, LET_GO);
    inverted_stages(w, stages, COUNT_OF(stages), 100, 100, (struct inverted){.act = CONV_RELU6, .adds_apart = true});
    after_blocks(w);
    conv_norm_act(w, 1280, 1, 1, 1, CONV_RELU6, CALLED_WITH);
    average_pool(w, 1);
    put_conv_map(w, CONV_DROPOUT, false, map_size(w));
    put_conv_linear(w, w->classes, true);
}

struct v3_row {
    unsigned char kernel, stride, squeezes, hard;
    unsigned short expanded, outputs;
};

static void walk_mobilenet_v3(struct model_walk *w, const int n[NUMBERS])
{
    static const struct v3_row large[] = {
        {3, 1, 0, 0, 16, 16},   {3, 2, 0, 0, 64, 24},   {3, 1, 0, 0, 72, 24},   {5, 2, 1, 0, 72, 40},
        {5, 1, 1, 0, 120, 40},  {5, 1, 1, 0, 120, 40},  {3, 2, 0, 1, 240, 80},  {3, 1, 0, 1, 200, 80},
        {3, 1, 0, 1, 184, 80},  {3, 1, 0, 1, 184, 80},  {3, 1, 1, 1, 480, 112}, {3, 1, 1, 1, 672, 112},
        {5, 2, 1, 1, 672, 160}, {5, 1, 1, 1, 960, 160}, {5, 1, 1, 1, 960, 160}, {0},
    };
    static const struct v3_row small[] = {
        {3, 2, 1, 0, 16, 16},  {3, 2, 0, 0, 72, 24},  {3, 1, 0, 0, 88, 24},  {5, 2, 1, 1, 96, 40},
        {5, 1, 1, 1, 240, 40}, {5, 1, 1, 1, 240, 40}, {5, 1, 1, 1, 120, 48}, {5, 1, 1, 1, 144, 48},
        {5, 2, 1, 1, 288, 96}, {5, 1, 1, 1, 576, 96}, {5, 1, 1, 1, 576, 96}, {0},
    };

    conv_norm_act(w, 16, 3, 2, 1, CONV_HARDSWISH, LET_GO);
    for (const struct v3_row *r = n[0] ? large : small; r->kernel; r++)
        inverted_residual(w, &(struct inverted){.expanded = r->expanded,
                                                .outputs = r->outputs,
                                                .kernel = r->kernel,
                                                .stride = r->stride,
                                                .squeezed = r->squeezes ? round_channels(r->expanded / 4 * 100u) : 0,
                                                .act = r->hard ? CONV_HARDSWISH : CONV_RELU,
                                                .gate = CONV_HARDSIGMOID});
    after_blocks(w);
    conv_norm_act(w, 6 * w->channels, 1, 1, 1, CONV_HARDSWISH, CALLED_WITH);
    average_pool(w, 1);
    put_conv_linear(w, n[0] ? 1280 : 1024, false);
    put_act(w, CONV_HARDSWISH);
    put_conv_map(w, CONV_DROPOUT, true, map_size(w));
    put_conv_linear(w, w->classes, true);
}

static void walk_mnasnet(struct model_walk *w, const int n[NUMBERS])
{
    static const struct inverted_stage stages[] = {{3, 3, 2, 24, 3}, {3, 5, 2, 40, 3},  {6, 5, 2, 80, 3},
                                                   {6, 3, 1, 96, 2}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
    const unsigned width = (unsigned)n[0];
    const uint64_t stem = round_channels(32 * width);

    conv_norm_act(w, stem, 3, 2, 1, CONV_RELU, LET_GO);
    conv_norm_act(w, stem, 3, 1, stem, CONV_RELU, LET_GO);
    conv_norm(w, round_channels(16 * width), 1, 1, 1, LET_GO);
    inverted_stages(w, stages, COUNT_OF(stages), width, 100, (struct inverted){.act = CONV_RELU, .adds_apart = true});
    after_blocks(w);
    conv_norm_act(w, 1280, 1, 1, 1, CONV_RELU, LET_GO);
    average_pool(w, 1);
    put_conv_map(w, CONV_DROPOUT, true, map_size(w));
    put_conv_linear(w, w->classes, true);
}

static void regnet_block(struct model_walk *w, uint64_t outputs, uint64_t stride, uint64_t group, uint64_t squeezed)
{
    struct model_branch in = branch_here(w);
    uint64_t read = map_size(w), before = w->held;
    size_t shortcut = in.last;

    next_block(w);
    if (stride != 1 || in.channels != outputs) {
        conv_norm(w, outputs, 1, stride, 1, CALLED_WITH);
        shortcut = w->last;
        w->held += map_size(w);
        go_to(w, in);
    }
    conv_norm_act(w, outputs, 1, 1, 1, CONV_RELU, CALLED_WITH);
    w->held += read;
    conv_norm_act(w, outputs, 3, stride, outputs / (group < outputs ? group : outputs), CONV_RELU, CALLED_WITH);
    if (squeezed) squeeze_excite(w, squeezed, false, CONV_SIGMOID);
    conv_norm(w, outputs, 1, 1, 1, CALLED_WITH);
    put_both(w, CONV_ADD, false, shortcut);
    put_act(w, CONV_RELU);
    w->held = before;
}

static void walk_regnet(struct model_walk *w, const int n[NUMBERS])
{
    conv_norm_act(w, 32, 3, 2, 1, CONV_RELU, LET_GO);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < n[4 + stage]; i++) {
            /* a share of the block's input channels */
            uint64_t squeezed = (2 * (uint64_t)n[9] * w->channels + 100) / 200;
            regnet_block(w, (uint64_t)n[stage], i ? 1 : 2, (uint64_t)n[8], squeezed);
        }
    after_blocks(w);
    average_pool(w, 1);
    put_conv_linear(w, w->classes, true);
}

static void walk_efficientnet(struct model_walk *w, const int n[NUMBERS])
{
    static const struct inverted_stage stages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                                                   {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                                                   {6, 3, 1, 320, 1}};
    const unsigned width = (unsigned)n[0], depth = (unsigned)n[1];

    conv_norm_act(w, round_channels(32 * width), 3, 2, 1, CONV_SILU, LET_GO);
    inverted_stages(w, stages, COUNT_OF(stages), width, depth,
                    (struct inverted){.act = CONV_SILU, .gate = CONV_SIGMOID, .efficient = true});
    after_blocks(w);
    conv_norm_act(w, 4 * w->channels, 1, 1, 1, CONV_SILU, CALLED_WITH);
    average_pool(w, 1);
    put_conv_map(w, CONV_DROPOUT, true, map_size(w));
    put_conv_linear(w, w->classes, true);
}

static void convnext_block(struct model_walk *w)
{
    uint64_t channels = w->channels, read = map_size(w);
    size_t in = w->last;

    next_block(w);
    put_conv(w, channels, 7, 1, 3, channels, true);
    w->held += read;
    layer_norm(w);
    put_conv_linear(w, 4 * channels, false);
    put_conv_map(w, CONV_GELU, false, map_size(w));
    put_conv_linear(w, channels, false);
    put_tensor(w, "layer_scale", TENSOR_OTHER, channels, 1, 1);
    put_conv_map(w, CONV_MULTIPLY, false, map_size(w));
    if (w->blocks > 1) /* for the first block its probability is 0 */
        put_conv_map(w, CONV_DROP_PATH, false, map_size(w));
    put_both(w, CONV_ADD, true, in);
    w->held -= read;
}

static void walk_convnext(struct model_walk *w, const int n[NUMBERS])
{
    put_conv(w, (uint64_t)n[0], 4, 4, 0, 1, true);
    layer_norm(w);
    for (int stage = 0; stage < 4; stage++) {
        if (stage) {
            next_block(w);
            layer_norm(w);
            w->held = map_size(w);
            put_conv(w, 2 * w->channels, 2, 2, 0, 1, true);
            w->held = 0;
        }
        uint64_t read = map_size(w);
        for (int i = 0; i < (stage == 2 ? n[1] : 3); i++) {
            w->held = i ? read : 0;
            convnext_block(w);
        }
        w->held = 0;
    }
    after_blocks(w);
    average_pool(w, 1);
    layer_norm(w);
    put_conv_linear(w, w->classes, true);
}

#define walk_convnext_v2 model_walk_convnext_v2
#define walk_swin model_walk_swin

static const struct net {
    const char *name, *builder;
    void (*walk)(struct model_walk *, const int n[NUMBERS]);
    int numbers[NUMBERS];
} nets[] = {
#define NET(name, builder, ...) {name, #builder, walk_##builder, {__VA_ARGS__}},
#include "analyzer/model/convnets.def"
#undef NET
};

static void walk_net(struct model_walk *w, const struct model_shape *s, uint64_t height, uint64_t width)
{
    const struct net *net = &nets[s->conv_net - 1];

    w->channels = 3;
    w->height = height;
    w->width = width;
    w->classes = s->classes;
    net->walk(w, net->numbers);
}

unsigned model_convnet_called(const char *name)
{
    for (unsigned i = 0; i < sizeof nets / sizeof *nets; i++)
        if (strcmp(nets[i].name, name) == 0) return i + 1;
    return 0;
}

unsigned model_convnet_like(const char *builder, const uint64_t *numbers, size_t n)
{
    for (unsigned i = 0; i < sizeof nets / sizeof *nets; i++) {
        size_t equal = 0;
        if (strcmp(nets[i].builder, builder) != 0) continue;
        while (equal < n && (uint64_t)nets[i].numbers[equal] == numbers[equal]) equal++;
        if (equal == n) return i + 1;
    }
    return 0;
}

uint64_t model_convnet_image(unsigned row)
{
    const struct net *net = &nets[row - 1];

    return net->walk == model_walk_swin ? 32 * (uint64_t)net->numbers[3] : 224; /* the last stage is one window */
}

bool model_convnet_make(struct model *m)
{
    struct model_walk w = {.m = m};

    walk_net(&w, &m->shape, m->shape.image, m->shape.image);
    m->shape.layers = w.blocks;
    return !w.failed;
}

size_t model_conv_maps(const struct model *m, uint64_t height, uint64_t width, struct model_conv_map *out, size_t max)
{
    struct model_walk w = {.out = out, .max = max};

    if (m->shape.family != MODEL_CONV || !m->shape.conv_net || m->shape.conv_net > sizeof nets / sizeof *nets ||
        !height || !width || height > SIDE_LARGEST || width > SIDE_LARGEST)
        return 0;
    walk_net(&w, &m->shape, height, width);
    return w.failed ? 0 : w.n;
}

WORDS_FUNCTION(model_conv_op_word, enum model_conv_op, CONV_OPS, WORDS_FIRST, NULL)
