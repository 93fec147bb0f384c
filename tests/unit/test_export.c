/* A device's memory as PyTorch's allocator would have traced it, from rows made by hand. */
#include "tests/cases.h"
#include "analyzer/export/export_trace.h"
#include "tests/unit/synthetic.h"

#define BASE 0x7f0000000000LL

struct seen {
    struct export_trace_event events[64];
    size_t n;
};

static void see(void *self, const struct export_trace_event *e)
{
    struct seen *s = self;
    assert_true(s->n < 64);
    s->events[s->n++] = *e;
}

/* "segment_alloc 0+2097152, alloc 0+512, …": addresses from BASE. */
static const char *events_text(const struct seen *s)
{
    static char out[4096];
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < s->n; i++) {
        at += (size_t)snprintf(out + at, sizeof out - at, "%s%s %lld+%lld", i ? ", " : "",
                               export_trace_word(s->events[i].action),
                               (long long)(s->events[i].address ? (int64_t)s->events[i].address - BASE : -1) / 512,
                               (long long)s->events[i].bytes / 512);
    }
    return out;
}

static void trace(struct syn *s, bool tensors, int64_t until_ms, struct seen *seen, struct export_trace_state *state)
{
    char error[256] = "";
    const char *path = s->path;
    struct run_options options = {.memory_map = true};
    struct export_trace_request wish = {.tensors = tensors, .until_ns = until_ms * SYN_MS, .each = see, .self = seen};
    *seen = (struct seen){0};
    syn_done(s);
    struct run *run = run_open(&path, 1, &options, error, sizeof error);
    assert_non_null(run);
    assert_true(export_trace_device(run, &wish, state, error, sizeof error));
    run_close(run);
}

/* Blocks of 512 bytes. */
static int64_t row(struct syn *s, int layer, int space, int at, int end, int64_t address, int64_t blocks)
{
    return syn_alloc(s, (struct syn_alloc){.layer = layer,
                                           .space = space,
                                           .address = BASE + 512 * address,
                                           .bytes = 512 * blocks,
                                           .at = at * SYN_MS,
                                           .life = end < 0 ? SYN_LIVE : (end - at) * SYN_MS});
}

#define SEGMENT(at, end, address, blocks) row(&s, GS_LAYER_DEVICE, GS_SPACE_DEVICE, at, end, address, blocks)
#define TENSOR(at, end, address, blocks) row(&s, GS_LAYER_TENSOR, GS_SPACE_DEVICE, at, end, address, blocks)
#define MIB2 4096 /* blocks in 2 MiB */

static void begin(struct syn *s)
{
    syn_start(s);
    syn_process(s, "r", 1, SYN_S, 1);
}

static void test_segments_are_those_with_blocks(void **state)
{
    (void)state;
    struct syn s;
    struct seen seen;
    struct export_trace_state now;
    begin(&s);
    SEGMENT(10, 90, 0, MIB2);
    TENSOR(11, 50, 0, 2);
    SEGMENT(12, -1, 10 * MIB2, MIB2); /* not PyTorch's */
    TENSOR(20, -1, 8, 4);
    SEGMENT(30, 40, 20 * MIB2, 3); /* too small to be one */
    trace(&s, true, 60, &seen, &now);
    assert_string_equal(events_text(&seen),
                        "segment_alloc 0+4096, alloc 0+2, alloc 8+4, free_requested 0+2, free_completed 0+2");
    assert_int_equal(now.segments_n, 1);
    assert_int_equal(now.segments[0].n, 1);
    assert_int_equal(now.segments[0].block_bytes, 4 * 512);
    assert_true(now.segments[0].small && !now.segments[0].mapped);
    export_trace_state_free(&now);
    syn_end(&s);
}

