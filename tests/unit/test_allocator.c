/* PyTorch's segments and blocks together: pools, streams, pending frees, flushes and retries. */
#include "tests/cases.h"
#include <math.h>
#include "analyzer/allocator/allocator.h"
#include "tests/unit/synthetic.h"

#define C10 "/site-packages/torch/lib/libc10_cuda.so"
#define BASE 0x700000000000

struct world {
    struct syn s;
    int64_t train, segment, flush, block; /* stacks */
};

static void begin(struct world *w)
{
    syn_start(&w->s);
    syn_process(&w->s, "run", 1, SYN_S, 1);
    syn_device(&w->s, 0, SYN_GIB, SYN_GIB);
    syn_sql(&w->s, "INSERT INTO meta VALUES('env','')");
    w->train = syn_python(&w->s, 0, "<module>", "/home/u/train.py", 7);
    w->segment = syn_native(&w->s, w->train, C10, 16);
    w->block = syn_native(&w->s, w->train, C10, 32);
    int64_t flush = syn_python(&w->s, w->train, "empty_cache", "/site-packages/torch/cuda/memory.py", 9);
    w->flush = syn_native(&w->s, flush, C10, 48);
}

static int64_t row(struct world *w, int layer, int space, int64_t address, int64_t bytes, int64_t at, int64_t life,
                   int64_t stream, int64_t stack)
{
    int64_t id = syn_alloc(&w->s, (struct syn_alloc){.layer = layer,
                                                     .space = space,
                                                     .address = address,
                                                     .bytes = bytes,
                                                     .at = at,
                                                     .life = life,
                                                     .stack = stack});
    syn_sql(&w->s, "UPDATE allocation_row SET stream=%lld WHERE id=%lld", (long long)stream, (long long)id);
    return id;
}

static int64_t segment(struct world *w, int64_t address, int64_t bytes, int64_t at, int64_t life)
{
    return row(w, GS_LAYER_DEVICE, GS_SPACE_DEVICE, address, bytes, at, life, 0, w->segment);
}

static int64_t block(struct world *w, int64_t address, int64_t bytes, int64_t at, int64_t life, int64_t stream)
{
    return row(w, GS_LAYER_TENSOR, GS_SPACE_DEVICE, address, bytes, at, life, stream, w->block);
}

static const struct allocator_state *state(const struct result_report *r, enum allocator_moment_kind moment)
{
    for (size_t i = 0; i < r->allocator_n; i++)
        if (r->allocator[i].moment == moment) return &r->allocator[i];
    fail_msg("no %s", allocator_moment_word(moment));
    return NULL;
}

static const struct allocator_pool_share *pool(const struct allocator_state *s, enum allocator_pool_kind kind)
{
    for (size_t i = 0; i < s->by_pool_n; i++)
        if (s->by_pool[i].pool == kind) return &s->by_pool[i];
    fail_msg("no pool %s", allocator_pool_word(kind));
    return NULL;
}

static const struct allocator_pool_share *stream(const struct allocator_state *s, uint64_t handle)
{
    for (size_t i = 0; i < s->by_stream_n; i++)
        if (s->by_stream[i].stream_known && s->by_stream[i].stream == handle) return &s->by_stream[i];
    fail_msg("no stream %llx", (unsigned long long)handle);
    return NULL;
}

static void pools_and_streams(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 42 * SYN_MIB);
    segment(&w, BASE, 20 * SYN_MIB, 10, SYN_LIVE);
    block(&w, BASE, 8 * SYN_MIB, 11, SYN_LIVE, 0);
    block(&w, BASE + 10 * SYN_MIB, 3 * SYN_MIB, 12, SYN_LIVE, 0);
    segment(&w, BASE + (1 << 30), 2 * SYN_MIB, 20, SYN_LIVE);
    block(&w, BASE + (1 << 30), 512, 21, 5, 0xaa); /* shows which pool the segment belongs to, and is freed */
    segment(&w, BASE + (2LL << 30), 20 * SYN_MIB, 30, SYN_LIVE);
    row(&w, GS_LAYER_TENSOR, GS_SPACE_POOL, BASE + (2LL << 30), 4 * SYN_MIB, 31, SYN_LIVE, 0xaa, w.block);
    row(&w, GS_LAYER_DEVICE, GS_SPACE_DEVICE, BASE + (3LL << 30), 64 * SYN_MIB, 40, SYN_LIVE, 0,
        syn_native(&w.s, w.train, "/lib/libnccl.so.2", 4)); /* another library's */
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_int_equal(s->reserved, 42 * SYN_MIB);
    assert_int_equal(s->allocated, 15 * SYN_MIB);
    assert_int_equal(s->active, 15 * SYN_MIB);
    assert_int_equal(s->cached, 27 * SYN_MIB);
    assert_int_equal(s->inactive_split, 25 * SYN_MIB); /* an empty segment is not split */
    assert_int_equal(s->largest_free, 16 * SYN_MIB);
    assert_int_equal(s->segments, 3);
    assert_int_equal(s->strays, 0);
    assert_int_equal(s->expandable, RUN_NO);
    assert_int_equal(pool(s, ALLOCATOR_POOL_LARGE)->reserved, 20 * SYN_MIB);
    assert_int_equal(pool(s, ALLOCATOR_POOL_SMALL)->reserved, 2 * SYN_MIB);
    assert_int_equal(pool(s, ALLOCATOR_POOL_SMALL)->allocated, 0);
    assert_int_equal(pool(s, ALLOCATOR_POOL_PRIVATE_LARGE)->allocated, 4 * SYN_MIB);
    assert_int_equal(stream(s, 0)->reserved, 20 * SYN_MIB);
    assert_int_equal(stream(s, 0xaa)->reserved, 22 * SYN_MIB);
    assert_int_equal(stream(s, 0xaa)->segments, 2);
    syn_close(r);
    syn_end(&w.s);
}

