/* Replaces old rows by totals, in a recording of bounded size.
 *
 * A removal begins when the database has nearly filled its limit. It picks a time T so that half of the rows that no
 * removal has visited are older, and visits each table in pieces, one transaction each: first the rows that no removal
 * has visited, then, now and then, those that earlier removals left. It removes a row that ended before T, unless the
 * row was live at a moment that stays complete: the peak of a series, a failure. SQLite reuses the pages, so the file
 * does not exceed its limit. meta.kept_from_ns is T from the first transaction on. */
#include "schema/store_state.h"
#include "schema/system_call.h"
#include "schema/store_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BESIDE_BYTES (12ull << 20) /* part of GPUSPY_KEEP for the log: its limit (PRAGMAS) and a commit … */
#define BESIDE_SHARE 8             /* … or this share of it, for commits while others read … */
#define BESIDE_MAX (64ull << 20)   /* … at most */
#define TOTALS_BYTES \
    (1ull << 20)            /* a commit that writes only totals, or the end, makes the log longer by at most this */
#define TOTALS_SHARE 3      /* this share of the log's part is for those: other commits take up to 2 MiB */
#define PATIENCE_MS 1000    /* a reader that holds a full log for this long ends the recording */
#define PIECE 50000         /* rows that a transaction visits */
#define ROWS_MIN 2000       /* a removal is not worthwhile for fewer unvisited rows */
#define BEFORE_NS 100000000 /* events up to this long before the last failures are kept, too … */
#define BEFORE_MAX 8        /* … for at most this many failures */
#define SAMPLES 512         /* samples before T that stay, per device and source */
#define COUNT_SECONDS 256   /* call_count: seconds before T that become one row */

static const char schema_sql[] =
#include "keep_sql.h"
    ;
#define REMOVED_ROW(s, v, w) "INSERT INTO removed_what VALUES(" #v ",'" w "');"
#define SERIES_ROW(s, v, w) "INSERT INTO series VALUES(" #v ",'" w "');"
static const char words_sql[] = GS_REMOVED_KINDS(REMOVED_ROW) GS_SERIES(SERIES_ROW);

static const struct {
    const char *name, *time, *remove; /* ?1, ?2: first and last id of the piece */
} tables[GS_KEEP_TABLES] = {
#define FROM(table) "DELETE FROM " table " WHERE id BETWEEN ?1 AND ?2 AND "
    [GS_REMOVED_ALLOCATION] = {"allocation_row", "alloc_ns",
                               FROM("allocation_row") GS_KEEP_ALLOCATION("id", "alloc_stack_id")},
    [GS_REMOVED_COPY] = {"copy_row", "start_ns", FROM("copy_row") GS_KEEP_COPY("id", "stack_id")},
    [GS_REMOVED_SYNC] = {"sync", "start_ns", FROM("sync") GS_KEEP_SYNC("id", "stack_id")},
    [GS_REMOVED_MEMSET] = {"memset", "start_ns", FROM("memset") GS_KEEP_MEMSET("id", "stack_id")},
    [GS_REMOVED_MARK] = {"mark", "start_ns", FROM("mark") "gs_remove(4,id,kind,0,0,start_ns,life_ns)"},
};

/* ---------------------------------------------------------------- moments */

int gs_keep_failure(struct gs_keep *k, uint64_t time_ns)
{
    const int64_t t = gs_whole(time_ns);
    if (k->failures.count == GS_KEEP_FAILURES) {
        struct gs_moment *oldest = &k->failures.at[GS_KEEP_FAILURES_FIRST];
        memmove(oldest, oldest + 1, (GS_KEEP_FAILURES - GS_KEEP_FAILURES_FIRST - 1) * sizeof *oldest);
        k->failures.count--;
    }
    struct gs_moment *m = GS_ARRAY_ADD(&k->failures);
    if (!m) return -1;
    *m = (struct gs_moment){t, t};
    return 0;
}

static int order_kept_by_time(const void *a, const void *b)
{
    const struct gs_moment *x = a, *y = b;
    return (x->from_ns > y->from_ns) - (x->from_ns < y->from_ns);
}

static bool add_moment(struct gs_keep *k, struct gs_moment moment, int64_t before_ns)
{
    struct gs_moment *m = GS_ARRAY_ADD(&k->moments);
    if (m) *m = (struct gs_moment){moment.from_ns > before_ns ? moment.from_ns - before_ns : 0, moment.to_ns};
    return m != NULL;
}

