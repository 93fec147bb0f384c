/* One database file: detects other kinds of files, and opens a recording in any kind of folder. */
#include "analyzer/base/input.h"
#include "analyzer/import/import.h"
#include "analyzer/run/run_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include "schema/store.h"
#include "schema/store_files.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define COPY_FROM (4 << 20) /* bytes of a growing recording that are read without a copy */
#define COPY_SHARE 10       /* of the room for temporary files, a copy may take this part */
#define STARTING_S 30       /* longer than a recorder takes to create the tables, on a busy machine too */

bool run_fail(char *error, size_t error_size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (error_size) vsnprintf(error, error_size, format, args);
    va_end(args);
    return false;
}

static int64_t file_size(const char *path, const char *suffix)
{
    char name[4096 + 16];
    struct stat st;
    snprintf(name, sizeof name, "%s%s", path, suffix);
    return stat(name, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* `?`, `#` and `%` have a meaning in a URI, and so has what follows `file://`: a host, here none. */
char *run_database_uri(const char *path, const char *query)
{
    char *uri = arena_realloc(NULL, strlen(path) * 3 + strlen(query) + 16, 1), *at = uri;
    at += sprintf(at, "file:%s", path[0] == '/' ? "//" : "./");
    for (const char *p = path; *p; p++)
        at += strchr("?#%", *p) ? sprintf(at, "%%%02X", (unsigned char)*p) : sprintf(at, "%c", *p);
    sprintf(at, "?%s", query);
    return uri;
}

static int copy_path(sqlite3_vfs *vfs, const char *path, int size, char *out)
{
    return snprintf(out, (size_t)size, "%s", path) < size ? SQLITE_OK : SQLITE_CANTOPEN;
}

/* SQLite replaces symbolic links in a path by their targets. /proc/PID/root, through which a container's files are
 * reached, has the target "/". NULL: SQLite's default. */
static const char *vfs_of(const char *path)
{
    static const char name[] = "gpuspy-proc";
    static sqlite3_vfs vfs;
    const sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
    if (strncmp(path, "/proc/", 6) != 0 || !usual) return NULL;
    if (!vfs.zName) {
        vfs = *usual;
        vfs.zName = name;
        vfs.xFullPathname = copy_path;
        sqlite3_vfs_register(&vfs, 0);
    }
    return name;
}

/* By SQLite's own descriptor, which it closes only after this process's last lock on the file: closing another one
 * would release all of them, and the recorder could then change what a second connection is reading. Returns how many
 * bytes there are, at most `size`; -1 if the file cannot be opened. */
static int64_t read_start(const char *path, void *out, int size)
{
    sqlite3 *db = NULL;
    sqlite3_file *file = NULL;
    sqlite3_int64 bytes = -1;
    char *uri = run_database_uri(path, "mode=ro");
    const bool opened = sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
                                        vfs_of(path)) == SQLITE_OK &&
                        sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK;
    if (opened && file->pMethods && file->pMethods->xFileSize(file, &bytes) == SQLITE_OK && bytes > 0)
        (void)file->pMethods->xRead(file, out, size, 0);
    sqlite3_close(db);
    free(uri);
    return bytes < size ? bytes : size;
}

/* gpuspy reads the first bytes itself: SQLite reports "file is not a database" for everything. */
static bool check_database_header(const char *path, char *error, size_t error_size)
{
    unsigned char head[100] = {0};
    struct stat st;
    int why = stat(path, &st) == 0 ? 0 : errno;
    if (!why && !S_ISREG(st.st_mode))
        return run_fail(error, error_size,
                        "cannot read '%s': it is not a regular file; name the run.db that gpuspy wrote", path);
    const int64_t got = why ? -1 : read_start(path, head, sizeof head);
    if (got < 0) {
        char newest[INPUT_NAME];
        if (!why) why = access(path, R_OK) == 0 ? EIO : errno;
        if (why == ENOENT && !strchr(path, '/') && input_find_newest(newest))
            return run_fail(error, error_size, "cannot read '%s': %s; the newest recording in this folder is '%s'",
                            path, strerror(why), newest);
        return run_fail(error, error_size, "cannot read '%s': %s; %s", path, strerror(why),
                        why == EACCES ? "ask its owner, or run as the user who recorded it"
                                      : "record a run with: gpuspy run -- COMMAND");
    }
    if (got < (int64_t)sizeof head || memcmp(head, "SQLite format 3", 16) != 0) {
        char named[768];
        const char *hint = import_hint(path, named, sizeof named);
        if (hint) return run_fail(error, error_size, "cannot read '%s': it is %s", path, hint);
        bool cut = got > 0 && memcmp(head, "SQLite format 3", got < 16 ? (size_t)got : 16) == 0;
        return run_fail(error, error_size, "cannot read '%s': it is %s; %s", path,
                        cut ? "truncated" : "not a SQLite database",
                        cut ? "copy it again from where it was recorded"
                            : "name the run.db that gpuspy wrote, or another recording that gpuspy reads (gpuspy "
                              "import --help)");
    }
    int64_t page = head[16] << 8 | head[17];
    int64_t pages = (int64_t)head[28] << 24 | head[29] << 16 | head[30] << 8 | head[31];
    page = page == 1 ? 65536 : page;
    /* The page count is valid only if the change counters agree (SQLite file format, 1.3.7). If the log has not been
     * checkpointed, the missing pages may be in it: a full disk interrupts that. */
    if (file_size(path, "-wal") <= 0 && memcmp(head + 24, head + 92, 4) == 0 && file_size(path, "") < pages * page) {
        return run_fail(error, error_size,
                        "cannot read '%s': it is truncated (%lld of %lld bytes); copy it again from "
                        "where it was recorded",
                        path, (long long)file_size(path, ""), (long long)(pages * page));
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    errno = 0;
    const bool ok = write(fd, data, bytes) == (ssize_t)bytes;
    if (!ok && !errno) errno = ENOSPC;
    return ok;
}

static bool copy_file(const char *from, const char *to)
{
    char buffer[1 << 16];
    struct gs_file_guard guard; /* reaching a limit on file sizes is an error like a full disk */
    gs_file_guard_begin(&guard);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = out >= 0;
    for (ssize_t n; ok && (n = read(in, buffer, sizeof buffer)) != 0;) ok = n > 0 && write_all(out, buffer, (size_t)n);
    const int saved = errno;
    if (out >= 0) ok = close(out) == 0 && ok;
    if (in >= 0) close(in);
    gs_file_guard_end(&guard);
    errno = saved;
    return ok;
}

/* Only this process uses the folder. */
static void remove_files(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) unlinkat(dirfd(dir), e->d_name, 0);
    if (dir) closedir(dir);
    rmdir(folder);
}

/* However this process ends (Ctrl-C, a closed pipe, kill -9): a separate process in its own session waits for the pipe
 * to close, and then removes the copy. */
static void guard_copy(struct run_database *db)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    db->guard = fork();
    if (db->guard == 0) {
        char byte;
        setsid();
        signal(SIGHUP, SIG_IGN);
        dup2(ends[0], 0);
        if (syscall(SYS_close_range, 1U, ~0U, 0) != 0) /* glibc has a function for it only since 2.34 */
            for (int fd = 1; fd < 1024; fd++) close(fd);
        while (read(0, &byte, 1) < 0 && errno == EINTR) continue;
        remove_files(db->copy_folder);
        _exit(0);
    }
    close(ends[0]);
    db->guard_pipe = ends[1];
    if (db->guard < 0) close(db->guard_pipe);
}

