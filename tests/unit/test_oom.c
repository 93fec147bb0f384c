/* OOM verdicts: each cause from a run that has it, and not from others. */
#include "tests/cases.h"
#include "analyzer/oom/oom.h"
#include "tests/unit/synthetic.h"

enum { STEPS = 200 };

struct shape {                          /* a training loop on a device of 16 GiB */
    int64_t weights, activations, kept; /* bytes; kept: per step, never freed */
    int layer;
};

static int64_t end_of(void)
{
    return STEPS * 10 * SYN_MS;
}

static void train(struct syn *s, struct shape shape)
{
    syn_process(s, "r", 7, end_of() + SYN_S, 0);
    syn_device(s, 0, 16 * SYN_GIB, 16 * SYN_GIB - 500 * SYN_MIB);
    int64_t main = syn_python(s, 0, "<module>", "/home/u/train.py", 50);
    int64_t load = syn_python(s, main, "Model.__init__", "/home/u/model.py", 5);
    int64_t forward = syn_python(s, main, "forward", "/home/u/model.py", 20);
    int64_t keep = syn_python(s, main, "step", "/home/u/train.py", 33);
    syn_alloc(s, (struct syn_alloc){.layer = shape.layer,
                                    .address = 1 << 20,
                                    .bytes = shape.weights,
                                    .at = 1,
                                    .life = SYN_LIVE,
                                    .stack = load});
    for (int i = 0; i < STEPS; i++) {
        int64_t at = 10 * SYN_MS * i + SYN_MS;
        syn_alloc(
            s, (struct syn_alloc){
                   .layer = shape.layer, .bytes = shape.activations, .at = at, .life = 8 * SYN_MS, .stack = forward});
        if (shape.kept) {
            syn_alloc(
                s, (struct syn_alloc){
                       .layer = shape.layer, .bytes = shape.kept, .at = at + SYN_MS, .life = SYN_LIVE, .stack = keep});
        }
    }
}

static struct result_report *report_of(struct syn *s, enum result_cause cause)
{
    struct result_report *r = syn_report(s, NULL);
    assert_int_equal(r->ooms_n, 1);
    const struct result_oom_verdict *v = &r->ooms[0];
    if (v->cause != cause)
        fail_msg("%s instead of %s: %s", result_cause_word(v->cause), result_cause_word(cause), v->verdict);
    assert_true(v->advice_n > 0 && v->evidence_n > 2);
    assert_non_null(strstr(r->advice[0].text, v->advice[0]));
    return r;
}

static struct result_report *judge(struct syn *s, struct shape shape, struct syn_oom oom, enum result_cause cause)
{
    syn_start(s);
    train(s, shape);
    oom.at = oom.at ? oom.at : end_of();
    oom.fatal = 1;
    oom.total = oom.total ? oom.total : 16 * SYN_GIB;
    syn_oom(s, oom);
    return report_of(s, cause);
}

static void finish(struct syn *s, struct result_report *r)
{
    syn_close(r);
    syn_end(s);
}

static void test_leak(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = 2 * SYN_GIB, .activations = SYN_GIB, .kept = 64 * SYN_MIB};
    struct result_report *r =
        judge(&s, shape, (struct syn_oom){.requested = SYN_GIB, .free = 10 * SYN_MIB}, RESULT_CAUSE_LEAK);
    assert_non_null(strstr(r->ooms[0].verdict, "train.py:33"));
    assert_int_equal(r->growth_n, 1);
    assert_int_equal(r->growth[0].steps, STEPS);
    assert_true(r->growth[0].bytes_per_step == 64.0 * SYN_MIB);
    assert_int_equal(run_stack_frame(r->run, r->growth[0].stack.number)->line, 33);
    assert_true(r->growth[0].fit > 0.99);
    assert_true(r->leaks[0].growing || r->leaks[1].growing);
    assert_false(r->leaks_at_end);
    for (size_t i = 0; i < r->advice_n; i++) /* the verdict already states it */
        assert_string_not_equal(r->advice[i].topic, "leak");
    finish(&s, r);
}