static void join_moments(struct gs_keep *k)
{
    size_t n = 0;
    if (k->moments.count) qsort(k->moments.at, k->moments.count, sizeof *k->moments.at, order_kept_by_time);
    for (size_t i = 0; i < k->moments.count; i++) {
        const struct gs_moment m = k->moments.at[i];
        struct gs_moment *last = n ? &k->moments.at[n - 1] : NULL;
        if (last && m.from_ns <= last->to_ns)
            last->to_ns = m.to_ns > last->to_ns ? m.to_ns : last->to_ns;
        else
            k->moments.at[n++] = m;
    }
    k->moments.count = n;
}

static int find_moments(struct gs_store *s)
{
    struct gs_keep *k = &s->keep;
    k->moments.count = 0;
    for (size_t i = 0; i < GS_LEVEL_SERIES; i++)
        if (s->levels.series[i].peaked && !add_moment(k, s->levels.series[i].peak, 0)) return gs_store_no_memory(s);
    for (size_t i = 0; i < k->failures.count; i++)
        if (!add_moment(k, k->failures.at[i], k->failures.count - i <= BEFORE_MAX ? BEFORE_NS : 0))
            return gs_store_no_memory(s);
    join_moments(k);
    return 0;
}

/* Whether a lifetime overlaps one of the moments. */
static bool touches_kept(const struct gs_keep *k, int64_t from_ns, int64_t to_ns)
{
    size_t low = 0, high = k->moments.count;
    while (low < high) { /* finds the first moment that ends at from_ns or later */
        const size_t middle = (low + high) / 2;
        if (k->moments.at[middle].to_ns < from_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low < k->moments.count && k->moments.at[low].from_ns <= to_ns;
}

/* ---------------------------------------------------------------- rows that must stay */

static int order_ids(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool protect_row(struct gs_keep *k, uint64_t id)
{
    int64_t *at = id ? GS_ARRAY_ADD(&k->undoable) : NULL;
    if (at) *at = (int64_t)id;
    return at || !id;
}

/* A free that the program has begun may still fail, and its lifetime then continues. Frees that begin later end
 * lifetimes after T, which stay anyway. */
static int find_undoable(struct gs_store *s)
{
    struct gs_keep *k = &s->keep;
    bool ok = true;
    k->undoable.count = 0;
    for (size_t t = 0; t < s->threads.count; t++) {
        const struct gs_store_thread *thread = &s->threads.at[t];
        ok = ok && (!thread->last_free_set || protect_row(k, thread->last_free.id));
        if (!thread->undo) continue;
        ok = ok && protect_row(k, thread->undo->object);
        for (size_t i = 0; i < thread->undo->ended.count; i++) ok = ok && protect_row(k, thread->undo->ended.at[i].id);
    }
    if (!ok) return gs_store_no_memory(s);
    if (k->undoable.count) qsort(k->undoable.at, k->undoable.count, sizeof *k->undoable.at, order_ids);
    return 0;
}

static bool is_undoable(const struct gs_keep *k, int64_t id)
{
    return k->undoable.count && bsearch(&id, k->undoable.at, k->undoable.count, sizeof id, order_ids);
}

/* ---------------------------------------------------------------- a row */

static bool add_removed_total(struct gs_keep *k, uint8_t what, int64_t kind, int64_t stack, int64_t bytes,
                              int64_t start, int64_t ns)
{
    const int64_t words[] = {kind, stack};
    const struct gs_content key = gs_content_hash((struct gs_content){what, 6}, words, sizeof words);
    uint32_t id = gs_id_find(&k->index, key);
    if (!id) {
        struct gs_removed_total *new = GS_ARRAY_ADD(&k->totals);
        if (!new) return false;
        *new = (struct gs_removed_total){.kind = kind, .stack = stack, .first_ns = start, .what = what};
        id = (uint32_t)k->totals.count;
        if (!gs_id_add(&k->index, key, id)) {
            k->totals.count--;
            return false;
        }
    }
    struct gs_removed_total *total = &k->totals.at[id - 1];
    total->count++;
    total->bytes = (int64_t)((uint64_t)total->bytes + (uint64_t)bytes);
    total->ns = (int64_t)((uint64_t)total->ns + (uint64_t)ns);
    total->first_ns = start < total->first_ns ? start : total->first_ns;
    return true;
}

/* The last failure before that time, of those that are kept; 0: none. */
static int64_t failure_before(const struct gs_keep *k, int64_t time_ns)
{
    int64_t last = 0;
    for (size_t i = k->failures.count; i-- > 0 && !last;)
        if (k->failures.at[i].to_ns < time_ns) last = k->failures.at[i].to_ns;
    return last;
}

static bool add_removed_row(struct gs_keep *k, int what, int64_t kind, int64_t stack, int64_t bytes, int64_t start,
                            int64_t life)
{
    return add_removed_total(k, (uint8_t)what, kind, stack, bytes, start, life) &&
           (what != GS_REMOVED_ALLOCATION ||
            add_removed_total(k, GS_REMOVED_COUNT, kind & 4095, failure_before(k, start + life), bytes, start, 0));
}

enum { A_WHAT, A_ID, A_KIND, A_STACK, A_BYTES, A_START, A_LIFE, ARGUMENTS };

/* gs_remove(what, id, kind, stack, bytes, start, life): 1: the row was added to the totals and can be removed; 0: it
 * stays. id 0: the row has no id yet. */
static void remove_row(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct gs_keep *k = &((struct gs_store *)sqlite3_user_data(context))->keep;
    const int what = sqlite3_value_int(v[A_WHAT]);
    const int64_t id = sqlite3_value_int64(v[A_ID]), start = sqlite3_value_int64(v[A_START]);
    if (start >= k->from_ns && id && id < k->stop_id) k->stop_id = id; /* rows are visited in order of their start */
    sqlite3_result_int(context, 0);
    k->left[what] += id < k->stop_id;
    k->visited[what] += id < k->stop_id && !k->again;
    if (id >= k->stop_id || sqlite3_value_type(v[A_LIFE]) == SQLITE_NULL) return;
    const int64_t life = sqlite3_value_int64(v[A_LIFE]), end = start + life;
    if (end >= k->from_ns || touches_kept(k, start, end)) return;
    if (what == GS_REMOVED_ALLOCATION && is_undoable(k, id)) return;
    const int64_t kind = sqlite3_value_int64(v[A_KIND]), packed = sqlite3_value_int64(v[A_BYTES]);
    uint32_t extra;
    const int64_t bytes = what == GS_REMOVED_ALLOCATION ? gs_bytes_unpack(kind, packed, &extra) : packed;
    if (!add_removed_row(k, what, kind, sqlite3_value_int64(v[A_STACK]), bytes, start, life))
        sqlite3_result_error_nomem(context);
    else
        sqlite3_result_int(context, 1);
    k->left[what]--;
}

/* gs_ended(start, end): whether a row of the tables without totals ended before T, and touches no kept moment. */
static void sql_ended(sqlite3_context *context, int n, sqlite3_value **v)
{
    const struct gs_keep *k = &((struct gs_store *)sqlite3_user_data(context))->keep;
    const int64_t start = sqlite3_value_int64(v[0]), end = sqlite3_value_int64(v[1]);
    sqlite3_result_int(context,
                       sqlite3_value_type(v[1]) != SQLITE_NULL && end < k->from_ns && !touches_kept(k, start, end));
}

static int write_total(struct gs_store *s, const struct gs_removed_total *t)
{
    const bool after = t->what == GS_REMOVED_COUNT;
    sqlite3_stmt *st = gs_store_statement(s, after ? GS_SQL_REMOVED_AFTER : GS_SQL_REMOVED);
    int at = 1;
    if (!st) return -1;
    if (!after) sqlite3_bind_int(st, at++, t->what);
    sqlite3_bind_int64(st, at++, t->kind);
    sqlite3_bind_int64(st, at++, t->stack);
    sqlite3_bind_int64(st, at++, t->count);
    sqlite3_bind_int64(st, at++, t->bytes);
    if (!after) {
        sqlite3_bind_int64(st, at++, t->ns);
        sqlite3_bind_int64(st, at, t->first_ns);
    }
    return gs_store_run(s, st);
}

static int write_totals(struct gs_store *s)
{
    for (size_t i = 0; i < s->keep.totals.count; i++)
        if (write_total(s, &s->keep.totals.at[i])) return -1;
    return 0;
}

/* ---------------------------------------------------------------- a pass */

/* The first column of the first row, with ?1 = `at`; `otherwise` if it is NULL or there is no row. */
static int64_t number_at(struct gs_store *s, const char *sql, int64_t at, int64_t otherwise)
{
    sqlite3_stmt *st;
    int64_t n = otherwise;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) return otherwise;
    sqlite3_bind_int64(st, 1, at);
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_INTEGER) n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static int64_t last_id(struct gs_store *s, size_t table)
{
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT max(id) FROM %s", tables[table].name);
    return number_at(s, sql, 0, 0);
}

/* Sets T: half of the unvisited rows of the table that has most of them are older. */
static bool choose_time(struct gs_store *s)
{
    struct gs_keep *k = &s->keep;
    size_t most = 0;
    int64_t rows = 0, cut = 0;
    char sql[128];
    for (size_t t = 0; t < GS_KEEP_TABLES; t++) {
        const int64_t last = last_id(s, t), young = last - k->young[t];
        if (young <= rows) continue;
        rows = young;
        most = t;
        cut = k->young[t] + young / 2;
    }
    if (rows < ROWS_MIN) return false;
    snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE id >= ?1 ORDER BY id LIMIT 1", tables[most].time,
             tables[most].name);
    const int64_t time = number_at(s, sql, cut, 0);
    /* A commit of totals (gs_keep_write_coarse) has moved T past it: rows before T that no removal has visited go by
     * that T. */
    if (time <= k->from_ns) return number_at(s, sql, k->young[most], k->from_ns) < k->from_ns;
    k->from_ns = time;
    return true;
}

static uint64_t store_used_bytes(struct gs_store *s)
{
    const int64_t pages = number_at(s, "PRAGMA page_count", 0, 0), spare = number_at(s, "PRAGMA freelist_count", 0, 0);
    return (uint64_t)(pages - spare) * (uint64_t)number_at(s, "PRAGMA page_size", 0, 4096);
}

static void enter_table(struct gs_store *s, unsigned table)
{
    struct gs_keep *k = &s->keep;
    k->table = table;
    k->again = false;
    if (table == GS_KEEP_TABLES) return;
    k->next_id = k->young[table];
    k->stop_id = last_id(s, table); /* the last row stays, because the next id follows from it */
}

/* After a change of T. */
static int begin_time(struct gs_store *s)
{
    char sql[160];
    s->keep.totals.count = 0;
    gs_id_free(&s->keep.index);
    if (find_moments(s) || find_undoable(s)) return -1;
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta VALUES('kept_from_ns',%lld),('keep',%lld)",
             (long long)s->keep.from_ns, s->keep.squeezed ? 0 : (long long)s->keep.bytes);
    return gs_store_sql(s, sql) || gs_store_write_levels(s) || gs_store_write_scopes(s) || gs_store_write_courses(s)
               ? -1
               : 0;
}

