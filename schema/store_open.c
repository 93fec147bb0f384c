/* Opens the database, runs its transactions, and closes it. */
#include "schema/store_state.h"
#include "schema/store_files.h"
#include "schema/open_high.h"
#include "schema/system_call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char schema_sql[] =
#include "gpuspy_sql.h"
    ;

/* While recording, a write-ahead log: the database stays consistent whenever the process dies, and readers do not block
 * the recorder. No fsync, from the first statement on: what the kernel has received survives the process. */
#define PRAGMAS                                                               \
    "PRAGMA synchronous=OFF;PRAGMA journal_mode=WAL;PRAGMA cache_size=-2048;" \
    "PRAGMA temp_store=MEMORY;PRAGMA secure_delete=OFF;PRAGMA journal_size_limit=8388608"
const char *gs_store_error(const struct gs_store *s)
{
    return s->error;
}

/* ---------------------------------------------------------------- opening */

static struct gs_store *new_store(char *error, size_t error_size)
{
    struct gs_store *s = calloc(1, sizeof *s);
    if (s && !gs_array_grow((void **)&s->text.at, &s->text.capacity, 4096, 1)) {
        free(s);
        s = NULL;
    }
    if (!s) {
        snprintf(error, error_size, "out of memory");
        return NULL;
    }
    s->first_allocation = s->first_oom = s->first_handle = s->marks.first = 1;
    s->first_mapping = s->first_graph = s->first_pending = 1;
    s->last_thread = GS_SPOOL_THREADS - 1;
    for (int d = 0; d < GS_DEVICES_MAX; d++) s->last_reserved[d] = -1;
    gs_levels_start(&s->levels);
    gs_courses_start(&s->courses);
    return s;
}

static int open_database(struct gs_store *s, const char *path)
{
    gs_store_files_init();
    if (sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        if (!s->db) return gs_store_no_memory(s);
        return gs_store_fail(s, "open");
    }
    gs_store_log_start(s);
    return gs_store_open_feeds(s);
}

static void close_database(struct gs_store *s)
{
    /* The application closed our descriptors: SQLite would write the log into whatever file has their numbers now. */
    if (!gs_store_files_ours()) return;
    for (int i = 0; i < GS_SQL_COUNT; i++) {
        sqlite3_finalize(s->statements[i]);
        s->statements[i] = NULL;
    }
    sqlite3_close(s->db);
    s->db = NULL;
}

static void bind_optional(sqlite3_stmt *st, int at, const char *text)
{
    if (text && *text) sqlite3_bind_text(st, at, text, -1, SQLITE_TRANSIENT);
}

static int insert_process(struct gs_store *s, const struct gs_store_info *info)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db,
                           "INSERT INTO process(id,run_id,pid,ppid,rank,host,command,cwd,exe,"
                           "python_version,start_real_ns) VALUES(1,?,?,?,?,?,?,?,?,?,?)",
                           -1, &st, NULL) != SQLITE_OK)
        return gs_store_fail(s, "create");
    sqlite3_bind_text(st, 1, info->run_id ? info->run_id : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(st, 2, info->pid);
    if (info->ppid) sqlite3_bind_int64(st, 3, info->ppid);
    if (info->rank >= 0) sqlite3_bind_int(st, 4, info->rank);
    bind_optional(st, 5, info->host);
    bind_optional(st, 6, info->command);
    bind_optional(st, 7, info->cwd);
    bind_optional(st, 8, info->exe);
    bind_optional(st, 9, info->python_version);
    sqlite3_bind_int64(st, 10, (int64_t)info->start_real_ns);
    int rc = sqlite3_step(st);
    sqlite3_finalize(st);
    if (rc != SQLITE_DONE) return gs_store_fail(s, "create");
    if (info->sources > 0) return gs_store_sql(s, "INSERT INTO meta VALUES('sources',1)");
    return info->sources < 0 ? gs_store_sql(s, "INSERT INTO meta VALUES('sources',0)") : 0;
}

