/* Completing the database of a process that died, from the spool that it left. */
#include "schema/mask.h"
#include "schema/spool_file.h"
#include "schema/store_state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BATCH 65536
/* Another gpuspy may be at it: it gets this long. */
#define PATIENCE_S 600

/* Whether the file under this name is still the one that was opened. */
static bool still_there(int fd, const char *path)
{
    struct stat a, b;
    return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum { TAKEN, GONE, RECORDING, FAILED };

/* Opens the spool and takes its lock, so that nobody else completes it at the same time. */
static int take_spool(struct gs_spool *spool, const char *path, uint32_t *pid, char *error,
                      size_t error_size)
{
    struct timespec step = {0, 50 * 1000 * 1000};
    for (int left = PATIENCE_S * 20; left > 0; left--) {
        int code = gs_spool_open(spool, path, error, error_size);
        if (code == ENOENT)
            return GONE;
        if (code)
            return FAILED;
        *pid = gs_spool_owner_of(spool);
        if (*pid == spool->header->pid || *pid == 1) {
            gs_spool_close(spool);
            return RECORDING;
        }
        code = gs_spool_lock(spool->fd);
        if (code != EAGAIN && code != EACCES && still_there(spool->fd, path))
            return TAKEN; /* locked, or on a file system without locks */
        gs_spool_close(spool);
        nanosleep(&step, NULL);
    }
    snprintf(error, error_size, "another program holds the spool");
    return FAILED;
}

static bool text_is(sqlite3 *db, const char *sql, const char *text)
{
    sqlite3_stmt *st;
    bool is = false;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        return false;
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
    return text_is(s->db, "SELECT run_id FROM process", h->run_id) &&
           text_is(s->db, "SELECT pid FROM process", pid);
}

/* The process died before it had made its database. */
static struct gs_store *create_from(const struct gs_spool_header *h, const char *path, char *error,
                                    size_t error_size)
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

/* A file that was made, but no transaction of it: nothing in it, or only SQLite's header. */
static bool is_blank(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    bool blank = false;
    struct stat st_file;
    if (stat(path, &st_file) || !S_ISREG(st_file.st_mode))
        return false;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
            SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT count(*) FROM sqlite_master", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        blank = sqlite3_column_int64(st, 0) == 0;
    sqlite3_finalize(st);
    sqlite3_close(db);
    return blank;
}

static struct gs_store *open_store(const struct gs_spool_header *h, const char *path,
                                   struct gs_progress **progress, uint32_t *threads, char *error,
                                   size_t error_size)
{
    if (is_blank(path) && unlink(path)) {
        snprintf(error, error_size, "%s", strerror(errno));
        return NULL;
    }
    bool missing = access(path, F_OK) && errno == ENOENT;
    if (missing && h->drained) { /* frames and stacks that the rest refers to went with it */
        snprintf(error, error_size, "the database was deleted, and the spool is nothing without it");
        return NULL;
    }
    if (missing)
        return create_from(h, path, error, error_size);
    struct gs_store *s = gs_store_open(path, error, error_size);
    if (!s)
        return NULL;
    if (!same_recording(s, h))
        snprintf(s->error, sizeof s->error, "the spool beside it is of another recording");
    else if (s->finished || gs_store_load(s, progress, threads) == 0)
        return s;
    snprintf(error, error_size, "%s", s->error);
    gs_store_close(s);
    return NULL;
}

static int drain(struct gs_store *s, struct gs_reader *r)
{
    gs_reader_poll(r, 0, true);
    const struct gs_rec *rec;
    uint32_t thread;
    while ((rec = gs_reader_next(r, &thread))) {
        if (gs_store_add(s, thread, rec))
            return -1;
        if (gs_store_pending(s) >= BATCH && gs_store_commit(s, r))
            return -1;
    }
    return gs_store_commit(s, r);
}

static int complete(struct gs_store *s, struct gs_spool *spool, const struct gs_progress *progress,
                    uint32_t threads)
{
    const struct gs_spool_header *h = spool->header;
    struct gs_reader *r = gs_reader_open(spool, progress, threads);
    if (!r)
        return gs_store_no_memory(s);
    int rc = drain(s, r);
    gs_store_exit(s, h->exit_status);
    if (!rc)
        rc = gs_store_finish(s, h->end_ns, h->closed, h->lost, h->lost_first_ns,
                             gs_reader_damaged(r));
    gs_reader_close(r);
    return rc;
}

static int recover_with(struct gs_spool *spool, const char *db_path, char *error, size_t error_size)
{
    struct gs_progress *progress = NULL;
    uint32_t threads = 0;
    struct gs_store *s = open_store(spool->header, db_path, &progress, &threads, error, error_size);
    if (!s)
        return -1;
    int rc = s->finished ? 0 : complete(s, spool, progress, threads);
    if (rc)
        snprintf(error, error_size, "%s", s->error);
    gs_store_close(s);
    free(progress);
    return rc;
}

int gs_recover(const char *db_path, uint32_t *pid, char *error, size_t error_size)
{
    char path[PATH_MAX];
    struct gs_spool spool;
    *pid = 0;
    error[0] = 0;
    if ((size_t)snprintf(path, sizeof path, "%s.spool", db_path) >= sizeof path)
        return 0;
    switch (take_spool(&spool, path, pid, error, error_size)) {
    case GONE:
        return 0;
    case RECORDING:
        return 2;
    case FAILED:
        return -1;
    }
    int rc = recover_with(&spool, db_path, error, error_size);
    if (!rc && unlink(path)) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        rc = -1;
    }
    gs_spool_close(&spool);
    return rc ? -1 : 1;
}
