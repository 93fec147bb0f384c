/* Reads the table of allocations in order of id, in batches: the rows as they are stored, or with their frees in order
 * of time.
 *
 * The whole table is read from the pages of its file if possible (pages.c). Otherwise SQLite calls an aggregate
 * function for each row while it scans the table, which avoids sqlite3_step and its locks for each row and column. A
 * separate thread decodes a long table while the caller works on the previous batch; nothing else may use the database
 * until the scan ends.
 *
 * A scan of the whole table notes for every batch when its first lifetime begins and its last one ends. A question
 * about a few moments then reads only the batches that can answer it.
 */
#include "analyzer/run/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/relay.h"
#include "analyzer/run/asleep.h"
#include "analyzer/run/pages.h"
#include "analyzer/base/sort.h"
#include "schema/store.h"

struct reader {
    struct run_database *db;
    sqlite3_stmt *statement;
    run_rows_fn each;
    void *self;
    enum run_rows_columns what;
    struct run_rows_zone zone; /* of the batch that is being filled */
    bool zones;                /* are noted */
    const int64_t *moments;    /* ascending; rows that are live at none of them are not passed. NULL: all are */
    size_t moments_n;          /* that are left */
    const _Atomic bool *stop;  /* NULL: never */
    struct run_rows *batch;    /* the one that is being filled */
    struct relay *relay;       /* NULL: the caller's own thread scans */
    struct run_rows *slots[RELAY_SLOTS];
    struct run_order *order;   /* NULL: frees are not passed */
    struct run_asleep *asleep; /* NULL: no memory was unmapped */
    struct run_row_check check;
    int result;
};

static struct run_rows *new_batch(void)
{
    struct run_rows *batch = arena_realloc(NULL, 1, sizeof *batch);
    batch->events = NULL;
    batch->events_cap = 0;
    return batch;
}

static void free_batch(struct run_rows *batch)
{
    ARENA_RELEASE(batch->events, batch);
}

static void begin_rows(struct reader *r)
{
    if (r->relay) r->batch = r->slots[relay_wait_for_slot(r->relay)];
    r->batch->n = r->batch->read = r->batch->events_n = 0;
}

static bool is_scan_stopped(const struct reader *r)
{
    return r->stop && *r->stop;
}

static bool add_mapped_again(struct reader *r, int64_t before);

/* `last`: all rows have been added. False: no more rows are needed. */
static bool hand_over(struct reader *r, bool last)
{
    if (last && r->asleep) (void)add_mapped_again(r, RUN_NEVER);
    if (r->order) run_order_batch(r->order, r->batch, last);
    if (!r->batch->read && !r->batch->events_n) return true;
    if (r->zones && r->batch->n) *ARENA_ADD(r->db->zones) = r->zone;
    if (r->relay)
        relay_put(r->relay);
    else
        r->each(r->self, r->batch);
    begin_rows(r);
    return !is_scan_stopped(r);
}

static void note_zone(struct reader *r, int64_t id, const struct run_lifetime *life)
{
    struct run_rows_zone *z = &r->zone;
    if (r->batch->n == 0) *z = (struct run_rows_zone){.first = id, .begin_ns = INT64_MAX, .end_ns = INT64_MIN};
    z->last = id;
    z->begin_ns = life->alloc_ns < z->begin_ns ? life->alloc_ns : z->begin_ns;
    z->end_ns = life->free_ns > z->end_ns ? life->free_ns : z->end_ns;
}

/* The rows are in the order of allocation. */
static bool is_live_at_moment(struct reader *r, const struct run_lifetime *life)
{
    for (; r->moments_n && *r->moments < life->alloc_ns; r->moments++) r->moments_n--;
    return r->moments_n && life->free_ns > *r->moments;
}

/* Adds the row that was written after the batch's last one. */
static bool add_written_row(struct reader *r)
{
    if (r->moments && !is_live_at_moment(r, &r->batch->rows[r->batch->n].life)) return true;
    return ++r->batch->n < RUN_ROWS_BATCH || hand_over(r, false);
}

/* Adds the lifetimes that begin before that time because memory was mapped again. */
static bool add_mapped_again(struct reader *r, int64_t before)
{
    bool more = true;
    while (more && run_asleep_next(r->asleep, before, &r->batch->rows[r->batch->n])) more = add_written_row(r);
    return more;
}

