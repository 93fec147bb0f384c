/* Memory that grows, and memory that only seems to; repeated allocations; memory that was never freed. */
#include "tests/cases.h"
#include <math.h>
#include "tests/unit/synthetic.h"

enum { STEPS = 640 };

static int64_t begin(struct syn *s)
{
    syn_start(s);
    syn_process(s, "r", 1, STEPS * 10 * SYN_MS, 1);
    return syn_python(s, 0, "train", "/home/u/train.py", 10);
}

static struct result_report *grown(struct syn *s, size_t n)
{
    struct result_report *r = syn_report(s, NULL);
    if (r->growth_n != n) fail_msg("%zu call paths grow instead of %zu", r->growth_n, n);
    return r;
}

static void keep(struct syn *s, int64_t stack, int step, int64_t bytes, int64_t life)
{
    syn_alloc(s, (struct syn_alloc){
                     .bytes = bytes, .at = (int64_t)step * 10 * SYN_MS + SYN_MS, .life = life, .stack = stack});
}

static void test_a_steady_leak(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s), work = syn_python(&s, train, "work", "/home/u/train.py", 11);
    for (int i = 0; i < STEPS; i++) {
        keep(&s, train, i, 1000, SYN_LIVE);
        keep(&s, train, i, 50000, 5 * SYN_MS); /* allocated and freed on the same line */
        keep(&s, work, i, 90000, 15 * SYN_MS); /* always live, never more */
    }
    struct result_report *r = grown(&s, 1);
    assert_int_equal(r->growth[0].steps, STEPS);
    assert_true(r->growth[0].bytes_per_step == 1000);
    assert_true(fabs(r->growth[0].bytes_per_s - 100000) < 2000);
    assert_int_equal(r->leaks_n, 1);
    assert_true(r->leaks[0].growing && r->leaks_at_end);
    assert_int_equal(r->leaks[0].bytes, 1000 * STEPS);
    assert_string_equal(r->advice[0].topic, "leak");
    syn_close(r);
    syn_end(&s);
}

/* Of the first half, only kept blocks remain: they are there from the beginning, and more are added in the steps of the
 * second half. */
static void test_a_leak_in_a_bounded_recording(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s), work = syn_python(&s, train, "work", "/home/u/train.py", 11);
    for (int i = 0; i < STEPS; i++) {
        keep(&s, train, i, 1000, SYN_LIVE);
        if (i < STEPS / 2) continue;
        keep(&s, train, i, 50000, 5 * SYN_MS);
        keep(&s, work, i, 90000, 15 * SYN_MS);
    }
    syn_sql(&s, "INSERT INTO meta VALUES('kept_from_ns',%lld),('keep',33554432)", STEPS / 2 * 10 * SYN_MS);
    struct result_report *r = grown(&s, 1);
    assert_int_equal(r->growth[0].steps, STEPS / 2);
    assert_true(r->growth[0].bytes_per_step == 1000);
    assert_non_null(strstr(r->advice[0].text, "at least ")); /* how much it grew before is unknown */
    assert_int_equal(r->leaks[0].bytes, 1000 * STEPS);
    syn_close(r);
    syn_end(&s);
}

static void test_a_leak_that_begins_late_and_one_in_epochs(void **state)
{
    (void)state;
    struct syn s;
    int64_t late = begin(&s), epoch = syn_python(&s, 0, "epoch", "/home/u/train.py", 12);
    for (int i = 0; i < STEPS; i++) {
        if (i > STEPS / 2) keep(&s, late, i, 1000, SYN_LIVE);
        if (i % 80 == 40) keep(&s, epoch, i, 100000, SYN_LIVE);
    }
    keep(&s, epoch, STEPS - 1, 1, 1);
    struct result_report *r = grown(&s, 2);
    assert_int_equal(r->growth[0].steps, 8);
    syn_close(r);
    syn_end(&s);
}

