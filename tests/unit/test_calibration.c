/* The calibration file: the values that are stored about runs, how estimates use them, and invalid files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/estimate/calibration.h"
#include "analyzer/estimate/gpu.h"

static struct estimate_calibration_row row(const char *run, const char *gpu, double context, double fragmentation)
{
    struct estimate_calibration_row r = {.context = context,
                                         .fragmentation = fragmentation,
                                         .workspace = NAN,
                                         .activations = NAN,
                                         .activations_predicted = NAN,
                                         .batch = NAN,
                                         .seq = NAN,
                                         .formulas = NAN};
    snprintf(r.run, sizeof r.run, "%s", run);
    snprintf(r.gpu, sizeof r.gpu, "%s", gpu);
    return r;
}

static struct plan plan_of(const struct model *m)
{
    struct plan p = PLAN_DEFAULT;
    p.model = m;
    p.precision = estimate_precision("amp");
    p.optimizer = estimate_optimizer("adam");
    return p;
}

static void test_least_mean_most(void **state)
{
    (void)state;
    struct estimate_calibration c = {0};
    struct estimate_calibration_row a = row("a", "NVIDIA A100-SXM4-80GB", 400e6, 0.02),
                                    b = row("b", "NVIDIA A100-SXM4-80GB", 600e6, 0.1),
                                    t = row("t", "Tesla T4 (simulated)", NAN, 0.06);
    estimate_calibration_add(&c, &a);
    estimate_calibration_add(&c, &b);
    estimate_calibration_add(&c, &t);
    struct estimate_calibrated context = estimate_calibration_context(&c, NULL);
    assert_int_equal(context.runs, 2);
    assert_true(context.least == 400e6 && context.mean == 500e6 && context.most == 600e6);
    assert_int_equal(estimate_calibration_context(&c, estimate_gpu_find("t4")).runs, 0);
    assert_int_equal(estimate_calibration_context(&c, estimate_gpu_find("a100-80g")).runs, 2);
    assert_int_equal(estimate_calibration_context(NULL, NULL).runs, 0);
    struct estimate_calibrated holes = estimate_calibration_fragmentation(&c);
    assert_int_equal(holes.runs, 3);
    assert_float_equal(holes.mean, 0.06, 1e-9);
    struct estimate_interval i = estimate_calibrated_interval(&context);
    assert_true(i.low < 400e6 && i.likely == 500e6 && i.high > 600e6);
    estimate_calibration_free(&c);
}

static void test_a_run_counts_once(void **state)
{
    (void)state;
    struct estimate_calibration c = {0};
    struct estimate_calibration_row a = row("a", "x", 1e6, 0.1);
    snprintf(a.family, sizeof a.family, "gpt");
    a.activations = 3e9;
    a.activations_predicted = 2e9;
    a.formulas = CALIBRATION_FORMULAS;
    estimate_calibration_add(&c, &a);
    struct estimate_calibration_row again = row("a", "x", 2e6, 0.2); /* read without a model: its activations stay */
    estimate_calibration_add(&c, &again);
    assert_int_equal(c.rows_n, 1);
    assert_true(c.rows[0].context == 2e6 && c.rows[0].activations == 3e9);
    for (int n = 0; n < CALIBRATION_ROWS_MAX + 10; n++) {
        char name[32];
        snprintf(name, sizeof name, "run %d", n);
        struct estimate_calibration_row r = row(name, "x", n, NAN);
        estimate_calibration_add(&c, &r);
    }
    assert_int_equal(c.rows_n, CALIBRATION_ROWS_MAX);
    assert_string_equal(c.rows[0].run, "run 10"); /* the oldest was dropped */
    estimate_calibration_free(&c);
}

static void test_activations_by_their_words(void **state)
{
    (void)state;
    struct model m = {.shape = {.family = MODEL_GPT}};
    struct plan p = plan_of(&m);
    struct estimate_calibration c = {0};
    struct estimate_calibration_row r = row("a", "x", NAN, NAN);
    estimate_calibration_key(&r, &p);
    r.activations = 3e9;
    r.activations_predicted = 2e9;
    r.formulas = CALIBRATION_FORMULAS;
    estimate_calibration_add(&c, &r);
    assert_int_equal(estimate_calibration_activations(&c, &p).runs, 1);
    assert_true(estimate_calibration_activations(&c, &p).mean == 1.5);
    p.checkpoint = PLAN_CHECKPOINT_FULL;
    assert_int_equal(estimate_calibration_activations(&c, &p).runs, 0);
    p.checkpoint = PLAN_CHECKPOINT_NONE;
    c.rows[0].formulas = CALIBRATION_FORMULAS + 1;
    assert_int_equal(estimate_calibration_activations(&c, &p).runs, 0);
    size_t n;
    struct estimate_calibration_known *list = estimate_calibration_list(&c, &n);
    assert_int_equal(n, 1);
    assert_true(list[0].stale);
    free(list);
    estimate_calibration_free(&c);
}