#define LAYER_ROW(s, v, w) {"layer", w, v},
#define SPACE_ROW(s, v, w) {"space", w, v},
#define DIRECTION_ROW(s, v, w) {"direction", w, v},
#define HOST_MEMORY_ROW(s, v, w) {"host_memory", w, v},
#define SYNC_ROW(s, v, w) {"sync_kind", w, v},
#define FRAME_ROW(s, v, w) {"frame_kind", w, v},
#define SAMPLE_ROW(s, v, w) {"sample_source", w, v},
#define FACT_ROW(s, v, w) {"allocator_fact_kind", w, v},
#define MARK_ROW(s, v, w) {"mark_kind", w, v},
#define HANDLE_ROW(s, v, w) {"handle_kind", w, v},
static const struct {
    const char *table, *word;
    int value;
} words[] = {GS_LAYERS(LAYER_ROW) GS_SPACES(SPACE_ROW) GS_DIRECTIONS(DIRECTION_ROW) GS_HOST_MEMORIES(HOST_MEMORY_ROW)
                 GS_SYNC_KINDS(SYNC_ROW) GS_FRAME_KINDS(FRAME_ROW) GS_SAMPLE_SOURCES(SAMPLE_ROW)
                     GS_ALLOCATOR_FACTS(FACT_ROW) GS_HANDLE_KINDS(HANDLE_ROW) GS_MARK_KINDS(MARK_ROW)};

/* One statement per table: parsing one costs more than running it. */
static int insert_words(struct gs_store *s)
{
    sqlite3_stmt *st = NULL;
    int rc = SQLITE_DONE;
    for (size_t i = 0; i < sizeof words / sizeof *words && rc == SQLITE_DONE; i++) {
        char sql[64];
        if (i == 0 || strcmp(words[i].table, words[i - 1].table) != 0) {
            sqlite3_finalize(st);
            snprintf(sql, sizeof sql, "INSERT INTO %s VALUES(?,?)", words[i].table);
            if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) return gs_store_fail(s, "create");
        }
        sqlite3_bind_int(st, 1, words[i].value);
        sqlite3_bind_text(st, 2, words[i].word, -1, SQLITE_STATIC);
        rc = sqlite3_step(st);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? 0 : gs_store_fail(s, "create");
}

/* The row that CREATE VIEW would insert. The recorder uses no view, and parsing them takes SQLite as long as a third of
 * the tables. */
static int insert_view(struct gs_store *s, sqlite3_stmt *st, const char *sql, int bytes)
{
    const char *name = sql + strlen("CREATE VIEW ");
    sqlite3_bind_text(st, 1, name, (int)strcspn(name, " "), SQLITE_STATIC);
    sqlite3_bind_text(st, 2, sql, bytes, SQLITE_STATIC);
    const int rc = sqlite3_step(st);
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? 0 : gs_store_fail(s, "create");
}

static int create_table(struct gs_store *s, const char *sql, int bytes)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db, sql, bytes, &st, NULL) != SQLITE_OK) return gs_store_fail(s, "create");
    const int rc = sqlite3_step(st);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? 0 : gs_store_fail(s, "create");
}

static const char *skip_to_statement(const char *sql)
{
    while (strchr(" \n-", *sql) && *sql) sql += *sql == '-' ? strcspn(sql, "\n") : 1;
    return sql;
}

static int statement_bytes(const char *sql)
{
    size_t n = 0;
    while (sql[n] && sql[n] != ';') n += sql[n] == '-' && sql[n + 1] == '-' ? strcspn(sql + n, "\n") : 1;
    return (int)n;
}

static int create_tables(struct gs_store *s)
{
    static const char view[] = "INSERT INTO sqlite_master(type,name,tbl_name,rootpage,sql) VALUES('view',?1,?1,0,?2)";
    sqlite3_stmt *st = NULL;
    int rc = gs_store_sql(s, "PRAGMA writable_schema=ON");
    if (!rc && sqlite3_prepare_v2(s->db, view, -1, &st, NULL) != SQLITE_OK) rc = gs_store_fail(s, "create");
    for (const char *at = skip_to_statement(schema_sql); !rc && *at;) {
        const int bytes = statement_bytes(at);
        rc = strncmp(at, "CREATE VIEW ", 12) ? create_table(s, at, bytes) : insert_view(s, st, at, bytes);
        at = skip_to_statement(at + bytes + (at[bytes] == ';'));
    }
    sqlite3_finalize(st);
    return rc ? rc : gs_store_sql(s, "PRAGMA writable_schema=OFF");
}

