#include "analyzer/sql/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *const pragmas[] = {
    "table_info",     "table_xinfo",     "table_list",     "index_list",    "index_info",      "user_version",
    "application_id", "compile_options", "database_list",  "function_list", "integrity_check", "quick_check",
    "page_count",     "page_size",       "freelist_count", "encoding",
};

static int refuse_action(struct sql_session *s, const char *what)
{
    snprintf(s->refused_text, sizeof s->refused_text, "%s", what);
    s->refused = s->refused_text;
    return SQLITE_DENY;
}

/* Called when a statement is prepared, for each action of the statement. */
static int authorize_action(void *session, int action, const char *one, const char *two, const char *database,
                            const char *by)
{
    struct sql_session *s = session;
    static const struct {
        int action;
        const char *word;
    } words[] = {
        {SQLITE_INSERT, "INSERT"},           {SQLITE_UPDATE, "UPDATE"},     {SQLITE_DELETE, "DELETE"},
        {SQLITE_ATTACH, "ATTACH"},           {SQLITE_DETACH, "DETACH"},     {SQLITE_TRANSACTION, "a transaction"},
        {SQLITE_SAVEPOINT, "a transaction"}, {SQLITE_ALTER_TABLE, "ALTER"}, {SQLITE_REINDEX, "REINDEX"},
        {SQLITE_ANALYZE, "ANALYZE"},
    };
    if (action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_RECURSIVE) return SQLITE_OK;
    if (action == SQLITE_FUNCTION)
        return two && strcasecmp(two, "load_extension") == 0 ? refuse_action(s, "load_extension") : SQLITE_OK;
    if (action == SQLITE_PRAGMA) {
        bool reads = false;
        for (size_t i = 0; i < sizeof pragmas / sizeof *pragmas; i++) reads = reads || strcasecmp(one, pragmas[i]) == 0;
        bool sets = two && (strcasecmp(one, "user_version") == 0 || strcasecmp(one, "application_id") == 0 ||
                            strcasecmp(one, "page_size") == 0 || strcasecmp(one, "encoding") == 0);
        return reads && !sets ? SQLITE_OK : refuse_action(s, "this PRAGMA");
    }
    /* Table-valued functions (json_each, pragma_table_info) declare their columns this way; who means it
     * gets no further than SQLite's own "may not be modified". */
    if (action == SQLITE_UPDATE && one && strcmp(one, "sqlite_master") == 0) return SQLITE_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (action == words[i].action) return refuse_action(s, words[i].word);
    return refuse_action(s, "CREATE or DROP");
}

static void protect_database(sqlite3 *db)
{
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 64 << 20);
    sqlite3_exec(db, "PRAGMA temp_store=MEMORY", NULL, NULL, NULL);
}

/* Checked and completed like any recording; then it is attached to the first. */
static bool attach_recording(struct sql_session *s, size_t i, char *error, size_t error_size)
{
    struct run_database *d = &s->databases[i];
    char wal[4096 + 8];
    struct stat st;
    sqlite3_close(d->db);
    d->db = NULL;
    snprintf(wal, sizeof wal, "%s-wal", d->opened);
    bool busy = d->recording || (stat(wal, &st) == 0 && st.st_size > 0);
    char *uri = run_database_uri(d->opened, busy ? "mode=ro" : "immutable=1");
    char *sql = sqlite3_mprintf("ATTACH %Q AS p%d", uri, (int)i + 1);
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    free(uri);
    sqlite3_free(sql);
    return rc == SQLITE_OK || run_fail(error, error_size, "cannot read '%s': %s", d->path, sqlite3_errmsg(s->db));
}

static bool open_sql_recording(struct run_database *d, const char *path, char *error, size_t error_size)
{
    char recovery[512];
    (void)run_database_recover(d, path, recovery, sizeof recovery);
    if (!run_database_open(NULL, d, path, error, error_size)) return false;
    /* do not stay in one transaction: a log that cannot start anew grows */
    sqlite3_exec(d->db, "COMMIT", NULL, NULL, NULL);
    sqlite3_set_authorizer(d->db, NULL, NULL);
    return true;
}

bool sql_open(struct sql_session *s, char *const *paths, size_t n, char *error, size_t error_size)
{
    for (size_t i = 0; i < n && i < SQL_PROCESSES; i++) {
        s->n = i + 1;
        if (!open_sql_recording(&s->databases[i], paths[i], error, error_size)) return false;
        if (i == 0)
            s->db = s->databases[0].db;
        else if (!attach_recording(s, i, error, error_size))
            return false;
    }
    protect_database(s->db);
    if (!sql_functions(s)) return run_fail(error, error_size, "cannot read '%s': %s", paths[0], sqlite3_errmsg(s->db));
    if (!sql_views(s, error, error_size)) return false;
    sqlite3_set_authorizer(s->db, authorize_action, s);
    return true;
}

void sql_close(struct sql_session *s)
{
    for (size_t i = s->n; i-- > 0;) run_database_close(&s->databases[i]);
    sql_functions_free(s);
}