static void test_a_list_emptied_by_the_tear_down_leaked_all_the_same(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    struct shape shape = {.weights = 2 * SYN_GIB, .activations = SYN_GIB, .kept = 64 * SYN_MIB};
    train(&s, shape);
    syn_sql(&s, "UPDATE allocation_row SET life_ns = %lld - alloc_ns WHERE life_ns IS NULL",
            (long long)(end_of() + 100 * SYN_MS));
    syn_oom(&s,
            (struct syn_oom){.requested = SYN_GIB, .free = SYN_MIB, .total = 16 * SYN_GIB, .fatal = 1, .at = end_of()});
    struct result_report *r = report_of(&s, RESULT_CAUSE_LEAK);
    assert_int_equal(r->growth[0].steps, STEPS);
    finish(&s, r);
}

static void test_capacity(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = 12 * SYN_GIB, .activations = 3 * SYN_GIB};
    struct result_report *r =
        judge(&s, shape, (struct syn_oom){.requested = SYN_GIB, .free = 10 * SYN_MIB}, RESULT_CAUSE_CAPACITY);
    assert_int_equal(r->growth_n, 0);
    assert_non_null(strstr(r->ooms[0].verdict, "model.py:5"));
    finish(&s, r);
}

static void test_a_small_leak_is_what_is_new(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = 8 * SYN_GIB, .activations = 4 * SYN_GIB, .kept = 8 * SYN_MIB};
    struct syn_oom oom = {.requested = SYN_GIB, .free = 10 * SYN_MIB, .total = 10 * SYN_GIB};
    struct result_report *r = judge(&s, shape, oom, RESULT_CAUSE_LEAK);
    assert_int_equal(r->ooms[0].blame.line, 33);
    assert_string_equal(r->ooms[0].blame_role, "growing");
    finish(&s, r);
    /* more than any earlier step needed */
    oom.requested = 6 * SYN_GIB;
    finish(&s, judge(&s, shape, oom, RESULT_CAUSE_CAPACITY));
}

static void test_loading_is_not_a_leak(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 7, 300 * SYN_MS, 0);
    int64_t main = syn_python(&s, 0, "<module>", "/home/u/train.py", 50);
    int64_t apply = syn_python(&s, main, "Module._apply", "/x/site-packages/torch/nn/modules/module.py", 900);
    for (int i = 0; i < 290; i++)
        syn_alloc(&s, (struct syn_alloc){.bytes = 50 * SYN_MIB, .at = i * SYN_MS, .life = SYN_LIVE, .stack = apply});
    syn_oom(&s, (struct syn_oom){
                    .requested = 50 * SYN_MIB, .free = SYN_MIB, .total = 16 * SYN_GIB, .fatal = 1, .at = 291 * SYN_MS});
    finish(&s, report_of(&s, RESULT_CAUSE_CAPACITY));
}

static void forward_passes(struct syn *s, int64_t temporary)
{
    syn_start(s);
    syn_process(s, "r", 7, 300 * SYN_MS, 0);
    int64_t main = syn_python(s, 0, "<module>", "/home/u/train.py", 50);
    int64_t call = syn_python(s, main, "Module._call_impl", "/x/site-packages/torch/nn/modules/module.py", 900);
    int64_t forward = syn_python(s, call, "Block.forward", "/home/u/model.py", 9);
    for (int i = 0; i < 290; i++) {
        syn_alloc(s, (struct syn_alloc){.bytes = 50 * SYN_MIB, .at = i * SYN_MS, .life = SYN_LIVE, .stack = forward});
        syn_alloc(s, (struct syn_alloc){.bytes = temporary, .at = i * SYN_MS + 5, .life = 9, .stack = call});
    }
    syn_oom(s, (struct syn_oom){
                   .requested = 50 * SYN_MIB, .free = SYN_MIB, .total = 15 * SYN_GIB, .fatal = 1, .at = 291 * SYN_MS});
}

static void test_one_forward_pass_is_not_a_leak(void **state)
{
    (void)state;
    struct syn s;
    forward_passes(&s, 20 * SYN_MIB);
    finish(&s, report_of(&s, RESULT_CAUSE_CAPACITY));
    forward_passes(&s, 200 * SYN_MIB); /* steps end, and each keeps something */
    finish(&s, report_of(&s, RESULT_CAUSE_LEAK));
}

static void test_oversized_request(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = SYN_GIB, .activations = SYN_GIB};
    finish(&s, judge(&s, shape, (struct syn_oom){.requested = 400 * SYN_GIB, .free = 14 * SYN_GIB},
                     RESULT_CAUSE_OVERSIZED_REQUEST));
}

