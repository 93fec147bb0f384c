/* ZeRO, DeepSpeed's and Megatron-LM's figures, and how models are divided. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/estimate/shard.h"

static void shows(double value, const char *text)
{
    char got[32];

    snprintf(got, sizeof got, "%.2f", value);
    assert_string_equal(got, text);
}

/* ---------------------------------------------------------------- gpuspy's lines */

struct asked {
    struct plan plan;
    struct model model;
    struct estimate_result r;
};

static void ask(struct asked *a, const char *model, double params)
{
    int exit_code;

    a->plan = (struct plan)PLAN_DEFAULT;
    if (model)
        assert_true(model_from_name("test", model, &a->model, &exit_code));
    else
        model_from_count((uint64_t)params, &a->model);
    a->plan.model = &a->model;
    a->plan.optimizer = estimate_optimizer("adam");
    a->plan.precision = estimate_precision("bf16");
    a->plan.master_weights = true;
}

static double held(struct asked *a, bool host)
{
    double sum = 0;

    assert_true(plan_check("test", &a->plan));
    assert_true(estimate_make(&a->plan, &a->r));
    for (size_t i = 0; i < a->r.lines_n; i++) {
        enum estimate_part part = a->r.lines[i].part;
        if (a->r.lines[i].host == host && (part == ESTIMATE_WEIGHTS || part == ESTIMATE_GRADIENTS ||
                                           part == ESTIMATE_OPTIMIZER || part == ESTIMATE_MASTER))
            sum += a->r.lines[i].bytes.likely;
    }
    return sum;
}

/* Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 GPUs, in 10^9 bytes. */
static void the_paper_of_zero(void **state)
{
    static const char *const expected[] = {"120.00", "31.41", "16.64", "1.88"};
    static struct asked a;

    (void)state;
    ask(&a, NULL, 7.5e9);
    a.plan.gpus = 64;
    for (int stage = 0; stage <= 3; stage++) {
        a.plan.sharding = (enum plan_sharding)stage;
        shows(held(&a, false) / 1e9, expected[stage]);
    }
    a.plan.offload = PLAN_OFFLOAD_ALL;
    shows(held(&a, false), "0.00");
    shows(held(&a, true) / 1e9, "2.11"); /* gradients in float32 there: 18 P / 64 */
    model_free(&a.model);
}

static void check_sums(const struct estimate_result *r)
{
    for (int phase = 0; phase <= PHASE_STEP; phase++) {
        double low = 0, likely = 0, high = 0;
        for (size_t i = 0; i < r->lines_n; i++) {
            const struct estimate_line *l = &r->lines[i];
            assert_true(l->bytes.low >= 0 && l->bytes.low <= l->bytes.likely && l->bytes.likely <= l->bytes.high);
            assert_true(l->source && *l->formula);
            assert_true((l->why != NULL) == (l->bytes.low < l->bytes.high));
            if (l->host || !(l->phases & 1u << phase)) continue;
            low += l->bytes.low;
            likely += l->bytes.likely;
            high += l->bytes.high;
        }
        assert_true(fabs(low - r->phase[phase].low) <= 1e-9 * high && fabs(high - r->phase[phase].high) <= 1e-9 * high);
        assert_true(fabs(likely - r->phase[phase].likely) <= 1e-9 * high);
    }
}

static const char *const models[] = {"gpt2", "llama-3-8b", "llama-3.1-405b", "mixtral-8x7b", "gemma-2-2b", "resnet-50"};
static const char *const optimizers[] = {"sgd", "adam", "adam8bit", "adafactor", "muon"};
static const char *const precisions[] = {"fp32", "amp-bf16", "bf16"};

/* A higher ZeRO stage never needs more, and neither do more GPUs; lines add up to phases. */
static void more_is_never_more(void **state)
{
    static struct asked a;

    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        ask(&a, models[m], 0);
        for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
            for (size_t k = 0; k < sizeof precisions / sizeof *precisions; k++) {
                double before = INFINITY;
                a.plan.optimizer = estimate_any_optimizer(optimizers[o]);
                a.plan.precision = estimate_precision(precisions[k]);
                a.plan.master_weights = a.plan.precision->weights == 2;
                for (int stage = 0; stage <= 3; stage++) {
                    double fewer = INFINITY;
                    a.plan.sharding = (enum plan_sharding)stage;
                    for (a.plan.gpus = 2; a.plan.gpus <= 512; a.plan.gpus *= 4) {
                        double now = held(&a, false);
                        assert_true(now <= fewer);
                        fewer = now;
                        check_sums(&a.r);
                    }
                    if (a.r.peak.likely > before + 64) /* lines are whole bytes */
                        fail_msg("%s %s %s: stage %d needs %.0f, the one before %.0f", models[m], optimizers[o],
                                 precisions[k], stage, a.r.peak.likely, before);
                    before = a.r.peak.likely;
                }
            }
        }
        model_free(&a.model);
    }
}