/* One transaction: another program that opens the file finds either no tables or all of them. */
static int make_store_schema(struct gs_store *s, const struct gs_store_info *info)
{
    if (gs_store_sql(s, PRAGMAS) || gs_store_sql(s, "BEGIN IMMEDIATE") || create_tables(s) || insert_words(s) ||
        insert_process(s, info) ||
        gs_store_sql(s, "INSERT INTO meta VALUES('gpuspy_version','" GPUSPY_VERSION "');"
                        "PRAGMA application_id=" GS_NUMBER(GS_APPLICATION_ID) ";"
                                                                              "PRAGMA user_version=" GS_NUMBER(
                                                                                  GS_SCHEMA_VERSION)))
        return -1;
    return gs_store_sql(s, "COMMIT");
}

void gs_store_remove(const char *path)
{
    char beside[4096];
    unlink(path);
    if ((size_t)snprintf(beside, sizeof beside, "%s-wal", path) < sizeof beside) unlink(beside);
    if ((size_t)snprintf(beside, sizeof beside, "%s-shm", path) < sizeof beside) unlink(beside);
}

struct gs_store *gs_store_create(const char *path, const struct gs_store_info *info, char *error, size_t error_size)
{
    /* SQLite would also open an existing file, so gpuspy creates it with O_EXCL. */
    int fd = gs_open_high(path, O_RDWR | O_CREAT | O_EXCL | O_NOCTTY, 0600);
    if (fd < 0) {
        snprintf(error, error_size, "%s", strerror(errno));
        return NULL;
    }
    fchmod(fd, 0600); /* whatever the umask is; SQLite gives its other files the same mode */
    close(fd);
    struct gs_store *s = new_store(error, error_size);
    if (!s || open_database(s, path) || make_store_schema(s, info) || gs_store_open_sources(s) ||
        (info->keep && gs_store_keep(s, info->keep))) {
        if (s) {
            snprintf(error, error_size, "%s", s->error);
            gs_store_close(s);
        }
        gs_store_remove(path);
        return NULL;
    }
    return s;
}

/* ---------------------------------------------------------------- an unfinished one */

static int64_t read_store_number(struct gs_store *s, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *st;
    int64_t n = otherwise;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) return otherwise;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_INTEGER) n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static int check_kind(struct gs_store *s)
{
    int64_t application = read_store_number(s, "PRAGMA application_id", -1);
    if (application < 0) /* SQLite cannot read it; its error says why */
        return gs_store_fail(s, "read");
    int64_t version = read_store_number(s, "PRAGMA user_version", -1);
    if (application != GS_APPLICATION_ID)
        snprintf(s->error, sizeof s->error, "not a gpuspy database");
    else if (version != GS_SCHEMA_VERSION)
        snprintf(s->error, sizeof s->error, "schema version %lld; this gpuspy completes version %d", (long long)version,
                 GS_SCHEMA_VERSION);
    else
        return 0;
    return -1;
}

struct gs_store *gs_store_open(const char *path, char *error, size_t error_size)
{
    struct gs_store *s = new_store(error, error_size);
    if (!s) return NULL;
    if (open_database(s, path) || check_kind(s) || gs_store_sql(s, PRAGMAS) || gs_store_open_sources(s)) {
        snprintf(error, error_size, "%s", s->error);
        gs_store_close(s);
        return NULL;
    }
    s->finished = read_store_number(s, "SELECT complete FROM process", -1) >= 0;
    return s;
}

struct gs_store *gs_store_resume(const char *path, struct gs_progress **progress, uint32_t *threads, char *error,
                                 size_t error_size)
{
    struct gs_store *s = gs_store_open(path, error, error_size);
    if (!s) return NULL;
    if (s->finished) snprintf(s->error, sizeof s->error, "the recording is complete");
    if (s->finished || gs_store_load(s, progress, threads)) {
        snprintf(error, error_size, "%s", s->error);
        gs_store_close(s);
        return NULL;
    }
    return s;
}

/* ---------------------------------------------------------------- transactions */

uint64_t gs_store_pending(const struct gs_store *s)
{
    return s->pending_events + s->device_samples.count + s->frames.count + s->stacks.count;
}

static int commit_transaction(struct gs_store *s, const struct gs_reader *r)
{
    if (!gs_store_files_ours()) {
        snprintf(s->error, sizeof s->error, "the application closed the database's files");
        return -1;
    }
    if (gs_store_files_deleted()) {
        snprintf(s->error, sizeof s->error, "the database's files were deleted");
        return -1;
    }
    if (r && gs_store_read_counters(s, r)) return -1;
    if (gs_store_sql(s, "BEGIN IMMEDIATE")) return -1;
    const bool tight = gs_keep_is_tight(s);
    if ((tight ? gs_keep_write_coarse(s, r) : gs_store_write_rows(s, r)) || gs_store_sql(s, "COMMIT"))
        return gs_store_abandon(s);
    gs_store_forget_rows(s, r);
    return 0;
}

