/* The answers of --solve fit, and one more does not; more GPUs that share the model never need more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/solve.h"
#include "tests/unit/plans.h"

#define GIB (1024.0 * 1024 * 1024)

static struct estimate_result r;
static struct estimate_solution s;

static struct estimate_interval peak(const struct plan *p)
{
    return estimate_make(p, &r) ? r.peak : EXACTLY(INFINITY);
}

/* The plan with another batch or sequence, computed here. */
static double with(const struct plan *p, enum estimate_solve_what what, uint64_t value, bool surely)
{
    struct plan changed = *p;
    struct estimate_interval bytes;

    *(what == SOLVE_BATCH ? &changed.batch : &changed.seq) = value;
    bytes = peak(&changed);
    return surely ? bytes.high : bytes.likely;
}

static void check(const struct plan *p, enum estimate_solve_what what, const struct estimate_solve_answer *a,
                  bool surely, uint64_t step, unsigned *answered)
{
    if (!a->any) {
        assert_true(with(p, what, step, surely) > p->memory);
        return;
    }
    assert_true(a->value >= 1);
    assert_true(with(p, what, a->value, surely) <= p->memory);
    if (a->limited) return;
    ++*answered;
    assert_true(with(p, what, a->value + step, surely) > p->memory);
    assert_true((surely ? a->next.high : a->next.likely) > p->memory);
}

static void one_more_does_not_fit(void **state)
{
    struct random_plans random = {.seed = 11};
    unsigned answered = 0;

    for (int i = 0; i < 400; i++) {
        const struct plan *p = random_plan(&random);
        enum estimate_solve_what what = i % 2 ? SOLVE_BATCH : SOLVE_SEQ;
        uint64_t step = what == SOLVE_SEQ && p->sequence_parallel ? p->tp : 1;
        if (p->model->shape.positions && what == SOLVE_SEQ) continue;
        if (with(p, what, step, false) == with(p, what, 1 << 20, false)) continue; /* nothing grows */
        assert_true(estimate_solve("test", p, what, &s));
        check(p, what, &s.surely, true, step, &answered);
        check(p, what, &s.likely, false, step, &answered);
        if (s.surely.any) assert_true(s.likely.any && s.likely.value >= s.surely.value);
    }
    assert_true(answered > 40); /* the random plans were useful */
    random_done(&random);
}

/* The high end fits on fewer GPUs by tensor parallelism, by which the expected need then fits too. */
static bool is_more_divided(const struct plan *p)
{
    return p->tp == 1 && strstr(s.likely.option, "--tp") && s.likely.value <= s.surely.value;
}

static void fewest_gpus(void **state)
{
    struct random_plans random = {.seed = 12};
    unsigned answered = 0;

    for (int i = 0; i < 400; i++) {
        struct plan p = *random_plan(&random), fewer;
        if (p.inference || p.sharding == PLAN_SHARDING_DDP) continue;
        fewer = p;
        fewer.gpus = p.tp * (1 + (uint64_t)i % 9);
        p.memory = peak(&fewer).likely; /* this many are enough, perhaps fewer */
        assert_true(estimate_solve("test", &p, SOLVE_GPUS, &s));
        assert_true(s.likely.any && s.likely.value <= fewer.gpus);
        assert_true(s.likely.value % p.tp == 0);
        if (is_more_divided(&p)) continue;
        fewer.gpus = s.likely.value;
        fewer.memory = p.memory; /* at which the allocator frees its cache */
        assert_true(peak(&fewer).likely <= p.memory);
        if (s.likely.value == p.tp) continue;
        answered++;
        fewer.gpus -= p.tp;
        assert_true(peak(&fewer).likely > p.memory);
        assert_true(s.likely.next.likely > p.memory);
    }
    assert_true(answered > 40);
    random_done(&random);
}