static int begin_pass(struct gs_store *s)
{
    s->keep.passing = true;
    enter_table(s, 0);
    return begin_time(s);
}

/* After the unvisited rows of a table come those that earlier removals left, then the next table. Those are visited
 * again only after a quarter as many unvisited ones: if they fill most of the limit, removals are frequent. */
static void leave_part(struct gs_store *s)
{
    struct gs_keep *k = &s->keep;
    const unsigned table = k->table;
    if (!k->again) k->young[table] = k->stop_id;
    if (k->again || k->visited[table] < k->left[table] / 4) {
        enter_table(s, table + 1);
        return;
    }
    k->again = true;
    k->left[table] = k->visited[table] = 0;
    k->next_id = 1;
    k->stop_id = k->young[table];
}

/* Removes the rows from next_id to `last` that may go, from the table of the removal. */
static int remove_rows(struct gs_store *s, int64_t last)
{
    const struct gs_keep *k = &s->keep;
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db, tables[k->table].remove, -1, &st, NULL) != SQLITE_OK)
        return gs_store_fail(s, "prepare");
    sqlite3_bind_int64(st, 1, k->next_id);
    sqlite3_bind_int64(st, 2, last < k->stop_id ? last : k->stop_id - 1);
    const int rc = sqlite3_step(st);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? 0 : gs_store_fail(s, "write");
}