static const char *temporary_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp ? tmp : "/tmp";
}

static bool make_database_folder(struct run_database *db)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/gpuspy-XXXXXX", temporary_folder());
    if (!mkdtemp(folder)) {
        snprintf(db->copy_failed, sizeof db->copy_failed, "cannot copy it to %.200s: %s", folder, strerror(errno));
        return false;
    }
    db->copy_folder = strdup(folder);
    guard_copy(db);
    return true;
}

/* By SQLite's own descriptor: closing another one would release this process's locks on the file. */
static bool copy_open_file(sqlite3 *from, const char *to)
{
    static char buffer[1 << 20];
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    struct gs_file_guard guard;
    bool ok = sqlite3_file_control(from, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK && file->pMethods &&
              file->pMethods->xFileSize(file, &size) == SQLITE_OK;
    gs_file_guard_begin(&guard);
    const int out = ok ? open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    ok = out >= 0;
    for (sqlite3_int64 at = 0; ok && at < size; at += (sqlite3_int64)sizeof buffer) {
        const int n = size - at < (sqlite3_int64)sizeof buffer ? (int)(size - at) : (int)sizeof buffer;
        ok = file->pMethods->xRead(file, buffer, n, at) == SQLITE_OK && write_all(out, buffer, (size_t)n);
    }
    if (out >= 0) ok = close(out) == 0 && ok;
    gs_file_guard_end(&guard);
    return ok;
}

/* In a folder without write permission, SQLite can neither read a write-ahead log nor roll back, and a spool cannot be
 * completed. On a copy all of that works. The spool is not copied: it is memory. */
static bool private_copy(struct run_database *db, const char *path)
{
    static const char *const beside[] = {"", "-wal", "-journal"};
    char from[4096 + 16], to[4096 + 64];
    if (!make_database_folder(db)) return false;
    const char *folder = db->copy_folder;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(from, sizeof from, "%s%s", path, beside[i]);
        snprintf(to, sizeof to, "%s/run.db%s", folder, beside[i]);
        const int64_t bytes = file_size(from, "");
        if (bytes >= 0 && !copy_file(from, to)) {
            snprintf(db->copy_failed, sizeof db->copy_failed,
                     "cannot copy its %lld bytes to %.200s: %s; set TMPDIR to a folder with more free space",
                     (long long)bytes, temporary_folder(), strerror(errno));
            return false;
        }
    }
    snprintf(to, sizeof to, "%s/run.db", folder);
    free(db->opened);
    db->opened = strdup(to);
    return true;
}

