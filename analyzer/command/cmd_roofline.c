/* gpuspy roofline: what bounds a kernel, memory or compute, and how fast it can be. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/command/commands.h"
#include "analyzer/view/view_roofline.h"

struct settings {
    uint64_t flops, bytes, time, peak, bandwidth;
    const char *op, *gpu, *dtype;
    struct estimate_roof_shape shape;
    bool naive, flash, json;
};

#define DIM(field, option, what) \
    {option, 0, OPTION_COUNT, offsetof(struct settings, shape.of[ROOF_##field]), "N", NULL, 1, ROOF_DIM_MAX, what},
static const struct option_row options[] = {
    {"gpu", 0, OPTION_TEXT, offsetof(struct settings, gpu), "NAME", estimate_gpu_words, 0, 0,
     "this GPU, such as a100-80g or h100; default: all"},
    {"peak", 0, OPTION_COUNT, offsetof(struct settings, peak), "N", NULL, 1, 1.8e19,
     "instead of --gpu: the operations per second of another GPU, such as 77.6T"},
    {"bandwidth", 0, OPTION_RATE, offsetof(struct settings, bandwidth), "RATE", NULL, 1, 1e18,
     "with --peak: its memory bandwidth, such as 2039GB/s"},
    {"dtype", 0, OPTION_CHOICE, offsetof(struct settings, dtype), "NAME", estimate_gpu_rate_words, 0, 0,
     "number format of the computation and the tensors; default bf16 (fp16 on GPUs without it)"},
    {"flops", 0, OPTION_COUNT, offsetof(struct settings, flops), "N", NULL, 1, 1.8e19,
     "operations of a kernel: 137.4G, 2e12; a multiply-add counts as two"},
    {"bytes", 0, OPTION_BYTES, offsetof(struct settings, bytes), "SIZE", NULL, 1, 9e18,
     "bytes that the kernel reads from and writes to device memory: 100.7MB"},
    {"time", 0, OPTION_TIME, offsetof(struct settings, time), "TIME", NULL, 1, 1.8e19,
     "a measured time, such as 1.2ms, to compare with the roof"},
    {"op", 0, OPTION_CHOICE, offsetof(struct settings, op), "NAME", estimate_roof_op_words, 0, 0,
     "an operator; operations and bytes follow from its shape"},
    OPTION_ROW(FLAG, "naive", 0, naive, NULL, "attention: only with the score matrix in memory"),
    OPTION_ROW(FLAG, "flash", 0, flash, NULL, "attention: only as FlashAttention"),
    OPTION_ROW(FLAG, "causal", 0, shape.causal, NULL, "attention: causal; flash kernels skip the masked half"),
    OPTION_ROW(FLAG, "json", 0, json, NULL, "print JSON"),
    OPTIONS_HEADING("Shapes"),
    ROOF_DIMS(DIM){0},
};
#undef DIM

const struct command_text command_text_roofline = {
    .options = options,
    .about = "Computes whether memory or compute limits a kernel. A GPU reaches at most min(peak, intensity * memory "
             "bandwidth); the intensity is operations per byte moved. Below the ridge (peak / bandwidth) memory is the "
             "limit, above it compute.\n\nPeaks are the vendors' figures without sparsity, for each precision. "
             "Everything but matrix products is computed in float32 on the ordinary cores, whatever the storage "
             "format. If an operator has several implementations that move different amounts of data, each is shown.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy roofline --op matmul --m 4096 --n 4096 --k 4096 --gpu a100", "compute bound: 137.4 GFLOP on 100.7 MB"},
        {"gpuspy roofline --op attention --heads 32 --seq 4096 --head-dim 128 --gpu h100", "naive and FlashAttention"},
        {"gpuspy roofline --op softmax --rows 8192 --cols 8192 --gpu a100 --time 210us",
         "the share of the roof that a kernel reached"},
        {"gpuspy roofline --flops 2e12 --bytes 40GB --dtype fp32", "any kernel, on every GPU"}),
};

/* False after a line on stderr about options that contradict each other. */
static bool are_options_together(const struct settings *s)
{
    bool shaped = s->shape.causal || s->naive || s->flash;

    for (int i = 0; i < ROOF_DIMS_N; i++) shaped |= s->shape.of[i] != 0;
    if (s->op && (s->flops || s->bytes))
        complain("roofline: give --op, or --flops and --bytes, not both");
    else if (!s->op && shaped)
        complain("roofline: a shape needs its operator; add --op, such as --op matmul");
    else if (!s->op && (!s->flops || !s->bytes))
        complain("roofline: %s", s->flops   ? "add the bytes that it moves, such as --bytes 100MB"
                                 : s->bytes ? "add the operations that it does, such as --flops 137G"
                                            : "no kernel given; add --flops and --bytes, or --op and its shape");
    else if ((s->naive || s->flash) && strcmp(s->op ? s->op : "", "attention") != 0)
        complain("roofline: --%s works with --op attention only", s->naive ? "naive" : "flash");
    else if (s->time && !s->gpu && !s->peak)
        complain("roofline: --time needs --gpu, the GPU on which it was measured");
    else if (!s->peak != !s->bandwidth)
        complain("roofline: --peak and --bandwidth belong together; add --%s", s->peak ? "bandwidth" : "peak");
    else if (s->peak && s->gpu)
        complain("roofline: give --gpu, or --peak and --bandwidth, not both");
    else
        return true;
    return false;
}