/* The last id of the next piece; -1: no rows are left. Ids of unvisited rows have hardly any gaps, so PIECE ids are
 * about PIECE rows there. */
static int64_t piece_end(struct gs_store *s)
{
    const struct gs_keep *k = &s->keep;
    char sql[160];
    if (k->again)
        snprintf(sql, sizeof sql,
                 "SELECT coalesce((SELECT id FROM %s WHERE id >= ?1 ORDER BY id LIMIT 1 OFFSET %d),max(id)) FROM %s "
                 "WHERE id >= ?1",
                 tables[k->table].name, PIECE - 1, tables[k->table].name);
    else
        snprintf(sql, sizeof sql, "SELECT min(id)+%d FROM %s WHERE id >= ?1", PIECE - 1, tables[k->table].name);
    return number_at(s, sql, k->next_id, -1);
}

static int remove_piece(struct gs_store *s)
{
    struct gs_keep *k = &s->keep;
    const int64_t last = piece_end(s);
    if (last < 0 || k->next_id >= k->stop_id) {
        leave_part(s);
        return 0;
    }
    if (remove_rows(s, last)) return -1;
    k->next_id = last + 1;
    if (k->next_id >= k->stop_id) leave_part(s);
    return write_totals(s);
}

/* The tables with few rows, each in one statement. Thins samples and reserved totals before T: those that were current
 * at a kept moment stay, the extremes, and of samples one in each of SAMPLES parts of the time. */
