/* The table of allocations as lifetimes: in order of id, in batches, as they are stored.
 *
 * An aggregate function is called for each row as the table is scanned: no trip through sqlite3_step and its locks for
 * each row and column, which is three times as fast. A long table is decoded on a thread of its own while the caller
 * works on the batch before; nothing else may use the database until the scan ends.
 *
 * A scan of the whole table notes for every batch when its first lifetime begins and its last one ends. A question
 * about a few moments then reads only the batches that can answer it. */
#include "analyzer/run/rows.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 1024, QUEUE = 4, LONG_TABLE = 1 << 16 };

struct reader {
    struct run_database *db;
    sqlite3_stmt *statement;
    run_rows_fn each;
    void *self;
    struct run_rows_zone zone; /* of the batch that is filled */
    bool zones;                /* are noted */
    struct run_stored *batch;  /* the one that is filled */
    size_t n;
    /* with a thread: batches go through a ring; `lock` guards what follows */
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct run_stored *ring[QUEUE];
    size_t sizes[QUEUE];
    unsigned written, read;
    bool ended;
    int result;
};

static void wait_for_room(struct reader *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->written - r->read == QUEUE) pthread_cond_wait(&r->changed, &r->lock);
    r->batch = r->ring[r->written % QUEUE];
    pthread_mutex_unlock(&r->lock);
}

static void hand_over(struct reader *r)
{
    if (!r->n) return;
    if (r->zones) *ARENA_PUSH(r->db->zones, r->db->zones_n, r->db->zones_cap) = r->zone;
    if (r->threaded) {
        pthread_mutex_lock(&r->lock);
        r->sizes[r->written++ % QUEUE] = r->n;
        pthread_cond_signal(&r->changed);
        pthread_mutex_unlock(&r->lock);
        wait_for_room(r);
    } else {
        r->each(r->self, r->batch, r->n);
    }
    r->n = 0;
}

static void note_zone(struct reader *r, int64_t id, const struct run_lifetime *life)
{
    struct run_rows_zone *z = &r->zone;
    if (r->n == 0) *z = (struct run_rows_zone){.first = id, .begin_ns = INT64_MAX, .end_ns = INT64_MIN};
    z->last = id;
    z->begin_ns = life->alloc_ns < z->begin_ns ? life->alloc_ns : z->begin_ns;
    z->end_ns = life->free_ns > z->end_ns ? life->free_ns : z->end_ns;
}

/* `kind` is unpacked here (GS_ALLOCATION_KIND): reading the view's columns costs several times as much. */
enum { ID, KIND, BYTES, ALLOC_NS, LIFE_NS, ALLOC_STACK, ADDRESS, STREAM, FREE_STACK };
static const char *const columns[] = {
    [RUN_ROWS_SHORT] = "id, kind, bytes, alloc_ns, life_ns, alloc_stack_id",
    [RUN_ROWS_ADDRESSES] = "id, kind, bytes, alloc_ns, life_ns, alloc_stack_id, address, stream",
    [RUN_ROWS_WHOLE] = "id, kind, bytes, alloc_ns, life_ns, alloc_stack_id, address, stream, free_stack_id",
};

static void decode_row(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct reader *r = sqlite3_user_data(context);
    int64_t kind = sqlite3_value_int64(v[KIND]);
    struct run_stored *row = &r->batch[r->n];
    row->life = (struct run_lifetime){
        .series = RUN_NONE,
        .location = RUN_NONE,
        .stack = run_ids_get(&r->db->stacks, sqlite3_value_int64(v[ALLOC_STACK])),
        .thread = (uint32_t)((kind >> 23) + 2),
        .api = kind >> 12 & 2047,
        .device = (int16_t)((kind >> 5 & 127) - 1),
        .layer = kind & 3,
        .space = kind >> 2 & 7,
        .bytes = sqlite3_value_int64(v[BYTES]),
        .alloc_ns = sqlite3_value_int64(v[ALLOC_NS]),
        .free_ns = RUN_NEVER,
        .address = n > ADDRESS ? (uint64_t)sqlite3_value_int64(v[ADDRESS]) : 0,
        .stream = n > STREAM ? (uint64_t)sqlite3_value_int64(v[STREAM]) : 0,
    };
    row->free_stack = n > FREE_STACK ? run_ids_get(&r->db->stacks, sqlite3_value_int64(v[FREE_STACK])) : RUN_NONE;
    row->backwards = false;
    if (sqlite3_value_type(v[LIFE_NS]) != SQLITE_NULL) {
        int64_t age = sqlite3_value_int64(v[LIFE_NS]);
        row->backwards = age < 0;
        row->life.free_ns = arena_add_capped(row->life.alloc_ns, age < 0 ? 0 : age);
    }
    if (r->zones) note_zone(r, sqlite3_value_int64(v[ID]), &row->life);
    if (++r->n == BATCH) hand_over(r);
}

static void end_rows(sqlite3_context *context)
{
    sqlite3_result_null(context);
}