/* A hole that continues from one piece of an expandable segment into the next, and a block across both. */
static void expandable(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 60 * SYN_MIB);
    for (int i = 0; i < 3; i++) {
        int64_t id = row(&w, GS_LAYER_DEVICE, GS_SPACE_VMM, 100 + i, 20 * SYN_MIB, 10 + i, SYN_LIVE, 0, w.segment);
        syn_sql(&w.s,
                "INSERT INTO mapping(process_id,allocation_id,device,address,bytes,offset,map_ns,"
                "stack_id) VALUES(1,%lld,0,%lld,%lld,0,%d,%lld)",
                (long long)id, (long long)(BASE + i * 20 * SYN_MIB), (long long)(20 * SYN_MIB), 10 + i,
                (long long)w.segment);
    }
    block(&w, BASE, 50 * SYN_MIB, 20, 10, 0xbb); /* extends over all pieces, and is freed */
    block(&w, BASE, 4 * SYN_MIB, 40, SYN_LIVE, 0xbb);
    block(&w, BASE + 35 * SYN_MIB, 10 * SYN_MIB, 41, SYN_LIVE, 0xbb);
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_int_equal(s->expandable, RUN_YES);
    assert_int_equal(s->segments, 1);
    assert_int_equal(s->reserved, 60 * SYN_MIB);
    assert_int_equal(s->active, 14 * SYN_MIB);
    assert_int_equal(s->largest_free, 31 * SYN_MIB);
    assert_int_equal(s->inactive_split, 0); /* its pages can be unmapped one by one */
    assert_int_equal(stream(s, 0xbb)->reserved, 60 * SYN_MIB);
    assert_int_equal(pool(s, ALLOCATOR_POOL_LARGE)->active, 14 * SYN_MIB);
    syn_close(r);
    syn_end(&w.s);
}

static void pending(struct world *w, int64_t allocation, int64_t at, int64_t done, int64_t event, int64_t event_stack,
                    int64_t free_stack)
{
    syn_sql(&w->s,
            "INSERT INTO pending_free(process_id,allocation_id,event,free_ns,done_ns,event_stack_id,"
            "free_stack_id) VALUES(1,%lld,%lld,%lld,nullif(%lld,0),%lld,%lld)",
            (long long)allocation, (long long)event, (long long)at, (long long)done, (long long)event_stack,
            (long long)free_stack);
}

static void pending_frees(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 20 * SYN_MIB);
    int64_t caller = syn_native(&w.s, w.train, C10, 100), reports = syn_native(&w.s, caller, C10, 101);
    int64_t inserts = syn_native(&w.s, caller, C10, 102), event = syn_native(&w.s, inserts, C10, 103);
    int64_t other = syn_native(&w.s, w.train, C10, 104); /* an event of the program itself */
    segment(&w, BASE, 20 * SYN_MIB, 10, SYN_LIVE);
    int64_t waits = block(&w, BASE, 2 * SYN_MIB, 11, 10, 0);
    int64_t waited = block(&w, BASE + 4 * SYN_MIB, 2 * SYN_MIB, 12, 10, 0);
    int64_t free_now = block(&w, BASE + 8 * SYN_MIB, 2 * SYN_MIB, 13, 10, 0);
    pending(&w, waits, 21, 25, 1, event, reports);
    pending(&w, waits, 21, 0, 2, event, reports); /* it waits for two events */
    pending(&w, waited, 22, 26, 3, event, reports);
    pending(&w, free_now, 23, 0, 4, other, reports);
    block(&w, BASE + 12 * SYN_MIB, SYN_MIB, 30, SYN_LIVE, 0);
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_int_equal(s->allocated, SYN_MIB);
    assert_int_equal(s->pending, 2 * SYN_MIB);
    assert_int_equal(s->active, 3 * SYN_MIB);
    assert_int_equal(s->largest_free, 10 * SYN_MIB);
    syn_close(r);
    syn_end(&w.s);
}