static void test_it_ends_at_the_moment(void **state)
{
    (void)state;
    struct syn s;
    struct seen seen;
    struct export_trace_state now;
    begin(&s);
    SEGMENT(10, 90, 0, MIB2);
    TENSOR(20, 30, 0, 2);
    TENSOR(30, 40, 4, 2);
    trace(&s, true, 30, &seen, &now); /* blocks freed at that moment no longer exist, blocks allocated then do */
    assert_string_equal(events_text(&seen),
                        "segment_alloc 0+4096, alloc 0+2, free_requested 0+2, free_completed 0+2, alloc 4+2");
    assert_int_equal(now.blocks_n, 1);
    assert_int_equal(now.blocks[0].address, BASE + 4 * 512);
    export_trace_state_free(&now);
    trace(&s, true, 5, &seen, &now);
    assert_int_equal(seen.n, 0);
    assert_int_equal(now.segments_n, 0);
    export_trace_state_free(&now);
    trace(&s, true, 1000, &seen, &now);
    assert_non_null(strstr(events_text(&seen), "free_completed 4+2, segment_free 0+4096"));
    assert_int_equal(now.segments_n + now.blocks_n, 0);
    export_trace_state_free(&now);
    syn_end(&s);
}

static void map(struct syn *s, int64_t address, int64_t blocks, int at, int end)
{
    syn_sql(s,
            "INSERT INTO mapping(process_id,allocation_id,device,address,bytes,offset,map_ns,unmap_ns) "
            "VALUES(1,1,0,%lld,%lld,0,%lld,nullif(%lld,-1))",
            (long long)(BASE + 512 * address), (long long)(512 * blocks), (long long)(at * SYN_MS),
            (long long)(end < 0 ? -1 : end * SYN_MS));
}

/* Pieces mapped for one block are one event; adjacent pieces are one segment. */
static void test_expandable_segments(void **state)
{
    (void)state;
    struct syn s;
    struct seen seen;
    struct export_trace_state now;
    begin(&s);
    map(&s, 0, MIB2, 10, 80);
    map(&s, MIB2, MIB2, 10, -1);
    TENSOR(11, 70, 0, 2 * MIB2 - 2);
    map(&s, 2 * MIB2, MIB2, 20, -1);
    TENSOR(21, -1, 2 * MIB2 - 2, 10);
    map(&s, 9 * MIB2, MIB2, 30, -1); /* not PyTorch's */
    trace(&s, true, 60, &seen, &now);
    assert_string_equal(events_text(&seen), "segment_map 0+8192, alloc 0+8190, segment_map 8192+4096, alloc 8190+10");
    assert_int_equal(now.segments_n, 1);
    assert_int_equal(now.segments[0].bytes, 3 * MIB2 * 512);
    assert_int_equal(now.segments[0].n, 2);
    assert_true(now.segments[0].mapped);
    export_trace_state_free(&now);
    trace(&s, true, 90, &seen, &now);
    assert_non_null(strstr(events_text(&seen), "free_completed 0+8190, segment_unmap 0+4096"));
    assert_int_equal(now.segments[0].address, BASE + 512 * MIB2);
    export_trace_state_free(&now);
    syn_end(&s);
}