static void test_what_does_not_grow(void **state)
{
    (void)state;
    struct syn s;
    int64_t load = begin(&s);
    int64_t ramp = syn_python(&s, 0, "ramp", "/home/u/train.py", 21);
    int64_t jump = syn_python(&s, 0, "jump", "/home/u/train.py", 22);
    int64_t saw = syn_python(&s, 0, "saw", "/home/u/train.py", 23);
    int64_t cache = syn_python(&s, 0, "cache", "/home/u/train.py", 24);
    for (int i = 0; i < 60; i++) keep(&s, load, i, 100000, SYN_LIVE);      /* weights: in the first tenth, then flat */
    for (int i = 0; i < STEPS / 2; i++) keep(&s, ramp, i, 1000, SYN_LIVE); /* loads for half of the run, then flat */
    for (int i = 0; i < 20; i++) keep(&s, jump, STEPS / 2, 100000, SYN_LIVE); /* at once, in the middle */
    for (int i = 0; i < STEPS; i++) {
        int64_t next_clear = 160 - i % 160;
        keep(&s, saw, i, 10000, next_clear * 10 * SYN_MS); /* a cache that is emptied now and then */
        keep(&s, cache, i, 10000, 640 * SYN_MS);           /* a sliding window */
    }
    syn_sql(&s, "CREATE TEMP TABLE t AS SELECT kind, address, bytes, alloc_ns, life_ns, alloc_stack_id "
                "FROM "
                "allocation ORDER BY alloc_ns; DELETE FROM allocation_row; INSERT INTO "
                "allocation_row(kind, address, bytes, alloc_ns, life_ns, alloc_stack_id) SELECT * FROM t");
    struct result_report *r = grown(&s, 0);
    syn_close(r);
    syn_end(&s);
}

static void test_tiny_and_few_are_not_reported(void **state)
{
    (void)state;
    struct syn s;
    int64_t base = begin(&s), tiny = syn_python(&s, 0, "tiny", "/home/u/train.py", 31);
    int64_t few = syn_python(&s, 0, "few", "/home/u/train.py", 32);
    keep(&s, base, 0, SYN_GIB, SYN_LIVE);
    for (int i = 1; i < STEPS; i++) {
        keep(&s, tiny, i, 8, SYN_LIVE);
        if (i % 220 == 0) keep(&s, few, i, 100 * SYN_MIB, SYN_LIVE);
    }
    struct result_report *r = grown(&s, 0);
    syn_close(r);
    syn_end(&s);
}

/* The allocations and frees of a loop's step `i`. */
struct loop {
    int64_t forward, optimizer, keep;
};

static struct loop a_loop(struct syn *s)
{
    int64_t main = begin(s), call;
    struct loop l;
    call = syn_python(s, main, "Module._call_impl", "/x/site-packages/torch/nn/modules/module.py", 1700);
    l.forward = syn_python(s, call, "Net.forward", "/home/u/model.py", 20);
    l.optimizer = syn_python(s, syn_python(s, 0, "train", "/home/u/train.py", 60), "Adam.step",
                             "/x/site-packages/torch/optim/adam.py", 9);
    l.keep = syn_python(s, 0, "train", "/home/u/train.py", 55);
    return l;
}

static void work(struct syn *s, const struct loop *l, int step)
{
    keep(s, l->forward, step, 50000, 5 * SYN_MS);
    syn_alloc(s,
              (struct syn_alloc){
                  .bytes = 1000, .at = (int64_t)step * 10 * SYN_MS + 3 * SYN_MS, .life = 1000, .stack = l->optimizer});
}

static void in_order(struct syn *s)
{
    syn_sql(s,
            "CREATE TEMP TABLE t AS SELECT kind, address, bytes, alloc_ns, life_ns, alloc_stack_id FROM allocation "
            "ORDER BY alloc_ns; DELETE FROM allocation_row; INSERT INTO allocation_row(kind, address, bytes, alloc_ns, "
            "life_ns, alloc_stack_id) SELECT * FROM t");
}