static void test_driver_fragmentation(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = SYN_GIB, .activations = SYN_GIB};
    finish(&s, judge(&s, shape, (struct syn_oom){.requested = 4 * SYN_GIB, .free = 8 * SYN_GIB},
                     RESULT_CAUSE_FRAGMENTATION));
}

static void test_other_process_holds_it(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = SYN_GIB, .activations = SYN_GIB};
    struct result_report *r =
        judge(&s, shape, (struct syn_oom){.requested = SYN_GIB, .free = 100 * SYN_MIB}, RESULT_CAUSE_OTHER_PROCESS);
    finish(&s, r);
}

static void test_allocator_cap(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = SYN_GIB, .activations = SYN_GIB, .layer = GS_LAYER_TENSOR};
    finish(&s, judge(&s, shape,
                     (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                      .requested = SYN_GIB,
                                      .free = 9 * SYN_GIB,
                                      .allocated = 2 * SYN_GIB,
                                      .reserved = 2 * SYN_GIB},
                     RESULT_CAUSE_ALLOCATOR_CAP));
}

static void test_pinned_host(void **state)
{
    (void)state;
    struct syn s;
    struct shape shape = {.weights = SYN_GIB, .activations = SYN_GIB};
    finish(&s, judge(&s, shape, (struct syn_oom){.space = GS_SPACE_PINNED, .requested = 4 * SYN_GIB, .free = -1},
                     RESULT_CAUSE_PINNED_HOST));
}

static void test_preallocation(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 7, 100 * SYN_MS, 1);
    int64_t main = syn_python(&s, 0, "<module>", "/home/u/train.py", 50);
    int64_t xla = syn_native(&s, main, "/x/site-packages/jaxlib/xla_extension.so", 4096);
    syn_alloc(&s, (struct syn_alloc){.bytes = 12 * SYN_GIB, .at = 1, .life = SYN_LIVE, .stack = xla});
    syn_oom(&s,
            (struct syn_oom){
                .requested = 4 * SYN_GIB, .free = 3 * SYN_GIB, .total = 16 * SYN_GIB, .fatal = 1, .at = 50 * SYN_MS});
    finish(&s, report_of(&s, RESULT_CAUSE_PREALLOCATION));
}

/* PyTorch: two refusals of the segment, then its own report of the block: one OOM. The holes in its segments are large
 * enough in sum, but none is large enough. */
static void test_one_oom_of_three_rows_and_its_holes(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 7, 100 * SYN_MS, 1);
    int64_t f = syn_python(&s, 0, "f", "/home/u/a.py", 9);
    int64_t segment = 1000 * SYN_MIB;
    for (int i = 0; i < 15; i++) {
        int64_t base = (int64_t)(i + 1) << 32;
        syn_alloc(&s,
                  (struct syn_alloc){.address = base, .bytes = segment, .at = 2 * i + 1, .life = SYN_LIVE, .stack = f});
        for (int j = 0; j < 10; j += 2) { /* every other 100 MiB */
            syn_alloc(&s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                             .address = base + j * (segment / 10),
                                             .bytes = segment / 10,
                                             .at = 2 * i + 2,
                                             .life = SYN_LIVE,
                                             .stack = f});
        }
    }
    syn_reserved(&s, 32, 15 * segment);
    for (int i = 0; i < 2; i++) {
        syn_oom(&s,
                (struct syn_oom){
                    .requested = 302 * SYN_MIB, .free = 50 * SYN_MIB, .total = 16 * SYN_GIB, .fatal = 1, .at = 40 + i});
    }
    syn_oom(&s, (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                 .requested = 300 * SYN_MIB,
                                 .free = -1,
                                 .fatal = 1,
                                 .allocated = 15 * segment / 2,
                                 .reserved = 15 * segment,
                                 .at = 42,
                                 .stack = f});
    struct result_report *r = report_of(&s, RESULT_CAUSE_FRAGMENTATION);
    const struct result_oom_verdict *v = &r->ooms[0];
    assert_int_equal(v->failures, 3);
    assert_int_equal(v->requested_bytes, 300 * SYN_MIB);
    assert_int_equal(v->free_bytes, 50 * SYN_MIB); /* from CUDA's refusal just before */
    assert_int_equal(v->live_layer, RUN_SERIES_TENSOR);
    assert_int_equal(r->fragmentation_n, 1);
    assert_int_equal(r->fragmentation[0].reserved_bytes, 15 * segment);
    assert_int_equal(r->fragmentation[0].active_bytes, 15 * segment / 2);
    assert_int_equal(r->fragmentation[0].free_bytes, 15 * segment / 2);
    assert_int_equal(r->fragmentation[0].largest_free_bytes, segment / 10);
    assert_true(r->fragmentation[0].utilisation == 0.5);
    finish(&s, r);
}

