/* Completes the database of a process that died, from the spool that it left. */
#include "schema/mask.h"
#include "schema/spool_file.h"
#include "schema/store_state.h"
#include "schema/system_call.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BATCH 65536
#define STEP 16384 /* records: about 20 ms */
/* Another gpuspy may be completing it: wait this long. */
#define PATIENCE_S 600
#define HIGH_FD 500

struct gs_recovery {
    struct gs_spool spool;
    struct gs_store *store;
    struct gs_reader *reader;
    int lock; /* the control file, locked */
    dev_t device;
    ino_t inode; /* … its inode, because the application may have closed it */
    bool keep;   /* the spool is completed into a copy, and stays */
    bool done;
    char db[PATH_MAX], path[PATH_MAX + 8];
};

/* Does this name still refer to the file that was opened? */
static bool still_there(int fd, const char *path)
{
    struct stat named;
    return !gs_path_status(path, &named) && gs_is_same_file(fd, &named);
}

/* Returns -1 and sets errno. A high number, because this may be an application's process. */
static int open_recovered_high(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0) return fd;
    close(fd);
    return high;
}

/* A fork handler calls it, too. */
static void close_lock(struct gs_recovery *r)
{
    struct stat st;
    if (r->lock >= 0 && !gs_file_status(r->lock, &st) && st.st_dev == r->device && st.st_ino == r->inode)
        gs_system_call(SYS_close, r->lock);
    r->lock = -1;
}

/* flock, not a POSIX lock, which any close of the file in this process would release. */
static bool lock_recovered_file(int fd)
{
    return !flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK; /* or this file system has no locks */
}

enum { TAKEN, GONE, RECORDING, LOST, FAILED };

static int find_process(struct gs_recovery *r, uint32_t *pid, char *error, size_t error_size)
{
    struct gs_spool_control c;
    int code = gs_spool_read_control(r->path, &c, error, error_size);
    if (code) return code == ENOENT ? GONE : FAILED;
    switch (gs_spool_state(&c)) {
    case GS_SPOOL_RECORDING: *pid = c.pid_namespace == gs_namespace("pid") ? c.pid : 1; return RECORDING;
    case GS_SPOOL_ELSEWHERE:
        snprintf(error, error_size, "they are in the memory of host %s%s; run 'gpuspy report' there", c.host,
                 c.shmid < 0 ? "" : ", or of a container on it");
        return FAILED;
    case GS_SPOOL_LOST: return LOST;
    case GS_SPOOL_LEFT: break;
    }
    return TAKEN;
}

/* Opens the spool and takes its lock, so that no other process completes it at the same time. */
static int take_spool(struct gs_recovery *r, unsigned patience_s, uint32_t *pid, char *error, size_t error_size)
{
    struct timespec step = {0, 50 * 1000 * 1000};
    for (unsigned left = patience_s * 20 + 1; left > 0; left--) {
        int found = find_process(r, pid, error, error_size);
        if (found != TAKEN && found != LOST) return found;
        r->lock = open_recovered_high(r->path);
        struct stat st;
        if (r->lock >= 0 && !gs_file_status(r->lock, &st)) {
            r->device = st.st_dev;
            r->inode = st.st_ino;
        }
        if (r->lock < 0 && errno != ENOENT) {
            snprintf(error, error_size, "%s", strerror(errno));
            return FAILED;
        }
        if (r->lock >= 0 && lock_recovered_file(r->lock) && still_there(r->lock, r->path)) {
            if (found == LOST) return LOST;
            int code = gs_spool_peek(&r->spool, r->path, error, error_size);
            return !code ? TAKEN : code == EIDRM ? LOST : FAILED;
        }
        close_lock(r);
        nanosleep(&step, NULL);
    }
    snprintf(error, error_size, "another program holds the spool");
    return FAILED;
}

static bool text_is(sqlite3 *db, const char *sql, const char *text)
{
    sqlite3_stmt *st;
    bool is = false;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) return false;
    if (sqlite3_step(st) == SQLITE_ROW) {
        const char *found = (const char *)sqlite3_column_text(st, 0);
        is = found && !strcmp(found, text);
    }
    sqlite3_finalize(st);
    return is;
}