static int remove_others(struct gs_store *s)
{
    const long long from = s->keep.from_ns, part = from / SAMPLES + 1;
    const long long seconds = from / 1000000000 / COUNT_SECONDS * COUNT_SECONDS;
    char sql[1200];
    if (gs_store_sql(
            s,
            "DELETE FROM mapping WHERE id<(SELECT max(id) FROM mapping) AND gs_ended(map_ns,unmap_ns);"
            "DELETE FROM pending_free WHERE id<(SELECT max(id) FROM pending_free) AND "
            "gs_ended(free_ns,done_ns);"
            "DELETE FROM handle WHERE id<(SELECT max(id) FROM handle) AND kind<>1 AND "
            "gs_ended(create_ns,destroy_ns);"
            "DELETE FROM allocator_fact WHERE id IN (SELECT id FROM (SELECT id,kind,time_ns,lead(time_ns) OVER "
            "(PARTITION BY device,kind,address ORDER BY id) AS next FROM allocator_fact) WHERE kind IN (1,3) AND "
            "gs_ended(time_ns,next));"
            /* The end of a private pool separates its segments from those of a later pool at the same address. */
            "DELETE FROM allocator_fact WHERE id IN (SELECT id FROM (SELECT id,kind,time_ns,lag(kind) OVER (PARTITION "
            "BY device,value ORDER BY id) AS before FROM allocator_fact WHERE kind=2 OR kind=1 AND value>0) WHERE "
            "kind=2 AND before IS NOT 1 AND gs_ended(time_ns,time_ns));"
            "DELETE FROM recovery_owner WHERE allocation_id NOT IN (SELECT id FROM allocation_row);"
            "DELETE FROM recovery_object WHERE allocation_id NOT IN (SELECT id FROM allocation_row);"
            "DELETE FROM mark_name WHERE id NOT IN (SELECT name FROM mark WHERE name IS NOT NULL UNION "
            "SELECT domain FROM mark WHERE domain IS NOT NULL)"))
        return -1;
    gs_id_free(&s->marks.name_ids); /* some were deleted: a name that occurs again gets a new number */
    snprintf(sql, sizeof sql,
             "DELETE FROM reserved WHERE id IN (SELECT id FROM (SELECT id,time_ns,lead(time_ns) OVER (PARTITION BY "
             "device ORDER BY id) AS next FROM reserved) WHERE gs_ended(time_ns,next)) AND id NOT IN "
             "(SELECT id FROM (SELECT id,max(bytes) FROM reserved GROUP BY device));"
             "DELETE FROM pool WHERE id IN (SELECT id FROM (SELECT id,time_ns,lead(time_ns) OVER (PARTITION BY "
             "device,pool ORDER BY id) AS next FROM pool) WHERE gs_ended(time_ns,next)) AND id NOT IN "
             "(SELECT id FROM (SELECT id,max(reserved_bytes) FROM pool GROUP BY device,pool));"
             "DELETE FROM sample WHERE gs_ended(time_ns,time_ns) AND id NOT IN (SELECT min(id) FROM sample WHERE "
             "time_ns<%lld GROUP BY device,source,time_ns/%lld UNION SELECT id FROM (SELECT id,max(other_bytes) FROM "
             "sample GROUP BY device,source) UNION SELECT id FROM (SELECT id,min(free_bytes) FROM sample GROUP BY "
             "device,source))",
             from, part);
    if (gs_store_sql(s, sql)) return -1;
    snprintf(sql, sizeof sql,
             "INSERT INTO call_count SELECT process_id,second/%d*%d,device,stream,api,not_ready,sum(count) FROM "
             "call_count WHERE second<%lld AND second%%%d<>0 GROUP BY 1,2,3,4,5,6 ON CONFLICT DO UPDATE SET "
             "count=count+excluded.count;DELETE FROM call_count WHERE second<%lld AND second%%%d<>0",
             COUNT_SECONDS, COUNT_SECONDS, seconds, COUNT_SECONDS, seconds, COUNT_SECONDS);
    return gs_store_sql(s, sql);
}

