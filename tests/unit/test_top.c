/* gpuspy top's model: reading new rows in parts finds everything, however little it may read at a time. */
#include "tests/unit/events.h"

#include "analyzer/fleet/fleet.h"
#include "analyzer/top/model.h"

enum { ADDRESSES = 3000, ROUNDS = 40 };

static char *folder;
static char db[300], spool_path[320];

struct bench { /* a spool and a database, as of a recording process: this one */
    struct gs_spool spool;
    struct gs_writer w;
    struct gs_reader *r;
    struct gs_store *s;
    struct top_model *m;
    uint64_t time, step, random;
    int64_t live[ADDRESSES]; /* bytes, 0 none */
};

static void begin(struct bench *b)
{
    memset(b, 0, sizeof *b);
    b->random = 4711;
    b->step = 1000000; /* a millisecond */
    snprintf(db, sizeof db, "%s/run.db", folder);
    snprintf(spool_path, sizeof spool_path, "%s.spool", db);
    unlink(db);
    unlink(spool_path);
    assert_int_equal(gs_spool_create(&b->spool, spool_path, "run", "", 0, 0), 0);
    gs_writer_open(&b->w, &b->spool);
    b->s = ev_store(db);
    b->r = gs_reader_open(&b->spool, NULL, 0);
    b->m = top_model_new(NULL, NULL);
    top_model_add(b->m, db);
}

static void end(struct bench *b)
{
    top_model_free(b->m);
    gs_store_close(b->s);
    gs_reader_close(b->r);
    gs_spool_unlink(&b->spool, spool_path);
    gs_spool_close(&b->spool);
}

static void put(struct bench *b, uint32_t at, int64_t bytes)
{
    b->time += b->step;
    if (bytes > 0) {
        struct gs_rec_alloc a = {.rec = EV_REC(GS_REC_ALLOC, 0, b->time),
                                 .address = (at + 1) * 65536ull,
                                 .bytes = (uint64_t)bytes,
                                 .layer = GS_LAYER_DEVICE,
                                 .space = GS_SPACE_DEVICE};
        EV_PUT(&b->w, a);
    } else {
        struct gs_rec_free f = {.rec = EV_REC(GS_REC_FREE, 0, b->time),
                                .address = (at + 1) * 65536ull,
                                .layer = GS_LAYER_DEVICE,
                                .space = GS_SPACE_DEVICE};
        EV_PUT(&b->w, f);
    }
    b->live[at] = bytes;
}

static void commit(struct bench *b)
{
    gs_reader_poll(b->r, UINT64_MAX / 2, true);
    ev_drain(b->r, b->s);
    assert_int_equal(gs_store_commit(b->s, b->r), 0);
    gs_reader_release(b->r);
}

static int64_t sum_live(const struct bench *b, uint64_t *count)
{
    int64_t sum = 0;
    *count = 0;
    for (int i = 0; i < ADDRESSES; i++) {
        sum += b->live[i];
        *count += b->live[i] > 0;
    }
    return sum;
}

/* Frees and allocates some of the addresses, old and young ones. */
static void churn(struct bench *b, int events)
{
    for (int i = 0; i < events; i++) {
        uint32_t at = ev_below(&b->random, ADDRESSES);
        put(b, at, b->live[at] ? 0 : 1 + ev_below(&b->random, 100000));
    }
}

static void check(struct bench *b)
{
    uint64_t count;
    const int64_t sum = sum_live(b, &count);
    const struct top_source *s = &b->m->sources[0];
    const struct top_series *series = top_series_find(b->m, 0, 0, TOP_DEVICE);
    assert_int_equal(s->state, TOP_RECORDING);
    assert_non_null(series);
    assert_int_equal(series->known, sum);                    /* the recorder states it … */
    assert_int_equal(series->bytes - s->unfound_bytes, sum); /* … and the difference is reported */
    assert_true(s->unfound_bytes >= 0);
    assert_int_equal(s->alive_n, series->count);
    int64_t places = 0;
    for (size_t i = 0; i < b->m->places_n; i++) places += b->m->places[i].bytes;
    assert_int_equal(places, series->bytes);
    if (s->unfound_bytes == 0) assert_int_equal(series->count, count);
}

