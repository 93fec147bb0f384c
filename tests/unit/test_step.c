/* The program's own steps, in runs made by hand. */
#include "tests/cases.h"
#include "analyzer/step/step.h"
#include "analyzer/step/step_moments.h"
#include "tests/unit/synthetic.h"

#define TORCH "/usr/lib/python3/dist-packages/torch/"

static int64_t tensor(struct syn *s, int64_t stack, int64_t at, int64_t life)
{
    return syn_alloc(
        s, (struct syn_alloc){.layer = GS_LAYER_TENSOR, .bytes = 512, .at = at, .life = life, .stack = stack});
}

/* The calls of a training script whose loop is in `train`, called at line 90. */
struct script {
    int64_t main, forward, backward, optimizer, load;
};

static int64_t step_at_line(struct syn *s, int64_t main, int line)
{
    int64_t train = syn_python(s, main, "train", "/home/u/train.py", line);
    int64_t wrapper =
        syn_python(s, train, "Optimizer.profile_hook_step.<locals>.wrapper", TORCH "optim/optimizer.py", 500);
    return syn_python(s, syn_python(s, wrapper, "Adam.step", TORCH "optim/adam.py", 240), "_multi_tensor_adam",
                      TORCH "optim/adam.py", 700);
}

static int64_t backward_at_line(struct syn *s, int64_t main, int line)
{
    int64_t train = syn_python(s, main, "train", "/home/u/train.py", line);
    int64_t backward = syn_python(s, train, "Tensor.backward", TORCH "_tensor.py", 620);
    return syn_python(s, backward, "_make_grads", TORCH "autograd/__init__.py", 200);
}

static struct script begin(struct syn *s)
{
    struct script c;
    syn_start(s);
    syn_process(s, "r", 1, 3600 * SYN_S, 1);
    c.main = syn_python(s, 0, "<module>", "/home/u/train.py", 90);
    c.load = syn_python(s, c.main, "load", "/home/u/train.py", 5);
    int64_t model = syn_python(s, c.main, "train", "/home/u/train.py", 40);
    int64_t call = syn_python(s, model, "Module._call_impl", TORCH "nn/modules/module.py", 1700);
    c.forward = syn_python(s, call, "Net.forward", "/home/u/model.py", 12);
    c.backward = backward_at_line(s, c.main, 41);
    c.optimizer = step_at_line(s, c.main, 42);
    for (int i = 0; i < 20; i++) tensor(s, c.load, 1000 + i, SYN_LIVE);
    return c;
}

/* Forward and backward passes, then the optimizer, beginning at `at`: 1 ms each. Returns the time after it. */
static int64_t step(struct syn *s, const struct script *c, int64_t at, int passes, int64_t optimizer)
{
    for (int i = 0; i < passes; i++, at += 2 * SYN_MS) {
        tensor(s, c->forward, at, SYN_MS);
        tensor(s, c->forward, at + 1000, SYN_MS);
        tensor(s, c->backward, at + SYN_MS, SYN_MS / 2);
    }
    if (optimizer) {
        tensor(s, optimizer, at, 1000);
        tensor(s, optimizer, at + 2000, 1000);
    }
    return at + SYN_MS;
}

static struct result_report *found(struct syn *s, enum step_source source, size_t n)
{
    struct result_report *r = syn_report(s, NULL);
    if (r->steps_n != 1) fail_msg("%zu kinds of steps instead of one", r->steps_n);
    const struct step_list *steps = r->steps[0];
    if (steps->source != source || steps->n != n)
        fail_msg("%zu instead of %zu: %s, of %s", steps->n, n, steps->evidence, step_source_word(steps->source));
    assert_true(steps->steady < steps->n && steps->starts_n * steps->stride <= n + steps->stride);
    return r;
}

static void finish(struct syn *s, struct result_report *r)
{
    syn_close(r);
    syn_end(s);
}

/* The first of three steps also loads and compiles: of two intervals the shorter is usual. */
static void test_two_intervals(void **state)
{
    const int64_t starts[] = {0, 950 * SYN_MS, 1000 * SYN_MS, 1052 * SYN_MS};
    (void)state;
    assert_int_equal(step_moments_gap(starts, 3), 50 * SYN_MS);
    assert_int_equal(step_moments_gap(starts, 4), 52 * SYN_MS);
    assert_int_equal(step_moments_gap(starts, 2), 950 * SYN_MS);
    assert_int_equal(step_moments_gap(starts, 1), 0);
}