static bool prepare(struct reader *r, enum run_rows_columns what, const char *where)
{
    char sql[512];
    snprintf(sql, sizeof sql, "SELECT gs_row(%s) FROM %s NOT INDEXED %s", columns[what], r->db->allocations, where);
    if (sqlite3_create_function(r->db->db, "gs_row", -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, r, NULL, decode_row,
                                end_rows) == SQLITE_OK) {
        r->statement = run_database_prepare(r->db, sql);
    }
    return r->statement;
}

static void *scan(void *reader)
{
    struct reader *r = reader;
    r->result = sqlite3_step(r->statement);
    hand_over(r);
    if (r->threaded) {
        pthread_mutex_lock(&r->lock);
        r->ended = true;
        pthread_cond_signal(&r->changed);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

static bool take(struct reader *r, unsigned *at)
{
    pthread_mutex_lock(&r->lock);
    while (r->written == r->read && !r->ended) pthread_cond_wait(&r->changed, &r->lock);
    bool more = r->written != r->read;
    *at = r->read % QUEUE;
    pthread_mutex_unlock(&r->lock);
    return more;
}

static void give_back(struct reader *r)
{
    pthread_mutex_lock(&r->lock);
    r->read++;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* False where there is no second thread to be had: the caller scans. Signals are the caller's. */
static bool start_thread(struct reader *r, pthread_t *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    r->threaded = pthread_create(thread, NULL, scan, r) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r->threaded;
}

static void scan_beside(struct reader *r)
{
    pthread_t thread;
    unsigned at;
    for (unsigned i = 0; i < QUEUE; i++) r->ring[i] = arena_realloc(NULL, BATCH, sizeof **r->ring);
    r->batch = r->ring[0];
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    if (start_thread(r, &thread)) {
        while (take(r, &at)) {
            r->each(r->self, r->ring[at], r->sizes[at]);
            give_back(r);
        }
        pthread_join(thread, NULL);
    } else {
        scan(r);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    for (unsigned i = 0; i < QUEUE; i++) free(r->ring[i]);
}

static bool finish(struct reader *r, char *error, size_t error_size)
{
    bool ok = (r->statement && r->result == SQLITE_ROW) || run_database_bad(r->db, error, error_size);
    sqlite3_finalize(r->statement);
    return ok;
}

bool run_rows_scan(struct run_database *db, enum run_rows_columns what, uint64_t about, run_rows_fn each, void *self,
                   char *error, size_t error_size)
{
    struct reader r = {.db = db, .each = each, .self = self, .zones = true};
    db->zones_n = 0;
    if (prepare(&r, what, "")) {
        if (about >= LONG_TABLE) {
            scan_beside(&r);
        } else {
            r.batch = arena_realloc(NULL, BATCH, sizeof *r.batch);
            scan(&r);
            free(r.batch);
        }
    }
    db->zoned = finish(&r, error, error_size);
    return db->zoned;
}

/* The ids from the zone at *i on that can be live between two moments, as one range with the zones that follow. */
static bool next_range(const struct run_database *db, size_t *i, int64_t from_ns, int64_t to_ns, int64_t range[2])
{
    bool found = false;
    for (; *i < db->zones_n; (*i)++) {
        const struct run_rows_zone *z = &db->zones[*i];
        bool can = z->begin_ns <= to_ns && z->end_ns > from_ns;
        if (found && !can) return true;
        if (can) {
            range[0] = found ? range[0] : z->first;
            range[1] = z->last;
            found = true;
        }
    }
    return found;
}

bool run_rows_live(struct run_database *db, int64_t from_ns, int64_t to_ns, run_rows_fn each, void *self, char *error,
                   size_t error_size)
{
    struct reader r = {.db = db, .each = each, .self = self, .result = SQLITE_ROW};
    int64_t range[2] = {INT64_MIN, INT64_MAX};
    char where[256];
    size_t zone = 0;
    snprintf(where, sizeof where,
             "WHERE id BETWEEN ?1 AND ?2 AND (life_ns IS NULL OR alloc_ns + life_ns > %lld) AND alloc_ns <= %lld",
             (long long)from_ns, (long long)to_ns);
    if (!prepare(&r, RUN_ROWS_WHOLE, where)) return finish(&r, error, error_size);
    r.batch = arena_realloc(NULL, BATCH, sizeof *r.batch);
    while (r.result == SQLITE_ROW && (!db->zoned || next_range(db, &zone, from_ns, to_ns, range))) {
        sqlite3_reset(r.statement);
        sqlite3_bind_int64(r.statement, 1, range[0]);
        sqlite3_bind_int64(r.statement, 2, range[1]);
        scan(&r);
        if (!db->zoned) break;
    }
    free(r.batch);
    return finish(&r, error, error_size);
}

bool run_rows_last(struct run_database *db, int64_t rows_n, run_rows_fn each, void *self, char *error,
                   size_t error_size)
{
    struct reader r = {.db = db, .each = each, .self = self};
    char where[256];
    snprintf(where, sizeof where, "WHERE id > (SELECT max(id) FROM %s) - %lld", db->allocations, (long long)rows_n);
    if (prepare(&r, RUN_ROWS_WHOLE, where)) {
        r.batch = arena_realloc(NULL, BATCH, sizeof *r.batch);
        scan(&r);
        free(r.batch);
    }
    return finish(&r, error, error_size);
}