static void test_a_retry_is_not_fatal(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    train(&s, (struct shape){.weights = 12 * SYN_GIB, .activations = SYN_GIB});
    syn_oom(&s, (struct syn_oom){.requested = SYN_GIB, .free = 1, .total = 16 * SYN_GIB, .at = 100 * SYN_MS});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->retries_n, 1);
    assert_int_equal(r->retries[0].requested_bytes, SYN_GIB);
    assert_int_equal(r->ooms_n, 1);
    assert_false(r->ooms[0].fatal);
    finish(&s, r);
}

/* After CUDA refused, PyTorch served the request from its cache; soon after, PyTorch fails for another reason. */
static void test_a_retry_is_not_part_of_the_next_failure(void **state)
{
    (void)state;
    for (int fatal = 0; fatal < 2; fatal++) {
        struct syn s;
        syn_start(&s);
        train(&s, (struct shape){.weights = 12 * SYN_GIB, .activations = SYN_GIB});
        syn_oom(&s, (struct syn_oom){.requested = fatal ? 64 * SYN_MIB : 2 * SYN_MIB,
                                     .free = 1,
                                     .total = 16 * SYN_GIB,
                                     .at = 100 * SYN_MS});
        syn_oom(&s, (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                     .requested = 32 * SYN_MIB,
                                     .free = 1,
                                     .total = 16 * SYN_GIB,
                                     .at = 160 * SYN_MS,
                                     .fatal = fatal});
        struct result_report *r = syn_report(&s, NULL);
        assert_int_equal(r->ooms_n, 2);
        assert_int_equal(r->retries_n, 1);
        assert_int_equal(r->retries[0].failures, 1);
        finish(&s, r);
    }
}

/* Only the last of very many failures are examined: the report claims nothing about the others that was not recorded.
 * */
static void test_failures_that_were_not_examined_are_unknown(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    train(&s, (struct shape){.weights = 4 * SYN_GIB, .activations = SYN_GIB});
    for (int i = 0; i < 100; i++) {
        syn_oom(&s, (struct syn_oom){.requested = 11 * SYN_GIB + i * SYN_MIB,
                                     .free = 10 * SYN_GIB,
                                     .total = 16 * SYN_GIB,
                                     .at = end_of() / 2 + i * SYN_MS});
    }
    struct run_options all = {.all = true};
    struct result_report *r = syn_report(&s, &all);
    size_t unknown = 0;
    assert_int_equal(r->ooms_n, 100);
    for (size_t i = 0; i < r->ooms_n; i++) {
        if (strstr(r->ooms[i].verdict, " 0 B")) fail_msg("%s", r->ooms[i].verdict);
        unknown += strstr(r->ooms[i].verdict, "unknown") != NULL;
    }
    assert_true(unknown > 0 && unknown < 100);
    finish(&s, r);
}

/* Refused and never granted: later events show whether that ended the program. */
static void test_a_program_that_goes_on_has_handled_it(void **state)
{
    (void)state;
    for (int64_t at = end_of() / 4; at <= end_of(); at += end_of() / 4 * 3) {
        struct syn s;
        syn_start(&s);
        train(&s, (struct shape){.weights = 4 * SYN_GIB, .activations = SYN_GIB});
        syn_sql(&s, "UPDATE process SET complete=1");
        syn_oom(&s, (struct syn_oom){
                        .requested = 13 * SYN_GIB, .free = 10 * SYN_GIB, .total = 16 * SYN_GIB, .fatal = 1, .at = at});
        struct result_report *r = syn_report(&s, NULL);
        assert_int_equal(r->ooms_n, 1);
        assert_int_equal(r->ooms[0].fatal, at == end_of());
        assert_int_equal(r->ooms[0].handled, at != end_of());
        assert_int_equal(r->retries_n, 0);
        finish(&s, r);
    }
}