static void test_every_tenth_step_is_growth_by_step(void **state)
{
    (void)state;
    struct syn s;
    struct loop l = a_loop(&s);
    for (int i = 0; i < STEPS; i++) {
        work(&s, &l, i);
        if (i % 10 == 0) keep(&s, l.keep, i, 640, SYN_LIVE);
    }
    struct result_report *r = grown(&s, 1);
    assert_true(r->growth[0].by_steps && !r->growth[0].graph);
    assert_int_equal(r->growth[0].steps, STEPS);
    assert_int_equal(r->growth[0].count, STEPS / 10);
    assert_true(r->growth[0].bytes_per_step == 64);
    assert_int_equal(r->growth[0].lines_n, 1);
    syn_close(r);
    syn_end(&s);
}

static void test_a_short_training_after_a_long_start(void **state)
{
    (void)state;
    struct syn s;
    struct loop l = a_loop(&s);
    for (int i = STEPS - 40; i < STEPS; i++) { /* the last sixteenth of the time */
        work(&s, &l, i);
        keep(&s, l.keep, i, 1000, SYN_LIVE);
    }
    struct result_report *r = grown(&s, 1);
    assert_int_equal(r->growth[0].steps, 40);
    assert_true(r->growth[0].bytes_per_step == 1000);
    syn_close(r);
    syn_end(&s);
}

static void test_a_pause_before_the_last_allocation_ends_no_growth(void **state)
{
    (void)state;
    struct syn s;
    struct loop l = a_loop(&s);
    for (int i = 0; i < STEPS / 2; i++) {
        work(&s, &l, i);
        keep(&s, l.keep, i, 1000, SYN_LIVE);
    }
    work(&s, &l, STEPS - 1); /* a checkpoint was saved, or the machine was busy */
    struct result_report *r = grown(&s, 1);
    assert_true(r->growth[0].bytes == STEPS / 2 * 1000);
    syn_close(r);
    syn_end(&s);
}

static void test_a_kept_graph_is_one_leak_of_many_lines(void **state)
{
    (void)state;
    struct syn s;
    struct loop l = a_loop(&s);
    int64_t train = syn_python(&s, 0, "train", "/home/u/train.py", 57), line[3];
    for (int i = 0; i < 3; i++) {
        int64_t call = syn_python(&s, train, "Module._call_impl", "/x/site-packages/torch/nn/modules/module.py", 1700);
        line[i] = syn_python(&s, call, "Net.forward", "/home/u/model.py", 30 + i);
    }
    int64_t other = syn_python(&s, 0, "log", "/home/u/log.py", 7);
    for (int i = 0; i < STEPS; i++) {
        work(&s, &l, i);
        for (int k = 0; k < 3; k++)
            for (int times = 0; times <= k; times++) keep(&s, line[k], i, 1000, SYN_LIVE);
        if (i > STEPS / 2) /* with another rhythm */
            keep(&s, other, i, 500, SYN_LIVE);
    }
    in_order(&s);
    struct result_report *r = grown(&s, 2);
    const struct result_growth *g = &r->growth[0];
    assert_true(g->graph && g->by_steps);
    assert_int_equal(g->bytes, 6000 * STEPS);
    assert_true(g->bytes_per_step == 6000);
    assert_int_equal(g->lines_n, 3);
    assert_int_equal(g->lines[0].site.line, 32);
    assert_int_equal(g->lines[0].bytes, 3000 * STEPS);
    assert_int_equal(g->lines[2].site.line, 30);
    assert_int_equal(g->under.line, 57);
    assert_int_equal(r->growth[1].stack.site.line, 7);
    assert_false(r->growth[1].graph);
    syn_close(r);
    syn_end(&s);
}

