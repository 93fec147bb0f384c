/* How often places wait in relation to the program's steps, and which of them are reported: on a GPU by time, on a
 * simulated one by count. */
#include "tests/cases.h"
#include <math.h>
#include "tests/unit/synthetic.h"

enum { STEPS = 200, EVERY = 50, EPOCH = 100, FIRST_MS = 200 };
#define STEP_NS (5 * SYN_MS)

struct lines {
    int64_t train, optimizer, item, cheap, log, second, burst, evaluate, load, end;
};

static int64_t item_at(struct syn *s, int64_t parent, const char *function, int line)
{
    int64_t user = syn_python(s, parent, function, "/home/u/train.py", line);
    return syn_python(s, user, "Tensor.__format__", "/x/site-packages/torch/_tensor.py", 1);
}

static void item(struct syn *s, int64_t stack, int64_t at, int64_t blocked)
{
    syn_copy(s, (struct syn_copy){.direction = GS_DIR_D2H,
                                  .host_memory = GS_HOSTMEM_PINNED,
                                  .async = 1,
                                  .bytes = 4,
                                  .at = at,
                                  .blocked = 100,
                                  .stream = 7,
                                  .stack = stack});
    syn_sync(s, GS_SYNC_STREAM, at + 200, blocked, 7, stack);
}

static void tensor(struct syn *s, int64_t stack, int64_t at)
{
    static int64_t address = 1 << 20;
    syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                    .space = GS_SPACE_DEVICE,
                                    .address = address += 4096,
                                    .bytes = 512,
                                    .at = at,
                                    .life = SYN_MS,
                                    .stack = stack});
}

/* Steps of 5 ms, beginning at 200 ms; every 100th is followed by 100 ms of evaluation. */
static int64_t pause_ns; /* of the program, within a step */

static struct result_report *train(struct syn *s, const char *gpu)
{
    struct lines l;
    int64_t at = FIRST_MS * SYN_MS;
    syn_start(s);
    syn_process(s, "r", 1, 2 * SYN_S, 1);
    syn_sql(s, "INSERT INTO device(process_id,device,name,total_bytes,seen_ns) VALUES(1,0,%Q,1,0)", gpu);
    int64_t main_line = syn_python(s, 0, "<module>", "/home/u/train.py", 90);
    l.train = syn_python(s, main_line, "train", "/home/u/train.py", 10);
    int64_t step = syn_python(s, main_line, "train", "/home/u/train.py", 11);
    l.optimizer = syn_python(s, step, "Adam.step", "/x/site-packages/torch/optim/adam.py", 200);
    l.item = item_at(s, main_line, "train", 12);
    l.cheap = item_at(s, main_line, "train", 13);
    l.log = item_at(s, main_line, "train", 14);
    l.second = item_at(s, main_line, "train", 15);
    l.burst = item_at(s, main_line, "train", 16);
    l.evaluate = item_at(s, main_line, "accuracy", 20);
    l.load = item_at(s, main_line, "load", 30);
    l.end = item_at(s, main_line, "summary", 40);
    for (int i = 0; i < 100; i++) item(s, l.load, i * SYN_MS, SYN_MS / 2);
    for (int i = 0; i < STEPS; i++, at += STEP_NS) {
        tensor(s, l.train, at);
        at += i == STEPS / 2 ? pause_ns : 0;
        tensor(s, l.optimizer, at + SYN_MS);
        item(s, l.item, at + 2 * SYN_MS, SYN_MS / 2);
        item(s, l.cheap, at + 3 * SYN_MS, 1000);
        if (i % 2) item(s, l.second, at + 3 * SYN_MS + SYN_MS / 2, SYN_MS / 4);
        if (i % EVERY == EVERY - 1) item(s, l.log, at + 4 * SYN_MS, SYN_MS - 1000);
        for (int j = 0; i % EVERY == EVERY - 2 && j < 20; j++) /* histograms of each parameter */
            item(s, l.burst, at + 3 * SYN_MS + SYN_MS / 2 + j * SYN_MS / 50, 1000);
        for (int j = 0; i % EPOCH == EPOCH - 1 && j < 20; j++)
            item(s, l.evaluate, at + STEP_NS + (2 + 4 * j) * SYN_MS, 2 * SYN_MS);
        at += i % EPOCH == EPOCH - 1 ? 100 * SYN_MS : 0;
    }
    for (int i = 0; i < 50; i++) item(s, l.end, at + 100 * SYN_MS + i * SYN_MS, SYN_MS / 2);
    return syn_report(s, NULL);
}