static void test_a_free_that_waits(void **state)
{
    (void)state;
    struct syn s;
    struct seen seen;
    struct export_trace_state now;
    begin(&s);
    int64_t caller = syn_native(&s, 0, "/lib/libc10_cuda.so", 100);
    int64_t freed = syn_native(&s, caller, "/lib/libc10_cuda.so", 200);
    int64_t event = syn_native(&s, syn_native(&s, caller, "/lib/libc10_cuda.so", 210), "/lib/libc10_cuda.so", 300);
    int64_t other = syn_native(&s, 0, "/lib/libother.so", 100);
    SEGMENT(10, -1, 0, MIB2);
    int64_t waits = TENSOR(20, 30, 0, 2), wrong = TENSOR(21, 31, 4, 2);
    for (int i = 0; i < 2; i++) { /* two events, the later one counts */
        syn_sql(&s,
                "INSERT INTO pending_free(process_id,allocation_id,event,free_ns,done_ns,event_stack_id,free_stack_id) "
                "VALUES(1,%lld,%d,%lld,%lld,%lld,%lld)",
                (long long)waits, i, 30 * SYN_MS - 900, (50 + 10LL * i) * SYN_MS, (long long)event, (long long)freed);
    }
    syn_sql(&s,
            "INSERT INTO pending_free(process_id,allocation_id,event,free_ns,done_ns,event_stack_id,free_stack_id) "
            "VALUES(1,%lld,7,%lld,NULL,%lld,%lld)",
            (long long)wrong, 31 * SYN_MS, (long long)other, (long long)freed);
    TENSOR(70, -1, 0, 2);
    trace(&s, true, 55, &seen, &now);
    assert_string_equal(events_text(&seen),
                        "segment_alloc 0+4096, alloc 0+2, alloc 4+2, free_requested 0+2, free_requested 4+2, "
                        "free_completed 4+2");
    assert_int_equal(now.blocks_n, 1);
    assert_true(now.blocks[0].pending);
    assert_int_equal(now.segments[0].block_bytes, 0);
    assert_int_equal(now.segments[0].pending_bytes, 2 * 512);
    export_trace_state_free(&now);
    trace(&s, true, 80, &seen, &now);
    assert_non_null(strstr(events_text(&seen), "free_completed 4+2, free_completed 0+2, alloc 0+2"));
    assert_int_equal(seen.events[6].time_ns, 60 * SYN_MS);
    assert_false(now.blocks[0].pending);
    export_trace_state_free(&now);
    syn_end(&s);
}

static void test_without_pytorch(void **state)
{
    (void)state;
    struct syn s;
    struct seen seen;
    struct export_trace_state now;
    begin(&s);
    SEGMENT(10, 20, 0, 3);
    row(&s, GS_LAYER_DEVICE, GS_SPACE_PINNED, 11, -1, 100, 3);
    row(&s, GS_LAYER_DEVICE, GS_SPACE_MANAGED, 12, -1, 200, 5);
    row(&s, GS_LAYER_DEVICE, GS_SPACE_VMM, 13, -1, 300, 7); /* its address is a handle */
    map(&s, 400, 7, 14, -1);
    trace(&s, false, 60, &seen, &now);
    assert_string_equal(events_text(&seen),
                        "segment_alloc 0+3, alloc 0+3, segment_alloc 200+5, alloc 200+5, segment_alloc 400+7, "
                        "alloc 400+7, free_requested 0+3, free_completed 0+3, segment_free 0+3");
    assert_int_equal(now.segments_n, 2);
    assert_int_equal(now.segments[1].block_bytes, 7 * 512);
    export_trace_state_free(&now);
    syn_end(&s);
}

/* Blocks without a segment, across its end, across each other: the sizes still add up. */
static void test_impossible_input(void **state)
{
    (void)state;
    struct syn s;
    struct seen seen;
    struct export_trace_state now;
    begin(&s);
    SEGMENT(10, -1, 0, MIB2);
    SEGMENT(10, -1, 100, MIB2);
    TENSOR(20, -1, 0, 50);
    TENSOR(21, -1, 20, 50);
    TENSOR(22, -1, MIB2 - 2, 2 * MIB2);
    TENSOR(23, -1, 100 * MIB2, 8);
    TENSOR(24, -1, 5, 0);
    trace(&s, true, 60, &seen, &now);
    int64_t most = 0;
    for (size_t i = 0; i < now.segments_n; i++) {
        const struct export_trace_segment *g = &now.segments[i];
        uint64_t from = g->address;
        int64_t sum = 0;
        for (size_t k = g->first; k < g->first + g->n; k++) {
            assert_true(now.blocks[k].address >= from);
            from = now.blocks[k].address + (uint64_t)now.blocks[k].bytes;
            sum += now.blocks[k].bytes;
        }
        assert_true(from <= g->address + (uint64_t)g->bytes);
        assert_int_equal(sum, g->block_bytes);
        most = sum > most ? sum : most;
    }
    assert_true(now.refused > 0 && most > 0);
    export_trace_state_free(&now);
    syn_end(&s);
}

CASES(test_segments_are_those_with_blocks, test_it_ends_at_the_moment, test_expandable_segments, test_a_free_that_waits,
      test_without_pytorch, test_impossible_input)
