#include "interpose/run_path.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "schema/store_files.h"
#include "schema/spool_file.h"
#include "schema/system_call.h"

#define TRIES 10000 /* names run-2 … before giving up */

/* --- the requested name ---------------------------------------------------------------------- */

/* %p is the process id, %h the host; anything else stays as it is. */
static void expand_pattern(char *out, size_t size, const char *pattern)
{
    size_t used = 0;
    for (const char *c = pattern; *c && used + 1 < size; c++) {
        char host[256] = "";
        int wrote = -1;
        if (c[0] == '%' && c[1] == 'p') {
            wrote = snprintf(out + used, size - used, "%ld", (long)getpid());
        } else if (c[0] == '%' && c[1] == 'h') {
            gethostname(host, sizeof host - 1);
            wrote = snprintf(out + used, size - used, "%s", host);
        } else if (c[0] == '%' && c[1] == '%') {
            wrote = snprintf(out + used, size - used, "%%");
        }
        if (wrote < 0) {
            out[used++] = *c;
            continue;
        }
        used = used + (size_t)wrote < size ? used + (size_t)wrote : size - 1;
        c++;
    }
    out[used] = 0;
}

static bool asked_path(char *out, size_t size, const struct gs_config *config)
{
    char name[PATH_MAX];
    struct stat st;
    expand_pattern(name, sizeof name, config->db);
    const char *cwd = strcmp(config->cwd, "/") ? config->cwd : "";
    int len = name[0] == '/' ? snprintf(out, size, "%s", name) : snprintf(out, size, "%s/%s", cwd, name);
    if (len < 0 || (size_t)len >= size) return false;
    /* a folder: use the default name in it */
    if (out[len - 1] == '/' || (gs_path_status(out, &st) == 0 && S_ISDIR(st.st_mode))) {
        int more = snprintf(out + len, size - (size_t)len, "/run.db");
        return more > 0 && (size_t)(len + more) < size;
    }
    return true;
}

/* stem + insert + extension: run.db with "-2" becomes run-2.db */
static bool with_insert(char *out, size_t size, const char *path, const char *insert)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *dot = strrchr(base, '.');
    if (!dot || dot == base) dot = base + strlen(base);
    int len = snprintf(out, size, "%.*s%s%s", (int)(dot - path), path, insert, dot);
    return len > 0 && (size_t)len < size;
}

/* --- the run to which a taken name belongs --------------------------------------------------- */

static bool is_spool_of_run(const char *path, const char *run_id)
{
    struct gs_spool_control c;
    char error[160];
    return !gs_spool_read_control(path, &c, error, sizeof error) && strncmp(c.run_id, run_id, sizeof c.run_id) == 0;
}

static bool database_is_ours(const char *path, const char *run_id)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *query = NULL;
    struct stat st;
    bool ours = false;
    if (gs_path_status(path, &st)) return false; /* SQLite follows a circle of links until the stack overflows */
    gs_store_files_init(); /* otherwise SQLite would fill the numbers 0 to 2 if they are free, and leave them open */
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT 1 FROM process WHERE run_id = ?1", -1, &query, NULL) == SQLITE_OK &&
        sqlite3_bind_text(query, 1, run_id, -1, SQLITE_STATIC) == SQLITE_OK)
        ours = sqlite3_step(query) == SQLITE_ROW;
    sqlite3_finalize(query);
    sqlite3_close(db);
    return ours;
}

static bool does_path_exist(const char *path)
{
    struct stat st;
    return gs_link_status(path, &st) == 0;
}

static bool is_path_of_run(const struct gs_run_path *path, const char *run_id)
{
    return does_path_exist(path->spool) ? is_spool_of_run(path->spool, run_id) : database_is_ours(path->db, run_id);
}

static bool left_by_us(const char *path)
{
    struct gs_spool_control c;
    char error[160];
    return !gs_spool_read_control(path, &c, error, sizeof error) && gs_spool_is_own(&c);
}

/* A name that is taken: number `n` of this process's names, 0 the run's first. */
static void note_left(struct gs_run_path *path, int n)
{
    if (path->left_count < GS_LEFT_MAX && does_path_exist(path->spool) && left_by_us(path->spool))
        path->left[path->left_count++] = (short)n;
}