static int keep_step(struct gs_store *s)
{
    struct gs_keep *k = &s->keep;
    if (!k->passing) return begin_pass(s);
    k->totals.count = 0;
    gs_id_free(&k->index);
    if (k->table < GS_KEEP_TABLES) return remove_piece(s);
    if (remove_others(s)) return -1;
    k->passing = false;
    return 0;
}

static enum gs_trim trim_once(struct gs_store *s)
{
    struct gs_keep *k = &s->keep;
    if (!k->passing && store_used_bytes(s) < k->limit - k->limit / 8) return GS_TRIM_DONE;
    if (gs_store_log_is_held(s, 0)) return GS_TRIM_DONE; /* each removed row adds to the log */
    if (!k->passing && !choose_time(s)) return store_used_bytes(s) < k->limit ? GS_TRIM_DONE : GS_TRIM_FULL;
    if (gs_store_sql(s, "BEGIN IMMEDIATE")) return GS_TRIM_FAILED;
    if (keep_step(s) || gs_store_sql(s, "COMMIT")) return gs_store_abandon(s);
    return GS_TRIM_MORE;
}

static uint64_t log_bytes(struct gs_store *s)
{
    return (uint64_t)s->log_pages * (uint64_t)number_at(s, "PRAGMA page_size", 0, 4096);
}

/* Not even totals fit: SQLite cannot remove from the log what a reader uses, and each commit makes it longer. A reader
 * that ends soon does not end the recording. */
static bool log_is_full(struct gs_store *s)
{
    struct stat st;
    const char *path = sqlite3_db_filename(s->db, "main");
    const uint64_t file = path && !gs_path_status(path, &st) ? (uint64_t)st.st_size : 0;
    return file + log_bytes(s) + TOTALS_BYTES > s->keep.bytes && gs_store_log_is_held(s, PATIENCE_MS);
}

/* Would the room also be missing without the reader? */
static bool must_keep_all(struct gs_store *s)
{
    return !s->keep.passing && store_used_bytes(s) >= s->keep.limit && !choose_time(s);
}

int gs_store_note_stop(struct gs_store *s, const char *why)
{
    struct gs_file_guard guard;
    gs_file_guard_begin(&guard);
    const int rc = gs_store_write_text(s, "stopped", why);
    gs_file_guard_end(&guard);
    return rc;
}

/* If rows arrive faster than one step removes them, makes further steps until the database is below its limit. */
static enum gs_trim trim_rows(struct gs_store *s)
{
    enum gs_trim rc = s->keep.limit ? trim_once(s) : GS_TRIM_DONE;
    while (rc == GS_TRIM_MORE && store_used_bytes(s) >= s->keep.limit) rc = trim_once(s);
    if (rc == GS_TRIM_DONE && s->keep.limit && log_is_full(s)) rc = must_keep_all(s) ? GS_TRIM_FULL : GS_TRIM_READ;
    if (rc != GS_TRIM_FULL && rc != GS_TRIM_READ) return rc;
    const char *why = rc == GS_TRIM_READ ? "reader" : s->keep.squeezed ? "disk" : "keep";
    return gs_store_note_stop(s, why) ? GS_TRIM_FAILED : rc;
}

enum gs_trim gs_store_trim(struct gs_store *s)
{
    struct gs_file_guard guard;
    gs_file_guard_begin(&guard);
    const enum gs_trim rc = trim_rows(s);
    gs_file_guard_end(&guard);
    return rc;
}

/* ---------------------------------------------------------------- a log that SQLite cannot restart */