/* All parts of a model are on some GPU, once, except those that every GPU has. */
static void parts_are_the_whole(void **state)
{
    static struct asked a;
    double sum = 0, norms = 0;

    (void)state;
    ask(&a, "llama-3-8b", 0);
    a.plan.gpus = 32;
    a.plan.tp = 4;
    a.plan.pp = 8;
    for (uint64_t stage = 0; stage < 8; stage++) sum += 4 * estimate_shard_sum(&a.plan, stage, NULL).all;
    norms = (32 * 2 + 1) * 4096;
    assert_true(sum == 8030261248.0 + 3 * norms);
    assert_true(estimate_local_params(&a.plan, 0).dense == (128256 * 4096.0 + 4 * (218103808.0)) / 4 + 4 * 2 * 4096);
    a.plan.tp = 16; /* eight heads of keys: two GPUs have the same */
    a.plan.gpus = 128;
    assert_true(estimate_shard_layer(&a.plan, 1) ==
                (2 * 4096.0 * 4096 + 3 * 14336.0 * 4096) / 16 + 2 * 1024 * 4096.0 / 8 + 2 * 4096);
    model_free(&a.model);
}

static void experts_are_spread(void **state)
{
    static struct asked a;
    struct estimate_local_params n;

    (void)state;
    ask(&a, "mixtral-8x7b", 0);
    a.plan.gpus = a.plan.ep = 8;
    n = estimate_local_params(&a.plan, 0);
    assert_true(n.experts == 32 * 3.0 * 4096 * 14336);
    assert_true(n.dense + 8 * n.experts == 46702792704.0);
    assert_true(estimate_shard_group(&a.plan, true) == 1 && estimate_shard_group(&a.plan, false) == 8);
    model_free(&a.model);
}

/* Every contradiction gives one line, and the plan without it is accepted. */
static void contradictions(void **state)
{
    static struct asked a;

    (void)state;
    ask(&a, "llama-3-8b", 0);
#define REFUSED(...)                          \
    do {                                      \
        struct plan p = a.plan;               \
        assert_true(plan_check("test", &p));  \
        __VA_ARGS__;                          \
        assert_false(plan_check("test", &p)); \
    } while (0)
    REFUSED(p.gpus = 6, p.tp = 4);
    REFUSED(p.gpus = 3, p.tp = 3);
    REFUSED(p.gpus = 33, p.pp = 33);
    REFUSED(p.interleave = 2);
    REFUSED(p.gpus = 4, p.pp = 4, p.interleave = 3);
    REFUSED(p.sequence_parallel = true);
    REFUSED(p.gpus = 2, p.ep = 2);
    REFUSED(p.gpus = 8, p.offload = PLAN_OFFLOAD_OPTIMIZER);
    REFUSED(p.gpus = 8, p.sharding = PLAN_SHARDING_ZERO2, p.offload = PLAN_OFFLOAD_ALL);
    REFUSED(p.precision = estimate_precision("fp32"));
    REFUSED(p.inference = true);
    REFUSED(p.cache_block = 16);
    REFUSED(p.adapter = PLAN_ADAPTER_LORA); /* with master weights */
    REFUSED(p.accumulation = 0);
    REFUSED(p.gpus = UINT64_MAX, p.tp = UINT64_MAX, p.pp = UINT64_MAX, p.cp = UINT64_MAX);
#undef REFUSED
    model_free(&a.model);
}

/* A table of learned positions ends; rotary positions only get less accurate, which is a note. */
static void longest_sequences(void **state)
{
    static const struct {
        const char *model;
        uint64_t most; /* 0: any */
    } lengths[] = {{"gpt2", 1024},        {"opt-125m", 2048}, {"bert-base-uncased", 512},
                   {"roberta-base", 512}, {"llama-3-8b", 0},  {"bloom-560m", 0},
                   {"t5-small", 0},       {"vit-b-16", 0}};
    static struct asked a;
    struct plan_assumed assumed;

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t most = lengths[i].most ? lengths[i].most : 8192;
        ask(&a, lengths[i].model, 0);
        a.plan.seq = most;
        assert_true(plan_possible(&a.plan));
        a.plan.seq++;
        assert_true(plan_possible(&a.plan) == !lengths[i].most);
        a.plan.inference = true;
        a.plan.master_weights = false;
        assert_true(plan_possible(&a.plan) == !lengths[i].most);
        a.plan.seq = 0;
        a.plan.cp = a.plan.gpus = 3; /* an assumed model can be divided */
        plan_assume(&a.plan, &assumed);
        assert_true(plan_possible(&a.plan) == (a.model.shape.family != MODEL_VIT)); /* it has no tokens of a text */
        if (lengths[i].most) assert_int_equal(a.plan.seq, most / 3 * 3);
        model_free(&a.model);
    }
    ask(&a, "llama-3-8b", 0);
    a.plan.seq = 8193;
    assert_true(estimate_make(&a.plan, &a.r));
    assert_int_equal(a.r.notes_n, 1);
    assert_string_equal(a.r.notes[0], "--seq 8193 is longer than the 8192 tokens that the model was trained for");
    a.plan.seq = 8192;
    assert_true(estimate_make(&a.plan, &a.r));
    assert_int_equal(a.r.notes_n, 0);
    model_free(&a.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_paper_of_zero),   cmocka_unit_test(more_is_never_more),
        cmocka_unit_test(parts_are_the_whole), cmocka_unit_test(experts_are_spread),
        cmocka_unit_test(contradictions),      cmocka_unit_test(longest_sequences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