enum { ID, KIND, ADDRESS, BYTES, ALLOC_NS, LIFE_NS, STREAM, ALLOC_STACK, FREE_STACK, COLUMNS };
static const char *const names[] = {"id",      "kind",   "address",        "bytes",        "alloc_ns",
                                    "life_ns", "stream", "alloc_stack_id", "free_stack_id"};
_Static_assert(sizeof names / sizeof *names == COLUMNS && (int)COLUMNS == (int)RUN_PAGES_COLUMNS, "a name each");

/* `kind` is unpacked here (GS_ALLOCATION_KIND): reading the view's columns costs several times as much. */
static bool add_lifetime_row(void *reader, const struct run_page_row *page_row)
{
    struct reader *r = reader;
    const int64_t *v = page_row->values;
    int64_t kind = v[KIND];
    struct run_stored *row = &r->batch->rows[r->batch->n];
    row->life.device = (int8_t)((kind >> 5 & 127) - 1);
    row->life.alloc_ns = v[ALLOC_NS];
    row->life.free_ns = RUN_NEVER;
    row->life.bytes = gs_bytes_unpack(kind, v[BYTES], &row->life.extra);
    row->backwards = row->left_out = false;
    if (!(page_row->nulls >> LIFE_NS & 1)) {
        int64_t age = v[LIFE_NS];
        row->backwards = age < 0;
        row->life.free_ns = arena_add_capped(row->life.alloc_ns, age < 0 ? 0 : age);
    }
    r->batch->read++;
    if (!run_row_check(&r->check, row) && !(r->order && row->left_out && r->check.run->backward.any)) return true;
    if (r->moments && !r->asleep && !is_live_at_moment(r, &row->life)) return true;
    row->life.series = row->life.location = RUN_NONE;
    row->life.stack = run_ids_get(&r->db->stacks, v[ALLOC_STACK]);
    row->life.thread = (uint32_t)((kind >> 23) + 2);
    row->life.api = kind >> 12 & 2047;
    row->life.layer = kind & 3;
    row->life.space = kind >> 2 & 7;
    row->life.address = r->what >= RUN_ROWS_ADDRESSES ? (uint64_t)v[ADDRESS] : 0;
    row->life.stream = r->what >= RUN_ROWS_ADDRESSES ? (uint64_t)v[STREAM] : 0;
    row->free_stack = r->what == RUN_ROWS_WHOLE ? run_ids_get(&r->db->stacks, v[FREE_STACK]) : RUN_NONE;
    if (r->zones) note_zone(r, page_row->id, &row->life);
    if (!r->asleep) return ++r->batch->n < RUN_ROWS_BATCH || hand_over(r, false);
    struct run_stored copy = *row;
    run_asleep_divide(r->asleep, &copy);
    if (!add_mapped_again(r, copy.life.alloc_ns)) return false;
    r->batch->rows[r->batch->n] = copy;
    return add_written_row(r);
}

static const uint8_t selected[] = {ID, KIND, BYTES, ALLOC_NS, LIFE_NS, ALLOC_STACK, ADDRESS, STREAM, FREE_STACK};
static const uint8_t selected_n[] = {[RUN_ROWS_SHORT] = 6, [RUN_ROWS_ADDRESSES] = 8, [RUN_ROWS_WHOLE] = 9};

static void add_sql_row(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct run_page_row row = {.nulls = 0};
    for (int i = 0; i < n; i++) row.values[selected[i]] = sqlite3_value_int64(v[i]);
    row.id = row.values[ID];
    row.nulls = (uint32_t)(sqlite3_value_type(v[4]) == SQLITE_NULL) << LIFE_NS;
    (void)add_lifetime_row(sqlite3_user_data(context), &row);
}

static bool prepare_rows(struct reader *r, const char *where)
{
    char sql[512] = "SELECT gs_row(id";
    for (unsigned i = 1; i < selected_n[r->what]; i++)
        snprintf(sql + strlen(sql), sizeof sql - strlen(sql), ", %s", names[selected[i]]);
    snprintf(sql + strlen(sql), sizeof sql - strlen(sql), ") FROM %s NOT INDEXED %s", r->db->allocations, where);
    if (sqlite3_create_function(r->db->db, "gs_row", -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, r, NULL, add_sql_row,
                                sqlite3_result_null) == SQLITE_OK)
        r->statement = run_database_prepare(r->db, sql);
    return r->statement;
}

