/* Rooflines: operations and bytes counted by hand, and known properties of rooflines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/estimate/roofline.h"
#include "analyzer/view/roofline_chart.h"

static void near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-12 * fabs(should))) fail_msg("%.15g is not %.15g", is, should);
}

static size_t ways(const char *op, struct estimate_roof_shape s, double element,
                   struct estimate_roof_way out[ROOF_WAYS_MAX])
{
    const struct estimate_roof_op *o = estimate_roof_op_find(op);
    char why[128] = "";

    assert_non_null(o);
    if (!estimate_roof_check(o, &s, why, sizeof why)) fail_msg("%s %s", op, why);
    return estimate_roof_ways(o, &s, element, out);
}

/* 2·4096³ = 137,438,953,472; three matrices of 2 B · 4096² = 100,663,296 B; 4096/3 operations a byte. */
static void matmul_of_4096(void **state)
{
    struct estimate_roof_way w[ROOF_WAYS_MAX];
    size_t n =
        ways("matmul", (struct estimate_roof_shape){.of = {[ROOF_m] = 4096, [ROOF_n] = 4096, [ROOF_k] = 4096}}, 2, w);

    assert_int_equal(n, 2);
    near(w[1].flops, 137438953472.);
    near(w[1].bytes, 100663296);
    near(w[1].flops / w[1].bytes, 4096. / 3);
    near(w[0].bytes, 2 * (2. * 4096 * 4096 * 4096 + 4096. * 4096)); /* a row and a column for each element */
    /* The background of NVIDIA's guide: m = n = 8192, k = 128 is 124.1 operations a byte, k = 8192 is 2730. */
    n = ways("matmul", (struct estimate_roof_shape){.of = {[ROOF_m] = 8192, [ROOF_n] = 8192, [ROOF_k] = 128}}, 2, w);
    assert_true(round(w[n - 1].flops / w[n - 1].bytes * 10) == 1241);
    n = ways("matmul", (struct estimate_roof_shape){.of = {[ROOF_m] = 8192, [ROOF_n] = 8192, [ROOF_k] = 8192}}, 2, w);
    assert_true(floor(w[n - 1].flops / w[n - 1].bytes) == 2730);
    /* Matrix times vector: under one. */
    n = ways("matmul", (struct estimate_roof_shape){.of = {[ROOF_m] = 8192, [ROOF_n] = 1, [ROOF_k] = 8192}}, 2, w);
    assert_true(w[n - 1].flops / w[n - 1].bytes < 1);
    /* Tiles of t read each matrix n/t times: of 1, as without; of the whole, once. */
    n = ways("matmul",
             (struct estimate_roof_shape){.of = {[ROOF_m] = 64, [ROOF_n] = 64, [ROOF_k] = 64, [ROOF_tile] = 64}}, 4, w);
    assert_int_equal(n, 3);
    near(w[1].bytes, w[2].bytes);
    n = ways("matmul",
             (struct estimate_roof_shape){.of = {[ROOF_m] = 64, [ROOF_n] = 64, [ROOF_k] = 64, [ROOF_tile] = 16}}, 4, w);
    near(w[1].bytes, 4 * (4 * 4096. + 4 * 4096. + 4096));
}

/* b 2, h 16, s 1024, d 64, two bytes: 4·2·16·1024²·64 operations; Q, K, V and O of 2^21 elements each; S written and
 * read, P written and read, 2^25 elements each time. */
static void attention_naive_and_flash(void **state)
{
    struct estimate_roof_shape s = {
        .of = {[ROOF_batch] = 2, [ROOF_heads] = 16, [ROOF_seq] = 1024, [ROOF_head_dim] = 64}};
    struct estimate_roof_way w[ROOF_WAYS_MAX];

    assert_int_equal(ways("attention", s, 2, w), 3);
    near(w[0].flops, 8589934592.);
    near(w[0].bytes, 2. * (4 * 2097152 + 4 * 33554432.));
    assert_string_equal(w[2].name, "flash");
    near(w[2].flops, 8589934592.);
    near(w[2].bytes, 2. * 4 * 2097152);
    near(w[1].bytes, 2. * (2 * 2097152 + 8 * 2 * 2097152.)); /* K and V for each of 8 blocks */
    s.causal = true;
    ways("attention", s, 2, w);
    near(w[0].flops, 8589934592.); /* masked products are computed, too */
    near(w[2].flops, 4. * 2 * 16 * 64 * (1024. * 1025 / 2));
}

/* One token and 32768 keys, of grouped heads: limited by reading the cache; its operations per byte are the number of
 * heads that share it. */