/* PyTorch's failure in the middle of a run, and its sequel: nothing, little new memory, the loop again, more new memory
 * than was refused. */
enum came { NOTHING, SMALL, LOOP, LARGE };

/* `raised`: the exception that ended the program and its place, as values of SQL. */
static enum result_oom_outcome outcome_of(int exit_status, enum came came, bool served, const char *thread,
                                          const char *raised)
{
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 7, 10 * SYN_S, 1);
    syn_device(&s, 0, 16 * SYN_GIB, 16 * SYN_GIB - 500 * SYN_MIB);
    syn_sql(&s, "INSERT INTO thread(id,process_id,tid) VALUES(1,1,%d)", thread ? 8 : 7);
    if (exit_status >= 0) syn_sql(&s, "INSERT INTO meta VALUES('exit_status',%d)", exit_status);
    if (raised)
        syn_sql(&s,
                "INSERT INTO meta SELECT 'exception',column1 FROM (VALUES(%s)) UNION ALL "
                "SELECT 'exception_place',column2 FROM (VALUES(%s))",
                raised, raised);
    const char *file = !thread                          ? "/u/a.py"
                       : strcmp(thread, "_worker") == 0 ? "/lib/concurrent/futures/thread.py"
                                                        : "/lib/threading.py";
    int64_t main = syn_python(&s, 0, thread ? thread : "<module>", file, 1);
    int64_t loop = syn_python(&s, main, "loop", "/u/a.py", 10);
    int64_t fails = syn_python(&s, main, "loop", "/u/a.py", 11);
    int64_t save = syn_python(&s, main, "save", "/u/a.py", 20);
    for (int i = 0; i < 50; i++) {
        bool after = i >= 20;
        struct syn_alloc a = {.layer = GS_LAYER_TENSOR,
                              .bytes = SYN_GIB,
                              .at = i * SYN_S / 10 + 1,
                              .life = SYN_MS,
                              .stack = !after || came == LOOP ? loop : save};
        a.bytes = after && came == SMALL ? 512 : a.bytes;
        if (!after || came == LOOP || came == LARGE || (came == SMALL && i == 20)) syn_alloc(&s, a);
    }
    syn_oom(&s, (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                 .requested = 3 * SYN_GIB,
                                 .free = SYN_MIB,
                                 .total = 16 * SYN_GIB,
                                 .fatal = !served,
                                 .at = 2 * SYN_S,
                                 .stack = fails,
                                 .allocated = SYN_GIB,
                                 .reserved = 15 * SYN_GIB});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->ooms_n, 1);
    enum result_oom_outcome outcome = r->ooms[0].outcome;
    assert_int_equal(r->ooms[0].handled, outcome == RESULT_OUTCOME_HANDLED);
    assert_int_equal(r->ooms[0].fatal, outcome != RESULT_OUTCOME_HANDLED);
    assert_non_null(r->ooms[0].outcome_why);
    finish(&s, r);
    return outcome;
}

static void test_how_it_ended(void **state)
{
    (void)state;
    static const struct {
        int exit_status;
        enum came came;
        bool served;
        const char *thread;
        enum result_oom_outcome outcome;
        const char *raised;
    } cases[] = {
        {0, NOTHING, false, NULL, RESULT_OUTCOME_HANDLED, NULL}, /* no other code caught it */
        {0, SMALL, false, NULL, RESULT_OUTCOME_HANDLED, NULL},
        {0, LOOP, true, NULL, RESULT_OUTCOME_HANDLED, NULL},
        {1, NOTHING, false, NULL, RESULT_OUTCOME_ENDED, NULL},
        {1, SMALL, false, NULL, RESULT_OUTCOME_ENDED, NULL},
        {1, LARGE, true, NULL, RESULT_OUTCOME_UNKNOWN, NULL}, /* an emergency checkpoint, or a workaround */
        {1, LOOP, true, NULL, RESULT_OUTCOME_HANDLED, NULL},  /* another error ended it */
        {1, LOOP, false, NULL, RESULT_OUTCOME_HANDLED, NULL},
        {0, NOTHING, false, "_bootstrap", RESULT_OUTCOME_UNKNOWN,
         NULL}, /* the failure may have ended only this thread */
        {0, LOOP, false, "_bootstrap", RESULT_OUTCOME_HANDLED, NULL},
        {1, NOTHING, false, "_bootstrap", RESULT_OUTCOME_ENDED, NULL},
        {1, LARGE, true, "_worker", RESULT_OUTCOME_ENDED,
         NULL}, /* the thread that waits for the result gets the exception */
        {1, LOOP, true, "_worker", RESULT_OUTCOME_ENDED, "'torch.OutOfMemoryError: CUDA out of memory','/u/a.py:11'"},
        {1, LOOP, true, "_worker", RESULT_OUTCOME_HANDLED, "'torch.OutOfMemoryError: CUDA out of memory','/u/a.py:20'"},
        {1, LOOP, true, NULL, RESULT_OUTCOME_HANDLED, "'ValueError: no such shape','/u/a.py:11'"},
        {-1, NOTHING, false, NULL, RESULT_OUTCOME_ENDED, NULL}, /* an older recording */
        {-1, SMALL, false, NULL, RESULT_OUTCOME_ENDED, NULL},
        {-1, LARGE, true, NULL, RESULT_OUTCOME_HANDLED, NULL},
        {256, NOTHING, false, NULL, RESULT_OUTCOME_ENDED, NULL}, /* no status */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum result_oom_outcome got =
            outcome_of(cases[i].exit_status, cases[i].came, cases[i].served, cases[i].thread, cases[i].raised);
        if (got != cases[i].outcome)
            fail_msg("case %zu: %s instead of %s", i, result_outcome_word(got), result_outcome_word(cases[i].outcome));
    }
}