/* --- taking one ------------------------------------------------------------------------------ */

struct claim {
    const struct gs_config *config;
    struct gs_spool *spool;
    const char *command;
    uint64_t start_mono_ns, start_real_ns;
};

/* Returns 0, EEXIST if the name is taken, or another errno. */
static int try_name(struct gs_run_path *path, const struct claim *c)
{
    int len = snprintf(path->spool, sizeof path->spool, "%s.spool", path->db);
    if (len < 0 || (size_t)len >= sizeof path->spool) return ENAMETOOLONG;
    if (does_path_exist(path->db) || does_path_exist(path->spool)) return EEXIST;
    int failed =
        gs_spool_create(c->spool, path->spool, c->config->run_id, c->command, c->start_mono_ns, c->start_real_ns);
    if (failed || !does_path_exist(path->db)) return failed;
    /* between the check and the creation, another process recorded under this name and ended */
    gs_spool_unlink(c->spool, path->spool);
    gs_spool_close(c->spool);
    return EEXIST;
}

/* Number `n` of the names beside the run's first file. */
static bool path_beside(char *out, size_t size, const char *first, int n)
{
    char insert[48];
    /* exec keeps the pid */
    if (n == 1)
        snprintf(insert, sizeof insert, ".%ld", (long)getpid());
    else
        snprintf(insert, sizeof insert, ".%ld-%d", (long)getpid(), n);
    return with_insert(out, size, first, n ? insert : "");
}

/* The same for the names that this process may take beside its run's first file. */
static int try_beside(struct gs_run_path *path, const struct claim *c)
{
    note_left(path, 0);
    for (int n = 1; n < TRIES; n++) {
        if (!path_beside(path->db, sizeof path->db, path->first, n)) return ENAMETOOLONG;
        int failed = try_name(path, c);
        if (failed != EEXIST) return failed;
        note_left(path, n);
    }
    return EEXIST;
}

static int claim_path(struct gs_run_path *path, const char *asked, const struct claim *c)
{
    char insert[16] = "";
    for (int n = 1; n < TRIES; n++) {
        if (n > 1) snprintf(insert, sizeof insert, "-%d", n);
        if (!with_insert(path->first, sizeof path->first, asked, insert)) return ENAMETOOLONG;
        memcpy(path->db, path->first, sizeof path->db);
        int failed = try_name(path, c);
        if (failed != EEXIST) return failed;
        if (is_path_of_run(path, c->config->run_id)) return try_beside(path, c);
    }
    return EEXIST;
}

bool gs_run_path_claim(struct gs_run_path *path, const struct gs_config *config, struct gs_spool *spool,
                       const char *command, uint64_t start_mono_ns, uint64_t start_real_ns, char *error,
                       size_t error_size)
{
    char asked[PATH_MAX];
    struct stat st;
    const struct claim c = {config, spool, command, start_mono_ns, start_real_ns};
    memset(path, 0, sizeof *path);
    const bool fits = asked_path(asked, sizeof asked, config);
    /* a name beside /dev/null would be a file in /dev, which takes memory */
    const bool device = fits && !gs_path_status(asked, &st) && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode));
    const int failed = device ? ENOTSUP : fits ? claim_path(path, asked, &c) : ENAMETOOLONG;
    if (failed) {
        snprintf(error, error_size, "cannot write %s: %s", gs_run_path_shown(asked, config),
                 device ? "it is a device" : strerror(failed));
        return false;
    }
    if (strcmp(path->first, asked) != 0) memcpy(path->asked, asked, sizeof path->asked);
    return true;
}

bool gs_run_path_left(const struct gs_run_path *path, int i, char *db, size_t size)
{
    return path_beside(db, size, path->first, path->left[i]);
}

const char *gs_run_path_shown(const char *path, const struct gs_config *config)
{
    const size_t len = strlen(config->cwd);
    return strncmp(path, config->cwd, len) == 0 && path[len] == '/' ? path + len + 1 : path;
}
