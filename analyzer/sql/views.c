/* The tables and views that are queried: those of schema/gpuspy.sql, over one file or several, of this
 * version or an older one. SQLite itself reads the schema, in a database of its own in memory. */
#include "analyzer/base/text.h"
#include "analyzer/sql/sql.h"

#include <stdio.h>
#include <string.h>

static const char schema_sql[] =
#include "gpuspy_sql.h"
    ;
/* Only of recordings of bounded size. */
static const char keep_sql[] =
#include "keep_sql.h"
    ;

struct making {
    struct sql_session *s;
    sqlite3 *model; /* the schema, empty */
    char *error;
    size_t error_size;
};

static bool run_view_sql(struct making *k, char *sql)
{
    int rc = sqlite3_exec(k->s->db, sql, NULL, NULL, NULL);
    sqlite3_free(sql);
    return rc == SQLITE_OK ||
           run_fail(k->error, k->error_size, "cannot read '%s': %s", k->s->databases[0].path, sqlite3_errmsg(k->s->db));
}

static void schema_of(size_t i, char out[16])
{
    snprintf(out, 16, i ? "p%d" : "main", (int)i + 1);
}

static bool query_has_row(struct making *k, char *sql)
{
    sqlite3_stmt *st = run_database_prepare(&(struct run_database){.db = k->s->db}, sql);
    bool has = st && sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    sqlite3_free(sql);
    return has;
}

/* A real table of the file: a view or a virtual table under a table's name could do anything. */
static bool has_attached_table(struct making *k, size_t i, const char *name)
{
    char schema[16];
    schema_of(i, schema);
    return query_has_row(k, sqlite3_mprintf("SELECT 1 FROM %s.sqlite_master WHERE type = 'table' AND name = %Q AND "
                                            "sql NOT LIKE 'create virtual%%'",
                                            schema, name));
}

static bool has_attached_column(struct making *k, size_t i, const char *table, const char *column)
{
    char schema[16];
    schema_of(i, schema);
    return query_has_row(
        k, sqlite3_mprintf("SELECT 1 FROM pragma_table_xinfo(%Q, %Q) WHERE name = %Q", table, schema, column));
}

/* Words and entry points are the same numbers everywhere; meta says things of the first process. */
static bool is_common(const char *table)
{
    static const char *const common[] = {"layer",       "space",      "direction",     "host_memory",
                                         "sync_kind",   "frame_kind", "sample_source", "mark_kind",
                                         "handle_kind", "api",        "meta"};
    return TEXT_IS_ONE_OF(table, common);
}

/* Numbers that mean something within their own process alone. */
static bool is_local(const char *table, const char *column)
{
    static const char *const local[] = {
        "id",       "stack_id",  "alloc_stack_id", "free_stack_id", "event_stack_id", "parent_id",
        "frame_id", "module_id", "allocation_id",  "thread_id",     "alloc_thread_id"};
    return TEXT_IS_ONE_OF(column, local) ||
           (strcmp(table, "mark") == 0 && (strcmp(column, "name") == 0 || strcmp(column, "domain") == 0));
}

static sqlite3_stmt *columns_of_schema(struct making *k, const char *table)
{
    char *sql = sqlite3_mprintf("SELECT name FROM pragma_table_xinfo(%Q)", table);
    sqlite3_stmt *st = run_database_prepare(&(struct run_database){.db = k->model}, sql);
    sqlite3_free(sql);
    return st;
}

/* `from` is what follows FROM, for file i; its columns are those of the schema's table. */
static char *select_from(struct making *k, size_t i, const char *table, const char *from, bool check)
{
    const bool process = strcmp(table, "process") == 0;
    char *list = sqlite3_mprintf("");
    sqlite3_stmt *st = columns_of_schema(k, table);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(st, 0);
        const char *comma = *list ? ", " : "";
        if (strcmp(column, "process_id") == 0 || (process && strcmp(column, "id") == 0))
            list = sqlite3_mprintf("%z%s%d AS %w", list, comma, (int)i + 1, column);
        else if (check && !has_attached_column(k, i, table, column))
            list = sqlite3_mprintf("%z%sNULL AS %w", list, comma, column);
        else if (i > 0 && !is_common(table) && is_local(table, column))
            list = sqlite3_mprintf("%z%s\"%w\" + %lld AS %w", list, comma, column, (long long)i * SQL_STRIDE, column);
        else
            list = sqlite3_mprintf("%z%s\"%w\"", list, comma, column);
    }
    sqlite3_finalize(st);
    return sqlite3_mprintf("SELECT %z FROM %s", list, from);
}

static void note_missing(struct making *k, const char *table)
{
    size_t at = strlen(k->s->missing);
    snprintf(k->s->missing + at, sizeof k->s->missing - at, "%s%s", at ? ", " : "", table);
}