static void test_once_an_epoch_is_growth_in_jumps(void **state)
{
    (void)state;
    struct syn s;
    struct loop l = a_loop(&s);
    for (int i = 0; i < STEPS; i++) {
        work(&s, &l, i);
        for (int k = 0; k < 20 && i % 80 == 79; k++) keep(&s, l.keep, i, 1000, SYN_LIVE);
    }
    in_order(&s);
    struct result_report *r = grown(&s, 1);
    assert_int_equal(r->growth[0].jumps, 8);
    assert_int_equal(r->growth[0].count, 160);
    syn_close(r);
    syn_end(&s);
}

/* A program of C that makes buffers in a loop, works, and frees them; one that never frees them leaks. */
static void test_buffers_that_a_program_frees_itself_do_not_grow(void **state)
{
    (void)state;
    for (int never = 0; never < 2; never++) {
        struct syn s;
        struct result_report *r;
        syn_start(&s);
        syn_process(&s, "r", 1, STEPS * 10 * SYN_MS, 1);
        int64_t stack = syn_native(&s, 0, "/home/u/solver", 0x1234);
        for (int i = 0; i < 100; i++) keep(&s, stack, i, 1 << 20, never ? SYN_LIVE : STEPS * 9 * SYN_MS);
        r = grown(&s, (size_t)never);
        syn_close(r);
        syn_end(&s);
    }
}

/* Reaches its final size at a half, at three quarters, and shortly before the end. */
static void test_what_levels_off_does_not_grow(void **state)
{
    (void)state;
    for (int full = STEPS / 2; full <= STEPS * 9 / 10; full += STEPS / 5) {
        struct syn s;
        struct loop l = a_loop(&s);
        for (int i = 0; i < STEPS; i++) {
            work(&s, &l, i);
            keep(&s, l.keep, i, 1000, (int64_t)full * 10 * SYN_MS); /* a new one replaces the oldest */
        }
        struct result_report *r = grown(&s, 0);
        syn_close(r);
        syn_end(&s);
    }
}

static void test_growth_that_ends_with_training_is_growth(void **state)
{
    (void)state;
    struct syn s;
    struct loop l = a_loop(&s);
    int64_t evaluate = syn_python(&s, 0, "evaluate", "/home/u/train.py", 80);
    for (int i = 0; i < STEPS; i++) { /* an evaluation at the end, as long as the rest */
        if (i < STEPS / 2) {
            work(&s, &l, i);
            keep(&s, l.keep, i, 1000, SYN_LIVE);
        } else {
            keep(&s, evaluate, i, 50000, 5 * SYN_MS);
            keep(&s, evaluate, i, 50000, 5 * SYN_MS);
        }
    }
    struct result_report *r = grown(&s, 1);
    assert_int_equal(r->growth[0].steps, STEPS / 2);
    syn_close(r);
    syn_end(&s);
}

static void test_churn(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s), pool = syn_python(&s, 0, "pool", "/home/u/train.py", 41);
    for (int i = 0; i < STEPS; i++) {
        keep(&s, train, i, 4096, 2 * SYN_MS);
        syn_alloc(
            &s, (struct syn_alloc){
                    .space = GS_SPACE_POOL, .bytes = 1, .at = i * 10 * SYN_MS + 2 * SYN_MS, .life = 5, .stack = pool});
        syn_alloc(
            &s,
            (struct syn_alloc){
                .layer = GS_LAYER_TENSOR, .bytes = 1, .at = i * 10 * SYN_MS + 2 * SYN_MS, .life = 5, .stack = pool});
    }
    struct result_report *r = grown(&s, 0);
    assert_int_equal(r->churn_n, 1);
    assert_in_range(r->churn[0].count, 570, 580); /* without the warm-up */
    assert_true(fabs(r->churn[0].per_s - 100) < 1 && fabs(r->churn[0].mean_life_s - 0.002) < 1e-9);
    assert_int_equal(r->leaks_n, 0);
    syn_close(r);
    syn_end(&s);
}

