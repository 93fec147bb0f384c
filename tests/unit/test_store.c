/* Events → rows: the rows of each event, and that interruptions have no effect on them. */
#include "tests/unit/events.h"

#include <sys/stat.h>
#include <time.h>

static char *folder;
static char db[300], other_db[320];

struct bench { /* a spool in memory, one writer, a store */
    struct gs_spool spool;
    struct gs_writer w;
    struct gs_reader *r;
    struct gs_store *s;
};

static void begin(struct bench *b)
{
    assert_int_equal(gs_spool_create(&b->spool, NULL, "run", "", 0, 0), 0);
    gs_writer_open(&b->w, &b->spool);
    unlink(db);
    b->s = ev_store(db);
    b->r = gs_reader_open(&b->spool, NULL, 0);
    assert_non_null(b->r);
}

static void commit(struct bench *b)
{
    gs_reader_poll(b->r, 0, true);
    ev_drain(b->r, b->s);
    if (gs_store_commit(b->s, b->r)) fail_msg("%s", gs_store_error(b->s));
    gs_reader_release(b->r);
}

static void end(struct bench *b)
{
    commit(b);
    if (gs_store_finish(b->s, 1000000, true, 0, 0, 0)) fail_msg("%s", gs_store_error(b->s));
    gs_store_close(b->s);
    gs_reader_close(b->r);
    gs_spool_close(&b->spool);
}

/* ---------------------------------------------------------------- the row of an event */

/* One row per range; domain, thread and level show which end belongs to which beginning. */
static void ranges(void **state)
{
    struct bench b;
    begin(&b);
    ev_mark(&b.w, 1, GS_MARK_POP, 0, "", "");
    ev_mark(&b.w, 10, GS_MARK_PUSH, 0, "", "epoch");
    ev_mark(&b.w, 11, GS_MARK_PUSH, 0, "nccl", "ring");
    ev_mark(&b.w, 12, GS_MARK_PUSH, 1, "", "step");
    ev_mark(&b.w, 13, GS_MARK_START, 7, "", "load");
    commit(&b);
    ev_mark(&b.w, 20, GS_MARK_POP, 1, "", "");
    ev_mark(&b.w, 21, GS_MARK_PUSH, 1, "", "step");  /* its end is lost … */
    ev_mark(&b.w, 22, GS_MARK_PUSH, 1, "", "again"); /* … which is noticed here */
    ev_mark(&b.w, 23, GS_MARK_POP, 1, "", "");
    ev_mark(&b.w, 24, GS_MARK_POP, 0, "", "");
    ev_mark(&b.w, 25, GS_MARK_END, 7, "", "");
    ev_mark(&b.w, 26, GS_MARK_END, 7, "", "");
    ev_mark(&b.w, 27, GS_MARK_MOMENT, 0, "nccl", "bad\xff");
    ev_mark(&b.w, 28, GS_MARK_PROFILER_START, 0, "", "");
    assert_int_equal(gs_store_commit(b.s, b.r), 0);
    assert_int_equal(gs_store_pending(b.s) > 0, 0);
    end(&b);
    db_assert_text(db, "SELECT kind,name,domain,start_ns,end_ns,thread_id FROM marks ORDER BY id",
                   "push epoch - 10 24 1\npush ring nccl 11 - 1\npush step - 12 20 1\n"
                   "start load - 13 25 1\npush step - 21 - 1\npush again - 22 23 1\n"
                   "moment bad\xef\xbf\xbd nccl 27 27 1\nprofiler_start - - 28 28 1\n");
    db_assert_text(db, "SELECT value FROM meta WHERE key='unmatched_range_ends'", "2\n");
}

static void lifetimes(void **state)
{
    struct bench b;
    begin(&b);
    ev_alloc(&b.w, 100, 0x1000, 10, 0, GS_SPACE_DEVICE, 0); /* within one batch */
    ev_free(&b.w, 150, 0x1000, 0);
    ev_alloc(&b.w, 160, 0x2000, 20, 1, GS_SPACE_MANAGED, 0); /* over two */
    ev_alloc(&b.w, 170, 0x3000, 30, -1, GS_SPACE_PINNED, 0); /* never freed */
    ev_alloc(&b.w, 180, 0x1000, 40, 0, GS_SPACE_DEVICE, 0);  /* the address is used again */
    commit(&b);
    ev_free(&b.w, 200, 0x2000, 0);
    ev_alloc(&b.w, 300, 0x1000, 50, 0, GS_SPACE_DEVICE, 0); /* and again, without a recorded free */
    ev_free(&b.w, 400, 0x9000, 0);                          /* unknown */
    ev_free(&b.w, 400, 0, 0);                               /* NULL: nothing */
    ev_alloc(&b.w, 400, 0, 0, 0, GS_SPACE_DEVICE, 0);
    end(&b);
    db_assert_text(db,
                   "SELECT id,process_id,device,layer,space,api,address,bytes,alloc_ns,free_ns,stream,"
                   "alloc_stack_id,alloc_thread_id FROM allocation",
                   "1 1 0 0 0 7 4096 10 100 150 0 - 1\n"
                   "2 1 1 0 1 7 8192 20 160 200 0 - 1\n"
                   "3 1 -1 0 2 7 12288 30 170 - 0 - 1\n"
                   "4 1 0 0 0 7 4096 40 180 300 0 - 1\n"
                   "5 1 0 0 0 7 4096 50 300 - 0 - 1\n");
    db_assert_text(db, "SELECT key,value FROM meta WHERE key LIKE '%frees' AND value>0 ORDER BY key",
                   "implied_frees 1\nunknown_frees 1\n");
}

