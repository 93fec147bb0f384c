/* A device's memory at an OOM: the parts add up to it, whatever is known of them. */
#include "tests/cases.h"
#include "analyzer/oom/waterfall.h"
#include "tests/unit/synthetic.h"

static uint64_t seed = 12345;

static int64_t any(int64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 20) % (uint64_t)below);
}

/* Sometimes unknown, zero, or absurd. */
static int64_t some(int64_t below)
{
    int64_t how = any(10);
    return how == 0 ? RUN_UNKNOWN : how == 1 ? 0 : how == 2 ? INT64_MAX - any(9) : any(below);
}

static int64_t sum_of(const int64_t *parts)
{
    int64_t sum = 0;
    for (int i = 0; i < RESULT_HELD_N; i++) {
        if (parts[i] < 0) fail_msg("%s: %lld", result_held_word((enum result_held)i), (long long)parts[i]);
        sum += parts[i];
    }
    return sum;
}

static void test_any_facts_sum_to_the_total(void **state)
{
    (void)state;
    int attributed = 0;
    for (int i = 0; i < 200000; i++) {
        struct oom_waterfall_facts f = {.total = 1 + any(1 << 20)};
        int64_t most = f.total / 2 + 2;
        f.free = any(10) ? any(f.total + 1) : some(most);
        f.live = some(most), f.managed = some(most), f.tensors = some(most);
        f.reserved = some(most), f.pools = some(most), f.idle = some(most), f.graphs = some(most);
        f.first = some(most), f.nvml_total = some(2 * most), f.nvml_free = some(most);
        f.nvml_own = some(most), f.nvml_others = some(most);
        int64_t parts[RESULT_HELD_N];
        if (oom_waterfall_parts(&f, parts)) {
            attributed++;
            assert_int_equal(sum_of(parts), f.total);
            assert_int_equal(parts[RESULT_HELD_FREE], f.free);
        }
    }
    assert_true(attributed > 20000);
}

static void test_who_holds_what(void **state)
{
    (void)state;
    struct oom_waterfall_facts f = {.total = 1000,
                                    .free = 50,
                                    .live = 600,
                                    .tensors = 400,
                                    .reserved = 500,
                                    .pools = 30,
                                    .graphs = 20,
                                    .first = 60,
                                    .nvml_total = 1010,
                                    .nvml_free = 60,
                                    .nvml_own = 690,
                                    .nvml_others = 240};
    int64_t p[RESULT_HELD_N];
    assert_true(oom_waterfall_parts(&f, p));
    assert_int_equal(sum_of(p), 1000);
    assert_int_equal(p[RESULT_HELD_TENSORS], 400);
    assert_int_equal(p[RESULT_HELD_CACHED], 100);
    assert_int_equal(p[RESULT_HELD_POOLS], 30);
    assert_int_equal(p[RESULT_HELD_DIRECT], 70);
    assert_int_equal(p[RESULT_HELD_GRAPHS], 20);
    assert_int_equal(p[RESULT_HELD_OTHERS], 240);
    assert_int_equal(p[RESULT_HELD_UNACCOUNTED], 10); /* 950 used, 690 + 240 of it attributed, 10 the driver's */
    assert_int_equal(p[RESULT_HELD_CONTEXT], 80);     /* 330 in use in addition to ours, 250 of it attributed */
    f.nvml_own = f.nvml_others = RUN_UNKNOWN;
    assert_true(oom_waterfall_parts(&f, p));
    assert_int_equal(p[RESULT_HELD_FIRST], 60);
    assert_int_equal(p[RESULT_HELD_UNACCOUNTED], 270);
    assert_int_equal(p[RESULT_HELD_CONTEXT] + p[RESULT_HELD_OTHERS], 0);
    f.live = 2000; /* more than exists */
    assert_false(oom_waterfall_parts(&f, p));
    f.managed = 1500; /* but it need not be on the device */
    assert_true(oom_waterfall_parts(&f, p));
    assert_int_equal(sum_of(p), 1000);
    assert_int_equal(p[RESULT_HELD_UNACCOUNTED] + p[RESULT_HELD_FIRST], 0);
}

