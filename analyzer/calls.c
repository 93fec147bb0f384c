/* Copies and waits of a run, merged in order of time. */
#include "analyzer/run_internal.h"

struct cursor {
    sqlite3_stmt *st;
    const struct gs_database *db;
    uint32_t process;
    int rc;
    union {
        struct gs_copy copy;
        struct gs_sync sync;
    } now;
};

static int64_t not_negative(int64_t value)
{
    return value < 0 ? 0 : value > GS_BYTES_MAX ? GS_BYTES_MAX : value;
}

static uint32_t stack_of(const struct cursor *c, sqlite3_value *v)
{
    bool null = sqlite3_value_type(v) == SQLITE_NULL;
    return gs_ids_get(&c->db->stacks, null ? GS_UNKNOWN : sqlite3_value_int64(v));
}

/* The rows come through a scalar function: one call with all columns costs less than one each. */
enum { C_KIND, C_BYTES, C_START, C_BLOCKED, C_STREAM, C_STACK };
static const char copies[] =
    "SELECT gs_copy(kind, bytes, start_ns, blocked_ns, stream, stack_id) FROM copy ORDER BY id";

static void read_copy(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct cursor *c = sqlite3_user_data(context);
    int64_t kind = sqlite3_value_int64(v[C_KIND]);
    (void)n;
    c->now.copy = (struct gs_copy){
        .process = c->process,
        .stack = stack_of(c, v[C_STACK]),
        .thread = (uint32_t)((kind >> 24) + 2),
        .device = (int16_t)((kind >> 6 & 127) - 1),
        .direction = kind & 7,
        .host_memory = kind >> 3 & 3,
        .async = kind >> 5 & 1,
        .api = kind >> 13 & 2047,
        .bytes = not_negative(sqlite3_value_int64(v[C_BYTES])),
        .start_ns = not_negative(sqlite3_value_int64(v[C_START])),
        .blocked_ns = not_negative(sqlite3_value_int64(v[C_BLOCKED])),
        .stream = (uint64_t)sqlite3_value_int64(v[C_STREAM]),
    };
}

enum { S_DEVICE, S_KIND, S_API, S_START, S_BLOCKED, S_HANDLE, S_STACK, S_THREAD };
static const char syncs[] =
    "SELECT gs_sync(device, kind, api, start_ns, blocked_ns, handle, stack_id, thread_id) "
    "FROM sync ORDER BY id";

static void read_sync(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct cursor *c = sqlite3_user_data(context);
    bool none = sqlite3_value_type(v[S_DEVICE]) == SQLITE_NULL;
    int64_t device = none ? -1 : sqlite3_value_int64(v[S_DEVICE]);
    (void)n;
    c->now.sync = (struct gs_sync){
        .process = c->process,
        .stack = stack_of(c, v[S_STACK]),
        .thread = (uint32_t)sqlite3_value_int64(v[S_THREAD]),
        .device = device >= 0 && device < GS_DEVICE_SLOTS ? (int)device : -1,
        .kind = (uint8_t)sqlite3_value_int64(v[S_KIND]),
        .api = (uint32_t)sqlite3_value_int64(v[S_API]),
        .start_ns = not_negative(sqlite3_value_int64(v[S_START])),
        .blocked_ns = not_negative(sqlite3_value_int64(v[S_BLOCKED])),
        .handle = (uint64_t)sqlite3_value_int64(v[S_HANDLE]),
    };
}

static void open_cursor(struct cursor *c, struct gs_database *db, uint32_t process,
                        const char *name, void (*read)(sqlite3_context *, int, sqlite3_value **),
                        const char *sql)
{
    *c = (struct cursor){.db = db, .process = process};
    if (sqlite3_create_function(db->db, name, -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, c, read, NULL,
                                NULL) == SQLITE_OK) {
        c->st = gs_prepare(db, sql);
    }
}

static bool next(struct cursor *c)
{
    c->rc = sqlite3_step(c->st);
    return c->rc == SQLITE_ROW;
}

static bool wanted(const struct gs_run *run, int device)
{
    return !run->options.by_device || device < 0 || device == run->options.device;
}

static bool calls_of(struct gs_run *run, uint32_t process, gs_call_fn each, void *self, char *error,
                     size_t error_size)
{
    struct gs_database *db = &run->databases[run->processes[process].database];
    struct cursor c, s;
    open_cursor(&c, db, process, "gs_copy", read_copy, copies);
    open_cursor(&s, db, process, "gs_sync", read_sync, syncs);
    bool copy = next(&c), sync = next(&s);
    while (copy || sync) {
        if (copy && (!sync || c.now.copy.start_ns <= s.now.sync.start_ns)) {
            if (wanted(run, c.now.copy.device)) {
                each(self, &c.now.copy, NULL);
            }
            copy = next(&c);
        } else {
            if (wanted(run, s.now.sync.device)) {
                each(self, NULL, &s.now.sync);
            }
            sync = next(&s);
        }
    }
    bool ok =
        (c.rc == SQLITE_DONE && s.rc == SQLITE_DONE) || gs_database_bad(db, error, error_size);
    sqlite3_finalize(c.st);
    sqlite3_finalize(s.st);
    return ok;
}

bool gs_run_calls(struct gs_run *run, gs_call_fn each, void *self, char *error, size_t error_size)
{
    for (uint32_t i = 0; i < run->processes_n; i++) {
        if (!calls_of(run, i, each, self, error, error_size)) {
            return false;
        }
    }
    return true;
}
