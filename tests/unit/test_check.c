/* Limits as users type them, in arguments and in a file; sentences. */
#include "tests/cases.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/check/check.h"

#define EPS 1e-9

static struct check_limit good(enum check_gate_id gate, const char *text)
{
    struct check_limit l;
    char why[LIMIT_WHY] = "";
    if (!check_limit_parse(&check_gates[gate], text, &l, why))
        fail_msg("%s: '%s' %s", check_gates[gate].option, text, why);
    return l;
}

static void bad(enum check_gate_id gate, const char *text, const char *reported)
{
    struct check_limit l;
    char why[LIMIT_WHY] = "";
    if (check_limit_parse(&check_gates[gate], text, &l, why))
        fail_msg("%s: '%s' was taken", check_gates[gate].option, text);
    if (!strstr(why, reported))
        fail_msg("%s: '%s': \"%s\" is not in \"%s\"", check_gates[gate].option, text, reported, why);
}

static void test_units(void **state)
{
    (void)state;
    assert_true(good(GATE_PEAK, "10GiB").value == 10.0 * (1 << 30));
    assert_true(good(GATE_PEAK, "0").value == 0);
    assert_true(good(GATE_GROWTH, "1MiB/step").value == 1 << 20);
    assert_true(good(GATE_GROWTH, "1MiB").value == 1 << 20);
    assert_true(good(GATE_SYNCS, "2").value == 2);
    assert_float_equal(good(GATE_SYNCS, "0.25/step").value, 0.25, EPS);
    assert_float_equal(good(GATE_BLOCKED, "5%").value, 0.05, EPS);
    assert_float_equal(good(GATE_BLOCKED, "12.5 %").value, 0.125, EPS);
    assert_true(good(GATE_RETRIES, "3").value == 3);
}

static void test_nonsense(void **state)
{
    (void)state;
    bad(GATE_PEAK, "-1GiB", "");
    bad(GATE_PEAK, "10GiB/step", "");
    bad(GATE_PEAK, "lots", "such as 10GiB");
    bad(GATE_PEAK, "5%", "such as 10GiB");
    bad(GATE_GROWTH, "/step", "");
    bad(GATE_GROWTH, "1MiB/epoch", "such as 1MiB/step");
    bad(GATE_SYNCS, "nan", "not a number");
    bad(GATE_SYNCS, "1e3", "not a number");
    bad(GATE_SYNCS, "-2", "not a number");
    bad(GATE_SYNCS, ".", "not a number");
    bad(GATE_BLOCKED, "5", "percentage");
    bad(GATE_BLOCKED, "%", "percentage");
    bad(GATE_BLOCKED, "101%", "percentage");
    bad(GATE_RETRIES, "1.5", "whole number");
    bad(GATE_RETRIES, "", "whole number");
}

static void test_relative(void **state)
{
    (void)state;
    struct check_limit l = good(GATE_PEAK, "+5%");
    assert_true(l.relative && l.of_share);
    assert_float_equal(l.value, 0.05, EPS);
    l = good(GATE_PEAK, "+100MiB");
    assert_true(l.relative && !l.of_share && l.value == 100 << 20);
    l = good(GATE_SYNCS, "+1");
    assert_true(l.relative && l.value == 1);
    l = good(GATE_BLOCKED, "+2%"); /* a share more, not a share of it */
    assert_true(l.relative && !l.of_share);
    bad(GATE_PEAK, "+", "");
    bad(GATE_PEAK, "++5%", "");
}

static void test_budget(void **state)
{
    (void)state;
    struct check_budget_limit b = good(GATE_BUDGET, "params=1e9,optimizer=adamw,tolerance=10%").budget;
    assert_true(b.estimate.total == 16000000000ull);
    assert_float_equal(b.tolerance, 0.1, EPS);
    assert_true(isnan(b.activations));
    b = good(GATE_BUDGET, " params = 1e9 , precision=bf16, master-weights, activations=2GiB").budget;
    assert_true(b.estimate.master > 0 && b.activations == 2.0 * (1 << 30));
    assert_true(good(GATE_BUDGET, "model=gpt2").budget.estimate.params > 100000000);
    bad(GATE_BUDGET, "", "names no model");
    bad(GATE_BUDGET, "optimizer=adam", "names no model");
    bad(GATE_BUDGET, "parms=1e9", "did you mean 'params'");
    bad(GATE_BUDGET, "params=1e9,optimizer=adamm", "did you mean 'adam");
    bad(GATE_BUDGET, "params=1e9,optimizer=galore", "shapes of the matrices");
    bad(GATE_BUDGET, "params=1e9,precision=fp17", "did you mean 'fp16'");
    bad(GATE_BUDGET, "params=0", "out of range");
    bad(GATE_BUDGET, "params=-3", "");
    bad(GATE_BUDGET, "params", "without a value");
    bad(GATE_BUDGET, "params=1e9,tolerance=ten", "percentage");
    bad(GATE_BUDGET, "params=1e9,master-weights", "already float32");
    bad(GATE_BUDGET, "params=1e9,model=gpt2", "give only one of them");
    bad(GATE_BUDGET, "model=gpt22", "names no model: 'gpt22' is unknown; did you mean 'gpt2'?");
    bad(GATE_BUDGET, "model=./none.json", "names no model: './none.json' cannot be read: No such file");
    assert_true(good(GATE_BUDGET, "optimizer=galore,model=gpt2").budget.estimate.optimizer > 0); /* it has matrices */
    bad(GATE_BUDGET, "params=1e9,color=red", "one of params");
}