static void scan_rest(struct reader *r, const char *where)
{
    r->result = prepare_rows(r, where) ? sqlite3_step(r->statement) : SQLITE_ERROR;
    hand_over(r, true);
}

static void scan_rows(struct reader *r)
{
    int64_t last;
    char where[64] = "";
    const struct run_pages_ids all = {INT64_MIN, INT64_MAX};
    if (run_pages_scan(r->db, r->db->allocations, names, &all, 1, add_lifetime_row, r, &last) || is_scan_stopped(r)) {
        r->result = SQLITE_ROW;
        hand_over(r, true);
        return;
    }
    if (last != INT64_MIN) snprintf(where, sizeof where, "WHERE id > %lld", (long long)last);
    scan_rest(r, where);
}

static void *scan_for_relay(void *reader)
{
    struct reader *r = reader;
    begin_rows(r);
    scan_rows(r);
    relay_end(r->relay);
    return NULL;
}

static void scan_here(struct reader *r)
{
    r->batch = new_batch();
    begin_rows(r);
    scan_rows(r);
    free_batch(r->batch);
}

static void scan_beside(struct reader *r)
{
    struct relay relay;
    pthread_t thread;
    unsigned slot;
    for (unsigned i = 0; i < RELAY_SLOTS; i++) r->slots[i] = new_batch();
    relay_init(&relay);
    r->relay = &relay;
    if (relay_start(&thread, scan_for_relay, r)) {
        while (relay_take(&relay, &slot)) {
            r->each(r->self, r->slots[slot]);
            relay_give_back(&relay);
        }
        pthread_join(thread, NULL);
    } else {
        r->relay = NULL;
        scan_here(r);
    }
    relay_free(&relay);
    for (unsigned i = 0; i < RELAY_SLOTS; i++) free_batch(r->slots[i]);
}

static bool finish_rows(struct reader *r, char *error, size_t error_size)
{
    bool ok = r->result == SQLITE_ROW || run_database_bad(r->db, error, error_size);
    run_asleep_free(r->asleep);
    sqlite3_finalize(r->statement);
    return ok;
}

/* A what-if needs the lifetimes as PyTorch's allocator knows them. */
static struct reader reader_of(struct run *run, uint32_t process, run_rows_fn each, void *self)
{
    return (struct reader){.asleep = run->as_requested ? NULL : run_asleep_new(run, process),
                           .db = &run->databases[run->processes[process].database],
                           .what = RUN_ROWS_WHOLE,
                           .each = each,
                           .self = self,
                           .check.run = run};
}

static bool scan_table(struct reader *r, uint32_t process, char *error, size_t error_size)
{
    r->zones = !r->moments;
    if (r->zones) r->db->zones_n = 0;
    if (r->check.run->processes[process].allocations >= RUN_ROWS_MANY)
        scan_beside(r);
    else
        scan_here(r);
    const bool ok = finish_rows(r, error, error_size);
    if (r->zones) r->db->zoned = ok && !is_scan_stopped(r);
    return ok;
}

bool run_rows_scan(struct run *run, uint32_t process, run_rows_fn each, void *self, char *error, size_t error_size)
{
    struct reader r = reader_of(run, process, each, self);
    return scan_table(&r, process, error, error_size);
}

bool run_rows_lasting(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_rows_fn each, void *self,
                      char *error, size_t error_size)
{
    struct reader r = reader_of(run, process, each, self);
    r.moments = moments;
    r.moments_n = n;
    return !n || scan_table(&r, process, error, error_size);
}

bool run_rows_replay(struct run *run, uint32_t process, enum run_rows_columns what, size_t kept, run_rows_fn each,
                     void *self, uint64_t *damaged, char *error, size_t error_size)
{
    struct reader r = reader_of(run, process, each, self);
    r.what = r.asleep && what < RUN_ROWS_ADDRESSES ? RUN_ROWS_ADDRESSES : what;
    r.stop = &run->stopped;
    r.order = run_order_new(kept);
    const bool ok = scan_table(&r, process, error, error_size);
    *damaged += r.check.damaged;
    run_order_free(r.order);
    return ok;
}