static void show_import(void *run, uint64_t bytes)
{
    const struct run_options *options = run ? &((struct run *)run)->options : NULL;
    if (options && options->progress)
        options->progress(options->progress_data, "bytes of another tool's file", bytes, 0);
}

/* Another tool's recording is converted once, however often it is opened: its processes are then files with names. They
 * are removed when the program ends. */
static struct foreign {
    struct stat file;
    char *path;               /* as it was first named */
    struct run_database held; /* its folder */
} * foreigns;
static size_t foreigns_n, foreigns_cap;

static void remove_copy(struct run_database *db);

static void remove_foreigns(void)
{
    for (size_t i = 0; i < foreigns_n; i++) {
        remove_copy(&foreigns[i].held);
        free(foreigns[i].path);
    }
    free(foreigns);
    foreigns = NULL;
    foreigns_n = foreigns_cap = 0;
}

static const char *find_foreign(const struct stat *st)
{
    for (size_t i = 0; i < foreigns_n; i++) {
        const struct stat *old = &foreigns[i].file;
        if (old->st_dev == st->st_dev && old->st_ino == st->st_ino && old->st_size == st->st_size &&
            old->st_mtim.tv_sec == st->st_mtim.tv_sec && old->st_mtim.tv_nsec == st->st_mtim.tv_nsec)
            return foreigns[i].held.copy_folder;
    }
    return NULL;
}

static const char *keep_foreign(struct run_database *db, const struct stat *st)
{
    if (!foreigns) atexit(remove_foreigns);
    ARENA_APPEND(foreigns, .file = *st, .path = strdup(db->path),
                 .held = {.copy_folder = db->copy_folder, .guard = db->guard, .guard_pipe = db->guard_pipe});
    const char *folder = db->copy_folder;
    db->copy_folder = NULL;
    db->guard = 0;
    return folder;
}

