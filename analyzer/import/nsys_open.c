/* Opens an export: unpacks it, and restricts SQLite so that a hostile file can only be read. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "analyzer/base/input.h"
#include "analyzer/base/arena.h"
#include "analyzer/import/nsys_calls.h"
#include "analyzer/import/formats.h"
#include "analyzer/import/nsys_stage.h"
#include "schema/store.h"

enum {
    HEADER = 100,
    APPLICATION_ID = 68,
    TEXT_MAX = 64 << 20, /* bytes per column */
    OPS_EACH = 1000,     /* steps between two checks of the budget */
    LOOKS_EACH = 64,     /* checks between two reports of progress */
    OPS_FIRST = 100000,  /* thousands of steps for any file … */
    OPS_PER_BYTE = 60,   /* … and steps per byte of it: real exports take at most 3 */
    RATIO_MAX = 250,     /* unpacked to packed size; for databases it is 3 to 20 */
    CACHE_KIB = 16 << 10
};
static const int64_t unpacked_least = 64 << 20; /* always allowed */

bool import_is_nsys(const unsigned char *head, size_t n)
{
    static const unsigned char magic[16] = "SQLite format 3";
    if (n < HEADER || memcmp(head, magic, sizeof magic) != 0) return false;
    const unsigned char *id = head + APPLICATION_ID;
    return ((uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3]) != GS_APPLICATION_ID;
}

static bool is_packed(const char *path)
{
    unsigned char magic[3];
    return input_read_start(path, magic, sizeof magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

static bool copy_unpacked(gzFile in, int out, int64_t limit, struct import_nsys *s, char *error, size_t error_size)
{
    static char buffer[1 << 17];
    int64_t all = 0;
    int n;
    while ((n = gzread(in, buffer, sizeof buffer)) > 0) {
        all += n;
        if (all > limit) {
            snprintf(error, error_size, "it unpacks to more than %d times its size; unpack it yourself with gunzip",
                     RATIO_MAX);
            return false;
        }
        for (ssize_t at = 0; at < n;) {
            ssize_t wrote = write(out, buffer + at, (size_t)(n - at));
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) {
                snprintf(error, error_size, "it cannot be unpacked: %s", strerror(errno));
                return false;
            }
            at += wrote;
        }
        if (s->progress) s->progress(s->self, (uint64_t)all);
    }
    if (n < 0 || !gzeof(in)) snprintf(error, error_size, "it is damaged: gzip cannot unpack it");
    return n == 0 && gzeof(in);
}

static bool unpack_nsys(struct import_nsys *s, const char *path, const char *to, char *error, size_t error_size)
{
    struct stat st;
    int in = open(path, O_RDONLY | O_CLOEXEC);
    gzFile file = in >= 0 && fstat(in, &st) == 0 ? gzdopen(in, "rb") : NULL;
    size_t size = strlen(to) + sizeof ".unpacked";
    if (!file) {
        snprintf(error, error_size, "%s", strerror(errno));
        if (in >= 0) close(in);
        return false;
    }
    s->unpacked = arena_realloc(NULL, size, 1);
    snprintf(s->unpacked, size, "%s.unpacked", to);
    int out = open(s->unpacked, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = out >= 0;
    if (!ok) {
        snprintf(error, error_size, "it cannot be unpacked: %s", strerror(errno));
        free(s->unpacked);
        s->unpacked = NULL;
    } else {
        ok = copy_unpacked(file, out, st.st_size * RATIO_MAX + unpacked_least, s, error, error_size);
        close(out);
    }
    gzclose(file);
    return ok;
}

bool import_nsys_bad(struct import_nsys *s, char *error, size_t error_size)
{
    const char *why = sqlite3_errmsg(s->db);
    switch (sqlite3_errcode(s->db) & 0xff) {
    case SQLITE_INTERRUPT:
        snprintf(error, error_size, "it is damaged: its tables hold more than a file of its size can");
        break;
    case SQLITE_FULL:
    case SQLITE_IOERR: snprintf(error, error_size, "%s; set TMPDIR to a folder with more free space", why); break;
    default: snprintf(error, error_size, "it is damaged (%s); export it again: nsys export --type sqlite REPORT", why);
    }
    return false;
}

sqlite3_stmt *import_nsys_prepare(struct import_nsys *s, const char *sql, char *error, size_t error_size)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) import_nsys_bad(s, error, error_size);
    return st;
}

/* How much of the export was read while its rows are staged, in bytes. */
static uint64_t bytes_read(struct import_nsys *s)
{
    int pages = 0, most = 0;
    sqlite3_db_status(s->db, SQLITE_DBSTATUS_CACHE_MISS, &pages, &most, 0);
    const uint64_t bytes = (uint64_t)pages * s->page;
    return bytes < (uint64_t)s->size ? bytes : (uint64_t)s->size;
}

/* Pages that are referenced several times can make a small file an endless table, so steps are limited. */
static int on_ops(void *self)
{
    struct import_nsys *s = self;
    if (++s->spent % LOOKS_EACH == 0 && s->progress) s->progress(s->self, bytes_read(s));
    return s->spent > s->budget;
}