static void requests(void **state)
{
    static const struct {
        int64_t bytes;
        uint32_t extra;
        int64_t requested; /* -1: unknown */
    } cases[] = {
        {512, 511, 1},
        {512, 0, 512},
        {512, GS_EXTRA_UNKNOWN, -1},
        {3 << 20, (1 << 20) - 1, (2 << 20) + 1},
        {1 << 20, 512, (1 << 20) - 512},
        {1 << 20, 513, (1 << 20) - 513},
        {5ll << 30, 3u << 30, 2ll << 30},
        {1000, 10, -1}, /* nothing of the caching allocator's */
        {512, 512, -1},
        {2ll << 40, 5, -1},
    };
    struct bench b;
    int64_t total = 0;
    begin(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        total += cases[i].bytes;
        ev_request(&b.w, 10 + i, (i + 1) << 44, cases[i].bytes, (uint64_t)total, 0, 0, 0, cases[i].extra);
        if (i % 2) commit(&b);
    }
    end(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sql[128], expected[64], known[32];
        snprintf(known, sizeof known, cases[i].requested < 0 ? "-" : "%lld", (long long)cases[i].requested);
        snprintf(sql, sizeof sql, "SELECT bytes,requested_bytes FROM allocations WHERE id=%zu", i + 1);
        snprintf(expected, sizeof expected, "%lld %s\n", (long long)cases[i].bytes, known);
        db_assert_text(db, sql, expected);

        uint32_t extra;
        snprintf(sql, sizeof sql, "SELECT bytes FROM allocation_row WHERE id=%zu", i + 1);
        assert_int_equal(gs_bytes_unpack(GS_LAYER_TENSOR, db_number(db, sql), &extra), cases[i].bytes);
        assert_int_equal(extra == GS_EXTRA_UNKNOWN ? -1 : cases[i].bytes - extra, cases[i].requested);
    }
    assert_int_equal(db_number(db, "SELECT mismatches FROM tensor_check"), 0);
}

static void failed_frees(void **state)
{
    struct bench b;
    begin(&b);
    ev_alloc(&b.w, 100, 0x1000, 10, 0, GS_SPACE_DEVICE, 0);
    ev_free(&b.w, 150, 0x1000, 0); /* fails, all in one batch */
    ev_free_failed(&b.w, 160, 0x1000);
    commit(&b);
    ev_free(&b.w, 250, 0x1000, 0); /* fails over two batches */
    commit(&b);
    ev_free_failed(&b.w, 260, 0x1000);
    ev_free(&b.w, 270, 0x5000, 0); /* of an unknown allocation */
    ev_free_failed(&b.w, 280, 0x5000);
    commit(&b);
    db_assert_text(db, "SELECT free_ns,free_stack_id FROM allocation", "- -\n");
    ev_free(&b.w, 350, 0x1000, 0);
    ev_free_failed(&b.w, 360, 0x1000);
    ev_free(&b.w, 370, 0x1000, 0); /* finally succeeds */
    end(&b);
    db_assert_text(db, "SELECT alloc_ns,free_ns FROM allocation", "100 370\n");
    db_assert_text(db, "SELECT key,value FROM meta WHERE key LIKE '%frees' ORDER BY key", "failed_frees 4\n");
}

