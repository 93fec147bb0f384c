/* Memory that is more than an address: physical memory and mappings, contexts, graphs, pools, and calls that are only
 * counted. */
#include "tests/unit/events.h"

#define MIB (1ull << 20)

static char *folder;
static char db[300];

struct bench { /* a spool in memory, one writer, a store */
    struct gs_spool spool;
    struct gs_writer w;
    struct gs_reader *r;
    struct gs_store *s;
    uint64_t now;
};

static void begin(struct bench *b)
{
    memset(b, 0, sizeof *b);
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

/* Everything in the process's memory is lost; the committed rows and the spool remain. */
static void die_and_resume(struct bench *b)
{
    char error[256];
    struct gs_progress *progress = NULL;
    uint32_t threads = 0;
    gs_store_close(b->s);
    gs_reader_close(b->r);
    b->s = gs_store_resume(db, &progress, &threads, error, sizeof error);
    if (!b->s) fail_msg("%s", error);
    b->r = gs_reader_open(&b->spool, progress, threads);
    free(progress);
}

static void end(struct bench *b)
{
    commit(b);
    if (gs_store_finish(b->s, 1000000, true, 0, 0, 0)) fail_msg("%s", gs_store_error(b->s));
    gs_store_close(b->s);
    gs_reader_close(b->r);
    gs_spool_close(&b->spool);
    db_assert_text(db, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'recovery%'", "0\n");
}

static void vmm(struct bench *b, uint8_t op, uint64_t handle, uint64_t address, uint64_t bytes)
{
    ev_vmm(&b->w, ++b->now, op, handle, address, bytes, 0, 0);
}

static void fails(struct bench *b, uint8_t op, uint64_t handle, uint64_t address, uint64_t bytes)
{
    ev_vmm(&b->w, ++b->now, op, handle, address, bytes, 0, GS_FLAG_FAILED);
}

#define PHYSICAL "SELECT total(bytes) FROM allocation WHERE layer=0 AND space=4 AND free_ns IS NULL"
#define MAPPED "SELECT total(bytes) FROM mapping WHERE unmap_ns IS NULL"

static void assert_live(struct bench *b, uint64_t physical, uint64_t mapped)
{
    commit(b);
    assert_int_equal(db_number(db, PHYSICAL), physical);
    assert_int_equal(db_number(db, MAPPED), mapped);
}

/* ---------------------------------------------------------------- physical memory */

static void held_by_references_and_mappings(void **state)
{
    struct bench b;
    begin(&b);
    vmm(&b, GS_VMM_CREATE, 0x10, 0, 4 * MIB);
    assert_live(&b, 4 * MIB, 0);
    vmm(&b, GS_VMM_MAP, 0x10, 0x7000000000, 4 * MIB);
    vmm(&b, GS_VMM_MAP, 0x10, 0x7100000000, 4 * MIB); /* a second time: counts once */
    assert_live(&b, 4 * MIB, 8 * MIB);
    assert_int_equal(gs_store_summary(b.s)->device[0].device_peak, 4 * MIB);
    die_and_resume(&b);
    vmm(&b, GS_VMM_RELEASE, 0x10, 0, 0); /* the mappings keep it */
    vmm(&b, GS_VMM_UNMAP, 0, 0x7000000000, 4 * MIB);
    assert_live(&b, 4 * MIB, 4 * MIB);
    vmm(&b, GS_VMM_RETAIN, 0x10, 0x7100000000, 0);
    die_and_resume(&b);
    commit(&b);
    die_and_resume(&b);
    vmm(&b, GS_VMM_UNMAP, 0, 0x7100000000, 4 * MIB);
    assert_live(&b, 4 * MIB, 0); /* kept by the retained reference */
    vmm(&b, GS_VMM_RELEASE, 0x10, 0, 0);
    assert_live(&b, 0, 0);
    vmm(&b, GS_VMM_CREATE, 0x10, 0, 2 * MIB); /* the same value, other memory */
    vmm(&b, GS_VMM_RELEASE, 0x99, 0, 0);      /* of an unknown allocation */
    assert_live(&b, 2 * MIB, 0);
    end(&b);
    db_assert_text(db, "SELECT id,device,layer,space,address,bytes,alloc_ns,free_ns FROM allocations",
                   "1 0 device vmm 16 4194304 1 8\n2 0 device vmm 16 2097152 9 -\n");
    db_assert_text(db, "SELECT allocation_id,device,address,bytes,offset,map_ns,unmap_ns FROM mapping",
                   "1 0 481036337152 4194304 0 2 5\n1 0 485331304448 4194304 0 3 7\n");
    db_assert_text(db, "SELECT space,map_ns FROM mappings", "vmm 2\nvmm 3\n");
    db_assert_text(db, "SELECT coalesce(sum(value),0) FROM meta WHERE key='unknown_frees'", "1\n");
}

static void failures_are_taken_back(void **state)
{
    struct bench b;
    for (int dies = 0; dies < 2; dies++) {
        begin(&b);
        vmm(&b, GS_VMM_CREATE, 0x10, 0, 4 * MIB);
        vmm(&b, GS_VMM_CREATE, 0x20, 0, 2 * MIB);
        vmm(&b, GS_VMM_MAP, 0x10, 0x7000000000, 4 * MIB);
        vmm(&b, GS_VMM_RELEASE, 0x10, 0, 0);
        vmm(&b, GS_VMM_RELEASE, 0x20, 0, 0); /* the last reference to it */
        assert_live(&b, 4 * MIB, 4 * MIB);
        if (dies) die_and_resume(&b);
        fails(&b, GS_VMM_RELEASE, 0x20, 0, 0);
        assert_live(&b, 6 * MIB, 4 * MIB);
        vmm(&b, GS_VMM_MAP, 0x20, 0x7000000000 + 4 * MIB, 2 * MIB);
        vmm(&b, GS_VMM_RELEASE, 0x20, 0, 0);
        vmm(&b, GS_VMM_UNMAP, 0, 0x7000000000, 8 * MIB); /* both, and both objects are freed */
        assert_live(&b, 0, 0);
        if (dies) die_and_resume(&b);
        fails(&b, GS_VMM_UNMAP, 0, 0x7000000000, 8 * MIB);
        assert_live(&b, 6 * MIB, 6 * MIB);
        fails(&b, GS_VMM_UNMAP, 0, 0x7000000000, 8 * MIB); /* once is enough */
        assert_live(&b, 6 * MIB, 6 * MIB);
        vmm(&b, GS_VMM_UNMAP, 0, 0x7000000000 + 1 * MIB, MIB); /* CUDA does not split a mapping */
        fails(&b, GS_VMM_UNMAP, 0, 0x7000000000 + 1 * MIB, MIB);
        vmm(&b, GS_VMM_RELEASE, 0x77, 0, 0);
        fails(&b, GS_VMM_RELEASE, 0x77, 0, 0);
        vmm(&b, GS_VMM_UNMAP, 0, 0x7000000000 + 4 * MIB, 2 * MIB);
        assert_live(&b, 4 * MIB, 4 * MIB);
        end(&b);
        db_assert_text(db, "SELECT coalesce(sum(value),0) FROM meta WHERE key='unknown_frees'", "0\n");
        db_assert_text(db, "SELECT count(*),count(free_ns) FROM allocation", "2 1\n");
        db_assert_text(db, "SELECT count(*),count(unmap_ns) FROM mapping", "2 1\n");
    }
}

/* Memory created by another process is not counted, but copies know that it is on the device. */
static void imported_and_unknown(void **state)
{
    struct bench b;
    begin(&b);
    vmm(&b, GS_VMM_IMPORT, 0x10, 0, 0);
    commit(&b);
    die_and_resume(&b);
    vmm(&b, GS_VMM_MAP, 0x10, 0x7000000000, 4 * MIB);
    vmm(&b, GS_VMM_MAP, 0x20, 0x7100000000, 2 * MIB);                  /* created before the recording */
    ev_alloc(&b.w, ++b.now, 0x7200000000, MIB, 0, GS_SPACE_SHARED, 0); /* cudaIpcOpenMemHandle */
    commit(&b);
    die_and_resume(&b);
    for (int i = 0; i < 3; i++)
        ev_copy(&b.w, ++b.now, 0x7000000000 + (uint64_t)i * 0x100000000 + 5, 0x1234, 10, 0, 255, 0, 0);
    ev_copy(&b.w, ++b.now, 0x7100000000 + 2 * MIB, 0x1234, 10, 0, 255, 0, 0);
    vmm(&b, GS_VMM_RELEASE, 0x10, 0, 0);
    vmm(&b, GS_VMM_UNMAP, 0, 0x7000000000, 4 * MIB);
    vmm(&b, GS_VMM_UNMAP, 0, 0x7100000000, 2 * MIB);
    ev_free(&b.w, ++b.now, 0x7200000000, 0);
    assert_live(&b, 0, 0);
    assert_int_equal(gs_store_summary(b.s)->device[0].device_peak, 0);
    end(&b);
    db_assert_text(db, "SELECT layer,space,address,bytes,alloc_ns,free_ns FROM allocations",
                   "device shared 16 4194304 1 10\ndevice shared 32 2097152 3 11\n"
                   "device shared 489626271744 1048576 4 12\n");
    db_assert_text(db, "SELECT direction FROM copies", "h2d\nh2d\nh2d\nh2h\n");
    db_assert_text(db, "SELECT coalesce(sum(value),0) FROM meta WHERE key='unknown_frees'", "0\n");
}

static void a_value_given_out_again(void **state)
{
    struct bench b;
    begin(&b);
    vmm(&b, GS_VMM_CREATE, 0x10, 0, 2 * MIB);
    vmm(&b, GS_VMM_MAP, 0x10, 0x7000000000, 2 * MIB);
    vmm(&b, GS_VMM_RELEASE, 0x10, 0, 0);
    vmm(&b, GS_VMM_CREATE, 0x10, 0, 4 * MIB); /* while the first is still mapped */
    vmm(&b, GS_VMM_MAP, 0x10, 0x7100000000, 4 * MIB);
    assert_live(&b, 6 * MIB, 6 * MIB);
    die_and_resume(&b);
    vmm(&b, GS_VMM_UNMAP, 0, 0x7000000000, 2 * MIB);
    assert_live(&b, 4 * MIB, 4 * MIB);
    vmm(&b, GS_VMM_CREATE, 0x10, 0, MIB); /* its release was not observed */
    assert_live(&b, MIB, 0);
    vmm(&b, GS_VMM_MAP, 0x10, 0x7000000000, MIB);
    vmm(&b, GS_VMM_CREATE, 0x20, 0, MIB);
    vmm(&b, GS_VMM_MAP, 0x20, 0x7000000000, MIB); /* over a mapping whose end was not observed */
    vmm(&b, GS_VMM_RELEASE, 0x10, 0, 0);
    assert_live(&b, MIB, MIB);
    end(&b);
    db_assert_text(db, "SELECT value FROM meta WHERE key='implied_frees'", "2\n");
}

/* PyTorch's expandable segments: one long range, filled and emptied piece by piece. */
static void expandable_segment(void **state)
{
    enum { PIECES = 40 };
    const uint64_t base = 0x7f0000000000;
    for (uint64_t piece = 2 * MIB; piece <= 20 * MIB; piece += 18 * MIB) {
        struct bench b;
        begin(&b);
        for (uint64_t i = 0; i < PIECES; i++) { /* the handle's value is used again at once */
            uint64_t handle = 0x100 + i % 2;
            vmm(&b, GS_VMM_CREATE, handle, 0, piece);
            vmm(&b, GS_VMM_MAP, handle, base + i * piece, piece);
            vmm(&b, GS_VMM_RELEASE, handle, 0, 0);
            if (i % 13 == 5) die_and_resume(&b);
            assert_live(&b, (i + 1) * piece, (i + 1) * piece);
        }
        ev_tensor(&b.w, ++b.now, base + piece - 512, 1024, 1024, PIECES * piece, 0, 0);
        ev_copy(&b.w, ++b.now, base + piece - 512, 0x1234, 1024, 0, 255, 0, 0);
        vmm(&b, GS_VMM_UNMAP, 0, base + 10 * piece, 20 * piece); /* from the middle */
        assert_live(&b, 20 * piece, 20 * piece);
        die_and_resume(&b);
        vmm(&b, GS_VMM_UNMAP, 0, base, PIECES * piece); /* over the hole */
        assert_live(&b, 0, 0);
        assert_int_equal(gs_store_summary(b.s)->device[0].device_peak, PIECES * piece);
        end(&b);
        db_assert_text(db, "SELECT direction FROM copies", "h2d\n");
        db_assert_text(db,
                       "SELECT key,value FROM meta WHERE key IN ('implied_frees','unknown_frees') "
                       "AND value>0",
                       "");
    }
}

/* ---------------------------------------------------------------- against a plain model */

enum { VALUES = 6, PLACES = 12, OBJECTS = 4000 };
struct model {
    struct {
        uint64_t bytes;
        int refs, maps;
    } objects[OBJECTS];
    int objects_n, named[VALUES]; /* the object of each handle value; -1: none */
    int mapped[PLACES]; /* the object of each place; -1: none. A place is 4 MiB; a mapping has the size of its object */
};

static bool alive(const struct model *m, int object)
{
    return object >= 0 && (m->objects[object].refs || m->objects[object].maps);
}

static void model_step(struct bench *b, struct model *m, uint64_t *random)
{
    const uint64_t base = 0x7f0000000000;
    int v = (int)ev_below(random, VALUES), at = (int)ev_below(random, PLACES), o = m->named[v];
    uint64_t handle = 0x40 + (uint64_t)v, address = base + (uint64_t)at * 4 * MIB;
    bool held = o >= 0 && m->objects[o].refs;
    switch (ev_below(random, 7)) {
    case 0:
        if (held) break;
        o = m->named[v] = m->objects_n++;
        assert_true(o < OBJECTS);
        m->objects[o].bytes = MIB << ev_below(random, 3);
        m->objects[o].refs = 1;
        vmm(b, GS_VMM_CREATE, handle, 0, m->objects[o].bytes);
        break;
    case 1:
        if (!alive(m, o)) break;
        m->objects[o].refs++;
        vmm(b, GS_VMM_RETAIN, handle, 0, 0);
        break;
    case 2:
    case 3:
        if (!held || m->mapped[at] >= 0) break;
        m->mapped[at] = o;
        m->objects[o].maps++;
        vmm(b, GS_VMM_MAP, handle, address, m->objects[o].bytes);
        break;
    case 4:
    case 5:
        if (!held) break;
        vmm(b, GS_VMM_RELEASE, handle, 0, 0);
        if (ev_below(random, 4) == 0)
            fails(b, GS_VMM_RELEASE, handle, 0, 0);
        else
            m->objects[o].refs--;
        break;
    default: {
        int n = 1 + (int)ev_below(random, 4);
        n = at + n > PLACES ? PLACES - at : n;
        vmm(b, GS_VMM_UNMAP, 0, address, (uint64_t)n * 4 * MIB);
        if (ev_below(random, 4) == 0) {
            if (ev_below(random, 3) == 0) {
                commit(b);
                die_and_resume(b);
            }
            fails(b, GS_VMM_UNMAP, 0, address, (uint64_t)n * 4 * MIB);
            break;
        }
        for (int i = at; i < at + n; i++) {
            if (m->mapped[i] >= 0) m->objects[m->mapped[i]].maps--;
            m->mapped[i] = -1;
        }
    }
    }
}

static void any_sequence(void **state)
{
    uint64_t first = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1;
    uint64_t count = getenv("SEEDS") ? strtoull(getenv("SEEDS"), NULL, 0) : 6;
    static struct model m;
    for (uint64_t seed = first; seed < first + count; seed++) {
        uint64_t random = seed * 0x9e3779b97f4a7c15u, highest = 0;
        struct bench b;
        begin(&b);
        memset(&m, 0, sizeof m);
        memset(m.named, 0xff, sizeof m.named);
        memset(m.mapped, 0xff, sizeof m.mapped);
        for (int step = 0; step < 1500; step++) {
            model_step(&b, &m, &random);
            uint64_t physical = 0, mapped = 0;
            for (int i = 0; i < m.objects_n; i++) physical += alive(&m, i) ? m.objects[i].bytes : 0;
            for (int i = 0; i < PLACES; i++) mapped += m.mapped[i] >= 0 ? m.objects[m.mapped[i]].bytes : 0;
            highest = physical > highest ? physical : highest;
            if (step % 5 == 0) assert_live(&b, physical, mapped);
            if (ev_below(&random, 30) == 0) die_and_resume(&b);
        }
        commit(&b);
        assert_int_equal(gs_store_summary(b.s)->device[0].device_peak, highest);
        assert_int_equal(db_number(db, "SELECT count(*) FROM allocation"), m.objects_n);
        end(&b);
    }
}

/* ---------------------------------------------------------------- contexts */

static void contexts(void **state)
{
    for (int dies = 0; dies < 2; dies++) {
        struct bench b;
        begin(&b);
        ev_alloc_in(&b.w, 1, 0x1000, 10, 0, GS_SPACE_DEVICE, 0, 0);
        ev_alloc_in(&b.w, 2, 0x2000, 10, 0, GS_SPACE_DEVICE, 3, 0);
        ev_alloc_in(&b.w, 3, 0x3000, 10, 0, GS_SPACE_PINNED, 0, 0);
        ev_alloc_in(&b.w, 4, 0x4000, 10, 1, GS_SPACE_PINNED, 0, 0);
        ev_alloc_in(&b.w, 5, 0x5000, 10, 0, GS_SPACE_PINNED, 3, GS_FLAG_PINNED_REGISTERED);
        ev_alloc_in(&b.w, 6, 0x6000, 10, 1, GS_SPACE_DEVICE, 0, 0);
        ev_alloc_in(&b.w, 7, 0x7000, 10, 0, GS_SPACE_DEVICE, 4, 0);
        ev_alloc_in(&b.w, 8, 0x8000, 10, -1, GS_SPACE_PINNED, 0, 0); /* unknown */
        ev_vmm(&b.w, 9, GS_VMM_CREATE, 0x10, 0, 10, 0, 0);
        ev_vmm(&b.w, 10, GS_VMM_MAP, 0x10, 0x9000, 10, 0, 0);
        ev_vmm(&b.w, 11, GS_VMM_CREATE, 0x20, 0, 10, 0, 0);
        ev_tensor(&b.w, 12, 0x1000, 10, 10, 10, 0, 0);
        commit(&b);
        if (dies) die_and_resume(&b);
        ev_context(&b.w, 20, 0x99, -1, 3, true); /* the allocations with its number are freed with it */
        commit(&b);
        db_assert_text(db, "SELECT group_concat(id) FROM allocation WHERE free_ns IS NOT NULL", "2,5\n");
        if (dies) die_and_resume(&b);
        ev_context(&b.w, 30, 0x98, 0, 0, true); /* cudaDeviceReset */
        ev_free(&b.w, 31, 0x4000, 0);
        end(&b);
        db_assert_text(db, "SELECT id,device,free_ns FROM allocation ORDER BY id",
                       "1 0 30\n2 0 20\n3 -1 30\n4 -1 31\n5 -1 20\n6 1 -\n7 0 -\n8 -1 -\n"
                       "9 0 30\n10 0 30\n11 0 -\n");
        db_assert_text(db, "SELECT unmap_ns FROM mapping", "30\n");
        db_assert_text(db, "SELECT coalesce(sum(value),0) FROM meta WHERE key='unknown_frees'", "0\n");
    }
}

/* ---------------------------------------------------------------- graphs and pools */

static void graphs(void **state)
{
    for (int dies = 0; dies < 2; dies++) {
        struct bench b;
        begin(&b);
        ev_alloc_in(&b.w, 1, 0x1000, 4096, 0, GS_SPACE_POOL, 0, GS_FLAG_GRAPH);
        ev_alloc_in(&b.w, 2, 0x2000, 4096, 0, GS_SPACE_POOL, 0, GS_FLAG_GRAPH);
        ev_free_node(&b.w, 3, 0x1000);
        ev_free_node(&b.w, 4, 0x9000); /* belongs, for example, to another process's graph: unknown */
        ev_pool(&b.w, 5, 0, 4096, 2 * MIB);
        commit(&b);
        if (dies) die_and_resume(&b);
        ev_free(&b.w, 6, 0x2000, 0); /* outside of the graph */
        commit(&b);
        if (dies) die_and_resume(&b);
        ev_free_failed(&b.w, 7, 0x2000);
        commit(&b);
        db_assert_text(db, "SELECT freed_ns FROM graph_memory", "3\n-\n");
        ev_free(&b.w, 8, 0x2000, 0);
        ev_alloc(&b.w, 9, 0x2000, 100, 0, GS_SPACE_DEVICE, 0); /* the graph is destroyed */
        ev_free(&b.w, 10, 0x2000, 0);
        end(&b);
        db_assert_text(db, "SELECT id,device,api,address,bytes,time_ns,freed_ns,thread_id FROM graph_memory",
                       "1 0 7 4096 4096 1 3 1\n2 0 7 8192 4096 2 8 1\n");
        db_assert_text(db, "SELECT device,pool,time_ns,used_bytes,reserved_bytes,api FROM pool",
                       "0 0 5 4096 2097152 12\n");
        db_assert_text(db, "SELECT bytes,free_ns FROM allocation", "100 10\n");
        db_assert_text(db, "SELECT coalesce(sum(value),0) FROM meta WHERE key='unknown_frees'", "0\n");
    }
}

/* A malicious database: what it stores for a thread's last free is used as an index. */
static void no_such_graph_memory(void **state)
{
    static const char *const numbers[] = {"2", "1000000000000", "-5"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char sql[128], error[256];
        struct gs_progress *progress = NULL;
        uint32_t threads;
        struct bench b;
        begin(&b);
        ev_alloc_in(&b.w, 1, 0x1000, 4096, 0, GS_SPACE_POOL, 0, GS_FLAG_GRAPH);
        ev_free_node(&b.w, 2, 0x1000);
        commit(&b);
        snprintf(sql, sizeof sql, "UPDATE recovery_thread SET free_id=%s RETURNING 1", numbers[i]);
        assert_int_equal(db_number(db, sql), 1);
        gs_store_close(b.s);
        assert_null(gs_store_resume(db, &progress, &threads, error, sizeof error));
        assert_string_equal(error, "the database is damaged");
        gs_reader_close(b.r);
        gs_spool_close(&b.spool);
    }
}

/* ---------------------------------------------------------------- calls that are counted */

static void count(struct bench *b, uint16_t api, uint64_t stream, bool not_ready, int times)
{
    while (times--) assert_true(gs_spool_count(&b->spool, gs_counter_key(api, 0, stream, not_ready)));
}

static void counted(void **state)
{
    struct bench b;
    begin(&b);
    ev_named(&b.w, GS_REC_API, 0, 30, "cudaLaunchKernel");
    ev_named(&b.w, GS_REC_API, 0, 31, "cudaEventQuery");
    assert_false(gs_store_counted(b.s, b.r));
    count(&b, 30, 0x10, false, 5);
    count(&b, 31, 0, true, 3);
    assert_true(gs_store_counted(b.s, b.r));
    commit(&b);
    assert_false(gs_store_counted(b.s, b.r));
    die_and_resume(&b);
    assert_false(gs_store_counted(b.s, b.r));
    count(&b, 30, 0x10, false, 2); /* the same second */
    count(&b, 31, 0, false, 1);
    die_and_resume(&b);
    gs_reader_poll(b.r, 3700000000, true); /* at 3.7 s */
    assert_int_equal(gs_store_commit(b.s, b.r), 0);
    count(&b, 30, GS_COUNTER_ANY, false, 4);
    assert_int_equal(gs_store_commit(b.s, b.r), 0);
    assert_int_equal(gs_store_commit(b.s, b.r), 0); /* nothing new */
    end(&b);
    db_assert_text(db, "SELECT second,device,stream,api,answer,count FROM calls",
                   "0 0 0 cudaEventQuery not ready 3\n"
                   "0 0 16 cudaLaunchKernel done 5\n"
                   "3 0 - cudaLaunchKernel done 4\n"
                   "3 0 0 cudaEventQuery done 1\n"
                   "3 0 16 cudaLaunchKernel done 2\n");
}

/* More streams than counters, one after the other, and then calls that were not made before: no call is missing, but
 * some have no stream. */
static void more_streams_than_counters(void **state)
{
    enum { STREAMS = 8 * GS_SPOOL_COUNTERS, APIS = 60 };
    struct bench b;
    begin(&b);
    for (uint64_t stream = 1; stream <= STREAMS; stream++) count(&b, 30, stream * 0x110, false, 2);
    for (uint16_t api = 100; api < 100 + APIS; api++) count(&b, api, 0, api % 2, 3);
    end(&b);
    assert_int_equal(db_number(db, "SELECT sum(count) FROM call_count WHERE api=30"), 2 * STREAMS);
    assert_true(db_number(db, "SELECT count(*) FROM call_count WHERE api=30 AND stream<>-1") > GS_SPOOL_COUNTERS / 2);
    assert_int_equal(db_number(db, "SELECT sum(count) FROM call_count WHERE api>=100"), 3 * APIS);
}

static void no_counter_left(void **state)
{
    struct bench b;
    begin(&b);
    for (uint32_t slot = 0; slot < GS_SPOOL_COUNTERS; slot++) b.spool.counters[slot].key = 1;
    assert_false(gs_spool_count(&b.spool, gs_counter_key(30, 0, 0x10, false)));
    for (uint32_t slot = 0; slot < GS_SPOOL_COUNTERS; slot++) b.spool.counters[slot].key = 0;
    assert_true(gs_spool_count(&b.spool, gs_counter_key(30, 0, 0x10, false)));
    end(&b);
}

static void damaged_counters(void **state)
{
    struct bench b;
    begin(&b);
    count(&b, 30, 0x10, false, 5);
    commit(&b);
    uint64_t good = gs_counter_key(30, 0, 0x10, false);
    uint32_t at = gs_counter_slot(good);
    assert_true(b.spool.counters[at].key == good);
    b.spool.counters[at].count = 3;                              /* backwards */
    b.spool.counters[(at + 100) % GS_SPOOL_COUNTERS].key = good; /* at a position where it cannot be */
    b.spool.counters[(at + 100) % GS_SPOOL_COUNTERS].count = 7;
    uint64_t huge = gs_counter_key(31, 0, 0x20, false);
    b.spool.counters[gs_counter_slot(huge)].key = huge;
    b.spool.counters[gs_counter_slot(huge)].count = UINT64_MAX;
    die_and_resume(&b);
    end(&b);
    db_assert_text(db, "SELECT api,count FROM call_count", "30 5\n");
    db_assert_text(db, "SELECT value FROM meta WHERE key='damaged_records'", "3\n");
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

/* Tensors that wait for events: by row, after a crash, and with an event that is used again. */
static void pending_frees(void **state)
{
    struct bench b;
    begin(&b);
    for (uint64_t i = 1; i <= 4; i++) ev_tensor(&b.w, ++b.now, i << 20, 512, i * 512, 2 * MIB, 0, 0);
    ev_pending(&b.w, ++b.now, 1 << 20, 0xe0, 2, 0, 0);
    ev_tensor(&b.w, ++b.now, 1 << 20, -512, 3 * 512, 2 * MIB, 0, 0);
    ev_pending(&b.w, ++b.now, 2 << 20, 0x55, 1, 0, 0);
    ev_tensor(&b.w, ++b.now, 2 << 20, -512, 2 * 512, 2 * MIB, 0, 0);
    ev_event_done(&b.w, ++b.now, 0xe0); /* before the commit */
    ev_event_done(&b.w, ++b.now, 0x77); /* an event that no tensor waits for */
    commit(&b);
    ev_event_done(&b.w, ++b.now, 0xe1); /* after it */
    commit(&b);
    die_and_resume(&b);
    ev_sync(&b.w, ++b.now, 5, GS_SYNC_EVENT, 0xe2); /* after a crash, and waited for */
    ev_pending(&b.w, 20, 3 << 20, 0xe2, 1, 0, 0);
    ev_tensor(&b.w, 20, 3 << 20, -512, 512, 2 * MIB, 0, 0);
    ev_pending(&b.w, 30, 4 << 20, 0xe2, 1, 0, 0); /* recorded again: the first recording had passed */
    ev_tensor(&b.w, 30, 4 << 20, -512, 0, 2 * MIB, 0, 0);
    ev_pending(&b.w, 31, 9 << 20, 0xe3, 1, 0, 0); /* a tensor that was never observed */
    end(&b);
    db_assert_text(db, "SELECT allocation_id,event,free_ns,done_ns FROM pending_free",
                   "1 224 5 9\n1 225 5 11\n2 85 7 17\n3 226 20 30\n4 226 30 -\n");
    db_assert_text(db, "SELECT count(*) FROM allocation WHERE free_ns IS NULL", "0\n");
}

CASES_WITHIN(setup, teardown, pending_frees, held_by_references_and_mappings, failures_are_taken_back,
             imported_and_unknown, a_value_given_out_again, expandable_segment, any_sequence, contexts, graphs,
             no_such_graph_memory, counted, more_streams_than_counters, no_counter_left, damaged_counters)