int gs_store_commit(struct gs_store *s, const struct gs_reader *r)
{
    struct gs_file_guard guard;
    gs_file_guard_begin(&guard);
    int rc = commit_transaction(s, r);
    gs_file_guard_end(&guard);
    return rc;
}

void gs_store_pauses(struct gs_store *s, int steps, int (*pause)(void *))
{
    s->pause = pause;
    sqlite3_progress_handler(s->db, steps, pause, NULL);
}

/* ---------------------------------------------------------------- the end */

static int write_exit(struct gs_store *s)
{
    char sql[128];
    const bool known = s->exit_status && s->exit_status <= 256; /* a recorder stores at most 256 */
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta VALUES('exit_status',%u)", s->exit_status - 1);
    if (known && gs_store_sql(s, sql)) return -1;
    if (s->exit_status == 1) /* exit status 0: the program did not die of the exception */
        return 0;
    if (s->collector_off && gs_store_sql(s, "INSERT OR REPLACE INTO meta VALUES('python_gc',0)")) return -1;
    return gs_store_write_text(s, "exception", s->exception) ||
                   gs_store_write_text(s, "exception_place", s->exception_place)
               ? -1
               : 0;
}

static int write_process_end(struct gs_store *s, uint64_t end_ns, bool complete, uint64_t lost, uint64_t lost_first_ns,
                             uint64_t damaged)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db, "UPDATE process SET end_ns=?,complete=?,lost_events=?,lost_first_ns=?", -1, &st,
                           NULL) != SQLITE_OK)
        return gs_store_fail(s, "write");
    sqlite3_bind_int64(st, 1, (int64_t)end_ns);
    sqlite3_bind_int(st, 2, complete);
    sqlite3_bind_int64(st, 3, (int64_t)lost);
    if (lost) sqlite3_bind_int64(st, 4, (int64_t)lost_first_ns);
    int rc = sqlite3_step(st);
    sqlite3_finalize(st);
    if (rc != SQLITE_DONE) return gs_store_fail(s, "write");
    char sql[256];
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta VALUES('lost_events',%lld),('damaged_records',%lld)",
             (long long)lost, (long long)(damaged + s->damaged_counters));
    if (gs_store_sql(s, sql)) return -1;
    return write_exit(s);
}

void gs_store_exit(struct gs_store *s, const struct gs_spool_header *header)
{
    s->exit_status = atomic_load(&header->exit_status);
    snprintf(s->exception, sizeof s->exception, "%.*s", (int)sizeof header->exception - 1, header->exception);
    snprintf(s->exception_place, sizeof s->exception_place, "%.*s", (int)sizeof header->exception_place - 1,
             header->exception_place);
    s->collector_off = header->collector_off != 0;
}

/* SQLite creates one that it cannot keep open if the limit on open files is 3. */
static void remove_empty_journal(sqlite3 *db)
{
    struct stat status;
    const char *journal = sqlite3_filename_journal(sqlite3_db_filename(db, "main"));
    if (journal && !gs_link_status(journal, &status) && S_ISREG(status.st_mode) && !status.st_size) unlink(journal);
}

static int finish_process(struct gs_store *s, uint64_t end_ns, bool complete, uint64_t lost, uint64_t lost_first_ns,
                          uint64_t damaged)
{
    if (commit_transaction(s, NULL)) return -1;
    for (int i = 0; i < GS_SQL_COUNT; i++) { /* some use tables that are dropped below */
        sqlite3_finalize(s->statements[i]);
        s->statements[i] = NULL;
    }
    if (gs_store_sql(s, "BEGIN IMMEDIATE")) return -1;
    if (write_process_end(s, end_ns ? end_ns : s->last_ns, complete, lost, lost_first_ns, damaged) ||
        gs_store_sql(s, "DROP TABLE recovery_thread;DROP TABLE recovery_number;"
                        "DROP TABLE recovery_value;DROP TABLE recovery_mark;"
                        "DROP TABLE recovery_owner;"
                        "DROP TABLE recovery_object;DROP TABLE recovery_undo;"
                        "DROP TABLE recovery_counter;COMMIT"))
        return gs_store_abandon(s);
    s->finished = true;
    s->summary.lost = lost;
    /* If another program reads the database now, the log stays: the program's end does not wait for that reader. */
    sqlite3_busy_timeout(s->db, GS_READERS_MS);
    if (sqlite3_exec(s->db, "PRAGMA wal_checkpoint(TRUNCATE);PRAGMA journal_mode=DELETE", NULL, NULL, NULL))
        remove_empty_journal(s->db);
    return 0;
}