/* ---------------------------------------------------------------- the file */

static struct check_limits limits;
static char error[512];

static bool read_text(const char *text)
{
    check_limits_free(&limits);
    *error = 0;
    return check_limits_read(&limits, text, strlen(text), "f", error, sizeof error);
}

static double found(enum check_gate_id gate, const char *path, int device)
{
    const char *paths[] = {path, NULL};
    const struct check_limit *l = check_limits_find(&limits, gate, NULL, paths, device);
    return l ? l->value : -1;
}

static void test_file(void **state)
{
    (void)state;
    assert_true(read_text("# limits\n\nmax-peak = 10KiB   # all\r\n max-syncs-per-step=2\nno-leaks = true\n"
                          "max-tensor-peak = \"5KiB\"\n"
                          "[small*.db]\nmax-peak = 2KiB\nmax-syncs-per-step = off\n"
                          "[\"runs/*.db\"]\nmax-peak = 3KiB\n[gpu 1]\nmax-peak = 1KiB"));
    assert_true(found(GATE_PEAK, "run.db", 0) == 10240);
    assert_true(found(GATE_PEAK, "run.db", 1) == 1024);
    assert_true(found(GATE_PEAK, "/x/small_1.db", 0) == 2048);
    assert_true(found(GATE_PEAK, "./runs/a.db", -1) == 3072);
    assert_true(found(GATE_TENSOR_PEAK, "run.db", 0) == 5120);
    assert_true(found(GATE_SYNCS, "run.db", -1) == 2);
    assert_true(found(GATE_SYNCS, "small.db", -1) == -1);
    assert_true(found(GATE_LEAKS, "run.db", -1) == 0);
    assert_true(found(GATE_LEAK, "run.db", -1) == -1);
    const char *small[] = {"small.db", NULL};
    assert_false(check_limits_has(&limits, GATE_SYNCS, small));
    assert_true(check_limits_has(&limits, GATE_PEAK, small));
    /* the command line is added last, so it overrides */
    check_limits_add(&limits, &(struct check_limit_entry){.gate = GATE_PEAK, .device = -1, .limit = {.value = 7}});
    assert_true(found(GATE_PEAK, "run.db", 1) == 7);
    assert_true(read_text("\xef\xbb\xbfno-leaks = true\nno-leaks = false\nallow-incomplete = true\n"));
    assert_true(found(GATE_LEAKS, "run.db", -1) == -1 && limits.allow_incomplete);
    check_limits_free(&limits);
}

static void test_file_errors(void **state)
{
    static const struct {
        const char *text, *reported;
    } cases[] = {
        {"\nmax-peek = 1GiB", "f:2: 'max-peek' is unknown; did you mean 'max-peak'?"},
        {"max-peak = lots", "f:1: max-peak: 'lots'"},
        {"max-peak", "f:1: 'max-peak' is not a setting"},
        {"max-peak =", "f:1: 'max-peak' has no value"},
        {"max-peak = \"1GiB", "f:1: the quotes"},
        {"no-leaks = yes", "f:1: 'no-leaks' is true or false"},
        {"[small.db", "f:1: a section ends"},
        {"[]", "f:1: a section names"},
        {"[gpu one]", "f:1: 'gpu one' is not a GPU"},
        {"[gpu 64]", "f:1: 'gpu 64' is not a GPU"},
        {"[a]\nallow-incomplete = true", "f:2: 'allow-incomplete' applies to all sections"},
        {"zzz = 1", "f:1: 'zzz' is unknown; 'gpuspy check --help'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(read_text(cases[i].text));
        if (strncmp(error, cases[i].reported, strlen(cases[i].reported)) != 0)
            fail_msg("'%s': %s", cases[i].text, error);
    }
    assert_false(check_limits_read(&limits, "a\0b", 3, "f", error, sizeof error));
    check_limits_free(&limits);
}

static void test_values(void **state)
{
    char text[GATE_VALUE];
    (void)state;
    assert_string_equal(check_gate_value(&check_gates[GATE_PEAK], 1.5 * (1 << 30), text), "1.50 GiB");
    assert_string_equal(check_gate_value(&check_gates[GATE_GROWTH], 1536, text), "1.50 KiB per step");
    assert_string_equal(check_gate_value(&check_gates[GATE_SYNCS], 2, text), "2 per step");
    assert_string_equal(check_gate_value(&check_gates[GATE_SYNCS], 2.104, text), "2.10 per step");
    assert_string_equal(check_gate_value(&check_gates[GATE_BLOCKED], 0.37, text), "37 %");
    assert_string_equal(check_gate_value(&check_gates[GATE_RETRIES], 3, text), "3");
    assert_string_equal(check_gate_value(&check_gates[GATE_PEAK], NAN, text), "?");
}

CASES(test_units, test_nonsense, test_relative, test_budget, test_file, test_file_errors, test_values)