/* As the schema has it, with no row. */
static char *select_nothing(struct making *k, const char *table)
{
    char *list = sqlite3_mprintf("");
    sqlite3_stmt *st = columns_of_schema(k, table);
    while (st && sqlite3_step(st) == SQLITE_ROW)
        list = sqlite3_mprintf("%z%sNULL AS %w", list, *list ? ", " : "", sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return sqlite3_mprintf("SELECT %z WHERE 0", list);
}

static bool make_table(struct making *k, const char *table)
{
    char *all = NULL, from[128], schema[16];
    size_t have = 0;
    for (size_t i = 0; i < (is_common(table) ? 1 : k->s->n); i++) {
        if (!has_attached_table(k, i, table)) continue;
        have++;
        schema_of(i, schema);
        snprintf(from, sizeof from, "%s.\"%s\"", schema, table);
        char *one = select_from(k, i, table, from, true);
        all = all ? sqlite3_mprintf("%z UNION ALL %z", all, one) : one;
    }
    if (!have) {
        note_missing(k, table);
        all = select_nothing(k, table);
    }
    return run_view_sql(k, sqlite3_mprintf("CREATE TEMP VIEW \"%w\" AS %z", table, all));
}

/* Replaces the first `what` in a text from sqlite3_malloc. */
static char *replace_text(char *text, const char *what, const char *with)
{
    char *at = strstr(text, what);
    if (!at) return text;
    char *out = sqlite3_mprintf("%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
    sqlite3_free(text);
    return out;
}

static bool has_all_columns(struct making *k, size_t i, const char *table)
{
    bool all = true;
    sqlite3_stmt *st = columns_of_schema(k, table);
    while (all && st && sqlite3_step(st) == SQLITE_ROW)
        all = has_attached_column(k, i, table, (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return all;
}

/* The two that are views over packed rows, and were tables in the first version. `select`: the view's
 * own text behind AS. */
static bool make_unpacked(struct making *k, const char *view, const char *rows, const char *select)
{
    char *all = NULL, from[128], schema[16];
    for (size_t i = 0; i < k->s->n; i++) {
        char *one;
        schema_of(i, schema);
        if (has_attached_table(k, i, view)) {
            snprintf(from, sizeof from, "%s.\"%s\"", schema, view);
            one = select_from(k, i, view, from, true);
        } else if (!has_attached_table(k, i, rows) || !has_all_columns(k, i, rows)) { /* somebody changed it */
            note_missing(k, rows);
            one = select_nothing(k, view);
        } else {
            char *text = sqlite3_mprintf("(%s)", select), row[64], of[96];
            snprintf(row, sizeof row, "FROM %s", rows);
            snprintf(of, sizeof of, "FROM %s.%s", schema, rows);
            text = replace_text(text, row, of);
            one = select_from(k, i, view, text, false);
            sqlite3_free(text);
        }
        all = all ? sqlite3_mprintf("%z UNION ALL %z", all, one) : one;
    }
    return run_view_sql(k, sqlite3_mprintf("CREATE TEMP VIEW \"%w\" AS %z", view, all));
}

/* The report's line of each stack. The schema's own view, for sqlite3 without gpuspy, knows no helpers and libraries.
 */
static const char sites[] =
    "SELECT id AS stack_id, gpuspy_site_part(id, 0) AS function, gpuspy_site_part(id, 1) AS file, "
    "gpuspy_site_part(id, 3) AS line, gpuspy_site_part(id, 2) AS kind FROM stack";

static bool make_view(struct making *k, const char *name, const char *sql)
{
    const char *as = strstr(sql, "SELECT"), *with = strstr(sql, "WITH RECURSIVE");
    as = with && with < as ? with : as;
    if (!as) return true;
    if (strcmp(name, "allocation") == 0) return make_unpacked(k, name, "allocation_row", as);
    if (strcmp(name, "copy") == 0) return make_unpacked(k, name, "copy_row", as);
    if (strcmp(name, "sites") == 0) as = sites;
    return run_view_sql(k, sqlite3_mprintf("CREATE TEMP VIEW \"%w\" AS %s", name, as));
}

/* One file of this version is queried as it is: the views alone are ours. */
static bool needs_table(struct making *k, const char *table)
{
    return k->s->n > 1 || !has_attached_table(k, 0, table) || !has_all_columns(k, 0, table);
}

/* What a table is for as long as the recording is not finished is nobody's question. */
static bool is_recovery(const char *table)
{
    return strncmp(table, "recovery_", 9) == 0 || strncmp(table, "sqlite_", 7) == 0;
}

static bool any_has(struct making *k, const char *table)
{
    size_t i = 0;
    while (i < k->s->n && !has_attached_table(k, i, table)) i++;
    return i < k->s->n;
}

bool sql_views(struct sql_session *s, char *error, size_t error_size)
{
    struct making k = {s, NULL, error, error_size};
    bool ok = sqlite3_open(":memory:", &k.model) == SQLITE_OK &&
              sqlite3_exec(k.model, schema_sql, NULL, NULL, NULL) == SQLITE_OK &&
              (!any_has(&k, "removed") || sqlite3_exec(k.model, keep_sql, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_stmt *st = NULL;
    if (!ok || sqlite3_prepare_v2(k.model,
                                  "SELECT type, name, sql FROM sqlite_master WHERE type IN "
                                  "('table', 'view') ORDER BY type = 'view', rowid",
                                  -1, &st, NULL) != SQLITE_OK)
        ok = run_fail(error, error_size, "out of memory");
    while (ok && sqlite3_step(st) == SQLITE_ROW) {
        const char *type = (const char *)sqlite3_column_text(st, 0);
        const char *name = (const char *)sqlite3_column_text(st, 1);
        const char *sql = (const char *)sqlite3_column_text(st, 2);
        bool packed = strcmp(name, "allocation_row") == 0 || strcmp(name, "copy_row") == 0;
        if (strcmp(type, "view") == 0)
            ok = make_view(&k, name, sql);
        else if (!is_recovery(name) && !packed && needs_table(&k, name))
            ok = make_table(&k, name);
    }
    sqlite3_finalize(st);
    sqlite3_close(k.model);
    return ok;
}