static void test_gradients_of_four_passes_are_one_step(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    const int64_t first = 10 * SYN_S;
    int64_t at = first;
    for (int i = 0; i < 50; i++) at = step(&s, &c, at, 4, c.optimizer);
    struct result_report *r = found(&s, STEP_SOURCE_OPTIMIZER, 50);
    const struct step_list *steps = r->steps[0];
    assert_string_equal(steps->evidence, "Adam.step at train.py:42, 50 times");
    assert_int_equal(steps->site.line, 42);
    assert_int_equal(steps->median_ns, 9 * SYN_MS);
    assert_int_equal(steps->steady, 5);
    assert_int_equal(step_start_ns(steps, 0), first); /* without the loading */
    assert_true(step_at(steps, 1000) == SIZE_MAX && step_at(steps, first - 1) == SIZE_MAX);
    assert_int_equal(step_at(steps, first), 0);
    for (size_t i = 0; i < 50; i++) { /* also the calls between the optimizer and the next step */
        int64_t start = first + (int64_t)i * 9 * SYN_MS;
        assert_int_equal(step_start_ns(steps, i), start);
        assert_int_equal(step_at(steps, start), i);
        assert_int_equal(step_at(steps, start + 9 * SYN_MS - 1000), i);
    }
    assert_true(step_at(steps, at + SYN_S) == SIZE_MAX);
    assert_int_equal(step_count_done(steps, 0), 0);
    assert_int_equal(step_count_done(steps, first + 100 * SYN_MS), 11);
    assert_int_equal(step_count_done(steps, at + SYN_S), 50);
    finish(&s, r);
}

static void test_optimizers_that_take_turns_make_one_step(void **state)
{
    (void)state;
    for (int times = 1; times <= 5; times += 4) { /* the first as often, or five times as often */
        struct syn s;
        struct script c = begin(&s);
        int64_t other = step_at_line(&s, c.main, 50), at = SYN_S;
        for (int i = 0; i < 40; i++) {
            for (int k = 0; k < times; k++) at = step(&s, &c, at, 1, c.optimizer);
            at = step(&s, &c, at, 1, other);
        }
        struct result_report *r = found(&s, STEP_SOURCE_OPTIMIZER, 40);
        assert_int_equal(r->steps[0]->site.line, 50);
        assert_int_equal(step_start_ns(r->steps[0], 0), SYN_S);
        finish(&s, r);
    }
}

/* In the first iteration PyTorch loads its kernels: on an H200 it took 150 ms, and the next ones 1.3 ms; on a busy
 * machine it takes longer. */
static void test_a_slow_first_round_changes_no_step(void **state)
{
    (void)state;
    for (int64_t late = 40 * SYN_MS; late <= 10 * SYN_S; late *= 5) {
        struct syn s;
        struct script c = begin(&s);
        int64_t other = step_at_line(&s, c.main, 50), at = SYN_S;
        for (int i = 0; i < 12; i++) {
            at = step(&s, &c, at, 1, c.optimizer);
            at = step(&s, &c, at + (i ? 0 : late), 1, other);
        }
        struct result_report *r = found(&s, STEP_SOURCE_OPTIMIZER, 12);
        assert_int_equal(r->steps[0]->site.line, 50);
        finish(&s, r);
    }
}

static void test_an_optimizer_of_a_later_phase_adds_its_steps(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    int64_t other = step_at_line(&s, c.main, 50), at = SYN_S;
    for (int i = 0; i < 60; i++) at = step(&s, &c, at, 1, i < 40 ? c.optimizer : other);
    finish(&s, found(&s, STEP_SOURCE_OPTIMIZER, 60));
}

static void test_an_optimizer_seen_once_is_not_the_step(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    int64_t at = SYN_S;
    for (int i = 0; i < 30; i++) /* momentum is allocated once */
        at = step(&s, &c, at, 1, i == 0 ? c.optimizer : 0);
    struct result_report *r = found(&s, STEP_SOURCE_BACKWARD, 30);
    assert_string_equal(r->steps[0]->evidence, "backward at train.py:41, 30 times");
    finish(&s, r);
}