static bool holds_a_moment(const struct run_rows_zone *z, const int64_t *moments, size_t n)
{
    size_t before = SORT_COUNT(n, i, moments[i] < z->begin_ns);
    return before < n && moments[before] < z->end_ns;
}

struct live { /* rows that are live at or between moments */
    struct reader r;
    struct run_pages_ids *ranges; /* that can contain such rows, adjacent zones as one */
    size_t ranges_n, ranges_cap;
    int64_t first_ns, last_ns;
};

static void find_ranges(struct live *l, const int64_t *moments, size_t n)
{
    const struct run_database *db = l->r.db;
    bool adjacent = false;
    if (!db->zoned) *ARENA_PUSH(l->ranges, l->ranges_n, l->ranges_cap) = (struct run_pages_ids){INT64_MIN, INT64_MAX};
    for (size_t i = 0; db->zoned && i < db->zones_n; i++) {
        const struct run_rows_zone *z = &db->zones[i];
        const bool can = holds_a_moment(z, moments, n);
        if (can && adjacent)
            l->ranges[l->ranges_n - 1].last = z->last;
        else if (can)
            *ARENA_PUSH(l->ranges, l->ranges_n, l->ranges_cap) = (struct run_pages_ids){z->first, z->last};
        adjacent = can;
    }
}

/* As SQL decides below, whose sums do not overflow. */
static bool add_row_if_live(void *live, const struct run_page_row *row)
{
    struct live *l = live;
    int64_t end;
    const bool beyond = __builtin_add_overflow(row->values[ALLOC_NS], row->values[LIFE_NS], &end);
    const bool ends_later = row->nulls >> LIFE_NS & 1 || (beyond ? row->values[LIFE_NS] > 0 : end > l->first_ns);
    if (!ends_later || row->values[ALLOC_NS] > l->last_ns) return true;
    return add_lifetime_row(&l->r, row);
}

/* The rows of the ranges after the id `last`; INT64_MIN: all. */
static void query_live(struct live *l, int64_t last)
{
    struct reader *r = &l->r;
    char where[256];
    snprintf(where, sizeof where,
             "WHERE id BETWEEN ?1 AND ?2 AND (life_ns IS NULL OR alloc_ns + life_ns > %lld) AND alloc_ns <= %lld",
             (long long)l->first_ns, (long long)l->last_ns);
    r->result = prepare_rows(r, where) ? SQLITE_ROW : SQLITE_ERROR;
    for (size_t i = 0; i < l->ranges_n && r->result == SQLITE_ROW; i++) {
        const struct run_pages_ids *ids = &l->ranges[i];
        if (last != INT64_MIN && ids->last <= last) continue;
        sqlite3_reset(r->statement);
        sqlite3_bind_int64(r->statement, 1, last != INT64_MIN && ids->first <= last ? last + 1 : ids->first);
        sqlite3_bind_int64(r->statement, 2, ids->last);
        r->result = sqlite3_step(r->statement);
    }
}

bool run_rows_live(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_rows_fn each, void *self,
                   char *error, size_t error_size)
{
    struct live l = {.r = reader_of(run, process, each, self), .first_ns = moments[0], .last_ns = moments[n - 1]};
    struct reader *r = &l.r;
    int64_t last;
    find_ranges(&l, moments, n);
    r->batch = new_batch();
    r->result = SQLITE_ROW;
    begin_rows(r);
    if (!run_pages_scan(r->db, r->db->allocations, names, l.ranges, l.ranges_n, add_row_if_live, &l, &last))
        query_live(&l, last);
    hand_over(r, true);
    free_batch(r->batch);
    free(l.ranges);
    return finish_rows(r, error, error_size);
}

bool run_rows_last(struct run *run, uint32_t process, int64_t rows_n, run_rows_fn each, void *self, char *error,
                   size_t error_size)
{
    struct reader r = reader_of(run, process, each, self);
    char where[256];
    snprintf(where, sizeof where, "WHERE id > (SELECT max(id) FROM %s) - %lld", r.db->allocations, (long long)rows_n);
    r.batch = new_batch();
    begin_rows(&r);
    scan_rest(&r, where);
    free_batch(r.batch);
    return finish_rows(&r, error, error_size);
}