static bool rate_of(const struct settings *s, struct view_roofline *r)
{
    enum estimate_gpu_rate rate = GPU_BF16;

    if (!s->dtype && r->gpu && !(r->gpu->tflops[GPU_BF16] > 0))
        rate = r->gpu->tflops[GPU_FP16] > 0 ? GPU_FP16 : GPU_FP16_PLAIN;
    for (int i = 0; s->dtype && i < GPU_RATES_N; i++)
        if (strcmp(estimate_gpu_rate_name[i], s->dtype) == 0) rate = (enum estimate_gpu_rate)i;
    r->stored = rate;
    bool plain = rate == GPU_FP64 || rate == GPU_FP64_TENSOR;
    r->rate = r->op && !r->op->tensor ? plain ? GPU_FP64 : GPU_FP32 : rate;
    if (r->gpu && !(r->gpu->tflops[r->rate] > 0)) {
        return complain_with(false, "roofline: --dtype: %s has no figure for %s (%s)", r->gpu->key,
                             estimate_gpu_rate_name[r->rate], estimate_gpu_rate_meaning[r->rate]);
    }
    return true;
}

/* A GPU that --peak and --bandwidth describe: the same rate for all operations. */
static const struct estimate_gpu *described_gpu(const struct settings *s)
{
    static struct estimate_gpu gpu = {
        .key = "this GPU", .product = "a GPU as described", .source = "--peak and --bandwidth"};

    gpu.hbm = (double)s->bandwidth;
    for (int i = 0; i < GPU_RATES_N; i++) gpu.tflops[i] = (double)s->peak / 1e12;
    return &gpu;
}

/* Keeps only the implementations of attention that were requested. */
static void choose_gpu(const struct settings *s, struct view_roofline *r)
{
    size_t n = 0;

    if (s->naive == s->flash) return;
    for (size_t i = 0; i < r->ways_n; i++)
        if ((strcmp(r->ways[i].name, "naive") == 0) == s->naive) r->ways[n++] = r->ways[i];
    r->ways_n = n;
}

static bool work_of(const struct settings *s, struct view_roofline *r)
{
    char why[128];

    if (!r->op) {
        r->ways[0] = (struct estimate_roof_way){.name = "", .flops = (double)s->flops, .bytes = (double)s->bytes};
        r->ways_n = 1;
        return true;
    }
    if (!estimate_roof_check(r->op, &r->shape, why, sizeof why)) {
        return complain_with(false, *why == '-' ? "roofline: %s%s" : "roofline: --op %s %s",
                             *why == '-' ? "" : r->op->word, why);
    }
    r->ways_n = estimate_roof_ways(r->op, &r->shape, estimate_gpu_rate_bytes[r->stored], r->ways);
    choose_gpu(s, r);
    return true;
}

int command_roofline(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    struct view_roofline r = {0};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands > 0)
        return complain_with(EXIT_USAGE, "roofline: '%s' is unexpected; write --op before an operator", argv[0]);
    if (!are_options_together(&s) || (s.gpu && !(r.gpu = estimate_gpu_require("roofline", "gpu", s.gpu))))
        return EXIT_USAGE;
    if (s.peak) r.gpu = described_gpu(&s);
    r.op = s.op ? estimate_roof_op_find(s.op) : NULL;
    r.shape = s.shape;
    r.measured_s = (double)s.time * 1e-9;
    if (!rate_of(&s, &r) || !work_of(&s, &r)) return EXIT_USAGE;
    if (s.json) {
        view_roofline_json(&r, stdout);
    } else {
        struct terminal term = terminal_of(stdout);
        view_roofline_text(&r, &term, stdout);
    }
    return EXIT_YES;
}