static void decode_is_bound_by_memory(void **state)
{
    struct estimate_roof_shape s = {
        .of = {[ROOF_heads] = 32, [ROOF_kv_heads] = 8, [ROOF_seq] = 1, [ROOF_kv_seq] = 32768, [ROOF_head_dim] = 128}};
    struct estimate_roof_way w[ROOF_WAYS_MAX];

    assert_int_equal(ways("attention", s, 2, w), 2);
    near(w[1].bytes, 2. * (2 * 32 * 128 + 2 * 8 * 32768. * 128));
    assert_true(fabs(w[1].flops / w[1].bytes - 4) < 0.001);
    assert_true(estimate_roof_point(w[1].flops, w[1].bytes, 989.4e12, 3350e9).by_memory);
}

static void rows_and_elements(void **state)
{
    struct estimate_roof_shape rows = {.of = {[ROOF_rows] = 1000, [ROOF_cols] = 512}};
    struct estimate_roof_way w[ROOF_WAYS_MAX];

    assert_int_equal(ways("softmax", rows, 4, w), 2);
    near(w[1].bytes, 2 * 4 * 512000.);
    near(w[0].bytes, 8 * 4 * 512000.);
    near(w[1].flops, 5 * 512000.);
    ways("layernorm", rows, 2, w);
    near(w[1].bytes, 2. * (2 * 512000 + 2 * 512));
    ways("rmsnorm", rows, 2, w);
    near(w[1].bytes, 2. * (2 * 512000 + 512));
    /* c = a + b in float32: an operation for twelve bytes. */
    assert_int_equal(ways("elementwise", (struct estimate_roof_shape){.of = {[ROOF_size] = 1000000}}, 4, w), 1);
    near(w[0].flops / w[0].bytes, 1. / 12);
    assert_int_equal(ways("elementwise",
                          (struct estimate_roof_shape){.of = {[ROOF_size] = 10, [ROOF_steps] = 4, [ROOF_inputs] = 1}},
                          4, w),
                     2);
    near(w[0].bytes, 4 * 10. * 8);
    near(w[1].bytes, 4 * 10. * 2);
    assert_int_equal(ways("reduce", (struct estimate_roof_shape){.of = {[ROOF_size] = 7}}, 2, w), 1);
    near(w[0].bytes, 14);
}

/* ResNet-50's first convolution, 7x7/2 over 224x224: 118,013,952 multiply-adds an image (torchvision, fvcore). */
static void convolutions(void **state)
{
    struct estimate_roof_shape s = {.of = {[ROOF_in_channels] = 3,
                                           [ROOF_out_channels] = 64,
                                           [ROOF_height] = 224,
                                           [ROOF_kernel] = 7,
                                           [ROOF_stride] = 2,
                                           [ROOF_padding] = 3}};
    struct estimate_roof_way w[ROOF_WAYS_MAX];

    assert_int_equal(ways("conv2d", s, 4, w), 2);
    near(w[1].flops, 2 * 118013952.);
    near(w[1].bytes, 4. * (3 * 224 * 224 + 64 * 3 * 49 + 64 * 112 * 112));
    near(w[0].bytes - w[1].bytes, 4. * 2 * 112 * 112 * 3 * 49);
    /* 1x1: the matrix product of its channels. */
    s = (struct estimate_roof_shape){
        .of = {[ROOF_in_channels] = 256, [ROOF_out_channels] = 64, [ROOF_height] = 56, [ROOF_kernel] = 1}};
    assert_int_equal(ways("conv2d", s, 2, w), 1);
    struct estimate_roof_way m[ROOF_WAYS_MAX];
    ways("matmul", (struct estimate_roof_shape){.of = {[ROOF_m] = 56 * 56, [ROOF_n] = 64, [ROOF_k] = 256}}, 2, m);
    near(w[0].flops, m[1].flops);
    near(w[0].bytes, m[1].bytes);
    s.of[ROOF_groups] = 64;
    ways("conv2d", s, 2, w);
    near(w[0].flops, m[1].flops / 64);
}

