/* Copies and waits of a run, merged in order of time. */
#include "analyzer/run/run_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Rows are read in batches, each by one step of an aggregate function that is called for every row: one step per row
 * took a third more time. */
enum { PIECE = 4096 };

union call {
    struct run_copy copy;
    struct run_sync sync;
};

struct cursor {
    sqlite3_stmt *rows, *first;
    const struct run_database *db;
    uint32_t process;
    union call *calls; /* at most PIECE */
    size_t n, at;
    int64_t next_id;
    bool done, failed;
};

static uint32_t call_stack_of(const struct cursor *c, sqlite3_value *v)
{
    bool null = sqlite3_value_type(v) == SQLITE_NULL;
    return run_ids_get(&c->db->stacks, null ? RUN_UNKNOWN : sqlite3_value_int64(v));
}

enum { C_KIND, C_BYTES, C_START, C_BLOCKED, C_STREAM, C_STACK };
static const char copies[] = "SELECT gs_copy(kind, bytes, start_ns, blocked_ns, stream, stack_id) FROM %s "
                             "WHERE id BETWEEN ?1 AND ?2";

static void read_copy_row(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct cursor *c = sqlite3_user_data(context);
    int64_t kind = sqlite3_value_int64(v[C_KIND]);
    if (c->n == PIECE) /* more rows than ids: no recorder writes such a table */
        return;
    c->calls[c->n++].copy = (struct run_copy){
        .process = c->process,
        .stack = call_stack_of(c, v[C_STACK]),
        .thread = (uint32_t)((kind >> 24) + 2),
        .device = (int16_t)((kind >> 6 & 127) - 1),
        .direction = kind & 7,
        .host_memory = kind >> 3 & 3,
        .async = kind >> 5 & 1,
        .api = kind >> 13 & 2047,
        .bytes = run_bounded(sqlite3_value_int64(v[C_BYTES])),
        .start_ns = run_bounded(sqlite3_value_int64(v[C_START])),
        .blocked_ns = run_bounded(sqlite3_value_int64(v[C_BLOCKED])),
        .stream = (uint64_t)sqlite3_value_int64(v[C_STREAM]),
    };
}

enum { S_DEVICE, S_KIND, S_API, S_START, S_BLOCKED, S_HANDLE, S_STACK, S_THREAD };
static const char syncs[] = "SELECT gs_sync(device, kind, api, start_ns, blocked_ns, handle, stack_id, thread_id) "
                            "FROM sync WHERE id BETWEEN ?1 AND ?2";

static void read_sync_row(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct cursor *c = sqlite3_user_data(context);
    bool none = sqlite3_value_type(v[S_DEVICE]) == SQLITE_NULL;
    int64_t device = none ? -1 : sqlite3_value_int64(v[S_DEVICE]);
    if (c->n == PIECE) return;
    c->calls[c->n++].sync = (struct run_sync){
        .process = c->process,
        .stack = call_stack_of(c, v[S_STACK]),
        .thread = (uint32_t)sqlite3_value_int64(v[S_THREAD]),
        .device = device >= 0 && device < RUN_DEVICE_SLOTS ? (int)device : -1,
        .kind = (uint8_t)sqlite3_value_int64(v[S_KIND]),
        .api = (uint32_t)sqlite3_value_int64(v[S_API]),
        .start_ns = run_bounded(sqlite3_value_int64(v[S_START])),
        .blocked_ns = run_bounded(sqlite3_value_int64(v[S_BLOCKED])),
        .handle = (uint64_t)sqlite3_value_int64(v[S_HANDLE]),
    };
}

static void open_cursor(struct cursor *c, struct run_database *db, uint32_t process, const char *name,
                        void (*read)(sqlite3_context *, int, sqlite3_value **), const char *rows, const char *table)
{
    char sql[256];
    *c = (struct cursor){.db = db, .process = process, .next_id = INT64_MIN};
    if (sqlite3_create_function(db->db, name, -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, c, NULL, read,
                                sqlite3_result_null) == SQLITE_OK) {
        snprintf(sql, sizeof sql, rows, table);
        c->rows = run_database_prepare(db, sql);
        snprintf(sql, sizeof sql, "SELECT min(id) FROM %s WHERE id >= ?1", table);
        c->first = run_database_prepare(db, sql);
    }
    c->failed = c->done = !c->rows || !c->first;
    c->calls = arena_realloc(NULL, PIECE, sizeof *c->calls);
}