static void copies(void **state)
{
    struct bench b;
    begin(&b);
    enum { H2D, D2H, D2D, P2P, H2H, DEFAULT = 255 };
    uint64_t gpu0 = 0x100000, gpu1 = 0x200000, pinned = 0x300000, managed = 0x400000, heap = 0x500000;
    ev_alloc(&b.w, 1, gpu0, 4096, 0, GS_SPACE_DEVICE, 0);
    ev_alloc(&b.w, 1, gpu1, 4096, 1, GS_SPACE_POOL, 0);
    ev_alloc(&b.w, 1, pinned, 4096, -1, GS_SPACE_PINNED, 0);
    ev_alloc(&b.w, 1, managed, 4096, 0, GS_SPACE_MANAGED, 0);
    struct {
        uint64_t dst, src;
        uint8_t direction;
    } c[] = {
        {gpu0, heap, H2D},
        {gpu0, pinned + 8, H2D},
        {gpu0, managed, H2D},
        {heap, gpu0, D2H},
        {pinned, gpu0, D2H},
        {gpu0, gpu0 + 64, D2D},
        {gpu1, gpu0, D2D},
        {gpu1, gpu0, P2P},
        {heap, heap, H2H},
        {gpu0, heap, DEFAULT},
        {pinned + 4095, gpu1, DEFAULT},
        {gpu1, gpu0, DEFAULT},
        {heap, pinned, DEFAULT},
        {pinned, pinned, DEFAULT},
        {managed, gpu0, DEFAULT},
        {managed, pinned, DEFAULT},
        {managed, managed, DEFAULT},
        {pinned + 4096, gpu0, DEFAULT},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        ev_copy(&b.w, 10 + i, c[i].dst, c[i].src, 100 + i, 3, c[i].direction, i % 2 ? GS_FLAG_ASYNC : 0, 0);
    ev_free(&b.w, 90, pinned, 0);
    ev_copy(&b.w, 95, gpu0, pinned, 1, 3, H2D, 0, 0);
    end(&b);
    db_assert_text(db, "SELECT direction,host_memory FROM copies",
                   "h2d pageable\nh2d pinned\nh2d managed\nd2h pageable\nd2h pinned\nd2d none\n"
                   "p2p none\np2p none\nh2h pageable\nh2d pageable\nd2h pinned\np2p none\n"
                   "h2h pageable\nh2h pinned\nd2h managed\nh2d pinned\nd2d managed\nd2h pageable\n"
                   "h2d pageable\n");
    db_assert_text(db,
                   "SELECT id,process_id,device,bytes,async,api,start_ns,blocked_ns,thread_id FROM copy"
                   " WHERE id<3",
                   "1 1 0 100 0 10 10 3 1\n2 1 0 101 1 10 11 3 1\n");
}

/* Addresses of memory are tracked only while copies need them: the next copy knows the allocations and frees in
 * between. */
static void copies_after_many_lifetimes(void **state)
{
    struct bench b;
    const uint64_t lasting = 0x100000, pinned = 0x200000, heap = 0x500000, passing = 0x10000000;
    uint64_t t = 1;
    begin(&b);
    ev_alloc(&b.w, t++, lasting, 4096, 0, GS_SPACE_DEVICE, 0);
    ev_alloc(&b.w, t++, pinned, 4096, -1, GS_SPACE_PINNED, 0);
    ev_copy(&b.w, t++, lasting, pinned, 1, 3, 255, 0, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++) {
            ev_alloc(&b.w, t++, passing, 4096, 0, GS_SPACE_DEVICE, 0);
            ev_free(&b.w, t++, passing, 0);
        }
        ev_alloc(&b.w, t++, passing, 4096, 0, GS_SPACE_DEVICE, 0);
        commit(&b);
        ev_copy(&b.w, t++, passing, pinned, 1, 3, 255, 0, 0);
        ev_free(&b.w, t++, passing, 0);
        ev_copy(&b.w, t++, passing, lasting, 1, 3, 255, 0, 0);
        ev_copy(&b.w, t++, heap, lasting + 4095, 1, 3, 255, 0, 0);
        commit(&b);
    }
    end(&b);
    db_assert_text(db, "SELECT direction,host_memory,count(*) FROM copies GROUP BY 1,2",
                   "d2h pageable 6\nh2d pinned 4\n");
}

/* A lifetime that is committed while it is live has the room for its end: no page is split. */
static void ends_take_no_space(void **state)
{
    struct bench b;
    enum { N = 20000 };
    uint64_t t = 1000000000;
    begin(&b);
    for (uint64_t i = 0; i < N; i++) ev_alloc(&b.w, t++, (i + 1) << 20, 4096, 0, GS_SPACE_DEVICE, 0);
    commit(&b);
    db_assert_text(db, "SELECT count(*),max(free_stack_id) FROM allocation", "20000 -\n");
    const int64_t pages = db_number(db, "PRAGMA page_count");
    for (uint64_t i = 0; i < N; i++) ev_free(&b.w, (t += 1000), (i + 1) << 20, 0);
    commit(&b);
    assert_int_equal(db_number(db, "SELECT count(free_ns) FROM allocation"), N);
    assert_int_equal(db_number(db, "PRAGMA page_count"), pages);
    end(&b);
}

/* While another program reads, totals are stored without rows up to a time that is later than half of the rows that no
 * removal has visited. Later removals still remove those rows. */