static const struct result_sync_site *at_line(const struct result_report *r, int line)
{
    for (size_t i = 0; i < r->syncs_n; i++)
        if (r->syncs[i].site.line == line) return &r->syncs[i];
    fail_msg("no wait at line %d", line);
    return NULL;
}

static void check_phases(const struct result_report *r)
{
    static const struct {
        int line;
        enum result_phase phase;
        double calls;
        unsigned every;
    } wanted[] = {{12, RESULT_PHASE_STEP, 1, 0},       {13, RESULT_PHASE_STEP, 1, 0},
                  {14, RESULT_PHASE_LOGGING, NAN, 50}, {20, RESULT_PHASE_EVALUATION, 0, 0},
                  {16, RESULT_PHASE_LOGGING, NAN, 0},  {30, RESULT_PHASE_STARTUP, 0, 0},
                  {40, RESULT_PHASE_END, 0, 0}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const struct result_sync_site *s = at_line(r, wanted[i].line);
        assert_string_equal(s->pattern, "print");
        assert_int_equal(s->pace.phase, wanted[i].phase);
        assert_int_equal(s->pace.every, wanted[i].every);
        if (!isnan(wanted[i].calls)) assert_true(fabs(s->pace.calls_per_step - wanted[i].calls) < 0.01);
    }
}

static void test_a_pause_changes_no_advice(void **state)
{
    (void)state;
    struct syn s;
    pause_ns = 1000000 * SYN_MS;
    struct result_report *r = train(&s, "Test GPU");
    pause_ns = 0;
    check_phases(r);
    assert_true(at_line(r, 12)->matters && at_line(r, 12)->advice);
    assert_false(at_line(r, 13)->matters || at_line(r, 13)->advice);
    syn_close(r);
    syn_end(&s);
}

static void test_by_time(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r = train(&s, "Test GPU");
    assert_false(r->simulated);
    check_phases(r);
    assert_true(at_line(r, 12)->matters && at_line(r, 12)->advice);     /* 0.5 of 5 ms */
    assert_false(at_line(r, 13)->matters || at_line(r, 13)->advice);    /* 1 us of 5 ms */
    assert_true(fabs(at_line(r, 12)->pace.steady_share - 0.1) < 0.002); /* without the evaluation */
    assert_true(at_line(r, 15)->matters);                               /* every 2nd step, 2.5 % of the time */
    for (int line = 14; line <= 40; line += line == 14 ? 6 : 10)        /* 14, 20, 30, 40 */
        assert_false(at_line(r, line)->matters || at_line(r, line)->advice);
    assert_int_equal(r->syncs[0].site.line, 12); /* the wait that matters comes first, although others took longer */
    syn_close(r);
    syn_end(&s);
}

static void test_by_count(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r = train(&s, "Simulated GPU");
    assert_true(r->simulated);
    check_phases(r);
    assert_true(at_line(r, 12)->matters && at_line(r, 13)->matters);
    assert_false(at_line(r, 14)->matters || at_line(r, 15)->matters || at_line(r, 20)->matters ||
                 at_line(r, 30)->matters || at_line(r, 40)->matters);
    size_t reported = 0;
    for (size_t i = 0; i < r->advice_n; i++) {
        if (strcmp(r->advice[i].topic, "sync") == 0) {
            reported++;
            assert_non_null(strstr(r->advice[i].text, "train.py:12, train.py:13: print, 1 per step: "));
        }
    }
    assert_int_equal(reported, 1);
    syn_close(r);
    syn_end(&s);
}

CASES(test_by_time, test_a_pause_changes_no_advice, test_by_count)
