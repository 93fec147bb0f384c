/* The spool: records are read once and in order, whatever the threads do, and even if it is damaged. */
#include "tests/unit/spools.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t taken(const struct gs_spool *s)
{
    uint32_t n = 0;
    for (int i = 0; i < GS_SPOOL_MAP_WORDS; i++) n += (uint32_t)__builtin_popcountll(s->header->taken[i]);
    return n;
}

static uint32_t number_of(const struct gs_rec *rec)
{
    assert_int_equal(rec->type, GS_REC_MARK);
    return (uint32_t)((const struct gs_rec_mark *)rec)->id;
}

/* ---------------------------------------------------------------- one thread */

static void in_and_out(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_int_equal(w.thread, 1);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_reader_poll(r, 100, false);
    uint32_t thread = 0, next = 0, highest = 0;
    assert_null(gs_reader_next(r, &thread));
    for (uint32_t i = 0; i < 200000; i++) { /* 6 MiB through a few chunks */
        assert_true(put(&w, i, i, 32 + i % 5 * 8));
        if (i % 1000) continue;
        gs_reader_poll(r, (uint64_t)i + 2000000, false);
        for (const struct gs_rec *rec; (rec = gs_reader_next(r, &thread)); next++)
            assert_int_equal(number_of(rec), next);
        assert_int_equal(next, i + 1);
        assert_int_equal(thread, 1);
        gs_reader_release(r);
        highest = taken(&s) > highest ? taken(&s) : highest;
    }
    assert_true(highest <= 3);
    assert_true(gs_reader_fill(r) < 0.01);
    assert_int_equal(gs_reader_damaged(r), 0);
    gs_writer_close(&w);
    gs_reader_poll(r, 0, true);
    while (gs_reader_next(r, &thread)) next++;
    assert_int_equal(next, 200000 + 1); /* and the reset at its end */
    gs_reader_release(r);
    assert_int_equal(taken(&s), 0);
    gs_reader_close(r);
    gs_spool_close(&s);
}

static void too_large(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_null(gs_writer_reserve(&w, GS_CHUNK_BYTES / 2 + 8));
    assert_null(gs_writer_reserve(&w, GS_CHUNK_BYTES + 4));
    for (int i = 0; i < 10; i++) assert_true(put(&w, 1, 1, GS_CHUNK_BYTES / 2));
    assert_int_equal(taken(&s), 10);
    gs_spool_close(&s);
}

/* Only records before the watermark are read; a busy thread holds it back. */
static void order(void **state)
{
    const uint64_t ms = 1000000;
    struct gs_spool s;
    struct gs_writer a, b;
    uint32_t thread;
    create(&s, NULL);
    gs_writer_open(&a, &s);
    gs_writer_open(&b, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    put(&a, 10 * ms, 1, 32);
    put(&b, 11 * ms, 2, 32);
    put(&b, 30 * ms, 4, 32);
    gs_reader_poll(r, 20 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 1);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 2);
    assert_null(gs_reader_next(r, &thread)); /* the one at 30 ms comes later */
    gs_writer_busy(&a);                      /* it stays busy: 25 ms */
    put(&b, 31 * ms, 5, 32);
    gs_reader_poll(r, 40 * ms, false);
    assert_null(gs_reader_next(r, &thread));
    assert_true(put(&a, 25 * ms, 3, 32));
    gs_reader_poll(r, 40 * ms, false);
    for (uint32_t i = 3; i <= 5; i++) assert_int_equal(number_of(gs_reader_next(r, &thread)), i);
    gs_writer_busy(&a);
    gs_writer_idle(&a); /* it recorded no event */
    put(&b, 50 * ms, 6, 32);
    gs_reader_poll(r, 60 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 6);
    /* a copy is sorted by its end: its start is long before the events that have been read */
    ev_copy(&a, 10 * ms, 1, 2, 3, 60 * ms, 0, 0, 0);
    put(&b, 69 * ms, 7, 32);
    put(&b, 71 * ms, 8, 32);
    gs_reader_poll(r, 80 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 7);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_COPY);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 8);
    assert_null(gs_reader_next(r, &thread));
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* Definitions are read right before their event, and not before the event is known. */
static void definitions(void **state)
{
    const uint64_t ms = 1000000;
    struct gs_spool s;
    struct gs_writer a, b;
    uint32_t thread;
    create(&s, NULL);
    gs_writer_open(&a, &s);
    gs_writer_open(&b, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_writer_busy(&a);
    ev_python(&a, 1, "f", "x.py", 1);
    assert_int_equal(a.chunk->busy, GS_BUSY); /* its event is not written yet */
    put(&b, 5 * ms, 2, 32);
    put(&b, 9 * ms, 4, 32);
    gs_reader_poll(r, 20 * ms, false);
    assert_null(gs_reader_next(r, &thread));
    put(&a, 7 * ms, 3, 32);
    assert_int_equal(a.chunk->busy, 0);
    gs_reader_poll(r, 20 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 2);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_FRAME_PYTHON);
    assert_int_equal(thread, 1);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 3);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 4);
    /* definitions without an event: the process's are read, the thread's are not */
    ev_python(&a, 2, "g", "x.py", 1);
    ev_named(&a, GS_REC_API, 0, 1, "cudaMalloc");
    gs_reader_poll(r, 30 * ms, false);
    assert_null(gs_reader_next(r, &thread));
    gs_writer_close(&a);
    gs_reader_poll(r, 30 * ms, false);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_API);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_RESET);
    assert_null(gs_reader_next(r, &thread));
    gs_reader_release(r);
    assert_int_equal(taken(&s), 1); /* a's chunk was returned although its last records were skipped */
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* What a process describes last is read once, not once for each of its records: the square of this many takes minutes.
 */