static bool same_recording(struct gs_store *s, const struct gs_spool_header *h)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%u", h->pid);
    return text_is(s->db, "SELECT run_id FROM process", h->run_id) && text_is(s->db, "SELECT pid FROM process", pid);
}

/* The process died before it had created its database. */
static struct gs_store *create_from(const struct gs_spool_header *h, const char *path, char *error, size_t error_size)
{
    char host[HOST_NAME_MAX + 1] = "", command[sizeof h->command];
    gethostname(host, sizeof host - 1);
    gs_mask_arguments(command, sizeof command, h->command);
    struct gs_store_info info = {
        .run_id = h->run_id,
        .command = command,
        .host = host,
        .pid = h->pid,
        .start_real_ns = h->start_real_ns,
        .rank = -1,
    };
    return gs_store_create(path, &info, error, error_size);
}

/* A file that was created but never committed to: it is empty, or has only SQLite's header. */
static bool is_file_blank(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    bool blank = false;
    struct stat st_file;
    if (gs_path_status(path, &st_file) || !S_ISREG(st_file.st_mode)) return false;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT count(*) FROM sqlite_master", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        blank = sqlite3_column_int64(st, 0) == 0;
    sqlite3_finalize(st);
    sqlite3_close(db);
    return blank;
}

static struct gs_store *open_store(const struct gs_spool_header *h, const char *path, struct gs_progress **progress,
                                   uint32_t *threads, char *error, size_t error_size)
{
    if (is_file_blank(path) && unlink(path)) {
        snprintf(error, error_size, "%s", strerror(errno));
        return NULL;
    }
    bool missing = access(path, F_OK) && errno == ENOENT;
    if (missing && h->drained) { /* frames and stacks to which the rest refers are lost with it */
        snprintf(error, error_size, "the database was deleted, and the spool cannot be read without it");
        return NULL;
    }
    if (missing) return create_from(h, path, error, error_size);
    struct gs_store *s = gs_store_open(path, error, error_size);
    if (!s) return NULL;
    if (!same_recording(s, h))
        snprintf(s->error, sizeof s->error, "the spool beside it belongs to another recording");
    else if (s->finished || gs_store_load(s, progress, threads) == 0)
        return s;
    snprintf(error, error_size, "%s", s->error);
    gs_store_close(s);
    return NULL;
}

/* ---------------------------------------------------------------- step by step */

static int finish_recovery(struct gs_recovery *r)
{
    const struct gs_spool_header *h = r->spool.header;
    if (gs_store_commit(r->store, r->reader)) return -1;
    gs_store_exit(r->store, h);
    r->done = !gs_store_finish(r->store, h->end_ns, h->closed, h->lost, h->lost_first_ns, gs_reader_damaged(r->reader));
    return r->done ? 0 : -1; /* otherwise the disk is full: the spool stays for a later attempt */
}

int gs_recovery_step(struct gs_recovery *r, char *error, size_t error_size)
{
    const struct gs_rec *rec = NULL;
    uint32_t thread;
    int rc = 0;
    if (r->done) return 0;
    for (int n = 0; n < STEP && (rec = gs_reader_next(r->reader, &thread)) && !rc; n++) {
        rc = gs_store_add(r->store, thread, rec);
        if (!rc && gs_store_pending(r->store) >= BATCH) rc = gs_store_commit(r->store, r->reader);
    }
    if (!rc && !rec) rc = finish_recovery(r);
    if (rc) snprintf(error, error_size, "%s", gs_store_error(r->store));
    return rc ? -1 : r->done ? 0 : 1;
}

int gs_recovery_end(struct gs_recovery *r, char *error, size_t error_size)
{
    const bool done = r->done;
    int rc = 0;
    gs_reader_close(r->reader);
    gs_store_close(r->store);
    if (done && !r->keep && r->spool.map) {
        gs_spool_unlink(&r->spool, r->path);
        if (!access(r->path, F_OK)) {
            snprintf(error, error_size, "cannot remove %s: %s", r->path, strerror(errno ? errno : EACCES));
            rc = -1;
        }
    }
    gs_spool_close(&r->spool);
    close_lock(r);
    free(r);
    return rc;
}

