/* Copies and waits of a run, merged in order of time. */
#include "analyzer/run_internal.h"

struct cursor {
    sqlite3_stmt *st;
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

enum { C_KIND, C_BYTES, C_START, C_BLOCKED, C_STREAM, C_STACK };
static const char copies[] =
    "SELECT kind, bytes, start_ns, blocked_ns, stream, stack_id FROM copy ORDER BY id";

static bool next_copy(struct cursor *c, const struct gs_database *db, uint32_t process)
{
    if ((c->rc = sqlite3_step(c->st)) != SQLITE_ROW) {
        return false;
    }
    int64_t kind = sqlite3_column_int64(c->st, C_KIND);
    c->now.copy = (struct gs_copy){
        .process = process,
        .stack = gs_ids_get(&db->stacks, gs_column_int(c->st, C_STACK)),
        .thread = (uint32_t)((kind >> 24) + 2),
        .device = (int16_t)((kind >> 6 & 127) - 1),
        .direction = kind & 7,
        .host_memory = kind >> 3 & 3,
        .async = kind >> 5 & 1,
        .api = kind >> 13 & 2047,
        .bytes = not_negative(sqlite3_column_int64(c->st, C_BYTES)),
        .start_ns = not_negative(sqlite3_column_int64(c->st, C_START)),
        .blocked_ns = not_negative(sqlite3_column_int64(c->st, C_BLOCKED)),
        .stream = (uint64_t)sqlite3_column_int64(c->st, C_STREAM),
    };
    return true;
}

enum { S_DEVICE, S_KIND, S_API, S_START, S_BLOCKED, S_HANDLE, S_STACK, S_THREAD };
static const char syncs[] = "SELECT device, kind, api, start_ns, blocked_ns, handle, stack_id, thread_id FROM "
                            "sync ORDER BY id";

static bool next_sync(struct cursor *c, const struct gs_database *db, uint32_t process)
{
    if ((c->rc = sqlite3_step(c->st)) != SQLITE_ROW) {
        return false;
    }
    int64_t device = gs_column_int(c->st, S_DEVICE);
    c->now.sync = (struct gs_sync){
        .process = process,
        .stack = gs_ids_get(&db->stacks, gs_column_int(c->st, S_STACK)),
        .thread = (uint32_t)sqlite3_column_int64(c->st, S_THREAD),
        .device = device >= 0 && device < GS_DEVICE_SLOTS ? (int)device : -1,
        .kind = (uint8_t)sqlite3_column_int64(c->st, S_KIND),
        .api = (uint32_t)sqlite3_column_int64(c->st, S_API),
        .start_ns = not_negative(sqlite3_column_int64(c->st, S_START)),
        .blocked_ns = not_negative(sqlite3_column_int64(c->st, S_BLOCKED)),
        .handle = (uint64_t)sqlite3_column_int64(c->st, S_HANDLE),
    };
    return true;
}

static bool wanted(const struct gs_run *run, int device)
{
    return !run->options.by_device || device < 0 || device == run->options.device;
}

static bool calls_of(struct gs_run *run, uint32_t process, gs_call_fn each, void *self, char *error,
                     size_t error_size)
{
    struct gs_database *db = &run->databases[run->processes[process].database];
    struct cursor c = {.st = gs_prepare(db, copies)}, s = {.st = gs_prepare(db, syncs)};
    bool copy = next_copy(&c, db, process), sync = next_sync(&s, db, process);
    while (copy || sync) {
        if (copy && (!sync || c.now.copy.start_ns <= s.now.sync.start_ns)) {
            if (wanted(run, c.now.copy.device)) {
                each(self, &c.now.copy, NULL);
            }
            copy = next_copy(&c, db, process);
        } else {
            if (wanted(run, s.now.sync.device)) {
                each(self, NULL, &s.now.sync);
            }
            sync = next_sync(&s, db, process);
        }
    }
    bool ok = (c.rc == SQLITE_DONE && s.rc == SQLITE_DONE) || gs_database_bad(db, error, error_size);
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
