/* Attribution of the peak: exact, compared with a brute-force calculation, and the timeline. */
#include "tests/cases.h"
#include "tests/unit/synthetic.h"

enum { STACKS = 7, LIVES = 160, ROUNDS = 60 };

struct life {
    int64_t at, life, bytes, stack;
};

struct oracle {
    int64_t bytes, time, by_stack[STACKS + 1], count[STACKS + 1], total_count;
};

/* The live bytes just after each allocation, computed from all others: the last maximum is the peak. */
static struct oracle oracle_of(const struct life *lives, size_t n)
{
    struct oracle best = {.bytes = -1};
    for (size_t i = 0; i < n; i++) {
        struct oracle now = {.time = lives[i].at};
        for (size_t j = 0; j <= i; j++) {
            bool live = lives[j].life == SYN_LIVE || lives[j].at + lives[j].life > lives[i].at || j == i;
            if (live) {
                now.bytes += lives[j].bytes;
                now.by_stack[lives[j].stack] += lives[j].bytes;
                now.count[lives[j].stack]++;
                now.total_count++;
            }
        }
        if (now.bytes >= best.bytes) best = now;
    }
    return best;
}

static void check_round(unsigned seed)
{
    struct syn s;
    struct life lives[LIVES];
    int64_t stacks[STACKS + 1] = {0};
    int64_t now = 0;
    srand(seed);
    syn_start(&s);
    syn_process(&s, "r", 1, 0, 1);
    for (int i = 1; i <= STACKS; i++) stacks[i] = syn_python(&s, 0, "f", "/home/u/train.py", i);
    size_t n = 1 + (size_t)rand() % LIVES;
    for (size_t i = 0; i < n; i++) {
        now += rand() % 4; /* equal times occur */
        lives[i] = (struct life){.at = now,
                                 .life = rand() % 5 == 0 ? SYN_LIVE : 1 + rand() % 40,
                                 .bytes = 1 + rand() % 8, /* ties happen */
                                 .stack = rand() % (STACKS + 1)};
        syn_alloc(&s, (struct syn_alloc){.bytes = lives[i].bytes,
                                         .at = lives[i].at,
                                         .life = lives[i].life,
                                         .address = 4096 + (int64_t)i,
                                         .stack = stacks[lives[i].stack]});
    }
    struct oracle want = oracle_of(lives, n);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_DEVICE);
    assert_int_equal(peak->bytes, want.bytes);
    assert_int_equal(peak->count, want.total_count);
    assert_int_equal((int64_t)(peak->time_s * 1e9 + 0.5), want.time);
    int64_t sum = 0;
    for (size_t i = 0; i < peak->by_stack_n; i++) {
        const struct result_by_stack *b = &peak->by_stack[i];
        int line = b->stack.number != RUN_NONE ? run_stack_frame(r->run, b->stack.number)->line : 0;
        assert_int_equal(b->bytes, want.by_stack[line]);
        assert_int_equal(b->count, want.count[line]);
        assert_true(i == 0 || peak->by_stack[i - 1].bytes >= b->bytes);
        sum += b->bytes;
    }
    assert_int_equal(sum, want.bytes);
    int64_t highest = 0;
    for (size_t i = 0; i < r->timelines[0].n; i++) {
        assert_true(i == 0 || r->timelines[0].points[i].time_s >= r->timelines[0].points[i - 1].time_s);
        highest = r->timelines[0].points[i].bytes > highest ? r->timelines[0].points[i].bytes : highest;
    }
    assert_int_equal(highest, want.bytes);
    syn_close(r);
    syn_end(&s);
}

static void test_exact(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= ROUNDS; seed++) check_round(seed);
}