static void many_definitions_without_an_event(void **state)
{
    enum { MANY = 100000 };
    struct gs_spool s;
    struct gs_writer w;
    uint32_t thread, count = 0;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    for (uint32_t i = 0; i < MANY; i++) ev_named(&w, GS_REC_API, 0, i, "cudaMalloc");
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    const uint64_t start = clock_ns();
    gs_reader_poll(r, start, true);
    while (gs_reader_next(r, &thread)) count++;
    assert_int_equal(count, MANY);
    assert_true(clock_ns() - start < 10000000000u);
    gs_reader_release(r);
    gs_reader_close(r);
    gs_spool_close(&s);
}

static void many_threads_one_after_another(void **state)
{
    struct gs_spool s;
    uint32_t thread, count = 0;
    create(&s, NULL);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    for (uint32_t i = 1; i <= 3 * GS_SPOOL_THREADS; i++) {
        struct gs_writer w;
        gs_writer_open(&w, &s);
        assert_int_equal(w.thread, 1); /* the number is used again */
        assert_true(put(&w, i, i, 32));
        gs_writer_close(&w);
        if (i % 512 == 0) {
            gs_reader_poll(r, 2000000 + i, false);
            for (const struct gs_rec *rec; (rec = gs_reader_next(r, &thread)); count++)
                if (rec->type == GS_REC_MARK) assert_int_equal(number_of(rec), count / 2 + 1);
            gs_reader_release(r);
            assert_int_equal(taken(&s), 0);
        }
    }
    assert_int_equal(count, 2 * 3 * GS_SPOOL_THREADS);
    assert_int_equal(gs_reader_damaged(r), 0);
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- when it is full */

static void full(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    uint32_t thread, written = 0;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    errno = 4711;
    while (put(&w, written, written, GS_CHUNK_BYTES / 4)) /* no thread drains, so the writer does not wait */
        written++;
    assert_int_equal(errno, 4711);
    assert_true(written >= GS_SPOOL_CHUNKS * 3);
    gs_spool_lost(&s, 99);
    gs_spool_lost(&s, 100);
    assert_int_equal(s.header->lost, 2);
    assert_int_equal(s.header->lost_first_ns, 99);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    assert_true(gs_reader_fill(r) == 1.0);
    gs_reader_poll(r, 10000000, false);
    for (uint32_t i = 0; i < written; i++) assert_int_equal(number_of(gs_reader_next(r, &thread)), i);
    gs_reader_release(r);
    assert_true(put(&w, written, written, 32));
    /* a drain that hangs costs one wait, not one per event */
    atomic_store(&s.drain_alive, 1);
    while (!s.stuck) put(&w, written, written, GS_CHUNK_BYTES / 2);
    uint64_t begin = clock_ns();
    for (int i = 0; i < 100; i++) assert_false(put(&w, 1, 1, GS_CHUNK_BYTES / 2));
    assert_true(clock_ns() - begin < 50000000);
    gs_reader_poll(r, 10000000, false);
    while (gs_reader_next(r, &thread))
        ;
    gs_reader_release(r);
    assert_true(put(&w, written, written, GS_CHUNK_BYTES / 2));
    assert_int_equal(s.stuck, 0);
    gs_spool_end(&s, 55);
    assert_false(put(&w, 1, 1, 32));
    assert_int_equal(s.header->closed, 1);
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- threads at once */

#define THREADS 4

static struct shared {
    struct gs_spool spool;
    uint32_t events;
    uint32_t bytes;
    atomic_uint running;
} shared;

/* Once a chunk is marked full or last, the reader may give it to another thread, which then sets its busy mark: the old
 * writer must not touch it any more. */
static void a_chunk_given_up(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_true(put(&w, 1, 1, 64));
    struct gs_chunk *old = w.chunk;
    for (uint32_t i = 2; w.chunk == old; i++) {
        old->busy = 77;
        assert_true(gs_writer_reserve(&w, GS_CHUNK_BYTES / 2) != NULL);
        if (w.chunk == old) gs_writer_idle(&w), assert_true(put(&w, i, i, 8192));
    }
    assert_int_equal(old->state, GS_CHUNK_FULL);
    assert_int_equal(old->busy, 77);
    gs_writer_idle(&w);
    old = w.chunk;
    old->busy = 77;
    gs_writer_close(&w);
    assert_int_equal(old->state, GS_CHUNK_LAST);
    assert_int_equal(old->busy, 77);
    gs_spool_close(&s);
}

static void *writing(void *unused)
{
    struct gs_writer w;
    gs_writer_open(&w, &shared.spool);
    for (uint32_t i = 0; i < shared.events; i++) {
        gs_writer_busy(&w);
        uint64_t now = clock_ns();
        if (i % 7 == 0) /* definitions in between */
            ev_python(&w, 1, "f", "x.py", 1);
        if (!put(&w, now, i, shared.bytes)) {
            print_message("no room\n");
            abort();
        }
    }
    gs_writer_close(&w);
    atomic_fetch_sub(&shared.running, 1);
    return NULL;
}

static void together(uint32_t events, uint32_t bytes, const char *where)
{
    pthread_t threads[THREADS];
    uint32_t next[THREADS + 1] = {0}, late = 0;
    create(&shared.spool, where);
    shared.events = events;
    shared.bytes = bytes;
    shared.running = THREADS;
    atomic_store(&shared.spool.drain_alive, 1);
    struct gs_reader *r = gs_reader_open(&shared.spool, NULL, 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, writing, NULL), 0);
    uint64_t total = 0, last = 0;
    for (bool final = false; !final;) {
        final = shared.running == 0;
        gs_reader_poll(r, clock_ns(), final);
        uint32_t thread;
        for (const struct gs_rec *rec; (rec = gs_reader_next(r, &thread));) {
            if (rec->type != GS_REC_MARK) continue;
            if (next[thread] == events) /* the next thread has its number */
                next[thread] = 0;
            assert_int_equal(number_of(rec), next[thread]++);
            late += rec->time_ns < last;
            last = rec->time_ns > last ? rec->time_ns : last;
            total++;
        }
        gs_reader_release(r);
        usleep(200);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(total, (uint64_t)events * THREADS);
    assert_int_equal(gs_reader_damaged(r), 0);
    /* Threads that waited for room may be late (see spool_read.c); otherwise none is. */
    if (events * bytes < GS_CHUNK_BYTES * 50) assert_int_equal(late, 0);
    print_message("%u threads, %u records of %u bytes each: %u late\n", THREADS, events, bytes, late);
    gs_reader_close(r);
    drop(&shared.spool, where);
}

static void threads_at_once(void **state)
{
    for (int i = 0; i < 10; i++) together(20000, 80, NULL);
    together(300000, 64, path);
    together(10000, 8192, path); /* ten times the spool: they wait for the drain */
}

/* ---------------------------------------------------------------- damage */

static void read_damaged(uint64_t *random)
{
    struct gs_spool s;
    char error[200];
    if (gs_spool_open(&s, path, error, sizeof error)) return;
    struct gs_progress start[4] = {{0}};
    for (int i = 0; i < 4 && ev_below(random, 2); i++)
        start[i] = (struct gs_progress){ev_below(random, 10), ev_below(random, 40000), ev_random(random)};
    struct gs_reader *r = gs_reader_open(&s, start, 4);
    struct gs_store *store = ev_below(random, 4) ? NULL : ev_store(":memory:");
    for (int i = 0; i < 3; i++) {
        gs_reader_poll(r, ev_below(random, 2) ? 1u << 30 : UINT64_MAX, i == 2);
        const struct gs_rec *rec;
        uint32_t thread, n = 0;
        while ((rec = gs_reader_next(r, &thread)) && n++ < 1000000) {
            assert_true(rec->size >= sizeof *rec && thread > 0);
            if (store) assert_int_equal(gs_store_add(store, thread, rec), 0);
        }
        assert_true(n < 1000000);
        if (store && gs_store_commit(store, r)) fail_msg("%s", gs_store_error(store));
        if (i) gs_reader_release(r);
    }
    gs_store_close(store);
    gs_reader_close(r);
    gs_spool_close(&s);
    unlink(":memory:");
}

static void damage(void **state)
{
    struct gs_spool s;
    static struct ev_program p;
    uint64_t random = 99;
    create(&s, path);
    ev_start(&p, &s, 3);
    for (int i = 0; i < 3000; i++) ev_step(&p);
    size_t size = gs_spool_chunk_offset(12);
    uint8_t *good = malloc(size), *bad = malloc(size);
    memcpy(good, s.map, size);
    assert_int_equal(chdir(folder), 0);
    for (int round = 0; round < 500; round++) {
        memcpy(bad, good, size);
        for (uint32_t flips = 1 + ev_below(&random, 40); flips; flips--) {
            uint32_t chunk = ev_below(&random, 12);
            size_t at = ev_below(&random, 3) == 0 ? ev_below(&random, 192) + 8 /* header */
                        : ev_below(&random, 2)    ? gs_spool_chunk_offset(chunk) + ev_below(&random, 64)
                                                  : gs_spool_chunk_offset(chunk) + ev_below(&random, GS_CHUNK_BYTES);
            bad[at] = ev_below(&random, 2) ? (uint8_t)ev_random(&random) : bad[at] ^ 1 << ev_below(&random, 8);
        }
        memcpy(s.map, bad, size);
        read_damaged(&random);
    }
    free(good);
    free(bad);
    drop(&s, path);
}

/* A damaged record ends its chunk; the other chunks are read. */
static void one_damaged_record(void **state)
{
    struct gs_spool s;
    struct gs_writer a, b;
    uint32_t thread, n = 0;
    create(&s, NULL);
    gs_writer_open(&a, &s);
    gs_writer_open(&b, &s);
    for (uint32_t i = 0; i < 3000; i++) {
        put(&a, i, i, 32);
        put(&b, i, i, 32);
    }
    struct gs_rec *rec = (void *)((uint8_t *)gs_spool_chunk(&s, 0) + 64 + 100 * 32);
    rec->size = 0;
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_reader_poll(r, 0, true);
    while (gs_reader_next(r, &thread)) n++;
    assert_int_equal(gs_reader_damaged(r), 1);
    assert_int_equal(n, 6000 - ((GS_CHUNK_BYTES - 64) / 32 - 100));
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* Two chunks with one number: reading the second must not start at the end of the first. */
static void a_number_twice(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    uint32_t thread, n = 0;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    while (w.chunk != gs_spool_chunk(&s, 1)) {
        put(&w, n, n, 32);
        n++;
    }
    put(&w, n, n, 64);
    struct gs_chunk *first = gs_spool_chunk(&s, 0), *second = gs_spool_chunk(&s, 1);
    second->seq = first->seq;
    atomic_store(&second->used, GS_CHUNK_BYTES - 64); /* bytes that are not checked */
    memset((uint8_t *)(second + 1) + 96, 0x29, GS_CHUNK_BYTES - 64 - 96);
    atomic_store(&first->used, 96 + 8 * 13);
    *(struct gs_rec *)(void *)((uint8_t *)(first + 1) + 96) =
        (struct gs_rec){.size = 8 * 13, .type = GS_REC_MARK, .time_ns = 3};
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_reader_poll(r, 0, true);
    for (n = 0; gs_reader_next(r, &thread); n++) assert_true(n < 10);
    assert_int_equal(n, 4);
    assert_int_equal(gs_reader_damaged(r), 1);
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- cost */

static void cost(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    uint32_t thread;
    create(&s, path);
    gs_writer_open(&w, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    uint64_t write_ns = 0, read_ns = 0, n = 0;
    for (int round = 0; round < 40; round++) {
        uint64_t begin = clock_ns();
        for (uint32_t i = 0; i < 50000; i++) {
            gs_writer_busy(&w);
            put(&w, n + i, i, 56);
        }
        uint64_t middle = clock_ns();
        gs_reader_poll(r, 1ull << 40, false);
        while (gs_reader_next(r, &thread)) n++;
        gs_reader_release(r);
        write_ns += middle - begin;
        read_ns += clock_ns() - middle;
    }
    assert_int_equal(n, 2000000);
    print_message("a record of 56 bytes: %.1f ns to write, %.1f ns to read\n", (double)write_ns / (double)n,
                  (double)read_ns / (double)n);
    gs_reader_close(r);
    drop(&s, path);
}

/* ---------------------------------------------------------------- threads that end unseen */

static pthread_barrier_t all_wrote;

static void *write_and_vanish(void *spool)
{
    struct gs_writer w;
    gs_writer_open(&w, spool);
    if (!put(&w, 5, w.thread, 32)) abort();
    gs_writer_busy(&w); /* as if it had begun its next event */
    pthread_barrier_wait(&all_wrote);
    return NULL; /* no gs_writer_close */
}

static void buried(void **state)
{
    struct gs_spool s;
    struct gs_writer mine;
    pthread_t thread[20];
    uint32_t from, seen = 0;
    create(&s, NULL);
    gs_writer_open(&mine, &s);
    assert_true(put(&mine, 5, mine.thread, 32));
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    pthread_barrier_init(&all_wrote, NULL, 21);
    for (int i = 0; i < 20; i++) assert_int_equal(pthread_create(&thread[i], NULL, write_and_vanish, &s), 0);
    while (taken(&s) < 21) usleep(100);
    gs_reader_bury(r); /* they are alive: nothing happens */
    gs_reader_poll(r, 1000000000, false);
    while (gs_reader_next(r, &from)) seen++;
    gs_reader_release(r);
    assert_int_equal(taken(&s), 21);
    pthread_barrier_wait(&all_wrote);
    for (int i = 0; i < 20; i++) pthread_join(thread[i], NULL);
    for (int tries = 0; tries < 1000 && taken(&s) > 1; tries++) {
        usleep(1000); /* a joined thread may exist for a moment */
        gs_reader_bury(r);
        gs_reader_poll(r, 2000000000, false);
        while (gs_reader_next(r, &from)) seen++;
        gs_reader_release(r);
    }
    assert_int_equal(taken(&s), 1); /* only this thread's is left */
    assert_int_equal(seen, 21);
    assert_true(put(&mine, 6, mine.thread, 32));
    pthread_barrier_destroy(&all_wrote);
    gs_reader_close(r);
    gs_writer_close(&mine);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- parked writers */

static void *put_and_park(void *at)
{
    struct gs_writer *w = at;
    if (w->chunk) gs_writer_adopt(w);
    if (!put(w, 5, 1, 32) || !gs_writer_park(w)) abort();
    return NULL;
}

static void parking(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    pthread_t thread;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_false(gs_writer_park(&w)); /* it has nothing to park */
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(pthread_create(&thread, NULL, put_and_park, &w), 0);
        pthread_join(thread, NULL);
        assert_int_equal(w.thread, 1);
    }
    assert_int_equal(taken(&s), 3);
    gs_spool_close(&s);
}

/* A burial at any moment between a thread's end and the adoption of its writer. */
static void parked_is_not_buried(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    pthread_t thread;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(pthread_create(&thread, NULL, put_and_park, &w), 0);
        for (int k = 0; k < i % 8; k++) gs_reader_bury(r);
        pthread_join(thread, NULL);
        gs_reader_bury(r);
        assert_int_equal(w.chunk->state, GS_CHUNK_TAKEN);
    }
    gs_writer_adopt(&w);
    gs_reader_bury(r);
    assert_int_equal(w.chunk->state, GS_CHUNK_TAKEN);
    gs_reader_close(r);
    gs_spool_close(&s);
}

CASES_WITHIN(setup, teardown, in_and_out, too_large, order, definitions, many_definitions_without_an_event,
             many_threads_one_after_another, full, a_chunk_given_up, threads_at_once, parking, parked_is_not_buried,
             one_damaged_record, a_number_twice, damage, buried, cost)