static void test_zero_grad_ends_a_step(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) { /* called before the passes, or after them */
        struct syn s;
        struct script c = begin(&s);
        int64_t zero = syn_python(&s, syn_python(&s, c.main, "train", "/home/u/train.py", 39), "Optimizer.zero_grad",
                                  TORCH "optim/optimizer.py", 900);
        int64_t at = SYN_S;
        for (int i = 0; i < 25; i++) {
            int64_t end = step(&s, &c, at, 4, 0), freed = end - SYN_MS / 2 + (late ? 0 : SYN_MS);
            for (int k = 0; k < 3; k++) { /* gradients, of the first pass */
                int64_t id = syn_alloc(&s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                                              .bytes = 4096,
                                                              .thread = 2,
                                                              .at = at + SYN_MS + 1000 + k,
                                                              .life = freed + k - (at + SYN_MS + 1000 + k)});
                syn_sql(&s, "UPDATE allocation_row SET free_stack_id = %lld WHERE id = %lld", (long long)zero,
                        (long long)id);
            }
            at = end + SYN_MS;
        }
        syn_sql(&s,
                "CREATE TEMP TABLE t AS SELECT * FROM allocation_row ORDER BY alloc_ns; DELETE FROM allocation_row; "
                "UPDATE t SET id = rowid; INSERT INTO allocation_row SELECT * FROM t");
        struct result_report *r = found(&s, STEP_SOURCE_BACKWARD, 25);
        assert_int_equal(step_start_ns(r->steps[0], 0), SYN_S);
        finish(&s, r);
    }
}

static void test_an_evaluation_is_in_no_step(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    int64_t evaluate = syn_python(&s, c.main, "evaluate", "/home/u/train.py", 70);
    int64_t at = SYN_S, evaluation = 0;
    for (int epoch = 0; epoch < 4; epoch++) {
        for (int i = 0; i < 25; i++) at = step(&s, &c, at, 1, c.optimizer);
        evaluation = at;
        for (int i = 0; i < 30; i++, at += 5 * SYN_MS) tensor(&s, evaluate, at, SYN_MS);
    }
    struct result_report *r = found(&s, STEP_SOURCE_OPTIMIZER, 100);
    const struct step_list *steps = r->steps[0];
    assert_int_equal(steps->median_ns, 3 * SYN_MS);
    assert_true(step_at(steps, evaluation + 20 * SYN_MS) == SIZE_MAX);
    int64_t earlier = step_start_ns(steps, 25) - 20 * SYN_MS; /* between two epochs */
    assert_true(step_at(steps, earlier) == SIZE_MAX);
    assert_int_equal(step_count_done(steps, earlier), 24);
    assert_int_equal(step_at(steps, step_start_ns(steps, 25) - 150 * SYN_MS), 24); /* right after its optimizer */
    finish(&s, r);
}

static void test_a_closure_is_not_its_optimizer(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    int64_t train = syn_python(&s, c.main, "train", "/home/u/train.py", 60);
    int64_t adam = syn_python(&s, train, "Adam.step", TORCH "optim/adam.py", 240);
    int64_t closure = syn_python(&s, adam, "Closure.closure", "/usr/lib/python3/dist-packages/lightning/x.py", 9);
    int64_t forward = syn_python(&s, closure, "training_step", "/home/u/model.py", 3);
    int64_t update = syn_python(&s, adam, "_multi_tensor_adam", TORCH "optim/adam.py", 700);
    for (int i = 0; i < 30; i++) {
        tensor(&s, forward, SYN_S + i * SYN_MS, 1000);
        tensor(&s, update, SYN_S + i * SYN_MS + 5000, 1000);
    }
    finish(&s, found(&s, STEP_SOURCE_OPTIMIZER, 30));
}

static void mark(struct syn *s, const char *name, int64_t at, int64_t life, int thread)
{
    syn_sql(s, "INSERT INTO mark_name(name) VALUES(%Q)", name);
    syn_sql(
        s, "INSERT INTO mark(kind, name, start_ns, life_ns, thread_id) VALUES(%d, last_insert_rowid(), %lld, %lld, %d)",
        GS_MARK_PUSH, (long long)at, (long long)life, thread);
}