int gs_store_finish(struct gs_store *s, uint64_t end_ns, bool complete, uint64_t lost, uint64_t lost_first_ns,
                    uint64_t damaged)
{
    struct gs_file_guard guard;
    gs_file_guard_begin(&guard);
    int rc = finish_process(s, end_ns, complete, lost, lost_first_ns, damaged);
    gs_file_guard_end(&guard);
    return rc;
}

void gs_store_add_lost(const char *path, uint64_t events, uint64_t time_ns)
{
    struct gs_file_guard guard;
    sqlite3 *db = NULL;
    char sql[512];
    snprintf(sql, sizeof sql,
             "PRAGMA synchronous=OFF;BEGIN IMMEDIATE;"
             "UPDATE process SET lost_events=lost_events+%lld,"
             "lost_first_ns=coalesce(lost_first_ns,%lld);"
             "UPDATE meta SET value=value+%lld WHERE key='lost_events';COMMIT",
             (long long)events, (long long)time_ns, (long long)events);
    gs_file_guard_begin(&guard);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK)
        (void)sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_close(db);
    gs_file_guard_end(&guard);
}

uint64_t gs_store_vanished(struct gs_store *s)
{
    int moved = 0;
    if (!gs_store_files_deleted() || sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK ||
        !moved)
        return 0;
    return s->counts[GS_COUNT_EVENTS] - s->pending_events;
}

bool gs_store_disk(struct gs_store *s, uint64_t *total, uint64_t *free_bytes)
{
    const char *path = sqlite3_db_filename(s->db, "main");
    struct statvfs disk;
    if (!path || statvfs(path, &disk) != 0 || !disk.f_blocks) return false;
    *total = (uint64_t)disk.f_blocks * disk.f_frsize;
    *free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    return true;
}

const struct gs_summary *gs_store_summary(struct gs_store *s)
{
    s->summary.events = s->counts[GS_COUNT_EVENTS];
    s->summary.devices = 0;
    for (int d = 0; d < GS_DEVICES_MAX; d++) s->summary.devices += s->summary.device[d].used != 0;
    return &s->summary;
}

void gs_store_close(struct gs_store *s)
{
    if (!s) return;
    struct gs_file_guard guard;
    gs_file_guard_begin(&guard);
    close_database(s);
    gs_file_guard_end(&guard);
    gs_vmm_free(s);
    for (size_t t = 0; t < s->threads.count; t++) {
        free(s->threads.at[t].frames.ids);
        free(s->threads.at[t].stacks.ids);
    }
    void *arrays[] = {s->allocations.at,    s->ends.at,         s->copies.at,
                      s->ends_sorted.at,

                      s->memsets.at,        s->syncs.at,        s->ooms.at,
                      s->recovered_ooms.at, s->samples.at,      s->reserved.at,
                      s->handles.at,        s->handle_ends.at,  s->device_samples.at,
                      s->owners.at,         s->object_rows.at,  s->sizes.at,
                      s->mappings.at,       s->mapping_ends.at, s->graphs.at,
                      s->graph_ends.at,     s->pools.at,        s->allocator_facts.at,
                      s->counters.at,       s->pendings.at,     s->pending_ends.at,
                      s->frames.at,         s->stacks.at,       s->modules.at,
                      s->thread_rows.at,    s->apis.at,         s->devices.at,
                      s->settings.at,       s->numbers.at,      s->text.at,
                      s->threads.at,        s->open_ooms.at,    s->open_handles.at};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    gs_store_free_marks(s);
    gs_store_free_sources(s);
    gs_levels_free(&s->levels);
    gs_scopes_free(&s->scopes);
    gs_courses_free(&s->courses);
    gs_keep_free(&s->keep);
    gs_live_free(&s->live);
    gs_live_free(&s->graph_live);
    gs_live_free(&s->events);
    gs_ranges_free(&s->places.tree);
    gs_id_free(&s->frame_ids);
    gs_id_free(&s->stack_ids);
    gs_id_free(&s->module_ids);
    free(s);
}