/* Reads it as the run.db into which it was converted. */
static bool open_foreign(struct run *run, struct run_database *db, enum import_format format, char *error,
                         size_t error_size)
{
    char to[4096 + 64], why[700] = "";
    struct stat st = {0};
    const char *folder = stat(db->path, &st) == 0 ? find_foreign(&st) : NULL;
    db->foreign = true;
    if (!folder) {
        if (!make_database_folder(db))
            return run_fail(error, error_size, "cannot read '%s': gpuspy %s", db->path, db->copy_failed);
        snprintf(to, sizeof to, "%s/run.db", db->copy_folder);
        if (!import_file(db->path, format, to, show_import, run, why, sizeof why))
            return run_fail(error, error_size, "cannot read '%s': %s", db->path, why);
        folder = keep_foreign(db, &st);
    }
    snprintf(to, sizeof to, "%s/run.db", folder);
    free(db->opened);
    db->opened = strdup(to);
    return true;
}

const char *run_shown_path(const char *path)
{
    for (size_t i = 0; i < foreigns_n; i++) {
        const char *folder = foreigns[i].held.copy_folder;
        if (strncmp(path, folder, strlen(folder)) == 0 && path[strlen(folder)] == '/') return foreigns[i].path;
    }
    return path;
}

char *run_imported_path(const char *path, char *error, size_t error_size)
{
    struct run_database db = {.path = strdup(path)};
    enum import_format format = import_format_of(path);
    bool ok = format && open_foreign(NULL, &db, format, error, error_size);
    char *opened = ok ? db.opened : NULL;
    remove_copy(&db);
    free(db.path);
    return opened;
}

static void remove_copy(struct run_database *db)
{
    if (db->copy_folder) {
        remove_files(db->copy_folder);
        if (db->guard > 0) {
            close(db->guard_pipe);
            waitpid(db->guard, NULL, 0);
        }
    }
    free(db->copy_folder);
    db->copy_folder = NULL;
    db->guard = 0;
}

static int64_t read_pragma(sqlite3 *db, const char *sql, int *rc)
{
    sqlite3_stmt *st = NULL;
    int64_t value = -1;
    *rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (*rc == SQLITE_OK) {
        *rc = sqlite3_step(st);
        value = *rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
        *rc = *rc == SQLITE_ROW || *rc == SQLITE_DONE ? SQLITE_OK : *rc;
    }
    sqlite3_finalize(st);
    return value;
}

/* The recorder's views are for 'gpuspy sql'. A view that has the name of a table may never end. */
static int authorize_no_views(void *self, int action, const char *one, const char *two, const char *database,
                              const char *view)
{
    return view ? SQLITE_DENY : SQLITE_OK;
}

static int try_open(struct run_database *db, int flags, const char *query)
{
    char *uri = run_database_uri(db->opened, query);
    int rc = sqlite3_open_v2(uri, &db->db, flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, vfs_of(db->opened));
    free(uri);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(db->db, 1);
        sqlite3_busy_timeout(db->db, 2000);
        sqlite3_limit(db->db, SQLITE_LIMIT_LENGTH, 64 << 20);
        sqlite3_exec(db->db, "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON", NULL, NULL, NULL);
        read_pragma(db->db, "SELECT count(*) FROM sqlite_master", &rc);
        sqlite3_set_authorizer(db->db, authorize_no_views, NULL);
    }
    if (rc != SQLITE_OK) {
        sqlite3_close(db->db);
        db->db = NULL;
    }
    return rc;
}

/* Without a journal to replay, nothing writes the file and nothing needs to be locked: immutable works in any folder
 * and leaves no files behind. */