static void close_cursor(struct cursor *c)
{
    sqlite3_finalize(c->rows);
    sqlite3_finalize(c->first);
    free(c->calls);
}

/* The first number that exists: a hostile table may have large gaps. */
static bool find_first(struct cursor *c)
{
    sqlite3_bind_int64(c->first, 1, c->next_id);
    int rc = sqlite3_step(c->first);
    bool found = rc == SQLITE_ROW && sqlite3_column_type(c->first, 0) != SQLITE_NULL;
    c->next_id = found ? sqlite3_column_int64(c->first, 0) : c->next_id;
    c->failed = c->failed || (rc != SQLITE_ROW && rc != SQLITE_DONE);
    sqlite3_reset(c->first);
    return found;
}

/* False at the end, or if the database could not be read: then `failed` is set. */
static bool fill_call_cursor(struct cursor *c)
{
    c->n = c->at = 0;
    if (c->done || !find_first(c)) {
        c->done = true;
        return false;
    }
    int64_t last = c->next_id > INT64_MAX - PIECE ? INT64_MAX : c->next_id + PIECE - 1;
    sqlite3_bind_int64(c->rows, 1, c->next_id);
    sqlite3_bind_int64(c->rows, 2, last);
    c->failed = c->failed || sqlite3_step(c->rows) != SQLITE_ROW;
    sqlite3_reset(c->rows);
    c->done = c->failed || last == INT64_MAX;
    c->next_id = c->done ? last : last + 1;
    return c->n > 0;
}

static inline const union call *current_call(struct cursor *c)
{
    return c->at < c->n || fill_call_cursor(c) ? &c->calls[c->at] : NULL;
}

static bool is_call_device_chosen(const struct run *run, int device)
{
    return !run->options.by_device || device < 0 || device == run->options.device;
}

bool run_each_call_of(struct run *run, uint32_t process, run_call_fn each, void *self, char *error, size_t error_size)
{
    struct run_database *db = &run->databases[run->processes[process].database];
    struct cursor c, s;
    uint64_t rows = 0;
    open_cursor(&c, db, process, "gs_copy", read_copy_row, copies, db->copies);
    open_cursor(&s, db, process, "gs_sync", read_sync_row, syncs, "sync");
    for (;;) {
        const union call *copy = current_call(&c), *sync = current_call(&s);
        run_show_progress(run, "copies and waits", ++rows, 0);
        if (copy && (!sync || copy->copy.start_ns <= sync->sync.start_ns)) {
            if (is_call_device_chosen(run, copy->copy.device)) {
                c.calls[c.at].copy.stack =
                    run_backward_stack(run, process, copy->copy.thread, copy->copy.stack, copy->copy.start_ns);
                each(self, &copy->copy, NULL);
            }
            c.at++;
        } else if (sync) {
            if (is_call_device_chosen(run, sync->sync.device)) {
                s.calls[s.at].sync.stack =
                    run_backward_stack(run, process, sync->sync.thread, sync->sync.stack, sync->sync.start_ns);
                each(self, NULL, &sync->sync);
            }
            s.at++;
        } else {
            break;
        }
    }
    bool ok = (!c.failed && !s.failed) || run_database_bad(db, error, error_size);
    close_cursor(&c);
    close_cursor(&s);
    return ok;
}

uint64_t run_calls_between(const struct run *run, uint32_t process, int64_t from_ns, int64_t to_ns)
{
    struct run_database *db = &run->databases[run->processes[process].database];
    const char *const tables[] = {db->copies, "sync"};
    uint64_t n = 0;
    for (size_t i = 0; i < COUNT_OF(tables); i++) { /* from the last one back: rows are in order of time */
        char sql[160];
        snprintf(sql, sizeof sql, "SELECT start_ns FROM %s ORDER BY id DESC", tables[i]);
        sqlite3_stmt *st = run_database_prepare(db, sql);
        while (st && sqlite3_step(st) == SQLITE_ROW) {
            const int64_t start_ns = sqlite3_column_int64(st, 0);
            if (start_ns < from_ns) break;
            n += start_ns < to_ns;
        }
        sqlite3_finalize(st);
    }
    return n;
}

bool run_each_call(struct run *run, run_call_fn each, void *self, char *error, size_t error_size)
{
    for (uint32_t i = 0; i < run->processes_n; i++)
        if (!run_each_call_of(run, i, each, self, error, error_size)) return false;
    return true;
}