static void test_scales_what_it_learned(void **state)
{
    (void)state;
    static struct estimate_result r;
    struct model m = {.shape = {.family = MODEL_GPT}};
    struct plan p = plan_of(&m);
    struct estimate_calibration c = {0};
    struct estimate_calibration_row row_ = row("a", "x", NAN, NAN);
    estimate_calibration_key(&row_, &p);
    row_.activations = 3e9;
    row_.activations_predicted = 2e9;
    row_.formulas = CALIBRATION_FORMULAS;
    estimate_calibration_add(&c, &row_);
    p.calibration = &c;
    memset(&r, 0, sizeof r);
    estimate_add(&r, ESTIMATE_WEIGHTS, IN_TRAINING, "weights", EXACTLY(10));
    estimate_add(&r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "kept", (struct estimate_interval){50, 100, 200});
    estimate_add(&r, ESTIMATE_TEMPORARIES, IN_PHASE(STEP), "step", EXACTLY(20));
    estimate_calibrate(&p, &r);
    assert_true(r.lines[0].bytes.likely == 10 && r.lines[2].bytes.likely == 20);
    assert_float_equal(r.lines[1].bytes.likely, 150, 1e-9);
    assert_float_equal(r.lines[1].bytes.low, 135, 1e-9);
    assert_float_equal(r.lines[1].bytes.high, 165, 1e-9);
    assert_int_equal(r.notes_n, 1);
    assert_non_null(strstr(r.notes[0], "activations (1 run)"));
    estimate_calibration_free(&c);
}

/* --- files --------------------------------------------------------------------------------------- */

static const struct {
    const char *text, *why; /* why NULL: the file is valid */
} files[] = {
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": []}", NULL},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"more\": {}, \"runs\": [{\"run\": \"a\", \"new\": 7}]}", NULL},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 2, \"runs\": []}", "version 2"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": \"1\", \"runs\": []}", "not a calibration file"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1}", "no list of runs"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [7]}", "run 1: it is not an object"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [{\"context_bytes\": -1}]}",
     "'context_bytes' is not a number"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [{\"context_bytes\": 1e300}]}",
     "'context_bytes' is not a number"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [{\"fragmentation\": \"1\"}]}",
     "'fragmentation' is not a number"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [{\"activations_predicted_bytes\": 0}]}",
     "is not a number"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [{\"family\": \"a word that is much too long\"}]}",
     "'family' is not text"},
    {"{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [", "damaged"},
    {"{\"kind\": \"gpuspy calibration\", \"kind\": 1}", "damaged"},
    {"{\"kind\": \"something else\"}", "not a calibration file"},
    {"[]", "not a calibration file"},
    {"{}", "not a calibration file"},
    {"", "damaged"},
    {"\xff\xfe", "damaged"},
};

static void test_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct estimate_calibration c = {0};
        char why[256] = "";
        bool ok = estimate_calibration_parse(files[i].text, strlen(files[i].text), &c, why, sizeof why);
        if (ok != !files[i].why || (files[i].why && !strstr(why, files[i].why))) fail_msg("file %zu: '%s'", i, why);
        estimate_calibration_free(&c);
    }
}

static void test_deep_nesting(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *text = malloc(n), why[256];
    struct estimate_calibration c = {0};
    memset(text, '[', n);
    assert_false(estimate_calibration_parse(text, n, &c, why, sizeof why));
    estimate_calibration_free(&c);
    free(text);
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    char folder[] = "/tmp/calibration.XXXXXX", path[128];
    struct estimate_calibration c = {0}, again;
    int code;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/b/calibration.json", folder);
    snprintf(c.path, sizeof c.path, "%s", path);
    struct estimate_calibration_row a = row("a \"quoted\" \\ run", "NVIDIA H100 80GB HBM3", 123456789, 0.0123456789);
    snprintf(a.family, sizeof a.family, "llama");
    estimate_calibration_add(&c, &a);
    assert_true(estimate_calibration_save("test", &c));
    assert_true(estimate_calibration_load("test", path, &again, &code));
    assert_int_equal(again.rows_n, 1);
    assert_string_equal(again.rows[0].run, a.run);
    assert_string_equal(again.rows[0].family, "llama");
    assert_true(again.rows[0].context == a.context && again.rows[0].fragmentation == a.fragmentation);
    assert_true(isnan(again.rows[0].workspace) && isnan(again.rows[0].activations_predicted));
    estimate_calibration_free(&again);
    assert_true(estimate_calibration_delete("test", path));
    assert_true(access(path, F_OK) != 0);
    assert_true(estimate_calibration_delete("test", path)); /* there is none: it counts as deleted */
    assert_true(estimate_calibration_load("test", path, &again, &code));
    assert_int_equal(again.rows_n, 0);
    estimate_calibration_free(&again);
    estimate_calibration_free(&c);
    snprintf(path, sizeof path, "rm -rf '%s'", folder);
    assert_int_equal(system(path), 0);
}

static void test_where(void **state)
{
    (void)state;
    char path[64];
    setenv("GPUSPY_CALIBRATION", "/x/y.json", 1);
    setenv("XDG_CONFIG_HOME", "/c", 1);
    setenv("HOME", "/h", 1);
    assert_true(estimate_calibration_path(path, sizeof path));
    assert_string_equal(path, "/x/y.json");
    setenv("GPUSPY_CALIBRATION", "", 1);
    assert_true(estimate_calibration_path(path, sizeof path));
    assert_string_equal(path, "/c/gpuspy/calibration.json");
    setenv("XDG_CONFIG_HOME", "not/absolute", 1);
    assert_true(estimate_calibration_path(path, sizeof path));
    assert_string_equal(path, "/h/.config/gpuspy/calibration.json");
    assert_false(estimate_calibration_path(path, 8));
    unsetenv("HOME");
    assert_false(estimate_calibration_path(path, sizeof path));
    assert_string_equal(path, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_mean_most),
        cmocka_unit_test(test_a_run_counts_once),
        cmocka_unit_test(test_activations_by_their_words),
        cmocka_unit_test(test_scales_what_it_learned),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
