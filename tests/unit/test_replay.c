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
    if (fabs(off) <= 0.035) return;
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

static void test_lines_agree(void **state)
{
    static const char *const models[] = {"llama-3-8b"}, *const precisions[] = {"fp32", "amp-bf16", "bf16"};

    (void)state;
    for (size_t i = 0; i < LENGTH(models) * LENGTH(precisions) * 4; i++) {
        struct plan p = PLAN_DEFAULT;
        struct model m;
        int code;
        assert_true(model_from_name("test", models[i / 4 / LENGTH(precisions)], &m, &code));
        p.model = &m;
        p.precision = estimate_precision(precisions[i / 4 % LENGTH(precisions)]);
        p.optimizer = estimate_optimizer("adamw");
        p.attention = i & 1 ? PLAN_ATTENTION_EAGER : PLAN_ATTENTION_FLASH;
        p.checkpoint = i & 2 ? PLAN_CHECKPOINT_FULL : PLAN_CHECKPOINT_NONE;
        p.batch = 4, p.seq = 512;
        compare_adapters(&p);
        model_free(&m);
    }
    assert_true(seen > 200);
    assert_int_equal(bad, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines_agree)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