static void restrict_database(sqlite3 *db)
{
    sqlite3_extended_result_codes(db, 1);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, TEXT_MAX);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, (int *)NULL);
}

/* Opens the file as immutable: no lock, and no file beside it. If the export has a log, opens it normally, to read
 * that. */
static char *uri_of(const char *path)
{
    size_t size = strlen(path) * 3 + 64;
    char *uri = arena_realloc(NULL, size, 1), *log = arena_realloc(NULL, size, 1), *at = uri;
    struct stat st;
    snprintf(log, size, "%s-wal", path);
    at += sprintf(at, "file:%s", path[0] == '/' ? "//" : "./");
    for (const char *p = path; *p; p++)
        at += strchr("?#%", *p) ? sprintf(at, "%%%02X", (unsigned char)*p) : sprintf(at, "%c", *p);
    sprintf(at, stat(log, &st) == 0 && st.st_size > 0 ? "?mode=ro" : "?mode=ro&immutable=1");
    free(log);
    return uri;
}

static bool attach_nsys(sqlite3 *db, const char *path)
{
    sqlite3_stmt *st = NULL;
    char *uri = uri_of(path);
    bool ok = sqlite3_prepare_v2(db, "ATTACH ?1 AS x", -1, &st, NULL) == SQLITE_OK &&
              sqlite3_bind_text(st, 1, uri, -1, SQLITE_STATIC) == SQLITE_OK && sqlite3_step(st) == SQLITE_DONE;
    sqlite3_finalize(st);
    free(uri);
    return ok && sqlite3_exec(db, "PRAGMA x.cell_size_check = ON", NULL, NULL, NULL) == SQLITE_OK;
}

static uint32_t page_size(sqlite3 *db)
{
    sqlite3_stmt *st = NULL;
    bool ok =
        sqlite3_prepare_v2(db, "PRAGMA x.page_size", -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW;
    const int bytes = ok ? sqlite3_column_int(st, 0) : 0;
    sqlite3_finalize(st);
    return bytes > 0 ? (uint32_t)bytes : 0;
}

static bool has_tables(sqlite3 *db)
{
    sqlite3_stmt *st = NULL;
    /* nvprof has tables CUPTI_ACTIVITY_KIND_…, too, with other numbers, and with columns named _id_ */
    bool has = sqlite3_prepare_v2(db,
                                  "SELECT count(*) FROM x.sqlite_master WHERE type = 'table' AND "
                                  "(name IN ('META_DATA_EXPORT', 'EXPORT_META_DATA', 'StringIds') OR "
                                  "name LIKE 'CUPTI\\_ACTIVITY\\_KIND\\_%' ESCAPE '\\' AND "
                                  "sql NOT LIKE '%\\_id\\_%' ESCAPE '\\')",
                                  -1, &st, NULL) == SQLITE_OK &&
               sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0) > 0;
    sqlite3_finalize(st);
    return has;
}

bool import_holds_nsys(const char *path)
{
    sqlite3 *db = NULL;
    bool packed = is_packed(path); /* a packed file is checked for its tables after unpacking */
    bool has = packed || (sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI, NULL) == SQLITE_OK);
    if (!packed && has) {
        restrict_database(db);
        has = attach_nsys(db, path) && has_tables(db);
    }
    sqlite3_close(db);
    return has;
}

static int64_t nsys_file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

bool import_nsys_open(struct import_nsys *s, const char *path, const char *to, char *error, size_t error_size)
{
    char settings[128];
    if (is_packed(path) && !unpack_nsys(s, path, to, error, error_size)) return false;
    const char *file = s->unpacked ? s->unpacked : path;
    s->size = nsys_file_size(file);
    s->budget = OPS_FIRST + s->size * OPS_PER_BYTE / OPS_EACH;
    snprintf(settings, sizeof settings,
             "PRAGMA main.cache_size = -%d; PRAGMA main.journal_mode = OFF; PRAGMA main.synchronous = OFF", CACHE_KIB);
    if (sqlite3_open_v2("", &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL) != SQLITE_OK)
        return import_nsys_bad(s, error, error_size);
    if (sqlite3_exec(s->db, settings, NULL, NULL, NULL) != SQLITE_OK || !import_calls_register(s->db))
        return import_nsys_bad(s, error, error_size);
    restrict_database(s->db);
    sqlite3_progress_handler(s->db, OPS_EACH, on_ops, s);
    if (!attach_nsys(s->db, file)) return import_nsys_bad(s, error, error_size);
    s->page = page_size(s->db);
    if (s->unpacked) unlink(s->unpacked); /* SQLite has the file open: it disappears however this process ends */
    if (has_tables(s->db)) return true;
    if ((sqlite3_errcode(s->db) & 0xff) > SQLITE_OK && (sqlite3_errcode(s->db) & 0xff) < SQLITE_ROW)
        return import_nsys_bad(s, error, error_size);
    snprintf(error, error_size,
             "it is a SQLite database, but neither a recording of gpuspy nor an export of Nsight "
             "Systems");
    return false;
}

void import_nsys_close(struct import_nsys *s)
{
    sqlite3_close(s->db);
    if (s->unpacked) unlink(s->unpacked);
    free(s->unpacked);
}