/* An update that may search for a nanosecond only finds some and states what is missing; one without a limit finds
 * everything. */
static void found_from_row_to_row(void **state)
{
    static struct bench b;
    bool some_missing = false;
    begin(&b);
    churn(&b, 5000);
    commit(&b);
    for (int round = 0; round < ROUNDS; round++) {
        assert_true(top_model_update(b.m, round % 4 == 3 ? 0 : 1));
        check(&b);
        some_missing = some_missing || b.m->sources[0].unfound_bytes > 0;
        if (round % 4 == 3) assert_int_equal(b.m->sources[0].unfound_bytes, 0);
        churn(&b, (int)ev_below(&b.random, 700));
        commit(&b);
    }
    assert_true(some_missing);
    end(&b);
}

/* A free that failed: the allocation is live again. */
static void taken_back(void **state)
{
    static struct bench b;
    begin(&b);
    put(&b, 1, 4096);
    put(&b, 2, 8192);
    commit(&b);
    top_model_update(b.m, 0);
    put(&b, 1, 0);
    commit(&b);
    top_model_update(b.m, 0);
    check(&b);
    struct gs_rec_free f = {.rec = EV_REC(GS_REC_FREE_FAILED, 0, b.time),
                            .address = 2 * 65536,
                            .layer = GS_LAYER_DEVICE,
                            .space = GS_SPACE_DEVICE};
    EV_PUT(&b.w, f);
    b.live[1] = 4096;
    commit(&b);
    top_model_update(b.m, 0);
    check(&b);
    end(&b);
}

/* Events that are only in the spool are not shown, but the display states that they wait; samples of NVML in it are not
 * counted. */
static void records_that_wait(void **state)
{
    static struct bench b;
    begin(&b);
    put(&b, 1, 4096);
    commit(&b);
    top_model_update(b.m, 0);
    assert_int_equal(b.m->sources[0].waiting_bytes, 0);
    assert_int_equal(b.m->sources[0].age_ns, 0);
    struct gs_rec_device_sample sample = {.rec = EV_REC(GS_REC_DEVICE_SAMPLE, 0, b.time + 1), .device = 0};
    EV_PUT(&b.w, sample);
    top_model_update(b.m, 0);
    assert_int_equal(b.m->sources[0].waiting_bytes, 0);
    put(&b, 2, 4096);
    top_model_update(b.m, 0);
    assert_int_equal(b.m->sources[0].waiting_bytes, sizeof(struct gs_rec_alloc));
    assert_int_equal(top_series_find(b.m, 0, 0, TOP_DEVICE)->bytes, 4096);
    commit(&b);
    top_model_update(b.m, 0);
    assert_int_equal(b.m->sources[0].waiting_bytes, 0);
    check(&b);
    end(&b);
}

/* At the end of the recording everything is searched, however little time there is. */
static void ended(void **state)
{
    static struct bench b;
    begin(&b);
    churn(&b, 5000);
    commit(&b);
    top_model_update(b.m, 1);
    churn(&b, 3000);
    commit(&b);
    assert_int_equal(gs_store_finish(b.s, b.time, true, 0, 0, 0), 0);
    assert_false(top_model_update(b.m, 1));
    uint64_t count;
    const int64_t sum = sum_live(&b, &count);
    const struct top_series *series = top_series_find(b.m, 0, 0, TOP_DEVICE);
    assert_int_equal(b.m->sources[0].state, TOP_ENDED);
    assert_int_equal(series->bytes, sum);
    assert_int_equal(series->count, count);
    end(&b);
}

#define SECOND 1000000000ll
#define NO_LIMIT INT64_MAX /* a loaded machine or an emulator may take minutes */