static const struct result_held_part *part_of(const struct result_oom_verdict *v, enum result_held what)
{
    for (size_t i = 0; i < v->waterfall_n; i++)
        if (v->waterfall[i].what == what) return &v->waterfall[i];
    return NULL;
}

static void nvml(struct syn *s, int64_t at, int64_t own, int64_t others, int pid)
{
    syn_sql(s,
            "INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source,own_bytes,"
            "other_bytes,other_pid) VALUES(1,0,%lld,%lld,%lld,2,%lld,%lld,%d)",
            (long long)at, (long long)(16 * SYN_GIB - own - others), (long long)(16 * SYN_GIB), (long long)own,
            (long long)others, pid);
}

/* Rank 1 fails on the device that rank 0 uses as well. */
static void test_a_rank_of_the_same_run_is_named(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 700, SYN_S, 1);
    syn_sql(&s, "UPDATE process SET rank=0");
    syn_device(&s, 0, 16 * SYN_GIB, 15 * SYN_GIB);
    syn_alloc(&s, (struct syn_alloc){.address = 1, .bytes = 6 * SYN_GIB, .at = 5, .life = SYN_LIVE});
    syn_alloc(&s, (struct syn_alloc){.address = 2, .bytes = SYN_GIB, .at = 300 * SYN_MS, .life = SYN_LIVE});
    syn_done(&s);
    syn_open(&s, "run.701.db");
    syn_process(&s, "r", 701, SYN_S, 1);
    syn_sql(&s, "UPDATE process SET rank=1, start_real_ns=start_real_ns+%lld", (long long)(100 * SYN_MS));
    syn_device(&s, 0, 16 * SYN_GIB, 9 * SYN_GIB);
    int64_t line = syn_python(&s, 0, "load", "/home/u/train.py", 12);
    syn_alloc(&s,
              (struct syn_alloc){.address = 1, .bytes = 8 * SYN_GIB, .at = SYN_MS, .life = SYN_LIVE, .stack = line});
    syn_oom(&s, (struct syn_oom){.requested = 2 * SYN_GIB,
                                 .free = 640 * SYN_MIB,
                                 .total = 16 * SYN_GIB,
                                 .fatal = 1,
                                 .at = 100 * SYN_MS}); /* rank 0's 200 ms: before its second */
    nvml(&s, 120 * SYN_MS, 8 * SYN_GIB + 256 * SYN_MIB, 7 * SYN_GIB + 128 * SYN_MIB, 700);
    syn_done(&s);
    snprintf(s.path, sizeof s.path, "%s/run.db", s.folder);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_oom_verdict *v = &r->ooms[0];
    const struct result_held_part *others = part_of(v, RESULT_HELD_OTHERS);
    assert_non_null(others);
    assert_int_equal(others->bytes, 7 * SYN_GIB + 128 * SYN_MIB);
    assert_int_equal(others->lines_n, 1);
    assert_int_equal(others->lines[0].bytes, 6 * SYN_GIB);
    assert_int_equal(others->lines[0].pid, 700);
    assert_non_null(strstr(others->lines[0].text, "rank 0"));
    assert_int_equal(part_of(v, RESULT_HELD_CONTEXT)->bytes, 256 * SYN_MIB);
    assert_int_equal(part_of(v, RESULT_HELD_DIRECT)->bytes, 8 * SYN_GIB);
    assert_int_equal(part_of(v, RESULT_HELD_DIRECT)->lines[0].site.line, 12);
    assert_int_equal(part_of(v, RESULT_HELD_FREE)->bytes, 640 * SYN_MIB);
    syn_close(r);
    syn_end(&s);
}

CASES(test_any_facts_sum_to_the_total, test_who_holds_what, test_a_rank_of_the_same_run_is_named)