static int open_somehow(struct run_database *db)
{
    bool journal = file_size(db->opened, "-wal") > 0 || file_size(db->opened, "-journal") > 0;
    db->immutable = !journal && (!db->recording || db->copy_folder);
    if (db->immutable) return try_open(db, SQLITE_OPEN_READONLY, "immutable=1");
    int rc = db->recording ? SQLITE_CANTOPEN : try_open(db, SQLITE_OPEN_READWRITE, "mode=rw");
    if (rc != SQLITE_OK) rc = try_open(db, SQLITE_OPEN_READONLY, "mode=ro");
    int code = rc & 0xff;
    if ((code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM) && !db->copy_folder &&
        private_copy(db, db->path))
        rc = try_open(db, SQLITE_OPEN_READWRITE, "mode=rw");
    return rc;
}

static bool have_same_start(const char *a, const char *b)
{
    enum { LOG_HEADER = 32 };
    char heads[2][LOG_HEADER + 1];
    const ssize_t n = input_read_start(a, heads[0], sizeof heads[0]);
    return n == input_read_start(b, heads[1], sizeof heads[1]) &&
           (n <= 0 || memcmp(heads[0], heads[1], (size_t)n) == 0);
}

/* While the transaction of a reader has all of the log in the file, the recorder may begin the log again, once: of a
 * copy made meanwhile, the older half would undo what the file has. */
static bool copy_log(const char *from, const char *to)
{
    for (unsigned again = 0; again < 2; again++) {
        if (access(from, F_OK) != 0) return true;
        if (!copy_file(from, to)) return false;
        if (have_same_start(from, to)) return true;
        unlink(to);
    }
    return false;
}

/* Is there room for a copy of a recording of this size, without taking what the program itself may need? */
static bool has_room_for_copy(int64_t bytes)
{
    struct statvfs disk;
    return statvfs(temporary_folder(), &disk) == 0 &&
           (uint64_t)bytes < (uint64_t)disk.f_bavail * disk.f_frsize / COPY_SHARE;
}

/* All questions read the same moment of a recording that grows. As long as a transaction holds that moment, the
 * recorder's log grows, and a bounded recording must drop rows: so the transaction lasts only until the files are
 * copied. A small recording is read in less time than a copy takes, and one without room for it in one transaction. */