static void shapes_that_make_no_sense(void **state)
{
    static const struct {
        const char *op;
        struct estimate_roof_shape s;
        const char *why;
    } rows[] = {
        {"matmul", {.of = {[ROOF_m] = 1, [ROOF_n] = 1}}, "needs --k"},
        {"matmul", {.of = {[ROOF_m] = 1, [ROOF_n] = 1, [ROOF_k] = 1, [ROOF_seq] = 1}}, "has no --seq"},
        {"matmul", {.of = {[ROOF_m] = 1, [ROOF_n] = 1, [ROOF_k] = 1}, .causal = true}, "has no --causal"},
        {"matmul",
         {.of = {[ROOF_m] = 1000000000000, [ROOF_n] = 1000000000000, [ROOF_k] = 1000000000000}},
         "is too large"},
        {"attention",
         {.of = {[ROOF_heads] = 30, [ROOF_kv_heads] = 4, [ROOF_seq] = 1, [ROOF_head_dim] = 1}},
         "--kv-heads"},
        {"attention",
         {.of = {[ROOF_heads] = 1, [ROOF_seq] = 9, [ROOF_kv_seq] = 8, [ROOF_head_dim] = 1}, .causal = true},
         "--causal"},
        {"conv2d",
         {.of = {[ROOF_in_channels] = 4,
                 [ROOF_out_channels] = 6,
                 [ROOF_height] = 9,
                 [ROOF_kernel] = 1,
                 [ROOF_groups] = 4}},
         "--groups"},
        {"conv2d",
         {.of = {[ROOF_in_channels] = 4, [ROOF_out_channels] = 6, [ROOF_height] = 2, [ROOF_kernel] = 3}},
         "--kernel"},
        {"conv2d",
         {.of = {[ROOF_in_channels] = 4,
                 [ROOF_out_channels] = 6,
                 [ROOF_height] = 9,
                 [ROOF_width] = 2,
                 [ROOF_kernel] = 3}},
         "--kernel"},
    };
    char why[128];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (estimate_roof_check(estimate_roof_op_find(rows[i].op), &rows[i].s, why, sizeof why))
            fail_msg("row %zu was taken", i);
        if (strncmp(why, rows[i].why, strlen(rows[i].why)) != 0) fail_msg("row %zu: '%s'", i, why);
    }
    assert_null(estimate_roof_op_find("matmull"));
    for (size_t i = 0; i < estimate_roof_op_count; i++)
        assert_non_null(strstr(estimate_roof_op_words, estimate_roof_ops[i].word));
}

/* A100: 312 TFLOPS over 2039 GB/s is a ridge of 153; H100 989.4 over 3350 is 295. */
static void points_under_a_roof(void **state)
{
    struct estimate_roof_point p = estimate_roof_point(1e12, 1e12 / 153.015203, 312e12, 2039e9);

    assert_true(fabs(p.ridge - 153.0152) < 1e-3 &&
                fabs(estimate_roof_point(1, 1, 989.4e12, 3350e9).ridge - 295.34) < 0.01);
    p = estimate_roof_point(137438953472., 100663296, 312e12, 2039e9);
    assert_true(!p.by_memory && p.attainable == 312e12);
    near(p.least_s, 137438953472. / 312e12);
    p = estimate_roof_point(5e9, 2e9, 312e12, 2039e9);
    assert_true(p.by_memory);
    near(p.attainable, 2.5 * 2039e9);
    near(p.least_s, 2e9 / 2039e9);
    for (double f = 1; f < 1e18; f *= 7) { /* nothing is above the roof, and the least time is the larger one */
        p = estimate_roof_point(f, 1e9, 312e12, 2039e9);
        assert_true(p.attainable <= 312e12 && p.attainable <= p.intensity * 2039e9 * (1 + 1e-12));
        near(p.least_s, fmax(p.compute_s, p.memory_s));
        near(p.least_s * p.attainable, f);
    }
}

/* The chart has a line for each row, is no wider than the terminal, and contains all its marks, for any numbers. */
static void the_chart_stays_in_its_lines(void **state)
{
    for (int width = 40; width <= 300; width += 13) {
        for (double intensity = 1e-9; intensity < 1e12; intensity *= 1e3) {
            struct terminal term = {.width = width, .utf8 = width % 2};
            struct view_roof_chart c = {.bytes_per_s = 2039e9, .roofs_n = 2, .points_n = 2};
            c.roofs[0].name = "bf16";
            c.roofs[0].flops_per_s = 312e12;
            c.roofs[1].name = "\"a name that is long\"";
            c.roofs[1].flops_per_s = 19.5e12;
            for (int i = 0; i < 2; i++) {
                c.points[i].mark = (char)('A' + i);
                c.points[i].intensity = intensity;
                c.points[i].flops_per_s = fmin(312e12, intensity * 2039e9) / (i ? 1e4 : 1);
            }
            char *text = NULL;
            size_t size = 0;
            FILE *out = open_memstream(&text, &size);
            view_roof_chart(&c, &term, out);
            fclose(out);
            assert_true(size > 0);
            if (!strchr(text, 'A') || !strchr(text, 'B')) fail_msg("no mark at %d, %g:\n%s", width, intensity, text);
            for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
                if (terminal_columns(line) > width)
                    fail_msg("%d columns of %d: %s", terminal_columns(line), width, line);
            free(text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_of_4096),
        cmocka_unit_test(attention_naive_and_flash),
        cmocka_unit_test(decode_is_bound_by_memory),
        cmocka_unit_test(rows_and_elements),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(shapes_that_make_no_sense),
        cmocka_unit_test(points_under_a_roof),
        cmocka_unit_test(the_chart_stays_in_its_lines),
    };

    return cmocka_run_group_tests_name("roofline", tests, NULL, NULL);
}