/* What the model knows of a recording, however many updates it took, is what another one reads at once. */
static void check_like_new(struct bench *b)
{
    enum { POINTS = 20 };
    struct top_model *once = top_model_new(NULL, NULL);
    struct top_span a[POINTS], c[POINTS];
    top_model_add(once, db);
    top_model_update(once, 0);
    assert_int_equal(once->sources[0].unread_rows, 0);
    const struct top_series *x = top_series_find(b->m, 0, 0, TOP_DEVICE), *y = top_series_find(once, 0, 0, TOP_DEVICE);
    const int64_t now = once->sources[0].now_ns, from = once->sources[0].curve_from_ns;
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->count, y->count);
    assert_int_equal(top_ring_sum(&x->ring, now, 60).amount, top_ring_sum(&y->ring, now, 60).amount);
    assert_int_equal(top_curve_read(&x->curve, now, x->known, from, 5, a, POINTS),
                     top_curve_read(&y->curve, now, y->known, from, 5, c, POINTS));
    assert_memory_equal(a, c, sizeof a);
    top_model_free(once);
}

static int64_t sum_before(const struct bench *b)
{
    int64_t sum = 0;
    EACH (p, b->m->places, b->m->places_n) sum += p->before;
    return sum;
}

/* An update reads a piece only: the live bytes are known at once, everything else after some updates, although the
 * program goes on. */
static void read_in_pieces(void **state)
{
    static struct bench b;
    uint64_t count;
    begin(&b);
    b.step = SECOND / 10;
    churn(&b, 8000);
    commit(&b);
    const int64_t first = sum_live(&b, &count);
    b.m->turn_ns = 1;
    b.m->piece = 20;
    int updates = 0;
    for (int64_t unread = INT64_MAX; unread; updates++) {
        assert_true(top_model_update(b.m, 1));
        unread = top_model_unread(b.m);
        assert_int_equal(top_series_find(b.m, 0, 0, TOP_DEVICE)->known, sum_live(&b, &count));
        churn(&b, 10);
        commit(&b);
    }
    assert_in_range(updates, 100, 1000);
    assert_int_equal(sum_before(&b), first);
    churn(&b, 500); /* as after a pause: more than an update reads */
    commit(&b);
    top_model_update(b.m, 0);
    assert_true(top_model_unread(b.m) > 0);
    assert_true(top_model_update_whole(b.m, NO_LIMIT));
    top_model_update(b.m, 0);
    check(&b);
    assert_int_equal(b.m->sources[0].unfound_bytes, 0);
    check_like_new(&b);
    assert_int_equal(sum_before(&b), first);
    churn(&b, 500);
    commit(&b);
    assert_int_equal(gs_store_finish(b.s, b.time, true, 0, 0, 0), 0);
    assert_false(top_model_update_whole(b.m, 1)); /* ended: without a limit */
    assert_int_equal(top_series_find(b.m, 0, 0, TOP_DEVICE)->bytes, sum_live(&b, &count));
    end(&b);
}

static void begin_in_pieces(struct bench *b)
{
    begin(b);
    churn(b, 5000);
    commit(b);
    b->m->turn_ns = 1;
    b->m->piece = 20;
}

/* A recording that was deleted, or that can no longer be read, has no end to wait for. */
static void deleted_while_it_is_read(void **state)
{
    static struct bench b;
    begin_in_pieces(&b);
    assert_true(top_model_update(b.m, 0));
    unlink(db);
    assert_false(top_model_update_whole(b.m, 1));
    assert_int_equal(b.m->sources[0].state, TOP_DELETED);
    assert_true(b.m->sources[0].unread_rows > 0); /* what depends on all rows stays unknown */
    end(&b);
}

static int instructions_left; /* in hundreds */

static int interrupt_reading(void *data)
{
    (void)data;
    return --instructions_left == 0;
}

static int make_interruptible(sqlite3 *opened, char **error, const struct sqlite3_api_routines *api)
{
    (void)error;
    (void)api;
    sqlite3_progress_handler(opened, 100, interrupt_reading, NULL);
    return SQLITE_OK;
}

/* Rows that were read before an error count once. */
static void error_in_a_piece(void **state)
{
    static struct bench b;
    int errors = 0;
    begin_in_pieces(&b);
    top_model_update(b.m, 0);
    b.m->piece = 500;
    sqlite3_auto_extension((void (*)(void))make_interruptible);
    for (int after = 10; after < 300; after += 3) {
        churn(&b, 100);
        commit(&b);
        instructions_left = after;
        top_model_update(b.m, 0);
        errors += instructions_left <= 0 && b.m->sources[0].why[0];
        b.m->sources[0].why[0] = 0;
    }
    sqlite3_reset_auto_extension();
    assert_true(errors > 10);
    assert_true(top_model_update_whole(b.m, NO_LIMIT));
    check(&b);
    check_like_new(&b);
    end(&b);
}

