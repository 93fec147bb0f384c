/* Operators of any shape on the roofline of any GPU, drawn at any width; transfers of any size over any links. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include "analyzer/estimate/wires.h"
#include "analyzer/view/view_roofline.h"

static void drawn(const struct view_roofline *r, uint8_t how)
{
    struct terminal term = {.width = 40 + how, .utf8 = how & 1, .colour = how & 2};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FUZZ_CHECK(out, "no memory");
    view_roofline_text(r, &term, out);
    view_roofline_json(r, out);
    fclose(out);
    FUZZ_CHECK(size && !strstr(text, "nan"), "%s", text);
    free(text);
}

static void an_operator(struct fuzz_bytes *b)
{
    struct view_roofline r = {.op = &estimate_roof_ops[fuzz_u8(b) % estimate_roof_op_count],
                              .gpu = &estimate_gpus[fuzz_u8(b) % estimate_gpu_count]};
    char why[128] = "";

    r.stored = (enum estimate_gpu_rate)(fuzz_u8(b) % GPU_RATES_N);
    r.rate = r.gpu->tflops[r.stored] > 0 ? r.stored : GPU_FP32;
    const uint8_t how = fuzz_u8(b);
    r.shape.causal = how & 4 && r.op->causal;
    for (int i = 0; i < ROOF_DIMS_N; i++)
        if ((r.op->needs | r.op->takes) & 1u << i) r.shape.of[i] = fuzz_number(b, 5) % (uint64_t)ROOF_DIM_MAX;
    if (!estimate_roof_check(r.op, &r.shape, why, sizeof why)) {
        FUZZ_CHECK(*why, "a reason");
        return;
    }
    r.ways_n = estimate_roof_ways(r.op, &r.shape, estimate_gpu_rate_bytes[r.stored], r.ways);
    FUZZ_CHECK(r.ways_n && r.ways_n <= ROOF_WAYS_MAX, "%zu", r.ways_n);
    for (size_t i = 0; i < r.ways_n; i++) {
        FUZZ_CHECK(isfinite(r.ways[i].flops) && r.ways[i].flops > 0, "%s", r.op->word);
        FUZZ_CHECK(isfinite(r.ways[i].bytes) && r.ways[i].bytes > 0, "%s", r.op->word);
        FUZZ_CHECK(r.ways[i].bytes >= r.ways[r.ways_n - 1].bytes * (1 - 1e-9), "%s: the last way moves the least",
                   r.op->word);
    }
    r.measured_s = (double)fuzz_number(b, 6) * 1e-9;
    drawn(&r, how);
}

/* Any operations and bytes, on the roofline of any GPU, of a described one, or of all. */
static void a_kernel(struct fuzz_bytes *b)
{
    struct estimate_gpu described = {.key = "this GPU", .product = "a GPU as described", .source = "fuzz"};
    struct view_roofline r = {.stored = GPU_BF16, .rate = GPU_FP32, .ways_n = 1};
    const uint8_t how = fuzz_u8(b), which = fuzz_u8(b);

    r.ways[0] = (struct estimate_roof_way){
        .name = "", .flops = 1 + (double)fuzz_number(b, 8), .bytes = 1 + (double)fuzz_number(b, 8)};
    r.measured_s = (double)fuzz_number(b, 8) * 1e-9;
    described.hbm = 1 + (double)fuzz_number(b, 8);
    described.tflops[GPU_FP32] = (1 + (double)fuzz_number(b, 8)) / 1e12;
    r.gpu = which % 3 == 0 ? NULL : which % 3 == 1 ? &described : &estimate_gpus[which % estimate_gpu_count];
    drawn(&r, how);
}

static void a_transfer(struct fuzz_bytes *b)
{
    struct estimate_wire_links l =
        estimate_wires_links(&estimate_gpus[fuzz_u8(b) % estimate_gpu_count], fuzz_number(b, 4), fuzz_number(b, 2));
    struct estimate_wire w = {.kind = (enum estimate_wire_kind)(fuzz_u8(b) % WIRE_KINDS_N),
                              .bytes = (double)fuzz_number(b, 8),
                              .n = 1 + fuzz_number(b, 4),
                              .times = (double)fuzz_number(b, 3)};

    estimate_wire_time(&l, fuzz_number(b, 3), &w);
    FUZZ_CHECK(isfinite(w.ring_s) && w.ring_s >= 0 && isfinite(w.one_pass_s), "%s", w.formula);
    FUZZ_CHECK(w.nodes >= 1 && w.nodes <= w.n && w.link && *w.formula, "%s", w.formula);
    FUZZ_CHECK(fabs(w.factor * w.one_pass_s - w.ring_s) <= 1e-9 * w.ring_s && w.factor < 2, "%s: %g", w.formula,
               w.factor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    const uint8_t what = fuzz_u8(&b);
    if (what & 1)
        an_operator(&b);
    else if (what & 2)
        a_kernel(&b);
    else
        a_transfer(&b);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint8_t seed[160];
    for (unsigned kind = 0; kind < 20; kind++) {
        for (size_t i = 0; i < sizeof seed; i++) seed[i] = i < 5 ? 0 : (uint8_t)(i % 5 == kind % 5 ? 1 + kind : 0);
        seed[0] = 1;
        seed[1] = (uint8_t)kind;
        seed[2] = (uint8_t)(kind * 3);
        seed[4] = (uint8_t)(kind * 13);
        put(seed, sizeof seed);
        seed[0] = 0;
        put(seed, sizeof seed);
    }
}