/* The search skips most numbers of GPUs: none of the skipped ones would have been enough. */
static void fewest_gpus_of_all(void **state)
{
    struct random_plans random = {.seed = 15};
    unsigned answered = 0;

    for (int i = 0; i < 300 && answered < 60; i++) {
        struct plan p = *random_plan(&random), tried;
        bool surely = i % 2;
        uint64_t n = 1;
        if (p.inference || p.sharding == PLAN_SHARDING_DDP) continue;
        p.ep = 1;
        tried = p;
        tried.gpus = p.tp * p.pp * p.cp * (1 + (uint64_t)i * 7 % 700);
        p.memory = surely ? peak(&tried).high : peak(&tried).likely;
        tried.memory = p.memory; /* cached segments fill what is left of it */
        assert_true(estimate_solve("test", &p, SOLVE_GPUS, &s));
        for (;; n++) {
            tried.gpus = p.tp * p.pp * p.cp * n;
            if ((surely ? peak(&tried).high : peak(&tried).likely) <= p.memory) break;
        }
        assert_true((surely ? s.surely : s.likely).value == tried.gpus ||
                    (!surely && is_more_divided(&p) && s.likely.value < tried.gpus));
        answered += n > 64;
    }
    assert_true(answered > 20);
    random_done(&random);
}

/* If only the likely figure fits, the search continues: with tensor parallelism, the high one fits, and the likely one
 * never needs more GPUs than that. */
static void surely_with_tensor_parallelism(void **state)
{
    struct model m;
    struct plan p = PLAN_DEFAULT;
    int exit_code;

    (void)state;
    assert_true(model_from_name("test", "llama-3-8b", &m, &exit_code));
    p.model = &m;
    p.optimizer = estimate_optimizer("adamw");
    p.precision = estimate_precision("bf16");
    p.sharding = PLAN_SHARDING_ZERO3;
    p.batch = 1;
    p.seq = 4096;
    p.gpus = 16384;
    p.memory = peak(&p).likely * 1.001; /* with the largest number of GPUs only the likely figure fits */
    assert_true(estimate_solve("test", &p, SOLVE_GPUS, &s));
    assert_true(s.likely.any && s.likely.value <= s.surely.value);
    assert_true(s.surely.any && strstr(s.surely.option, "--tp") && s.surely.peak.high <= p.memory);
    assert_true(*s.note);
    model_free(&m);
}

/* A server: the smallest numbers are tried first, so a smaller tp does not fit. */
static void gpus_of_a_server(void **state)
{
    struct random_plans random = {.seed = 13};
    unsigned answered = 0;

    for (int i = 0; i < 200; i++) {
        const struct plan *p = random_plan(&random);
        struct plan fewer;
        if (!p->inference) continue;
        assert_true(estimate_solve("test", p, SOLVE_GPUS, &s));
        if (!s.surely.any) continue;
        answered++;
        for (uint64_t tp = 1; tp < s.surely.value && tp <= 8 && tp <= (uint64_t)p->gpu->node; tp *= 2) {
            fewer = *p;
            fewer.tp = fewer.gpus = tp;
            assert_true(peak(&fewer).high > p->memory);
        }
    }
    assert_true(answered > 10);
    random_done(&random);
}

static void most_layers(void **state)
{
    struct model_shape shape = {.family = MODEL_LLAMA,
                                .layers = 32,
                                .hidden = 4096,
                                .heads = 32,
                                .kv_heads = 8,
                                .head_dim = 128,
                                .ffn = 14336,
                                .vocab = 32000,
                                .gated = true,
                                .norms = 2,
                                .final_norm = true};
    struct model m, more;
    struct plan p = PLAN_DEFAULT;
    int exit_code;

    assert_true(model_from_shape("test", "test", &shape, &m, &exit_code));
    p.model = &m;
    p.inference = true;
    p.precision = estimate_precision("fp32");
    p.optimizer = estimate_optimizer("adam");
    p.memory = 24 * GIB;
    p.batch = 1;
    p.seq = 1024;
    assert_true(estimate_solve("test", &p, SOLVE_LAYERS, &s));
    assert_true(s.surely.any && !s.surely.limited);
    for (int one_more = 0; one_more < 2; one_more++) {
        shape.layers = s.surely.value + (uint64_t)one_more;
        assert_true(model_from_shape("test", "test", &shape, &more, &exit_code));
        p.model = &more;
        assert_int_equal(peak(&p).high > p.memory, one_more);
        model_free(&more);
    }
    model_free(&m);
}

