/* The use of a device's memory at its peak: the parts add up to its size, and parts that were not measured at that
 * moment state so. */
#include "tests/cases.h"
#include "tests/unit/synthetic.h"

static void start(struct syn *s, int64_t first_free)
{
    syn_start(s);
    syn_process(s, "r", 1, 10 * SYN_S, 1);
    syn_device(s, 0, 2 * SYN_GIB, first_free);
}

static void block(struct syn *s, int layer, int64_t mib, int64_t at, int64_t life)
{
    syn_alloc(s, (struct syn_alloc){.layer = layer, .bytes = mib * SYN_MIB, .at = at, .life = life, .address = at});
}

static void sample(struct syn *s, int64_t at, int64_t free_mib)
{
    syn_sql(s,
            "INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source) "
            "VALUES(1,0,%lld,%lld,%lld,0)",
            (long long)at, (long long)(free_mib * SYN_MIB), 2 * SYN_GIB);
}

static void assert_sums(const struct result_device_memory *m)
{
    int64_t own =
        m->tensor_bytes == RUN_UNKNOWN ? m->direct_bytes : m->tensor_bytes + m->cached_bytes + m->direct_bytes;
    assert_int_equal(own, m->live_bytes);
    assert_int_equal(own + m->outside_bytes + m->free_bytes, m->total_bytes);
}

static void test_the_parts_sum(void **state)
{
    (void)state;
    struct syn s;
    start(&s, 1536 * SYN_MIB);
    block(&s, GS_LAYER_DEVICE, 1000, 1 * SYN_S, 4 * SYN_S);
    block(&s, GS_LAYER_DEVICE, 400, 3 * SYN_S, 4 * SYN_S);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_device_memory *m = &r->memory[0];
    assert_int_equal(r->memory_n, 1);
    assert_sums(m);
    assert_int_equal(m->live_bytes, 1400 * SYN_MIB);
    assert_int_equal(m->outside_bytes, 512 * SYN_MIB);
    assert_int_equal(m->free_bytes, 136 * SYN_MIB);
    assert_true(m->about); /* known only from the first sample */
    syn_close(r);
    syn_end(&s);
}

/* A device row without a time: taken before the first allocation. */
static void test_seen_at_an_unknown_time(void **state)
{
    (void)state;
    struct syn s;
    start(&s, 1536 * SYN_MIB);
    syn_sql(&s, "UPDATE device SET seen_ns = NULL");
    block(&s, GS_LAYER_DEVICE, 1000, 1 * SYN_S, 4 * SYN_S);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->memory_n, 1);
    assert_sums(&r->memory[0]);
    assert_int_equal(r->memory[0].outside_bytes, 512 * SYN_MIB);
    syn_close(r);
    syn_end(&s);
}

static void test_sampled_at_the_peak(void **state)
{
    (void)state;
    struct syn s;
    start(&s, 1536 * SYN_MIB);
    block(&s, GS_LAYER_DEVICE, 1000, 1 * SYN_S, 4 * SYN_S);
    sample(&s, 2 * SYN_S, 700);
    block(&s, GS_LAYER_DEVICE, 1, 3 * SYN_S, SYN_LIVE);
    sample(&s, 4 * SYN_S, 900); /* freed by another process */
    block(&s, GS_LAYER_DEVICE, 1, 9 * SYN_S, SYN_LIVE);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_device_memory *m = &r->memory[0];
    assert_sums(m);
    assert_false(m->about);
    assert_int_equal(m->outside_bytes, (2048 - 900 - 1001) * SYN_MIB);
    assert_int_equal(m->free_bytes, 900 * SYN_MIB);
    assert_int_equal(m->least_free_bytes, 700 * SYN_MIB);
    syn_close(r);
    syn_end(&s);
}

/* Of two samples, the one nearer to the peak; and other processes cannot have used the memory that this process used.
 */
static void test_the_nearest_look(void **state)
{
    (void)state;
    static const struct {
        int64_t before_s, after_s, outside;
    } looks[] = {{2, 9, 100}, {1, 6, 300}, {4, 6, 100}};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        struct syn s;
        start(&s, 2048 * SYN_MIB);
        sample(&s, looks[i].before_s * SYN_S, 1948);
        block(&s, GS_LAYER_DEVICE, 1000, 5 * SYN_S, SYN_S / 2);
        sample(&s, looks[i].after_s * SYN_S, 1748);
        struct result_report *r = syn_report(&s, NULL);
        assert_int_equal(r->memory[0].outside_bytes, looks[i].outside * SYN_MIB);
        assert_true(r->memory[0].about);
        assert_sums(&r->memory[0]);
        syn_close(r);
        syn_end(&s);
    }
    struct syn s;
    start(&s, 512 * SYN_MIB); /* others use 1.5 GiB at first and free it before this process allocates */
    block(&s, GS_LAYER_DEVICE, 1000, 5 * SYN_S, SYN_LIVE);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->memory[0].outside_bytes, 1048 * SYN_MIB);
    assert_int_equal(r->memory[0].free_bytes, 0);
    assert_sums(&r->memory[0]);
    syn_close(r);
    syn_end(&s);
}

/* PyTorch reports a block just after the segment that was allocated for it. */
static void test_tensors_cache_and_the_rest(void **state)
{
    (void)state;
    struct syn s;
    start(&s, 1536 * SYN_MIB);
    block(&s, GS_LAYER_DEVICE, 100, 1 * SYN_S, SYN_LIVE); /* such as NCCL's */
    block(&s, GS_LAYER_DEVICE, 600, 2 * SYN_S, SYN_LIVE);
    syn_reserved(&s, 2 * SYN_S + 1, 600 * SYN_MIB);
    block(&s, GS_LAYER_TENSOR, 450, 2 * SYN_S + 2, SYN_S);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_device_memory *m = &r->memory[0];
    assert_sums(m);
    assert_int_equal(m->tensor_bytes, 450 * SYN_MIB);
    assert_int_equal(m->cached_bytes, 150 * SYN_MIB);
    assert_int_equal(m->direct_bytes, 100 * SYN_MIB);
    assert_int_equal(m->outside_bytes, 512 * SYN_MIB);
    syn_close(r);
    syn_end(&s);
}

/* The number of events in the recorder's own line at exit, including memsets and samples. */
static void test_events_are_the_recorders(void **state)
{
    (void)state;
    struct syn s;
    start(&s, 1536 * SYN_MIB);
    block(&s, GS_LAYER_DEVICE, 1, 1 * SYN_S, SYN_S);
    syn_sql(&s, "INSERT INTO meta VALUES('events', 77)");
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->events, 77);
    syn_close(r);
    syn_end(&s);
    start(&s, 1536 * SYN_MIB); /* never written: only the rows show it */
    block(&s, GS_LAYER_DEVICE, 1, 1 * SYN_S, SYN_S);
    r = syn_report(&s, NULL);
    assert_int_equal(r->events, 2);
    syn_close(r);
    syn_end(&s);
}

CASES(test_the_parts_sum, test_seen_at_an_unknown_time, test_sampled_at_the_peak, test_the_nearest_look,
      test_tensors_cache_and_the_rest, test_events_are_the_recorders)