bool gs_store_held(struct gs_store *s)
{
    const struct gs_keep *k = &s->keep;
    struct gs_file_guard guard;
    if (!k->limit || !gs_store_files_ours()) return false;
    gs_file_guard_begin(&guard);
    const bool held =
        (log_bytes(s) > (k->bytes - k->limit) / 2 || store_used_bytes(s) >= k->limit) && gs_store_log_is_held(s, 0);
    gs_file_guard_end(&guard);
    return held;
}

bool gs_keep_is_tight(struct gs_store *s)
{
    const struct gs_keep *k = &s->keep;
    const uint64_t rows_bytes = (k->bytes - k->limit) / TOTALS_SHARE * (TOTALS_SHARE - 1);
    return gs_store_held(s) && (log_bytes(s) >= rows_bytes || store_used_bytes(s) >= k->limit);
}

/* T becomes now. Of a removal that is in progress only the rest goes by the new T. */
int gs_keep_write_coarse(struct gs_store *s, const struct gs_reader *r)
{
    struct gs_keep *k = &s->keep;
    const int64_t stop_id = k->stop_id;
    uint64_t left[GS_KEEP_TABLES], visited[GS_KEEP_TABLES];
    memcpy(left, k->left, sizeof left);
    memcpy(visited, k->visited, sizeof visited);
    k->from_ns = gs_whole(s->last_ns);
    k->stop_id = s->first_allocation + (int64_t)s->allocations.count - 1; /* stays: the next id follows from it */
    k->coarse = true;
    const int failed = begin_time(s) || gs_store_write_rows(s, r) || write_totals(s);
    k->coarse = false;
    k->stop_id = stop_id;
    memcpy(k->left, left, sizeof left);
    memcpy(k->visited, visited, sizeof visited);
    return failed ? -1 : 0;
}

/* ---------------------------------------------------------------- */

static int make_keep_schema(struct gs_store *s)
{
    if (gs_store_sql(s, "BEGIN IMMEDIATE")) return -1;
    if (gs_store_sql(s, schema_sql) || gs_store_sql(s, words_sql) || gs_store_sql(s, "COMMIT"))
        return gs_store_abandon(s);
    return 0;
}

static int register_functions(struct gs_store *s)
{
    const int flags = SQLITE_UTF8 | SQLITE_DIRECTONLY;
    const bool ok =
        sqlite3_create_function_v2(s->db, "gs_remove", ARGUMENTS, flags, s, remove_row, NULL, NULL, NULL) ==
            SQLITE_OK &&
        sqlite3_create_function_v2(s->db, "gs_ended", 2, flags, s, sql_ended, NULL, NULL, NULL) == SQLITE_OK;
    return ok ? 0 : gs_store_fail(s, "open");
}

static int keep_within(struct gs_store *s, uint64_t bytes)
{
    struct gs_keep *k = &s->keep;
    const bool squeezed = bytes == GS_KEEP_SIZE;
    if (squeezed)
        bytes =
            (uint64_t)number_at(s, "PRAGMA page_count", 0, 0) * (uint64_t)number_at(s, "PRAGMA page_size", 0, 4096) +
            BESIDE_BYTES;
    if (bytes < GS_KEEP_MIN) bytes = GS_KEEP_MIN;
    uint64_t beside = squeezed ? 0 : bytes / BESIDE_SHARE;
    beside = beside < BESIDE_BYTES ? BESIDE_BYTES : beside > BESIDE_MAX ? BESIDE_MAX : beside;
    if (k->bytes && k->bytes <= bytes) return 0;
    if (!k->bytes && (make_keep_schema(s) || register_functions(s))) return -1;
    for (size_t t = 0; !k->bytes && t < GS_KEEP_TABLES; t++) k->young[t] = 1;
    k->bytes = bytes;
    k->squeezed = squeezed;
    k->limit = bytes - beside;
    return 0;
}

int gs_store_keep(struct gs_store *s, uint64_t bytes)
{
    struct gs_file_guard guard;
    gs_file_guard_begin(&guard);
    const int rc = keep_within(s, bytes);
    gs_file_guard_end(&guard);
    return rc;
}

void gs_keep_free(struct gs_keep *k)
{
    free(k->failures.at);
    free(k->moments.at);
    free(k->undoable.at);
    free(k->totals.at);
    gs_id_free(&k->index);
}