static void test_ranges_that_repeat_are_steps(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        struct syn s;
        struct script c = begin(&s);
        for (int i = 0; i < 20; i++) {
            char name[32];
            snprintf(name, sizeof name, named ? "iteration %d" : "frame", i);
            mark(&s, name, SYN_S + i * 10 * SYN_MS, 9 * SYN_MS, 2);
            mark(&s, "forward", SYN_S + i * 10 * SYN_MS + 1000, 5 * SYN_MS, 2);
            mark(&s, "of another thread", SYN_S + i * 10 * SYN_MS + 2000, SYN_MS, 3);
            tensor(&s, c.forward, SYN_S + i * 10 * SYN_MS + 2000, SYN_MS);
        }
        struct result_report *r = found(&s, STEP_SOURCE_MARK, 20);
        assert_string_equal(r->steps[0]->evidence,
                            named ? "range \"iteration #\", 20 times" : "range \"frame\", 20 times");
        assert_int_equal(step_start_ns(r->steps[0], 7), SYN_S + 70 * SYN_MS);
        assert_false(r->steps[0]->site.known);
        finish(&s, r);
    }
}

static void test_ranges_that_fill_the_time_need_not_be_even(void **state)
{
    (void)state;
    static const int lasts_ms[] = {1, 20, 1, 30, 2, 1, 40, 1, 9, 1, 25, 1};
    enum { N = sizeof lasts_ms / sizeof *lasts_ms };
    struct syn s;
    struct script c = begin(&s);
    int64_t at = SYN_S;
    for (int i = 0; i < N; i++) {
        mark(&s, "request", at, lasts_ms[i] * SYN_MS, 2);
        tensor(&s, c.forward, at + 1000, SYN_MS / 2);
        at += lasts_ms[i] * SYN_MS + 1000;
    }
    finish(&s, found(&s, STEP_SOURCE_MARK, N));
}

static void test_a_loop_in_c(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 60 * SYN_S, 1);
    int64_t main = syn_native(&s, 0, "/home/u/solver", 0x1000), setup = syn_native(&s, main, "/home/u/solver", 0x2000);
    int64_t a = syn_native(&s, syn_native(&s, 0, "/home/u/solver", 0x1100), "/home/u/solver", 0x3000);
    int64_t b = syn_native(&s, syn_native(&s, 0, "/home/u/solver", 0x1200), "/home/u/solver", 0x4000);
    for (int i = 0; i < 50; i++) tensor(&s, setup, 1000 + i, SYN_LIVE);
    for (int i = 0; i < 200; i++) {
        tensor(&s, a, SYN_S + i * 10 * SYN_MS, SYN_MS);
        tensor(&s, a, SYN_S + i * 10 * SYN_MS + 1000, SYN_MS);
        tensor(&s, b, SYN_S + i * 10 * SYN_MS + 2000, SYN_MS);
    }
    struct result_report *r = found(&s, STEP_SOURCE_PERIOD, 200);
    assert_int_equal(step_at(r->steps[0], SYN_S + 55 * SYN_MS), 5);
    finish(&s, r);
}

/* The times of lines that are visited unevenly are dropped, and read again for one that turns out to be a loop's. */
static void test_a_loop_that_becomes_even(void **state)
{
    enum { UNEVEN = 1100, ROUNDS = 9000 };
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 60 * SYN_S, 1);
    int64_t a = syn_native(&s, syn_native(&s, 0, "/home/u/solver", 0x1100), "/home/u/solver", 0x3000);
    int64_t b = syn_native(&s, syn_native(&s, 0, "/home/u/solver", 0x1200), "/home/u/solver", 0x4000);
    int64_t at[ROUNDS], now = SYN_S;
    for (int i = 0; i < ROUNDS; i++) {
        at[i] = now;
        tensor(&s, a, now, 100);
        for (int k = i < UNEVEN ? 1 << i % 8 : 2; k > 0; k--) tensor(&s, b, now += 1000, 100);
        now += 1000;
    }
    struct result_report *r = found(&s, STEP_SOURCE_PERIOD, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) assert_true(step_start_ns(r->steps[0], (size_t)i) == at[i]);
    finish(&s, r);
}

static void test_a_loop_that_only_copies(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    int64_t in = syn_python(&s, c.main, "run", "/home/u/jax.py", 7),
            out = syn_python(&s, c.main, "run", "/home/u/jax.py", 9);
    for (int i = 0; i < 40; i++) {
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_H2D, .bytes = 4096, .at = SYN_S + i * SYN_MS, .stack = in});
        syn_sync(&s, GS_SYNC_STREAM, SYN_S + i * SYN_MS + 500, 100, 0, out);
    }
    finish(&s, found(&s, STEP_SOURCE_PERIOD, 40));
}