/* Nothing is known yet of a program that has only just begun: its rows are not waited for. */
static void metrics_before_the_first_row(void **state)
{
    static struct bench b;
    begin(&b);
    unlink(db);
    struct fleet_recording r = {.pid = 4711, .model = b.m, .tables = {.model = b.m}};
    const int64_t began = clock_now_ns();
    struct fleet f = {.list = {&r}, .n = 1, .lines = 10, .found_ns = began};
    assert_true(fleet_refresh_whole(&f));
    assert_int_equal(b.m->sources[0].state, TOP_WAITING);
    assert_true(clock_now_ns() - began < 10 * SECOND);
    end(&b);
}

static char *metrics_text(struct fleet *f)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    fleet_write(f, true, out);
    fclose(out);
    return text;
}

/* Sums over rows are absent until all rows have been read; what the recorder states itself is there at once. */
static void metrics_of_a_part(void **state)
{
    static struct bench b;
    begin(&b);
    churn(&b, 5000);
    commit(&b);
    b.m->turn_ns = 1;
    b.m->piece = 20;
    struct fleet_recording r = {.pid = 4711, .model = b.m, .tables = {.model = b.m}};
    struct fleet f = {.list = {&r}, .n = 1, .lines = 10};
    top_model_update(b.m, 1);
    for (int whole = 0; whole < 2; whole++) {
        char *text = metrics_text(&f);
        assert_non_null(strstr(text, "\ngpuspy_memory_live_bytes{"));
        assert_int_equal(strstr(text, "\ngpuspy_memory_line_bytes{") != NULL, whole);
        assert_int_equal(strstr(text, "\ngpuspy_memory_growth_bytes_per_second{") != NULL, whole);
        free(text);
        assert_int_equal(top_model_unread(b.m) == 0, whole);
        top_model_update_whole(b.m, NO_LIMIT);
    }
    top_tables_free(&r.tables);
    end(&b);
}

static void rings(void **state)
{
    struct top_ring r = {0};
    for (int i = 0; i < 200; i++) top_ring_add(&r, i * SECOND, 10, 1);
    struct top_sum minute = top_ring_sum(&r, 199 * SECOND + SECOND / 2, 60),
                   late = top_ring_sum(&r, 199 * SECOND + SECOND / 2, 10);
    assert_int_equal(minute.amount, 650); /* 13 slots of five */
    assert_int_equal(minute.count, 65);
    assert_true(minute.seconds > 64 && minute.seconds < 65);
    assert_int_equal(late.count, 10);
    assert_int_equal(top_ring_sum(&r, 230 * SECOND, 10).count, 0);
    assert_int_equal(top_ring_sum(&r, 1000 * SECOND, 60).amount, 0);
    top_ring_add(&r, 100 * SECOND, 10, 1); /* long ago: nothing of it is left */
    assert_int_equal(top_ring_sum(&r, 199 * SECOND, 60).count, 65);
    top_ring_add(&r, 5000 * SECOND, 7, 1);
    assert_int_equal(top_ring_sum(&r, 5000 * SECOND, 60).amount, 7);
}

int main(void)
{
    char name[] = "/tmp/gpuspy-top-XXXXXX", command[400];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_from_row_to_row), cmocka_unit_test(taken_back),
        cmocka_unit_test(records_that_wait),     cmocka_unit_test(ended),
        cmocka_unit_test(read_in_pieces),        cmocka_unit_test(deleted_while_it_is_read),
        cmocka_unit_test(error_in_a_piece),      cmocka_unit_test(metrics_before_the_first_row),
        cmocka_unit_test(metrics_of_a_part),     cmocka_unit_test(rings),
    };
    folder = mkdtemp(name);
    int failed = folder ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    snprintf(command, sizeof command, "rm -r '%s'", folder ? folder : "");
    return system(command) != 0 || failed;
}