static int64_t gib_in(const char *text, const char *before)
{
    double number = 0;
    char unit[4] = "";
    const char *at = strstr(text, before);
    if (at && sscanf(at + strlen(before), " %lf %3s", &number, unit) != 2) return 0;
    return (int64_t)(number * (unit[0] == 'G' ? (double)SYN_GIB : unit[0] == 'M' ? (double)SYN_MIB : 1));
}

/* For any live, cached, requested and otherwise used bytes, the sentence about the memory that does not fit is true. */
static void test_the_capacity_sentence_is_true(void **state)
{
    (void)state;
    static const int64_t total = 16 * SYN_GIB, mib = SYN_MIB;
    static const int64_t lives[] = {0, 2000, 8000, 12000, 15000}, caches[] = {0, 700, 3000}, asks[] = {1, 900, 9000};
    unsigned beside = 0, alone = 0;
    for (size_t i = 0; i < 5 * 3 * 3; i++) {
        int64_t live = lives[i % 5] * mib, cached = caches[i / 5 % 3] * mib;
        int64_t free = total - 500 * mib - live - cached - 512, asked = free + asks[i / 15] * mib;
        if (free < 0) continue;
        struct syn s;
        syn_start(&s);
        syn_process(&s, "r", 7, 10 * SYN_S, 1);
        syn_device(&s, 0, total, total - 500 * mib);
        int64_t main = syn_python(&s, 0, "<module>", "/u/a.py", 1);
        syn_alloc(&s, (struct syn_alloc){
                          .address = 1 << 20, .bytes = live + cached + 512, .at = 1, .life = SYN_LIVE, .stack = main});
        syn_alloc(&s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                         .address = 1 << 20,
                                         .bytes = live + 512,
                                         .at = 2,
                                         .life = SYN_LIVE,
                                         .stack = main});
        syn_oom(&s, (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                     .requested = asked,
                                     .free = free,
                                     .total = total,
                                     .fatal = 1,
                                     .at = SYN_S,
                                     .stack = main,
                                     .allocated = live + 512,
                                     .reserved = live + cached + 512});
        struct result_report *r = syn_report(&s, NULL);
        const char *reported = r->ooms[0].verdict;
        if (r->ooms[0].cause == RESULT_CAUSE_CAPACITY && strncmp(reported, "the live memory does not fit", 28) == 0) {
            alone++;
            assert_true(live + 512 + asked + 500 * mib > total);
        } else if (r->ooms[0].cause == RESULT_CAUSE_CAPACITY && strstr(reported, " beside ")) {
            beside++;
            int64_t sum =
                gib_in(reported, "the live memory,") + asked + gib_in(reported, " beside") + gib_in(reported, " and");
            const char *comma = strstr(strstr(reported, " beside "), ",");
            sum += comma ? gib_in(comma, ",") : 0;
            if (sum <= total - total / 1000 || live + 512 + asked + 500 * mib > total) {
                fail_msg("%lld MiB live, %lld cached, %lld asked: %s", (long long)(live / mib),
                         (long long)(cached / mib), (long long)(asked / mib), reported);
            }
        }
        finish(&s, r);
    }
    assert_true(beside > 3 && alone > 3);
}