static void test_layers_do_not_mix(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 100, 1);
    int64_t f = syn_python(&s, 0, "f", "/home/u/a.py", 1);
    syn_alloc(&s, (struct syn_alloc){.bytes = 100, .at = 1, .life = 5, .stack = f});
    syn_alloc(&s, (struct syn_alloc){.bytes = 30, .at = 2, .life = 5, .stack = f, .layer = GS_LAYER_TENSOR});
    syn_alloc(&s, (struct syn_alloc){.bytes = 7, .at = 3, .life = 5, .stack = f, .space = GS_SPACE_PINNED});
    syn_alloc(&s, (struct syn_alloc){.bytes = 9, .at = 3, .life = 5, .stack = f, .layer = GS_LAYER_HOST, .device = -1});
    syn_alloc(&s, (struct syn_alloc){.bytes = 11, .at = 4, .life = 5, .stack = f, .space = GS_SPACE_MANAGED});
    syn_alloc(&s, (struct syn_alloc){.bytes = 13, .at = 4, .life = 5, .stack = f, .device = 3});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks_n, 5);
    assert_int_equal(r->peaks[0].bytes, 111); /* device 0, device */
    assert_int_equal(r->peaks[1].bytes, 30);
    assert_int_equal(r->peaks[2].bytes, 13);
    assert_int_equal(r->peaks[2].device, 3);
    assert_int_equal(syn_peak(r, RUN_SERIES_PINNED)->bytes, 7);
    assert_int_equal(syn_peak(r, RUN_SERIES_PINNED)->device, -1);
    assert_int_equal(syn_peak(r, RUN_SERIES_HOST)->bytes, 9);
    syn_close(r);
    struct run_options one = {.by_device = true, .device = 3};
    r = syn_report(&s, &one);
    assert_int_equal(syn_peak(r, RUN_SERIES_DEVICE)->bytes, 13);
    syn_close(r);
    syn_end(&s);
}

static void test_a_free_comes_before_an_allocation_of_the_same_time(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 100, 1);
    syn_alloc(&s, (struct syn_alloc){.bytes = 10, .at = 1, .life = 4, .address = 64});
    syn_alloc(&s, (struct syn_alloc){.bytes = 10, .at = 5, .life = 4, .address = 64});
    syn_alloc(&s, (struct syn_alloc){.bytes = 6, .at = 7, .life = 0});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks[0].bytes, 16);
    assert_int_equal(r->peaks[0].count, 2);
    assert_int_equal(r->peaks[0].end_bytes, 0);
    assert_int_equal(r->events, 6);
    syn_close(r);
    syn_end(&s);
}

static void test_the_timeline_is_bounded(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 0, 1);
    for (int i = 0; i < 20000; i++) {
        syn_alloc(
            &s, (struct syn_alloc){.bytes = i == 12345 ? 1000 : 1 + i % 7, .at = (int64_t)i * 1000003, .life = 500000});
    }
    struct result_report *r = syn_report(&s, NULL);
    const struct result_timeline *t = &r->timelines[0];
    bool seen = false;
    assert_in_range(t->n, 500, 2000);
    for (size_t i = 0; i < t->n; i++)
        seen = seen || (t->points[i].bytes == 1000 && (int64_t)(t->points[i].time_s * 1e9 + 0.5) == 12345LL * 1000003);
    assert_true(seen);
    assert_int_equal(t->points[t->n - 1].bytes, 0);
    syn_close(r);
    syn_end(&s);
}

static void test_top_shortens_and_states_so(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 100, 1);
    for (int i = 1; i <= 60; i++) {
        int64_t f = syn_python(&s, 0, "f", "/home/u/a.py", i);
        syn_alloc(&s, (struct syn_alloc){.bytes = i, .at = i, .life = SYN_LIVE, .stack = f});
    }
    struct run_options defaults = {0}, three = {.top = 3};
    struct result_report *r = syn_report(&s, &defaults);
    assert_int_equal(r->peaks[0].by_stack_n, 50);
    assert_int_equal(r->peaks[0].by_stack_total, 60);
    syn_close(r);
    r = syn_report(&s, &three);
    assert_int_equal(r->peaks[0].by_stack_n, 3);
    assert_int_equal(r->peaks[0].by_stack[0].bytes, 60);
    assert_int_equal(r->peaks[0].by_site_n, 3);
    assert_int_equal(r->leaks_n, 3);
    assert_int_equal(r->leaks_total, 60);
    syn_close(r);
    syn_end(&s);
}

CASES(test_exact, test_layers_do_not_mix, test_a_free_comes_before_an_allocation_of_the_same_time,
      test_the_timeline_is_bounded, test_top_shortens_and_states_so)
