/* The table of GPUs: consistent, and in agreement with well-known figures; and names as users type them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/estimate/gpu.h"

static void names_find_their_gpu(void **state)
{
    static const char *const rows[][2] = {
        {"h100", "h100-80g"},
        {"H100", "h100-80g"},
        {"h100-80g", "h100-80g"},
        {"h100-80GB", "h100-80g"},
        {"H100 80GB", "h100-80g"},
        {"NVIDIA H100 80GB HBM3", "h100-80g"},
        {"NVIDIA H100 80GB HBM3 (simulated)", "h100-80g"},
        {"a100", "a100-80g"},
        {"A100_40G", "a100-40g"},
        {"NVIDIA A100-SXM4-40GB", "a100-40g"},
        {"NVIDIA A100-PCIE-40GB", "a100-pcie-40g"},
        {"NVIDIA A100 80GB PCIe", "a100-pcie-80g"},
        {"RTX 4090", "rtx4090-24g"},
        {"4090", "rtx4090-24g"},
        {"NVIDIA GeForce RTX 4090", "rtx4090-24g"},
        {"GeForce RTX 2080 Ti", "rtx2080ti-11g"},
        {"RTX 5070 Ti", "rtx5070ti-16g"},
        {"NVIDIA GeForce RTX 5060 Ti", "rtx5060ti-16g"},
        {"gb200", "gb200-186g"},
        {"RTX A6000", "a6000-48g"},
        {"Tesla T4", "t4-16g"},
        {"l4", "l4-24g"},
        {"l40", "l40-48g"},
        {"mi300x", "mi300x-192g"},
        {"AMD Instinct MI300X", "mi300x-192g"},
        {"AMD Instinct MI300X OAM", "mi300x-192g"},
        {"NVIDIA A100-SXM-80GB", "a100-80g"}, /* older drivers */
        {"A100 SXM 40GB", "a100-40g"},
        {"H100-SXM5-80GB", "h100-80g"},
        {"v100 pcie", "v100-pcie-16g"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct estimate_gpu *gpu = estimate_gpu_find(rows[i][0]);
        if (!gpu) fail_msg("%s", rows[i][0]);
        assert_string_equal(gpu->key, rows[i][1]);
    }
    for (size_t i = 0; i < estimate_gpu_count; i++) {
        assert_ptr_equal(estimate_gpu_find(estimate_gpus[i].key), &estimate_gpus[i]);
        assert_ptr_equal(estimate_gpu_find(estimate_gpus[i].product), &estimate_gpus[i]);
    }
}

static void unknown_names_are_not_found(void **state)
{
    static const char *const names[] = {"",      " ",   "-",       "nvidia", "80g",     "100",
                                        "h1000", "rtx", "h100-80", "gb",     "\xff\xfe"};
    char large[4096];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_null(estimate_gpu_find(names[i]));
    memset(large, 'a', sizeof large);
    large[sizeof large - 1] = 0;
    assert_null(estimate_gpu_find(large));
}

/* The driver reports less than the label in the key, but not much less: 9 % at most, if ECC uses a part of GDDR6. */
static void memory_is_a_little_less_than_the_label(void **state)
{
    for (size_t i = 0; i < estimate_gpu_count; i++) {
        const struct estimate_gpu *g = &estimate_gpus[i];
        const char *label = strrchr(g->key, '-') + 1;
        double gib = strtod(label, NULL), have = (double)g->total_bytes / (1 << 30);
        if (have > gib + 0.1 || have < gib * 0.91) fail_msg("%s: %.2f GiB", g->key, have);
        assert_true(g->total_off > 0 && g->total_off < g->total_bytes / 10);
    }
}

static void rates_go_together(void **state)
{
    for (size_t i = 0; i < estimate_gpu_count; i++) {
        const struct estimate_gpu *g = &estimate_gpus[i];
        const double *t = g->tflops;
        assert_true(t[GPU_FP32] > 0 && g->hbm > 1e11 && g->pcie > 1e10 && g->node >= 1);
        assert_true((g->nvlink > 0) == (g->reach > 0));
        if (t[GPU_BF16] > 0) assert_true(t[GPU_BF16] == t[GPU_FP16]);
        /* Tensor cores: half the bits, twice the rate, within the rounding of data sheets. 16 bit compared with TF32
         * (no rate of the sparse column was copied by mistake), fp8 with 16 bit. */
        if (t[GPU_TF32] > 0 && t[GPU_FP16] / t[GPU_TF32] > 2.05)
            fail_msg("%s: 16 bit is %.3f of tf32", g->key, t[GPU_FP16] / t[GPU_TF32]);
        if (t[GPU_TF32] > 0) assert_true(t[GPU_FP16] / t[GPU_TF32] > 1.95);
        if (t[GPU_FP8] > 0 && (t[GPU_FP8] / t[GPU_FP16] > 2.05 || t[GPU_FP8] / t[GPU_FP16] < 1.95))
            fail_msg("%s: fp8 is %.3f of 16 bit", g->key, t[GPU_FP8] / t[GPU_FP16]);
        assert_true(strlen(g->source) > 0 && strlen(g->capability) > 0);
    }
}

/* The figures of the data sheets. */
static void figures_of_the_sheets(void **state)
{
    const struct estimate_gpu *a100 = estimate_gpu_find("a100-80g"), *h100 = estimate_gpu_find("h100-80g"),
                              *v100 = estimate_gpu_find("v100-16g");

    assert_true(a100->tflops[GPU_FP16] == 312 && a100->tflops[GPU_TF32] == 156);
    assert_true(a100->tflops[GPU_FP32] == 19.5 && a100->tflops[GPU_FP16_PLAIN] == 78);
    assert_true(a100->hbm == 2039e9 && a100->nvlink == 300e9); /* NVLink 600 GB/s, both directions */
    assert_true(h100->nvlink == 450e9 && h100->tflops[GPU_BF16] == 989.4);
    assert_true(estimate_gpu_find("l4")->pcie ==
                estimate_gpu_find("a10")->pcie); /* PCIe 4.0, 16 lanes: 64 GB/s, both directions */
    assert_true(v100->tflops[GPU_BF16] == 0 && v100->tflops[GPU_FP16] == 125 && v100->nvlink == 150e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_find_their_gpu),
        cmocka_unit_test(unknown_names_are_not_found),
        cmocka_unit_test(memory_is_a_little_less_than_the_label),
        cmocka_unit_test(rates_go_together),
        cmocka_unit_test(figures_of_the_sheets),
    };

    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