static void copy_moment(struct run_database *db)
{
    const int64_t file = file_size(db->opened, ""), log = file_size(db->opened, "-wal");
    const int64_t bytes = file + (log > 0 ? log : 0);
    if (bytes < COPY_FROM || !has_room_for_copy(bytes) || try_open(db, SQLITE_OPEN_READONLY, "mode=ro") != SQLITE_OK)
        return;
    int rc;
    char to[4096 + 64], from[4096 + 16];
    sqlite3_db_config(db->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    sqlite3_exec(db->db, "BEGIN", NULL, NULL, NULL);
    read_pragma(db->db, "SELECT count(*) FROM sqlite_master", &rc); /* the transaction begins here */
    bool ok = rc == SQLITE_OK && make_database_folder(db);
    if (ok) {
        snprintf(to, sizeof to, "%s/run.db", db->copy_folder);
        ok = copy_open_file(db->db, to);
        snprintf(from, sizeof from, "%s-wal", db->opened);
        snprintf(to, sizeof to, "%s/run.db-wal", db->copy_folder);
        ok = ok && copy_log(from, to);
    }
    run_database_end_read(db);
    if (ok) {
        free(db->opened);
        db->opened = strdup(to);
        db->opened[strlen(to) - strlen("-wal")] = 0;
        ok = try_open(db, SQLITE_OPEN_READWRITE, "mode=rw") == SQLITE_OK;
        if (ok) sqlite3_exec(db->db, "PRAGMA synchronous=OFF; PRAGMA journal_mode=DELETE", NULL, NULL, NULL);
        run_database_end_read(db);
    }
    if (ok) return;
    remove_copy(db);
    db->copy_failed[0] = 0;
    free(db->opened);
    db->opened = strdup(db->path);
}

/* A view or a trigger with a table's name could compute forever. */
static bool check_tables(struct run_database *db, char *error, size_t error_size)
{
    char needed[256];
    int rc;
    snprintf(needed, sizeof needed,
             "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create "
             "virtual%%' AND name IN ('process','frame','module','stack','%s','%s','sync','oom')",
             db->allocations, db->copies);
    int64_t n = read_pragma(db->db, needed, &rc);
    if (rc == SQLITE_OK && n == 8) return true;
    return run_fail(error, error_size,
                    "cannot read '%s': tables of a recording are missing; it is damaged or was changed", db->path);
}

/* The file is created before its tables, and both before the first event: right after the spool. */
static bool is_starting(const struct run_database *db)
{
    char spool[4096 + 16];
    struct stat st;
    snprintf(spool, sizeof spool, "%s.spool", db->path);
    return db->recording && stat(spool, &st) == 0 && time(NULL) - st.st_mtime < STARTING_S;
}

static bool just_begun(const char *path, char *error, size_t error_size)
{
    return run_fail(error, error_size, "cannot read '%s': its recording is starting; try again in a moment", path);
}

/* A log that SQLite has not moved into the file yet has all tables, and much of what is recorded. */
static bool lacks_log(struct run_database *db)
{
    int rc;
    return read_pragma(db->db, "SELECT count(*) FROM sqlite_master", &rc) == 0 && rc == SQLITE_OK;
}

/* The version of gpuspy that wrote it, of digits and dots; "" unknown. */
static void writer_of(sqlite3 *db, char *out, size_t size)
{
    sqlite3_stmt *st = NULL;

    out[0] = 0;
    if (sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE key = 'gpuspy_version'", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(st, 0);
        const size_t n = text ? strspn(text, "0123456789.") : 0;
        if (text && n < size && !text[n]) snprintf(out, size, "%s", text);
    }
    sqlite3_finalize(st);
}

static bool check_version(struct run_database *db, char *error, size_t error_size)
{
    int rc, rc2;
    int64_t application = read_pragma(db->db, "PRAGMA application_id", &rc);
    int64_t version = read_pragma(db->db, "PRAGMA user_version", &rc2);
    if (is_starting(db) && rc == SQLITE_OK && application == 0) return just_begun(db->path, error, error_size);
    if (rc != SQLITE_OK || rc2 != SQLITE_OK) return run_database_bad(db, error, error_size);
    if (application == 0 && lacks_log(db)) {
        return run_fail(
            error, error_size,
            "cannot read '%s': it has no tables, and its log '%s-wal' is missing or damaged; copy both from "
            "where it was recorded",
            db->path, db->path);
    }
    if (application != GS_APPLICATION_ID) {
        char named[768];
        const char *hint = import_hint(db->path, named, sizeof named);
        return run_fail(error, error_size, "cannot read '%s': it is %s", db->path,
                        hint ? hint
                             : "a SQLite database, but not a gpuspy recording; name the run.db that gpuspy wrote");
    }
    if (version > GS_SCHEMA_VERSION) {
        char writer[32];
        writer_of(db->db, writer, sizeof writer);
        return run_fail(error, error_size,
                        "cannot read '%s': made by a newer gpuspy (schema %lld, this one reads %d); install %s%s%s",
                        db->path, (long long)version, GS_SCHEMA_VERSION, *writer ? "gpuspy " : "a newer gpuspy", writer,
                        *writer ? " or newer" : "");
    }
    db->allocations = version < 2 ? "allocation" : "allocation_row";
    db->copies = version < 2 ? "copy" : "copy_row";
    return check_tables(db, error, error_size);
}

bool run_database_open(struct run *run, struct run_database *db, const char *path, char *error, size_t error_size)
{
    enum import_format format = db->recording ? IMPORT_FORMAT_NONE : import_format_of(path);
    db->path = strdup(path);
    if (!db->opened) db->opened = strdup(path);
    if (format && !open_foreign(run, db, format, error, error_size)) return false;
    const bool empty = file_size(db->opened, "") <= 0; /* asked first: SQLite may write to it at any time */
    if (!check_database_header(db->opened, error, error_size))
        return empty && is_starting(db) ? just_begun(path, error, error_size) : false;
    if (db->recording) copy_moment(db);
    int rc = open_somehow(db);
    if (rc != SQLITE_OK && db->copy_failed[0]) {
        return run_fail(error, error_size, "cannot read '%s': its folder is read-only, and gpuspy %s", path,
                        db->copy_failed);
    }
    if (rc != SQLITE_OK) {
        return run_fail(error, error_size, "cannot read '%s': %s; %s", path, sqlite3_errstr(rc),
                        (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB
                            ? "it is damaged; copy it again from where it was recorded"
                            : "copy it into a folder of your own");
    }
    if (db->recording && !db->copy_folder) /* all questions read the same moment of it */
        sqlite3_exec(db->db, "BEGIN", NULL, NULL, NULL);
    return check_version(db, error, error_size);
}

bool run_database_begin_read(struct run_database *db, char *error, size_t error_size)
{
    if (!db->opened) db->opened = strdup(db->path);
    if (!check_database_header(db->opened, error, error_size)) return false;
    int rc = try_open(db, SQLITE_OPEN_READONLY, "mode=ro");
    if (rc != SQLITE_OK) return run_fail(error, error_size, "cannot read '%s': %s", db->path, sqlite3_errstr(rc));
    sqlite3_db_config(db->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    sqlite3_exec(db->db, "BEGIN", NULL, NULL, NULL);
    return check_version(db, error, error_size);
}

void run_database_end_read(struct run_database *db)
{
    sqlite3_close(db->db);
    db->db = NULL;
}

/* Completes the spool on a copy if the database's own folder does not allow it. */
int run_database_recover(struct run_database *db, const char *path, char *error, size_t error_size)
{
    uint32_t pid = 0;
    int rc = gs_recover(path, &pid, error, error_size);
    if (rc == 2) db->recording = true;
    if (rc >= 0 || file_size(path, ".spool") <= 0) return rc;
    char ignored[256], spool[4096 + 16];
    snprintf(spool, sizeof spool, "%s.spool", path);
    db->opened = strdup(path);
    if (private_copy(db, path) && gs_recover_copy(db->opened, spool, ignored, sizeof ignored) > 0) return 1;
    if (db->copy_failed[0]) {
        const size_t n = strlen(error);
        snprintf(error + n, error_size - n, "; gpuspy %s", db->copy_failed);
    }
    remove_copy(db);
    free(db->opened);
    db->opened = NULL;
    return rc;
}

bool run_database_bad(const struct run_database *db, char *error, size_t error_size)
{
    /* what gpuspy's own reader of pages finds, SQLite does not know */
    const bool known = db->db && sqlite3_errcode(db->db) != SQLITE_OK;
    return run_fail(error, error_size,
                    "cannot read '%s': it is damaged (%s); to recover what is left, type: sqlite3 '%s' "
                    "'.recover' | sqlite3 saved.db",
                    db->path, known ? sqlite3_errmsg(db->db) : sqlite3_errstr(SQLITE_CORRUPT), db->path);
}

void run_database_close(struct run_database *db)
{
    sqlite3_close(db->db);
    remove_copy(db);
    ARENA_RELEASE(db->path, db->opened);
    run_ids_free(&db->processes);
    run_ids_free(&db->stacks);
    run_ids_free(&db->apis);
    free(db->zones);
    *db = (struct run_database){0};
}

/* NULL if the table or a column is missing: the caller decides whether it can do without. */
sqlite3_stmt *run_database_prepare(struct run_database *db, const char *sql)
{
    sqlite3_stmt *st = NULL;
    return sqlite3_prepare_v2(db->db, sql, -1, &st, NULL) == SQLITE_OK ? st : NULL;
}