/* Without native frames, the origin of the event is unknown. */
static void pending_unknown(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 20 * SYN_MIB);
    segment(&w, BASE, 20 * SYN_MIB, 10, SYN_LIVE);
    int64_t freed = block(&w, BASE, 2 * SYN_MIB, 11, 10, 0);
    pending(&w, freed, 21, 0, 1, w.train, w.train);
    block(&w, BASE + 12 * SYN_MIB, SYN_MIB, 30, SYN_LIVE, 0);
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_int_equal(s->allocated, SYN_MIB);
    assert_true(s->pending == RUN_UNKNOWN && s->active == RUN_UNKNOWN && s->cached == RUN_UNKNOWN);
    syn_close(r);
    syn_end(&w.s);
}

static void old_recordings(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_sql(&w.s, "DELETE FROM meta; DROP TABLE pending_free");
    syn_reserved(&w.s, 5, 20 * SYN_MIB);
    segment(&w, BASE, 20 * SYN_MIB, 10, SYN_LIVE);
    block(&w, BASE, 2 * SYN_MIB, 11, SYN_LIVE, 0);
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_int_equal(s->reserved, 20 * SYN_MIB);
    assert_int_equal(s->by_stream_n, 1);
    assert_false(s->by_stream[0].stream_known);
    syn_close(r);
    syn_end(&w.s);
}

static void streams_that_disagree(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 20 * SYN_MIB);
    segment(&w, BASE, 20 * SYN_MIB, 10, SYN_LIVE);
    block(&w, BASE, 2 * SYN_MIB, 11, SYN_LIVE, 0xaa);
    block(&w, BASE + 4 * SYN_MIB, 2 * SYN_MIB, 12, SYN_LIVE, 0xbb);
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_int_equal(s->by_stream_n, 1);
    assert_false(s->by_stream[0].stream_known);
    assert_int_equal(s->by_stream[0].reserved, 20 * SYN_MIB);
    syn_close(r);
    syn_end(&w.s);
}

/* More than anybody has; a damaged file may contain them. */
static void very_many_streams(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 20 * SYN_MIB);
    for (int i = 0; i < 1000; i++) block(&w, BASE + i * 4096, 512, 11 + i, SYN_LIVE, i + 1);
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_in_range(s->by_stream_n, 512, 513);
    int64_t sum = 0;
    for (size_t i = 0; i < s->by_stream_n; i++) sum += s->by_stream[i].allocated;
    assert_int_equal(sum, 1000 * 512);
    syn_close(r);
    syn_end(&w.s);
}

static void outside(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 20 * SYN_MIB);
    block(&w, BASE, 2 * SYN_MIB, 11, SYN_LIVE, 0); /* its segment was made before the recording */
    struct result_report *r = syn_report(&w.s, NULL);
    const struct allocator_state *s = state(r, ALLOCATOR_MOMENT_END);
    assert_int_equal(s->strays, 1);
    assert_int_equal(s->allocated, 2 * SYN_MIB);
    assert_true(s->reserved == RUN_UNKNOWN && s->cached == RUN_UNKNOWN);
    syn_close(r);
    syn_end(&w.s);
}

static void loop(struct world *w, int n, bool again)
{
    syn_reserved(&w->s, 5, 20 * SYN_MIB);
    for (int i = 0; i < n; i++) {
        int64_t at = 1000 + i * 1000000, big = again || i == 0 ? 20 : 2;
        int64_t id = segment(w, BASE, big * SYN_MIB, at, 500);
        syn_sql(&w->s, "UPDATE allocation_row SET free_stack_id=%lld WHERE id=%lld", (long long)w->flush,
                (long long)id);
        block(w, BASE, SYN_MIB, at + 1, 100, 0);
    }
}

