/* Does it fit, and what would make it fit: verdicts, and changes compared with the plan they lead to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/changes_moves.h"
#include "analyzer/estimate/fit.h"
#include "tests/unit/plans.h"

#define GIB (1024.0 * 1024 * 1024)

static struct estimate_result r;
static struct estimate_changes changes;

static void verdicts(void **state)
{
    struct estimate_fit fit;

    r = (struct estimate_result){.peak = {10, 12, 15}};
    fit = estimate_fit(&r, 15);
    assert_int_equal(fit.verdict, FIT_YES);
    assert_true(fit.margin.low == 0 && fit.margin.likely == 3 && fit.margin.high == 5);
    assert_true(fit.share == 12.0 / 15);
    fit = estimate_fit(&r, 14.9);
    assert_int_equal(fit.verdict, FIT_TIGHT);
    assert_int_equal(estimate_fit(&r, 12).verdict, FIT_TIGHT);
    fit = estimate_fit(&r, 11.9);
    assert_int_equal(fit.verdict, FIT_NO);
    assert_true(fit.margin.likely < 0);
    assert_string_equal(estimate_fit_word[FIT_NO], "does_not_fit");
}

/* More memory never makes a verdict worse. */
static void verdicts_are_monotone(void **state)
{
    struct random_plans random = {.seed = 1};

    for (int i = 0; i < 2000; i++) {
        const struct plan *p = random_plan(&random);
        enum estimate_fit_verdict last = FIT_NO;
        assert_true(estimate_make(p, &r));
        assert_true(r.peak.low <= r.peak.likely && r.peak.likely <= r.peak.high);
        for (double memory = GIB; memory < 1e13; memory *= 1.5) {
            enum estimate_fit_verdict now = estimate_fit(&r, memory).verdict;
            assert_true(now <= last);
            last = now;
        }
    }
    random_done(&random);
}

/* Totals are the sums of their parts, in every phase. */
static void totals_are_sums(void **state)
{
    struct random_plans random = {.seed = 2};

    for (int i = 0; i < 3000; i++) {
        const struct plan *p = random_plan(&random);
        struct estimate_interval parts = {0};
        assert_true(estimate_make(p, &r));
        for (int part = 0; part < ESTIMATE_PARTS_N; part++) parts = estimate_interval_add(parts, r.part[part]);
        assert_true(fabs(parts.likely - r.peak.likely) <= 1e-9 * r.peak.likely);
        for (size_t l = 0; l < r.lines_n; l++) {
            assert_true(r.lines[l].bytes.low >= 0);
            assert_true(r.lines[l].bytes.low <= r.lines[l].bytes.likely);
            assert_true(r.lines[l].bytes.likely <= r.lines[l].bytes.high);
        }
    }
    random_done(&random);
}

/* Every listed change saves memory and is listed once, the largest first. */
static void listed_changes_save(void **state)
{
    struct random_plans random = {.seed = 3};
    size_t rows = 0, ways = 0;

    for (int i = 0; i < 300; i++) {
        const struct plan *p = random_plan(&random);
        assert_true(estimate_make(p, &r));
        estimate_find_changes(p, &r, &changes);
        rows += changes.n;
        for (size_t c = 0; c < changes.n; c++) {
            const struct estimate_change *change = &changes.rows[c];
            assert_true(change->saved.likely > 0);
            assert_true(change->saved.low <= change->saved.likely && change->saved.likely <= change->saved.high);
            assert_true(fabs(r.peak.likely - change->saved.likely - change->peak.likely) <= 1e-6 * r.peak.likely);
            assert_true(*change->what && *change->option && *change->cost);
            if (c) assert_true(change->saved.likely <= changes.rows[c - 1].saved.likely);
            for (size_t other = 0; other < c; other++) assert_string_not_equal(change->id, changes.rows[other].id);
        }
        assert_true(!changes.way_n || changes.needed);
        if (changes.way_n) {
            double before = changes.way_n > 1 ? changes.way[changes.way_n - 2].peak.likely : r.peak.likely;
            ways++;
            assert_int_not_equal(changes.way[changes.way_n - 1].fit.verdict, FIT_NO);
            assert_true(changes.way[changes.way_n - 1].peak.likely <= before);
        }
    }
    assert_true(rows > 300 && ways > 30); /* the random plans were useful */
    random_done(&random);
}

static const struct estimate_change *row(const char *id)
{
    for (size_t i = 0; i < changes.n; i++)
        if (strcmp(changes.rows[i].id, id) == 0) return &changes.rows[i];
    return NULL;
}

/* An 8-bit optimizer saves 4 - 65/64 bytes per parameter and state: known without an estimate. */
static void eight_bit_states(void **state)
{
    struct model m;
    struct plan p = PLAN_DEFAULT;

    model_from_count(1000000000, &m);
    p.model = &m;
    p.precision = estimate_precision("fp32");
    p.optimizer = estimate_optimizer("adamw");
    p.step = PLAN_STEP_FUSED;
    assert_true(estimate_make(&p, &r));
    estimate_find_changes(&p, &r, &changes);
    assert_non_null(row("optimizer_8bit"));
    assert_true(fabs(row("optimizer_8bit")->saved.likely - 1e9 * (8 - 65 / 32.0)) < 2e7);
    assert_string_equal(row("optimizer_8bit")->option, "--optimizer adamw8bit");
    assert_null(row("checkpointing_full")); /* without a shape */
    assert_null(row("sharding_zero1"));     /* one GPU */
    assert_null(row("kv_cache_fp8"));
    assert_false(changes.needed);
    assert_int_equal(changes.way_n, 0);
    model_free(&m);
}