void gs_recovery_forget(struct gs_recovery *r)
{
    gs_spool_close(&r->spool); /* its memory and its connection are abandoned: SQLite was anywhere in them */
    close_lock(r);
}

static int open_recovery(struct gs_recovery *r, char *error, size_t error_size)
{
    struct gs_progress *progress = NULL;
    uint32_t threads = 0;
    r->store = open_store(r->spool.header, r->db, &progress, &threads, error, error_size);
    if (!r->store) return -1;
    r->done = r->store->finished;
    if (!r->done) {
        r->reader = gs_reader_open(&r->spool, progress, threads);
        if (r->reader)
            gs_reader_poll(r->reader, 0, true);
        else
            snprintf(error, error_size, "out of memory");
    }
    free(progress);
    return r->done || r->reader ? 0 : -1;
}

static int begin_recovery(struct gs_recovery *r, unsigned patience_s, uint32_t *pid, char *error, size_t error_size)
{
    switch (take_spool(r, patience_s, pid, error, error_size)) {
    case GONE: return 0;
    case RECORDING: return 2;
    case LOST: /* the database already has everything there is */
        if (!r->keep) unlink(r->path);
        return 0;
    case FAILED: return -1;
    }
    return open_recovery(r, error, error_size) ? -1 : 1;
}

int gs_recovery_begin(struct gs_recovery **out, const char *db_path, const char *spool_path, unsigned patience_s,
                      uint32_t *pid, char *error, size_t error_size)
{
    struct gs_recovery *r = calloc(1, sizeof *r);
    *pid = 0;
    *out = NULL;
    error[0] = 0;
    if (!r) {
        snprintf(error, error_size, "out of memory");
        return -1;
    }
    r->lock = r->spool.shmid = -1;
    r->keep = spool_path != NULL;
    int rc = 0;
    if ((size_t)snprintf(r->db, sizeof r->db, "%s", db_path) < sizeof r->db &&
        (size_t)snprintf(r->path, sizeof r->path, spool_path ? "%s" : "%s.spool", spool_path ? spool_path : db_path) <
            sizeof r->path)
        rc = begin_recovery(r, patience_s, pid, error, error_size);
    if (rc == 1) {
        *out = r;
        return 1;
    }
    char ignored[64];
    r->done = false;
    gs_recovery_end(r, ignored, sizeof ignored);
    return rc;
}

static int recover_spool(const char *db_path, const char *spool_path, uint32_t *pid, char *error, size_t error_size)
{
    struct gs_recovery *r;
    char more[256] = "";
    int rc = gs_recovery_begin(&r, db_path, spool_path, PATIENCE_S, pid, error, error_size);
    if (rc != 1) return rc;
    while ((rc = gs_recovery_step(r, error, error_size)) > 0) continue;
    if (gs_recovery_end(r, more, sizeof more) && !rc) {
        snprintf(error, error_size, "%s", more);
        rc = -1;
    }
    return rc ? -1 : 1;
}

/* A program that read the recording at its end kept the recorder from it. */
static void merge_left_log(const char *path)
{
    static const char ended[] = "SELECT 'yes' FROM pragma_application_id, process WHERE application_id = " GS_NUMBER(
        GS_APPLICATION_ID) " AND complete IS NOT NULL";
    char log[PATH_MAX + 8];
    sqlite3 *db = NULL;
    snprintf(log, sizeof log, "%s-wal", path);
    if (access(log, F_OK)) return;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK &&
        text_is(db, ended, "yes"))
        (void)sqlite3_exec(db, "PRAGMA synchronous=OFF;PRAGMA journal_mode=DELETE", NULL, NULL, NULL);
    sqlite3_close(db);
}

int gs_recover(const char *db_path, uint32_t *pid, char *error, size_t error_size)
{
    const int rc = recover_spool(db_path, NULL, pid, error, error_size);
    if (rc == 0 || rc == 1) merge_left_log(db_path);
    return rc;
}

int gs_recover_copy(const char *db_path, const char *spool_path, char *error, size_t error_size)
{
    uint32_t pid;
    return recover_spool(db_path, spool_path, &pid, error, error_size);
}