static void test_one_line_with_a_whole_model_in_it(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    int64_t line = syn_python(&s, c.main, "infer", "/home/u/train.py", 80);
    int64_t call = syn_python(&s, line, "Module._call_impl", TORCH "nn/modules/module.py", 1700);
    int64_t conv = syn_python(&s, call, "Conv2d.forward", TORCH "nn/modules/conv.py", 5);
    int64_t relu = syn_python(&s, call, "ReLU.forward", TORCH "nn/modules/activation.py", 6);
    for (int i = 0; i < 30; i++) {
        for (int k = 0; k < 3; k++) tensor(&s, conv, SYN_S + i * SYN_MS + 1000 * k, 500);
        tensor(&s, relu, SYN_S + i * SYN_MS + 5000, 500);
    }
    struct result_report *r = found(&s, STEP_SOURCE_PERIOD, 30);
    assert_int_equal(r->steps[0]->site.line, 80);
    finish(&s, r);
}

/* The rows begin in the middle of an iteration, after its first line: the steps of the others begin at that line. */
static void test_steps_of_a_bounded_recording_begin_where_the_loop_does(void **state)
{
    (void)state;
    for (int bounded = 0; bounded < 2; bounded++) {
        struct syn s;
        struct script c = begin(&s);
        int64_t batch = syn_python(&s, c.main, "train", "/home/u/train.py", 39);
        const int64_t from = SYN_S + SYN_MS;
        for (int i = 0; i < 40; i++) {
            const int64_t at = SYN_S + i * 10 * SYN_MS;
            if (i || !bounded) tensor(&s, batch, at, SYN_MS);
            step(&s, &c, at + SYN_MS, 1, c.optimizer);
        }
        if (bounded) syn_sql(&s, "INSERT INTO meta VALUES('kept_from_ns',%lld),('keep',33554432)", (long long)from);
        struct result_report *r = found(&s, STEP_SOURCE_OPTIMIZER, 40);
        for (size_t i = 1; i < 40; i++) assert_true(step_start_ns(r->steps[0], i) == SYN_S + (int64_t)i * 10 * SYN_MS);
        finish(&s, r);
    }
}

static void test_no_steps_if_nothing_repeats(void **state)
{
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    int64_t once = syn_python(&s, c.main, "use", "/home/u/train.py", 8);
    for (int i = 0; i < 300; i++) /* loading, then a little work */
        tensor(&s, i % 2 ? c.load : once, SYN_MS + i * 1000, SYN_LIVE);
    for (int i = 0; i < 5; i++) tensor(&s, c.forward, SYN_S + i * i * SYN_S, SYN_MS);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->steps_n, 0);
    finish(&s, r);
}

static void test_very_many_steps_are_thinned(void **state)
{
    enum { MANY = 150001 };
    (void)state;
    struct syn s;
    struct script c = begin(&s);
    for (int i = 0; i < MANY; i++) {
        tensor(&s, c.forward, SYN_S + i * 10000LL, 100);
        tensor(&s, c.optimizer, SYN_S + i * 10000LL + 5000, 100);
    }
    struct result_report *r = found(&s, STEP_SOURCE_OPTIMIZER, MANY);
    const struct step_list *steps = r->steps[0];
    assert_true(steps->stride == 4 && steps->starts_n <= 1 << 16);
    assert_int_equal(steps->median_ns, 10000);
    for (int i = 10; i < MANY - 10; i += 977) {
        size_t at = step_at(steps, SYN_S + i * 10000LL);
        assert_in_range(at, (size_t)i - 1, (size_t)i);
        assert_true(llabs(step_start_ns(steps, (size_t)i) - (SYN_S + i * 10000LL)) <= 10000);
    }
    finish(&s, r);
}

CASES(test_two_intervals, test_gradients_of_four_passes_are_one_step, test_optimizers_that_take_turns_make_one_step,
      test_a_slow_first_round_changes_no_step, test_an_optimizer_of_a_later_phase_adds_its_steps,
      test_an_optimizer_seen_once_is_not_the_step, test_zero_grad_ends_a_step, test_an_evaluation_is_in_no_step,
      test_a_closure_is_not_its_optimizer, test_ranges_that_repeat_are_steps,
      test_ranges_that_fill_the_time_need_not_be_even, test_a_loop_in_c, test_a_loop_that_becomes_even,
      test_a_loop_that_only_copies, test_one_line_with_a_whole_model_in_it,
      test_steps_of_a_bounded_recording_begin_where_the_loop_does, test_no_steps_if_nothing_repeats,
      test_very_many_steps_are_thinned)