/* PyTorch's convolutions try cuDNN's algorithms until one gets its workspace: no exception is raised. A pass that is
 * tried again is different, and begins with a line of its own. */
static void test_a_convolution_that_continues_is_not_a_failed_pass(void **state)
{
    (void)state;
    for (int again = 0; again <= 1; again++) {
        struct syn s;
        syn_start(&s);
        syn_process(&s, "r", 7, 10 * SYN_S, 1);
        syn_device(&s, 0, 16 * SYN_GIB, 16 * SYN_GIB - 500 * SYN_MIB);
        syn_sql(&s, "INSERT INTO thread(id,process_id,tid) VALUES(1,1,7)");
        int64_t main = syn_python(&s, 0, "<module>", "/u/a.py", 34);
        int64_t before = syn_python(&s, 0, "<module>", "/u/a.py", 30);
        int64_t call = syn_python(&s, main, "Module._call_impl", "/x/site-packages/torch/nn/modules/module.py", 900);
        int64_t forward = syn_python(&s, call, "Net.forward", "/u/a.py", 16);
        int64_t conv =
            syn_python(&s, forward, "Conv2d._conv_forward", "/x/site-packages/torch/nn/modules/conv.py", 548);
        syn_alloc(&s, (struct syn_alloc){.bytes = 14 * SYN_GIB, .at = 1, .life = SYN_LIVE, .stack = conv});
        struct syn_alloc a = {.layer = GS_LAYER_TENSOR, .bytes = 7 * SYN_GIB, .life = SYN_LIVE, .stack = conv};
        struct syn_oom o = {
            .layer = GS_LAYER_TENSOR, .total = 16 * SYN_GIB, .free = SYN_GIB, .stack = conv, .requested = 2 * SYN_GIB};
        for (int i = 0; i < 3; i++) {
            a.at = (i + 1) * SYN_S;
            a.stack = again && i ? before : i ? forward : conv;
            a.bytes = i ? SYN_MIB : 13 * SYN_GIB;
            syn_alloc(&s, a);
            o.at = a.at + SYN_MS;
            o.fatal = i == 2;
            syn_oom(&s, o);
        }
        struct result_report *r = syn_report(&s, NULL);
        assert_true(r->ooms[0].fatal);
        assert_int_equal(strstr(r->ooms[0].verdict, "kept exception") != NULL, again);
        finish(&s, r);
    }
}

static void test_the_fatal_one_comes_first(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    train(&s, (struct shape){.weights = 12 * SYN_GIB, .activations = SYN_GIB});
    for (int i = 0; i < 300; i++) {
        syn_oom(&s,
                (struct syn_oom){
                    .requested = SYN_GIB + i, .free = 1, .total = 16 * SYN_GIB, .at = i * SYN_MS, .fatal = i == 222});
    }
    struct run_options defaults = {0};
    struct result_report *r = syn_report(&s, &defaults);
    assert_int_equal(r->ooms_n, 50);
    assert_int_equal(r->ooms_total, 300);
    assert_true(r->ooms[0].fatal && !r->ooms[1].fatal);
    assert_int_equal(r->ooms[0].requested_bytes, SYN_GIB + 222);
    assert_true(r->ooms[0].live_n > 0);
    finish(&s, r);
}

CASES(test_leak, test_a_list_emptied_by_the_tear_down_leaked_all_the_same, test_capacity,
      test_a_small_leak_is_what_is_new, test_loading_is_not_a_leak, test_one_forward_pass_is_not_a_leak,
      test_oversized_request, test_driver_fragmentation, test_other_process_holds_it, test_allocator_cap,
      test_pinned_host, test_preallocation, test_one_oom_of_three_rows_and_its_holes, test_a_retry_is_not_fatal,
      test_a_retry_is_not_part_of_the_next_failure, test_failures_that_were_not_examined_are_unknown,
      test_a_program_that_goes_on_has_handled_it, test_how_it_ended, test_the_capacity_sentence_is_true,
      test_a_convolution_that_continues_is_not_a_failed_pass, test_the_fatal_one_comes_first)