static void a_reader_does_not_end_a_bounded_recording(void **state)
{
    struct bench b;
    sqlite3 *reader = NULL;
    enum { SLOTS = 4096, PAIRS = 760000, EACH = 6000, FROM = 390000, TO = 450000 };
    uint64_t t = 1000000000, random = 42;
    begin(&b);
    if (gs_store_keep(b.s, GS_KEEP_MIN)) fail_msg("%s", gs_store_error(b.s));
    for (int i = 0; i < PAIRS; i++) {
        const uint64_t slot = 0x7f0000000000 + ((uint64_t)ev_below(&random, SLOTS) << 20);
        if (i >= SLOTS) ev_free(&b.w, t += 20000, slot, 0);
        ev_alloc(&b.w, t += 20000, slot, 4096, 0, GS_SPACE_DEVICE, 0);
        if (i == FROM) {
            assert_int_equal(sqlite3_open_v2(db, &reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
            assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM meta", NULL, NULL, NULL), SQLITE_OK);
        }
        if (i == TO) sqlite3_close(reader);
        if (i % EACH) continue;
        commit(&b);
        assert_in_range(gs_store_trim(b.s), GS_TRIM_DONE, GS_TRIM_MORE);
    }
    end(&b);
    assert_true(db_number(db, "SELECT count(*) FROM meta WHERE key='kept_from_ns'") == 1);
    assert_int_equal(db_number(db, "SELECT (SELECT count(*) FROM allocation)+(SELECT sum(count) FROM removed)"), PAIRS);
}

static void ooms(void **state)
{
    struct bench b;
    begin(&b);
    struct gs_writer second;
    gs_writer_open(&second, &b.spool);
    ev_oom(&b.w, 10, 1000, GS_LAYER_DEVICE, GS_SPACE_DEVICE, 0);    /* 1: recovered by 60 */
    ev_oom(&second, 11, 1000, GS_LAYER_DEVICE, GS_SPACE_DEVICE, 0); /* 2: another thread's success */
    ev_oom(&b.w, 12, 1000, GS_LAYER_DEVICE, GS_SPACE_DEVICE, 1);    /* 3: another device */
    ev_oom(&b.w, 13, 1000, GS_LAYER_DEVICE, GS_SPACE_PINNED, -1);   /* 4: another kind */
    commit(&b);
    ev_alloc(&b.w, 50, 0x1000, 999, 0, GS_SPACE_DEVICE, 0); /* too small */
    commit(&b);
    db_assert_text(db, "SELECT id FROM oom WHERE fatal=0", "");
    ev_alloc(&b.w, 60, 0x2000, 1000, 0, GS_SPACE_DEVICE, 0);
    commit(&b);
    /* PyTorch: two refusals by the device, then it reports the failure; a smaller batch's cudaMalloc proves nothing, a
     * tensor of that size does */
    ev_oom(&b.w, 70, 2000, GS_LAYER_DEVICE, GS_SPACE_DEVICE, 0); /* 5 */
    ev_oom(&b.w, 71, 2000, GS_LAYER_DEVICE, GS_SPACE_DEVICE, 0); /* 6 */
    ev_oom(&b.w, 72, 1800, GS_LAYER_TENSOR, GS_SPACE_DEVICE, 0); /* 7 */
    ev_alloc(&b.w, 80, 0x3000, 4000, 0, GS_SPACE_DEVICE, 0);
    commit(&b);
    db_assert_text(db, "SELECT group_concat(id) FROM oom WHERE fatal=0", "1\n");
    ev_tensor(&b.w, 90, 0x3000, 1800, 1800, 0, 0, 0);
    /* half the batch, repeatedly: caught, and the program continues */
    ev_oom(&b.w, 91, 6000, GS_LAYER_TENSOR, GS_SPACE_DEVICE, 0); /* 8 */
    for (int i = 0; i < 4; i++) {
        commit(&b);
        db_assert_text(db, "SELECT fatal FROM oom WHERE id=8", "1\n");
        ev_tensor(&b.w, 92 + i, 0x4000 + 0x1000 * (uint64_t)i, 3000, 4800 + 3000 * i, 0, 0, 0);
    }
    end(&b);
    db_assert_text(db, "SELECT group_concat(id) FROM oom WHERE fatal=0", "1,5,6,7,8\n");
    db_assert_text(db,
                   "SELECT device,layer,space,api,requested_bytes,free_bytes,total_bytes,"
                   "tensor_allocated,time_ns,thread_id FROM oom WHERE id=3",
                   "1 0 0 7 1000 1048576 - - 12 1\n");
}

static void tensor_totals(void **state)
{
    struct bench b;
    begin(&b);
    ev_tensor(&b.w, 10, 0x1000, 512, 512, 1 << 21, 0, 0);
    ev_tensor(&b.w, 20, 0x2000, 1024, 1536, 1 << 21, 0, 0);
    ev_tensor(&b.w, 30, 0x1000, -512, 1024, 1 << 22, 0, 0);
    ev_tensor(&b.w, 40, 0x8000, 64, 1064, 0, -1, 0); /* CPU: 1000 bytes were the parent's */
    ev_tensor(&b.w, 50, 0x8000, -64, 1000, 0, -1, 0);
    ev_tensor(&b.w, 60, 0x9000, -600, 400, 0, -1, 0); /* the child frees some of them */
    ev_tensor(&b.w, 70, 0x8000, 64, 464, 0, -1, 0);
    ev_tensor(&b.w, 80, 0xa000, 1, 466, 0, -1, 0); /* and one byte that was not reported */
    end(&b);
    db_assert_text(db,
                   "SELECT layer,device,events,mismatches,first_mismatch_ns,first_difference,"
                   "last_difference FROM tensor_check ORDER BY layer",
                   "1 0 3 0 - - 0\n2 -1 5 1 80 -1 -1\n");
    db_assert_text(db, "SELECT device,time_ns,bytes FROM reserved", "0 10 2097152\n0 30 4194304\n");
    db_assert_text(db, "SELECT layer,space,device,bytes,alloc_ns,free_ns FROM allocations",
                   "tensor device 0 512 10 30\ntensor device 0 1024 20 -\nhost host -1 64 40 50\n"
                   "host host -1 64 70 -\nhost host -1 1 80 -\n");
}

/* PyTorch's list is made while other threads continue: each block is counted once, and its totals agree all the time.
 * */
static void blocks_from_before_gpuspy_attached(void **state)
{
    struct bench b;
    begin(&b);
    ev_fact(&b.w, GS_FACT_ATTACHED, "12.5");
    ev_tensor(&b.w, 10, 0x1000, 512, 5612, 0, 0, 0); /* 5100 bytes existed before */
    ev_listed(&b.w, 20, 0x1000, 512);                /* recorded already */
    ev_listed(&b.w, 20, 0x5000, 3000);
    ev_listed(&b.w, 20, 0x6000, 2000);
    ev_listed(&b.w, 20, 0x7000, 96); /* allocated in between */
    ev_tensor(&b.w, 21, 0x7000, 96, 5708, 0, 0, 0);
    ev_tensor(&b.w, 30, 0x5000, -3000, 2708, 0, 0, 0);
    ev_tensor(&b.w, 40, 0x8000, 92, 2800, 0, 0, 0);
    ev_tensor(&b.w, 50, 0x9000, -100, 2700, 0, 0, 0); /* freed before the list was made */
    end(&b);
    db_assert_text(db, "SELECT events,mismatches,last_difference FROM tensor_check", "5 0 0\n");
    db_assert_text(
        db, "SELECT address,bytes,alloc_ns,free_ns FROM allocations WHERE free_ns IS NULL OR free_ns<>alloc_ns+1",
        "4096 512 10 -\n20480 3000 20 30\n24576 2000 20 -\n28672 96 21 -\n32768 92 40 -\n");
    db_assert_text(db, "SELECT value FROM meta WHERE key='" GS_FACT_ATTACHED_TENSORS "0'", "5100\n");
}

static void stacks(void **state)
{
    struct bench b;
    begin(&b);
    struct gs_writer second;
    gs_writer_open(&second, &b.spool);
    ev_python(&b.w, 1, "main", "train.py", 10);
    ev_python(&b.w, 2, "step", "train.py", 20);
    ev_native(&b.w, 3, "/lib/libtorch.so", "\xab\xcd", 0x1234);
    uint32_t deep[] = {3, 2, 1, 0}, shallow[] = {2, 1, 0};
    ev_stack(&b.w, 1, deep);
    ev_alloc(&b.w, 10, 0x1000, 1, 0, 0, 1);
    ev_stack(&b.w, 2, shallow); /* equal to the other's caller */
    ev_alloc(&b.w, 20, 0x2000, 1, 0, 0, 2);
    ev_alloc(&b.w, 25, 0x2500, 1, 0, 0, 9); /* an undefined number */
    commit(&b);
    ev_python(&second, 7, "step", "train.py", 20); /* another thread, the same frames */
    ev_python(&second, 9, "main", "train.py", 10);
    uint32_t same[] = {7, 9, 0};
    ev_stack(&second, 5, same);
    ev_alloc(&second, 30, 0x3000, 1, 0, 0, 5);
    ev_reset(&b.w);
    ev_python(&b.w, 1, "caf\xe9", "", 0); /* number 1 is defined again; not UTF-8 */
    uint32_t one[] = {1, 0};
    ev_stack(&b.w, 1, one);
    ev_alloc(&b.w, 40, 0x4000, 1, 0, 0, 1);
    ev_free(&b.w, 50, 0x4000, 2); /* undefined since the reset */
    end(&b);
    db_assert_text(db, "SELECT id,kind,function,file,line,module_id,offset FROM frame",
                   "1 0 main train.py 10 - -\n2 0 step train.py 20 - -\n3 1 - - - 1 4660\n"
                   "4 0 caf\xef\xbf\xbd - - - -\n");
    db_assert_text(db, "SELECT * FROM module", "1 /lib/libtorch.so abcd\n");
    db_assert_text(db, "SELECT * FROM stack", "1 - 1 1\n2 1 2 2\n3 2 3 3\n4 - 4 1\n");
    db_assert_text(db, "SELECT alloc_stack_id,free_stack_id FROM allocation", "3 -\n2 -\n- -\n2 -\n4 -\n");
    db_assert_text(db, "SELECT value FROM meta WHERE key='undefined_numbers'", "2\n");
    db_assert_text(db, "SELECT stack_id,function,line FROM sites WHERE stack_id=3", "3 step 20\n");
}

static void the_rest(void **state)
{
    struct bench b;
    begin(&b);
    ev_thread(&b.w, 4242, "main");
    ev_named(&b.w, GS_REC_API, 0, 10, "cudaMemcpy");
    ev_gpu(&b.w, 7, 1, "H100");
    ev_set(&b.w, 10, 0x1000, 64, 5);
    ev_sync(&b.w, 20, 30, GS_SYNC_EVENT, 0);
    ev_sample(&b.w, 60, 1000);
    ev_handle(&b.w, 70, 0xaa, false);
    commit(&b);
    ev_gpu(&b.w, 3, 1, "H100 first"); /* observed earlier by a thread that is read later */
    ev_handle(&b.w, 80, 0xaa, true);
    ev_handle(&b.w, 90, 0xbb, true); /* created before the recording */
    ev_mark(&b.w, 99, GS_MARK_MOMENT, 0, "", "epoch 1");
    ev_device_sample(&b.w, 99, 700, 300, UINT64_MAX, 0, "");
    end(&b);
    db_assert_text(db, "SELECT id,tid,name FROM thread", "1 4242 main\n");
    db_assert_text(db, "SELECT id,name FROM api", "10 cudaMemcpy\n");
    db_assert_text(db, "SELECT device,name,free_bytes,seen_ns FROM device", "1 H100 first 24696061952 3\n");
    db_assert_text(db, "SELECT device,bytes,async,start_ns,blocked_ns,api FROM memset", "0 64 0 10 5 11\n");
    db_assert_text(db, "SELECT kind,start_ns,blocked_ns,handle FROM syncs", "event 20 30 85\n");
    db_assert_text(db,
                   "SELECT time_ns,free_bytes,source,utilisation,memory_utilisation,own_bytes,"
                   "other_bytes,other_pid,other_name FROM sample",
                   "60 1000 0 - - - - - -\n99 300 2 42 - 300 - - -\n");
    db_assert_text(db, "SELECT handle,create_ns,destroy_ns FROM handle", "170 70 80\n187 - 90\n");
    db_assert_text(db, "SELECT kind,name,domain,start_ns,end_ns,thread_id FROM marks", "moment epoch 1 - 99 99 1\n");
    db_assert_text(db, "SELECT run_id,command,host,end_ns,complete,lost_events FROM process",
                   "run python train.py host 1000000 1 0\n");
    db_assert_text(db, "SELECT word FROM space ORDER BY id",
                   "device\nmanaged\npinned\npool\nvmm\narray\nhost\nshared\n");
    db_assert_text(db, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'recovery%'", "0\n");
    db_assert_text(db, "PRAGMA journal_mode", "delete\n");
    db_assert_text(db, "PRAGMA integrity_check", "ok\n");
    snprintf(other_db, sizeof other_db, "%s-wal", db);
    assert_int_not_equal(access(other_db, F_OK), 0);
}

static void summary(void **state)
{
    struct bench b;
    begin(&b);
    ev_alloc(&b.w, 1, 0x1000, 100, 0, GS_SPACE_DEVICE, 0);
    ev_alloc(&b.w, 2, 0x2000, 50, 0, GS_SPACE_MANAGED, 0);
    ev_alloc(&b.w, 3, 0x3000, 7, -1, GS_SPACE_PINNED, 0);
    ev_free(&b.w, 4, 0x1000, 0);
    ev_alloc(&b.w, 5, 0x1000, 20, 3, GS_SPACE_POOL, 0);
    ev_tensor(&b.w, 6, 0x2000, 33, 33, 0, 0, 0);
    ev_tensor(&b.w, 7, 0x9000, 44, 44, 0, -1, 0);
    ev_oom(&b.w, 8, 10, GS_LAYER_DEVICE, 0, 0);
    commit(&b);
    const struct gs_summary *s = gs_store_summary(b.s);
    assert_int_equal(s->events, 8);
    assert_int_equal(s->devices, 2);
    assert_int_equal(s->device[0].device_peak, 150);
    assert_int_equal(s->device[0].tensor_peak, 33);
    assert_int_equal(s->device[3].device_peak, 20);
    assert_int_equal(s->pinned_peak, 7);
    assert_int_equal(s->host_peak, 44);
    assert_int_equal(s->ooms, 1);
    assert_int_equal(s->fatal_ooms, 1);
    end(&b);
}

/* ---------------------------------------------------------------- creation */

/* It has what SQLite itself makes of gpuspy.sql. */
static void the_schema(void **state)
{
    static const char schema_sql[] =
#include "gpuspy_sql.h"
        ;
    sqlite3 *other;
    unlink(db);
    unlink(other_db);
    gs_store_close(ev_store(db));
    assert_int_equal(sqlite3_open(other_db, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, schema_sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    char *attach = sqlite3_mprintf("ATTACH %Q AS made", db);
    assert_int_equal(sqlite3_exec(other, attach, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(attach);
#define COLUMNS "SELECT type,name,tbl_name,rootpage,sql FROM "
    sqlite3_stmt *st;
    assert_int_equal(
        sqlite3_prepare_v2(other,
                           "SELECT count(*)>40,(SELECT count(*) FROM (" COLUMNS "main.sqlite_master EXCEPT " COLUMNS
                           "made.sqlite_master)),(SELECT count(*) FROM (" COLUMNS "made.sqlite_master EXCEPT " COLUMNS
                           "main.sqlite_master)) FROM made.sqlite_master",
                           -1, &st, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(st, 0), 1);
    assert_int_equal(sqlite3_column_int(st, 1), 0);
    assert_int_equal(sqlite3_column_int(st, 2), 0);
    sqlite3_finalize(st);
    sqlite3_close(other);
    db_assert_text(db, "SELECT count(*) FROM sync_kind", "5\n");
}

static void creation(void **state)
{
    char error[256] = "";
    struct gs_store_info info = {.run_id = "r", .rank = -1};
    unlink(db);
    struct gs_store *s = ev_store(db);
    gs_store_close(s);
    assert_null(gs_store_create(db, &info, error, sizeof error)); /* the file exists */
    assert_string_equal(error, "File exists");
    assert_null(gs_store_create("/nonexistent/x.db", &info, error, sizeof error));
    assert_string_equal(error, "No such file or directory");
    struct gs_progress *progress = NULL;
    uint32_t threads;
    assert_null(gs_store_resume("/nonexistent/x.db", &progress, &threads, error, sizeof error));
    FILE *f = fopen(db, "w");
    fputs("this is text and no database at all, but longer than a header of one hundred bytes, so "
          "that "
          "SQLite looks at it",
          f);
    fclose(f);
    assert_null(gs_store_resume(db, &progress, &threads, error, sizeof error));
    assert_non_null(strstr(error, "not a database"));
    unlink(db);
}

/* ---------------------------------------------------------------- size and speed */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* PyTorch's small training loop as the store sees it: CPU tensors of the sizes found there, most freed within 30 µs, an
 * event every 2.75 µs, a few hundred stacks; three seconds after the start, so that times need six bytes. */
static void size_and_speed(void **state)
{
    enum { LIFETIMES = 200000, SLOTS = 120, STACKS = 400 };
    static int64_t bytes[SLOTS];
    struct bench b;
    begin(&b);
    uint64_t random = 11, time = 3000000000, total = 0;
    for (uint32_t i = 1; i <= STACKS; i++) {
        uint32_t frames[] = {i, i > 5 ? i - 5 : 0, 0};
        ev_python(&b.w, i, "forward", "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", (int)i);
        ev_stack(&b.w, i, frames);
    }
    double start = 0, taken = 0;
    for (uint32_t i = 0; i < 2 * LIFETIMES; i++) {
        static const int64_t sizes[] = {4, 4, 4, 8, 8, 8, 512, 1024, 64};
        uint32_t slot = ev_below(&random, ev_below(&random, 8) ? 4 : SLOTS);
        uint32_t stack = 1 + ev_below(&random, STACKS);
        uint64_t address = 0x5581c0de0000 + slot * 1024;
        time += 2750;
        bytes[slot] = bytes[slot] ? -bytes[slot] : sizes[ev_below(&random, 9)];
        total += (uint64_t)bytes[slot];
        ev_tensor(&b.w, time, address, bytes[slot], total, 0, -1, stack);
        bytes[slot] = bytes[slot] < 0 ? 0 : bytes[slot];
        if (i % 5000) continue;
        start = seconds();
        gs_reader_poll(b.r, UINT64_MAX / 2, false);
        ev_drain(b.r, b.s);
        if (gs_store_pending(b.s) >= 50000) {
            assert_int_equal(gs_store_commit(b.s, b.r), 0);
            gs_reader_release(b.r);
        }
        taken += seconds() - start;
    }
    start = seconds();
    end(&b);
    taken += seconds() - start;
    struct stat st;
    assert_int_equal(stat(db, &st), 0);
    double each = (double)st.st_size / (2 * LIFETIMES);
    print_message("%.1f bytes an event; %.2f million events a second\n", each, 2e-6 * LIFETIMES / taken);
    assert_true(each <= 20);
    assert_int_equal(db_number(db, "SELECT sum(mismatches) FROM tensor_check"), 0);
}

/* ---------------------------------------------------------------- interruptions */

#define STEPS 6000

/* Everything at once. */
static void record_whole(const char *path, uint64_t seed, struct gs_summary *summary)
{
    struct gs_spool spool;
    static struct ev_program p;
    assert_int_equal(gs_spool_create(&spool, NULL, "run", "", 0, 0), 0);
    struct gs_store *s = ev_store(path);
    ev_start(&p, &spool, seed);
    for (int i = 0; i < STEPS; i++) ev_step(&p);
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    gs_reader_poll(r, 0, true);
    ev_drain(r, s);
    assert_int_equal(gs_reader_damaged(r), 0);
    assert_int_equal(gs_store_commit(s, r), 0);
    assert_int_equal(gs_store_finish(s, 0, true, 0, 0, 0), 0);
    *summary = *gs_store_summary(s);
    gs_store_close(s);
    gs_reader_close(r);
    gs_spool_close(&spool);
}

/* The same program, read in small parts, committed at random moments, and interrupted at random moments: the next
 * process knows only the database and the spool. */
static void record_interrupted(const char *path, uint64_t seed, struct gs_summary *summary)
{
    struct gs_spool spool;
    static struct ev_program p;
    uint64_t random = seed * 77 + 5;
    char error[256];
    assert_int_equal(gs_spool_create(&spool, NULL, "run", "", 0, 0), 0);
    struct gs_store *s = ev_store(path);
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    ev_start(&p, &spool, seed);
    int resumed = 0;
    for (int i = 0; i < STEPS; i++) {
        ev_step(&p);
        if (ev_below(&random, 40) == 0) {
            /* the times of copies are their ends: nothing is after the clock */
            gs_reader_poll(r, p.time + 1000000, false);
            ev_drain(r, s);
        }
        if (ev_below(&random, 60) == 0) {
            assert_int_equal(gs_store_commit(s, r), 0);
            if (ev_below(&random, 3)) /* or stops between commit and release */
                gs_reader_release(r);
        }
        if (ev_below(&random, 150) == 0) {
            gs_store_close(s);
            gs_reader_close(r);
            struct gs_progress *progress = NULL;
            uint32_t threads = 0;
            s = gs_store_resume(path, &progress, &threads, error, sizeof error);
            if (!s) fail_msg("%s", error);
            r = gs_reader_open(&spool, progress, threads);
            free(progress);
            resumed++;
        }
    }
    assert_true(resumed > 10);
    gs_reader_poll(r, 0, true);
    ev_drain(r, s);
    assert_int_equal(gs_reader_damaged(r), 0);
    assert_int_equal(gs_store_commit(s, r), 0);
    assert_int_equal(gs_store_finish(s, 0, true, 0, 0, 0), 0);
    *summary = *gs_store_summary(s);
    gs_store_close(s);
    gs_reader_close(r);
    gs_spool_close(&spool);
}

static void interruptions_leave_no_trace(void **state)
{
    uint64_t first = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1;
    uint64_t count = getenv("SEEDS") ? strtoull(getenv("SEEDS"), NULL, 0) : 12;
    snprintf(other_db, sizeof other_db, "%s/other.db", folder);
    for (uint64_t seed = first; seed < first + count; seed++) {
        static struct gs_summary whole, pieces;
        unlink(db);
        unlink(other_db);
        record_whole(db, seed, &whole);
        record_interrupted(other_db, seed, &pieces);
        print_message("seed %llu: %lld allocations, %lld stacks, %lld mismatches\n", (unsigned long long)seed,
                      (long long)db_number(db, "SELECT count(*) FROM allocation"),
                      (long long)db_number(db, "SELECT count(*) FROM stack"),
                      (long long)db_number(db, "SELECT sum(mismatches) FROM tensor_check"));
        db_assert_same(db, other_db);
        assert_memory_equal(&whole, &pieces, sizeof whole);
    }
}

static int setup(void **state)
{
    folder = ev_folder();
    snprintf(db, sizeof db, "%s/run.db", folder);
    return 0;
}

static int teardown(void **state)
{
    ev_remove_folder(folder);
    return 0;
}

CASES_WITHIN(setup, teardown, lifetimes, requests, failed_frees, copies, copies_after_many_lifetimes,
             ends_take_no_space, a_reader_does_not_end_a_bounded_recording, ooms, tensor_totals,
             blocks_from_before_gpuspy_attached, stacks, the_rest, ranges, summary, the_schema, creation,
             size_and_speed, interruptions_leave_no_trace)