static void no_answer_and_no_question(void **state)
{
    struct random_plans random = {.seed = 14};
    struct plan p;
    struct model m;

    do p = *random_plan(&random);
    while (p.inference || p.model->shape.positions);
    p.memory = 1e6; /* not even one */
    if (with(&p, SOLVE_BATCH, 1, false) != with(&p, SOLVE_BATCH, 64, false)) {
        assert_true(estimate_solve("test", &p, SOLVE_BATCH, &s));
        assert_false(s.likely.any || s.surely.any);
    }
    p.memory = 0;
    assert_false(estimate_solve("test", &p, SOLVE_BATCH, &s));
    model_from_count(1000000000, &m);
    p.model = &m;
    p.memory = 80 * GIB;
    assert_false(estimate_solve("test", &p, SOLVE_BATCH, &s)); /* it does not change with it */
    assert_false(estimate_solve("test", &p, SOLVE_LAYERS, &s));
    model_free(&m);
    random_done(&random);
}

/* The units that only FSDP has in flight when backward begins. */
static double in_flight(void)
{
    double sum = 0;

    for (size_t i = 0; i < r.lines_n; i++)
        if (strcmp(r.lines[i].name, "first gradients being reduced") == 0) sum += r.lines[i].bytes.likely;
    return sum;
}

/* Higher sharding never needs more on a GPU. Exception: gathered weights are there in addition to the shard, as are
 * FSDP units in flight. This concerns ZeRO 3, and ZeRO 2 as FSDP's SHARD_GRAD_OP without master weights or frozen
 * weights. */
static void more_sharding_never_needs_more(void **state)
{
    struct random_plans random = {.seed = 15};

    for (int i = 0; i < 500; i++) {
        struct plan p = *random_plan(&random);
        struct estimate_interval last = EXACTLY(INFINITY);
        if (p.inference) continue;
        for (int sharding = PLAN_SHARDING_ZERO1; sharding <= PLAN_SHARDING_ZERO3; sharding++) {
            struct estimate_interval now;
            p.sharding = (enum plan_sharding)sharding;
            now = peak(&p);
            if (sharding ==
                (p.master_weights || p.adapter != PLAN_ADAPTER_NONE ? PLAN_SHARDING_ZERO3 : PLAN_SHARDING_ZERO2))
                last.likely += r.part[ESTIMATE_WEIGHTS].likely + in_flight();
            if (now.likely > last.likely)
                fail_msg("plan %d: zero%d needs %.0f, one less %.0f", i, sharding, now.likely, last.likely);
            last = now;
        }
    }
    random_done(&random);
}

/* More GPUs that share the model never need more on each one, except for communication buffers. */
static void more_gpus_never_need_more(void **state)
{
    struct random_plans random = {.seed = 16};

    for (int i = 0; i < 500; i++) {
        struct plan p = *random_plan(&random);
        double last = INFINITY;
        if (p.inference || p.sharding == PLAN_SHARDING_DDP) continue;
        for (uint64_t n = 2; n <= 1024; n *= 2) {
            double now;
            p.gpus = p.tp * n;
            assert_true(estimate_make(&p, &r));
            now = r.peak.likely - r.part[ESTIMATE_COMMUNICATION].likely;
            if (now > last * 1.000001)
                fail_msg("plan %d: %ju GPUs need %.0f each, half as many %.0f", i, (uintmax_t)p.gpus, now, last);
            last = now;
        }
    }
    random_done(&random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_more_does_not_fit),     cmocka_unit_test(fewest_gpus),
        cmocka_unit_test(fewest_gpus_of_all),        cmocka_unit_test(surely_with_tensor_parallelism),
        cmocka_unit_test(gpus_of_a_server),          cmocka_unit_test(most_layers),
        cmocka_unit_test(no_answer_and_no_question), cmocka_unit_test(more_sharding_never_needs_more),
        cmocka_unit_test(more_gpus_never_need_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