static void flushes(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    loop(&w, 10, true);
    syn_sync(&w.s, GS_SYNC_IMPLICIT, 1500, 250, 0, w.flush);
    struct result_report *r = syn_report(&w.s, NULL);
    assert_int_equal(r->flushes_n, 1);
    const struct allocator_cache_flush *f = &r->flushes[0];
    assert_int_equal(f->kind, ALLOCATOR_FLUSH_EMPTY_CACHE);
    assert_int_equal(f->count, 10);
    assert_int_equal(f->segments, 10);
    assert_int_equal(f->bytes, 200 * SYN_MIB);
    assert_int_equal(f->again, 180 * SYN_MIB);
    assert_int_equal(f->site.line, 7);
    assert_true(f->matters && f->advice);
    assert_true(fabs(f->blocked_s - 250e-9) < 1e-12);
    syn_close(r);
    syn_end(&w.s);
}

/* Rarely, or memory that was not needed again: these flushes were right. */
static void right_flushes(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    loop(&w, 2, true);
    struct result_report *r = syn_report(&w.s, NULL);
    assert_int_equal(r->flushes_n, 1);
    assert_false(r->flushes[0].matters);
    assert_null(r->flushes[0].advice);
    syn_close(r);
    syn_end(&w.s);
    begin(&w);
    loop(&w, 3, false);
    r = syn_report(&w.s, NULL);
    assert_false(r->flushes[0].matters);
    syn_close(r);
    syn_end(&w.s);
}

static void collect(struct world *w, const char *conf)
{
    begin(w);
    if (conf) syn_sql(&w->s, "INSERT INTO meta VALUES('env.PYTORCH_CUDA_ALLOC_CONF',%Q)", conf);
    syn_reserved(&w->s, 5, 20 * SYN_MIB);
    int64_t id = segment(w, BASE, 20 * SYN_MIB, 10, 90);
    syn_sql(&w->s, "UPDATE allocation_row SET free_stack_id=%lld WHERE id=%lld",
            (long long)syn_native(&w->s, w->train, C10, 77), (long long)id);
    block(w, BASE, 2 * SYN_MIB, 11, 10, 0);
    segment(w, BASE + (1 << 30), 40 * SYN_MIB, 101, SYN_LIVE);
    block(w, BASE + (1 << 30), 40 * SYN_MIB, 102, SYN_LIVE, 0);
}

static void collections(void **state_)
{
    (void)state_;
    struct world w;
    collect(&w, "garbage_collection_threshold:0.6");
    struct result_report *r = syn_report(&w.s, NULL);
    assert_int_equal(r->flushes_n, 1);
    assert_int_equal(r->flushes[0].kind, ALLOCATOR_FLUSH_COLLECTION);
    assert_int_equal(r->flushes[0].bytes, 20 * SYN_MIB);
    assert_false(r->flushes[0].matters);
    syn_close(r);
    syn_end(&w.s);
    collect(&w, NULL); /* known to be off */
    r = syn_report(&w.s, NULL);
    assert_int_equal(r->flushes_n, 0);
    syn_close(r);
    syn_end(&w.s);
}

static void retries(void **state_)
{
    (void)state_;
    struct world w;
    begin(&w);
    syn_reserved(&w.s, 5, 20 * SYN_MIB);
    int64_t id = segment(&w, BASE, 20 * SYN_MIB, 10, 2 * SYN_MS);
    syn_sql(&w.s, "UPDATE allocation_row SET free_stack_id=%lld WHERE id=%lld", (long long)w.segment, (long long)id);
    block(&w, BASE, 2 * SYN_MIB, 11, 10, 0);
    syn_oom(&w.s, (struct syn_oom){.layer = GS_LAYER_DEVICE,
                                   .requested = 40 * SYN_MIB,
                                   .free = 1,
                                   .total = SYN_GIB,
                                   .at = SYN_MS,
                                   .stack = w.segment});
    segment(&w, BASE + (1 << 30), 40 * SYN_MIB, 4 * SYN_MS, SYN_LIVE);
    block(&w, BASE + (1 << 30), 40 * SYN_MIB, 4 * SYN_MS + 1, SYN_LIVE, 0);
    struct result_report *r = syn_report(&w.s, NULL);
    assert_int_equal(r->retries_n, 1);
    assert_true(fabs(r->retries[0].blocked_s - 3e-3) < 1e-9);
    assert_int_equal(r->retries[0].freed_bytes, 20 * SYN_MIB);
    assert_int_equal(r->flushes_n, 0); /* memory that a retry releases does not count as a separate flush */
    assert_int_equal(state(r, ALLOCATOR_MOMENT_OOM)->reserved, 20 * SYN_MIB);
    syn_close(r);
    syn_end(&w.s);
}

CASES(pools_and_streams, expandable, pending_frees, pending_unknown, old_recordings, outside, very_many_streams,
      streams_that_disagree, flushes, right_flushes, collections, retries)
