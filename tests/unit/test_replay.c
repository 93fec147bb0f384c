/* An estimate counts the same bytes twice: as lines, and by a replay of the allocator. Where they disagree, one of them
 * is wrong, and their difference would be reported as memory that the allocator takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/replay.h"

#define LENGTH(a) (sizeof(a) / sizeof *(a))
#define WORKSPACE 8519680.0

/* The largest phase of what PyTorch allocates. */
static double lines_of(const struct estimate_result *r)
{
    double most = 0;

    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        double sum = 0;
        for (size_t i = 0; i < r->lines_n; i++) {
            const struct estimate_line *l = &r->lines[i];
            if (!l->host && l->phases & 1u << phase && l->part != ESTIMATE_CONTEXT && l->part != ESTIMATE_ALLOCATOR)
                sum += l->bytes.likely;
        }
        most = fmax(most, sum);
    }
    return most;
}

/* A matrix that is unpacked for a product: lines count it at each peak, and the replay only while it is live. */
static double unpacked_of(const struct estimate_result *r)
{
    for (size_t i = 0; i < r->lines_n; i++)
        if (strstr(r->lines[i].name, "one matrix")) return r->lines[i].bytes.likely;
    return 0;
}

static int seen, bad;

static void compare(const struct plan *p)
{
    static struct estimate_result r;
    struct estimate_replay_peaks peaks;
    double lines, off;

    if (!plan_possible(p) || !estimate_replay_knows(p)) return;
    assert_true(estimate_make(p, &r));
    assert_true(estimate_replay(p, INFINITY, WORKSPACE, false, &peaks));
    seen++;
    lines = lines_of(&r);
    off = peaks.allocated / lines - 1;
    if (off <= 0.035 && peaks.allocated + unpacked_of(&r) >= 0.965 * lines) return;
    bad++;
    print_error("%+.1f %%: %s %s adapter %d %s prepared %d attention %d checkpoint %d half %d dropout %d: lines %.0f\n",
                off * 100, p->model->name, p->precision->name, p->adapter, p->weights ? p->weights->word : "-",
                p->prepared, p->attention, p->checkpoint, p->half_adapters, p->dropout, lines);
}

static void compare_adapters(struct plan *p)
{
    static const char *const weights[] = {"", "nf4-double", "int8", "gptq", "fp8"};

    compare(p);
    p->adapter = PLAN_ADAPTER_LORA;
    for (size_t w = 0; w < LENGTH(weights); w++)
        for (unsigned i = 0; i < 8; i++) {
            p->weights = w ? estimate_quantisation_find(weights[w]) : NULL;
            p->prepared = i & 1 && w;
            p->half_adapters = i & 2;
            p->dropout = i & 4 ? PLAN_DROPOUT_SOME : PLAN_DROPOUT_NONE;
            compare(p);
        }
}

static void compare_plans(const struct model *m, bool drops)
{
    static const char *const precisions[] = {"fp32", "amp-bf16", "bf16"};

    for (size_t i = 0; i < LENGTH(precisions) * 4; i++) {
        struct plan p = PLAN_DEFAULT;
        p.model = m;
        p.precision = estimate_precision(precisions[i / 4]);
        p.optimizer = estimate_optimizer("adamw");
        p.attention = i & 1 ? PLAN_ATTENTION_EAGER : PLAN_ATTENTION_FLASH;
        p.checkpoint = i & 2 ? PLAN_CHECKPOINT_FULL : PLAN_CHECKPOINT_NONE;
        p.drop_outputs = drops;
        p.batch = 4, p.seq = 512;
        compare_adapters(&p);
    }
}

static void test_lines_agree(void **state)
{
    struct model m;
    int code;

    (void)state;
    assert_true(model_from_name("test", "llama-3-8b", &m, &code));
    compare_plans(&m, false);
    model_free(&m);
    assert_true(seen > 200);
    assert_int_equal(bad, 0);
}

/* Few layers, so that no weights cover a difference. The script drops the outputs, because the replay also has those of
 * the step before. */
static void test_lines_agree_for_families(void **state)
{
    static const char *const models[] = {"opt-1.3b",      "opt-350m",        "gpt2",
                                         "gpt-neo-1.3b",  "gpt-j-6b",        "codegen-350m-mono",
                                         "pythia-1b",     "stablelm-2-1.6b", "falcon-7b",
                                         "falcon-40b",    "bloom-560m",      "mpt-7b",
                                         "phi-2",         "starcoder2-3b",   "starcoderbase-1b",
                                         "gemma-2b",      "gemma-2-2b",      "gemma-3-1b",
                                         "qwen2.5-0.5b",  "qwen3-0.6b",      "phi-3-mini",
                                         "olmo-1b",       "olmo-2-1b",       "mistral-7b",
                                         "glm-4-9b-0414", "command-r7b"};

    (void)state;
    seen = bad = 0;
    for (size_t i = 0; i < LENGTH(models); i++) {
        struct model whole, m;
        int code;
        assert_true(model_from_name("test", models[i], &whole, &code));
        struct model_shape shape = whole.shape;
        shape.layers = 6;
        shape.window_layers = shape.window_layers < 6 ? shape.window_layers : 6;
        assert_true(model_from_shape("test", "shape", &shape, &m, &code));
        snprintf(m.name, sizeof m.name, "%s", whole.name);
        compare_plans(&m, true);
        model_free(&m);
        model_free(&whole);
    }
    assert_true(seen > 200 * (int)LENGTH(models));
    assert_true(bad <= seen / 250); /* checkpointed layers beside widened weights, up to 14 % */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines_agree),
                                              cmocka_unit_test(test_lines_agree_for_families)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