static void test_segments_are_not_leaks_under_pytorch(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s);
    syn_alloc(&s, (struct syn_alloc){.bytes = 20 * SYN_MIB, .at = 1, .life = SYN_LIVE, .stack = train});
    syn_alloc(
        &s, (struct syn_alloc){.layer = GS_LAYER_TENSOR, .bytes = SYN_MIB, .at = 2, .life = SYN_LIVE, .stack = train});
    struct result_report *r = grown(&s, 0);
    assert_int_equal(r->leaks_n, 1);
    assert_int_equal(r->leaks[0].layer, RUN_SERIES_TENSOR);
    syn_close(r);
    syn_end(&s);
}

/* The same line of a program, whose CUDA call is made by PyTorch's allocator or by another library. */
static void test_memory_of_an_extension_is_a_leak_under_pytorch(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s), ours = syn_native(&s, train, "/lib/libffi.so.8", 1),
            torch = syn_native(&s, train, "/lib/libc10_cuda.so", 2);
    syn_alloc(
        &s, (struct syn_alloc){.layer = GS_LAYER_TENSOR, .bytes = SYN_MIB, .at = 2, .life = SYN_LIVE, .stack = train});
    for (int i = 0; i < STEPS; i++) {
        keep(&s, ours, i, SYN_MIB, SYN_LIVE);
        keep(&s, torch, i, 2 * SYN_MIB, SYN_LIVE);
    }
    struct result_report *r = grown(&s, 1);
    assert_true(r->growth[0].bytes == STEPS * SYN_MIB);
    assert_int_equal(r->leaks_n, 2);
    assert_true(r->leaks[0].growing && r->leaks[0].layer == RUN_SERIES_DEVICE);
    syn_close(r);
    syn_end(&s);
}

static void pinned(struct syn *s, int64_t stack, int step)
{
    syn_alloc(s, (struct syn_alloc){.bytes = 64 << 10,
                                    .space = GS_SPACE_PINNED,
                                    .at = (int64_t)step * 10 * SYN_MS + SYN_MS,
                                    .life = SYN_LIVE,
                                    .stack = stack});
}

/* A cache of pinned buffers that fills ever more slowly, and buffers that are kept in every step. */
static void test_a_cache_of_pinned_memory_is_not_a_leak(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s), other = syn_python(&s, 0, "other", "/home/u/train.py", 50),
            cache = syn_native(&s, train, "/lib/libtorch_cuda.so", 1),
            kept = syn_native(&s, other, "/lib/libtorch_cuda.so", 2);
    static const int jumps[] = {20, 21, 22, 60, 61, 150, 151, 152, 290, 450, 451, 600};
    for (int i = 0, k = 0; i < STEPS; i++) {
        pinned(&s, kept, i);
        for (; k < 12 && jumps[k] == i; k++) {
            pinned(&s, cache, i);
            pinned(&s, cache, i);
        }
    }
    struct result_report *r = grown(&s, 1);
    assert_int_equal(r->growth[0].count, STEPS);
    syn_close(r);
    syn_end(&s);
}

CASES(test_a_steady_leak, test_a_leak_in_a_bounded_recording, test_a_leak_that_begins_late_and_one_in_epochs,
      test_what_does_not_grow, test_tiny_and_few_are_not_reported, test_every_tenth_step_is_growth_by_step,
      test_a_short_training_after_a_long_start, test_a_pause_before_the_last_allocation_ends_no_growth,
      test_a_kept_graph_is_one_leak_of_many_lines, test_once_an_epoch_is_growth_in_jumps,
      test_buffers_that_a_program_frees_itself_do_not_grow, test_what_levels_off_does_not_grow,
      test_growth_that_ends_with_training_is_growth, test_churn, test_segments_are_not_leaks_under_pytorch,
      test_memory_of_an_extension_is_a_leak_under_pytorch, test_a_cache_of_pinned_memory_is_not_a_leak)