/* The cheapest change is chosen: not 16-bit weights if another rounding of the states is enough; several changes if one
 * is not. */
static void the_cheapest_way(void **state)
{
    struct model m;
    struct plan p = PLAN_DEFAULT;

    model_from_count(1000000000, &m);
    p.model = &m;
    p.precision = estimate_precision("fp32");
    p.optimizer = estimate_optimizer("adamw");
    p.step = PLAN_STEP_FUSED;
    assert_true(estimate_make(&p, &r));
    p.memory = r.peak.high;
    estimate_find_changes(&p, &r, &changes);
    assert_false(changes.needed);
    p.memory = r.peak.high - 3e9;
    estimate_find_changes(&p, &r, &changes);
    assert_true(changes.needed);
    assert_int_equal(changes.way_n, 1);
    assert_string_equal(changes.way[0].id, "optimizer_8bit");
    p.memory = 2e9; /* the weights alone take 2 GB in 16 bits */
    estimate_find_changes(&p, &r, &changes);
    if (changes.way_n) assert_int_not_equal(changes.way[changes.way_n - 1].fit.verdict, FIT_NO);
    model_free(&m);
}

static bool noted(const char *words)
{
    for (size_t i = 0; i < r.notes_n; i++)
        if (strstr(r.notes[i], words)) return true;
    return false;
}

/* DeepSpeed's PipelineEngine supports ZeRO-1 at most: with stages, more is never advised, and a plan with more gets an
 * error that names DeepSpeed. */
static void deepspeed_and_pipelines(void **state)
{
    static const enum plan_sharding shardings[] = {PLAN_SHARDING_DDP, PLAN_SHARDING_ZERO1, PLAN_SHARDING_ZERO2,
                                                   PLAN_SHARDING_ZERO3};
    struct model m;
    struct plan p = PLAN_DEFAULT;
    int exit_code;

    assert_true(model_from_name("estimate", "llama-3-8b", &m, &exit_code));
    p.model = &m;
    p.precision = estimate_precision("bf16");
    p.optimizer = estimate_optimizer("adamw");
    p.batch = 1;
    p.seq = 2048;
    p.gpus = 8;
    for (p.pp = 1; p.pp <= 2; p.pp++)
        for (size_t s = 0; s < 4; s++) {
            unsigned of_it = 0;
            p.sharding = shardings[s];
            assert_true(estimate_make(&p, &r));
            assert_int_equal(noted("DeepSpeed refuses ZeRO-2 and ZeRO-3"), p.pp > 1 && s >= 2);
            assert_int_equal(noted("fsdp_reshard_after_forward"), p.pp > 1 && s == 3);
            estimate_find_changes(&p, &r, &changes);
            for (size_t i = 0; i < changes.n; i++) {
                const char *what = changes.rows[i].what, *at = strstr(what, "DeepSpeed ");
                bool more = strstr(changes.rows[i].option, "zero2") || strstr(changes.rows[i].option, "zero3");
                of_it += at && !strstr(what, "DeepSpeed refuses");
                if (p.pp > 1 && more) assert_true(!at || strstr(what, "DeepSpeed refuses"));
                if (p.pp > 1 && strcmp(changes.rows[i].id, "offload_optimizer") == 0)
                    assert_true(s < 2 && !strstr(what, "DeepSpeed"));
            }
            assert_true(p.pp > 1 || of_it); /* it is named if it is possible */
        }
    model_free(&m);
}

/* No advice that estimate itself would refuse. */
static void advice_is_accepted(void **state)
{
    struct random_plans random = {.seed = 4};
    unsigned applied = 0, refused = 0;

    for (int i = 0; i < 1000; i++) {
        const struct plan *p = random_plan(&random);
        assert_true(plan_check("the plan", p));
        for (size_t m = 0; m < estimate_move_count; m++) {
            struct plan changed = *p;
            struct estimate_move_words w;
            if (!(p->inference ? estimate_moves[m].inference : estimate_moves[m].training) ||
                !estimate_moves[m].apply(&estimate_moves[m], &changed, &w))
                continue;
            applied++;
            refused += !plan_possible(&changed); /* and so not listed */
            assert_true(*w.what && *w.option && *w.cost);
            assert_true(strlen(w.what) + 1 < sizeof w.what && strlen(w.option) + 1 < sizeof w.option);
        }
    }
    assert_true(applied > 5000);
    assert_true(refused < applied / 20); /* few changes are refused only after they were applied */
    random_done(&random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts),           cmocka_unit_test(verdicts_are_monotone),
        cmocka_unit_test(totals_are_sums),    cmocka_unit_test(listed_changes_save),
        cmocka_unit_test(eight_bit_states),   cmocka_unit_test(the_cheapest_way),
        cmocka_unit_test(advice_is_accepted), cmocka_unit_test(deepspeed_and_pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
