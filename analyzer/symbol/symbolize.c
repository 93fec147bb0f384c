#include "analyzer/symbol/symbolize.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"
#include "schema/event.h"
#include "schema/store.h"

enum { BUSY_MS = 5000, PROGRESS_EACH = 16 };

struct work {
    struct symbolize *s;
    sqlite3 *db;
    const char *path;
    sqlite3_stmt *update, *forget, *add, *build_id;
    uint64_t done, all;
};

static bool report_symbolize_failure(char *error, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool report_symbolize_failure(char *error, size_t size, const char *format, ...)
{
    TEXT_FORMAT(error, size, format);
    return false;
}

static bool cannot_write(const struct work *w, char *error, size_t size)
{
    int code = sqlite3_errcode(w->db) & 0xff;
    bool refused = code == SQLITE_READONLY || code == SQLITE_CANTOPEN || code == SQLITE_PERM;
    bool full = code == SQLITE_FULL;

    return report_symbolize_failure(error, size, "cannot write '%s': %s; %s", w->path, sqlite3_errmsg(w->db),
                                    refused ? "write a copy elsewhere with: -o COPY.db"
                                    : full  ? "it is unchanged; make room, or write a copy elsewhere with: -o COPY.db"
                                    : code == SQLITE_BUSY ? "another program has it open; try again when that is done"
                                                          : "it is unchanged");
}

static bool run_sql(const struct work *w, const char *sql)
{
    return sqlite3_exec(w->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static int64_t query_int(const struct work *w, const char *sql)
{
    sqlite3_stmt *st = NULL;
    int64_t value = -1;

    if (sqlite3_prepare_v2(w->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return value;
}

static struct symbolize_module *symbolize_module_of(struct symbolize *s, const char *path, const char *build_id)
{
    build_id = build_id ? build_id : "";
    for (size_t i = s->modules_n; i-- > 0;)
        if (strcmp(s->modules[i].path, path) == 0 && strcmp(s->modules[i].build_id, build_id) == 0)
            return &s->modules[i];
    struct symbolize_module *m = ARENA_ADD(s->modules);
    *m = (struct symbolize_module){.path = strdup(path), .build_id = strdup(build_id)};
    return m;
}

static const char *statement_text(sqlite3_stmt *st, int column)
{
    return (const char *)sqlite3_column_text(st, column);
}

static bool are_texts_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool step_statement(sqlite3_stmt *st)
{
    bool ok = sqlite3_step(st) == SQLITE_DONE;

    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return ok;
}

static bool write_chain(struct work *w, int64_t id, const struct run_symbol_place *places, size_t n)
{
    sqlite3_bind_int64(w->forget, 1, id);
    if (!step_statement(w->forget)) return false;
    for (size_t i = 0; n > 1 && i < n; i++) {
        sqlite3_bind_int64(w->add, 1, id);
        sqlite3_bind_int64(w->add, 2, (int64_t)i);
        sqlite3_bind_text(w->add, 3, places[i].function, -1, SQLITE_STATIC);
        sqlite3_bind_text(w->add, 4, places[i].file, -1, SQLITE_STATIC);
        if (places[i].line) sqlite3_bind_int(w->add, 5, places[i].line);
        if (!step_statement(w->add)) return false;
    }
    return true;
}

/* Row: id, path, build id, offset, function, file, line, module id. Existing names are replaced only by better ones:
 * with a line. */
static bool one_frame(struct work *w, sqlite3_stmt *row)
{
    struct symbolize *s = w->s;
    const char *path = statement_text(row, 1), *build_id = statement_text(row, 2), *function, *file;
    const char *old_function = statement_text(row, 4), *old_file = statement_text(row, 5);
    int64_t id = sqlite3_column_int64(row, 0);
    const struct run_symbol_place *places = NULL;
    int line;

    s->frames++;
    if (!path || !*path) {
        s->nowhere++;
        return true;
    }
    struct symbolize_module *m = symbolize_module_of(s, path, build_id);
    m->frames++;
    bool known = !old_file && symbolizer_find(s->symbols, path, build_id, (uint64_t)sqlite3_column_int64(row, 3),
                                              &function, &file, &line);
    if (!known || (old_function && !file)) {
        function = old_function;
        file = old_file;
        line = sqlite3_column_int(row, 6);
        known = false;
    }
    size_t n =
        known ? symbolizer_more.inlined(s->symbols, path, build_id, (uint64_t)sqlite3_column_int64(row, 3), &places)
              : 0;
    s->named += function != NULL;
    m->named += function != NULL;
    s->lines += line > 0;
    m->lines += line > 0;
    s->inlined += n > 1;
    if (!known || (are_texts_same(function, old_function) && are_texts_same(file, old_file))) return true;
    s->changed++;
    sqlite3_bind_text(w->update, 1, function, -1, SQLITE_STATIC);
    sqlite3_bind_text(w->update, 2, file, -1, SQLITE_STATIC);
    if (line) sqlite3_bind_int(w->update, 3, line);
    sqlite3_bind_int64(w->update, 4, id);
    return step_statement(w->update) && write_chain(w, id, places, n);
}

static bool all_frames(struct work *w)
{
    sqlite3_stmt *row = NULL;
    int rc = sqlite3_prepare_v2(w->db,
                                "SELECT f.id, m.path, m.build_id, f.offset, f.function, f.file, f.line "
                                "FROM frame f LEFT JOIN module m ON m.id = f.module_id "
                                "WHERE f.kind = 1 ORDER BY f.module_id, f.offset",
                                -1, &row, NULL);
    bool ok = rc == SQLITE_OK;

    while (ok && (rc = sqlite3_step(row)) == SQLITE_ROW) {
        ok = one_frame(w, row);
        if (w->s->progress && ++w->done % PROGRESS_EACH == 0) w->s->progress(w->done, w->all);
    }
    ok = ok && rc == SQLITE_DONE;
    sqlite3_finalize(row); /* keeps the error of the statement inside */
    return ok;
}

/* From the file, if the recording lacks them. */
static bool all_build_ids(struct work *w)
{
    sqlite3_stmt *row = NULL;
    int rc =
        sqlite3_prepare_v2(w->db, "SELECT id, path FROM module WHERE build_id IS NULL AND path <> ''", -1, &row, NULL);
    bool ok = rc == SQLITE_OK;

    while (ok && (rc = sqlite3_step(row)) == SQLITE_ROW) {
        const char *build_id = "";
        symbolizer_lack(w->s->symbols, statement_text(row, 1), NULL, &build_id);
        if (!*build_id) continue;
        sqlite3_bind_text(w->build_id, 1, build_id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(w->build_id, 2, sqlite3_column_int64(row, 0));
        ok = step_statement(w->build_id);
    }
    ok = ok && rc == SQLITE_DONE;
    sqlite3_finalize(row);
    return ok;
}

static bool prepare_symbolize(struct work *w)
{
    static const char table[] =
        "CREATE TABLE IF NOT EXISTS inlined_frame (frame_id INTEGER NOT NULL, level INTEGER NOT NULL, "
        "function TEXT, file TEXT, line INTEGER, PRIMARY KEY (frame_id, level)) WITHOUT ROWID";
    const struct {
        sqlite3_stmt **st;
        const char *sql;
    } all[] = {
        {&w->update, "UPDATE frame SET function = ?, file = ?, line = ? WHERE id = ?"},
        {&w->forget, "DELETE FROM inlined_frame WHERE frame_id = ?"},
        {&w->add, "INSERT INTO inlined_frame VALUES (?, ?, ?, ?, ?)"},
        {&w->build_id, "UPDATE module SET build_id = ? WHERE id = ?"},
    };
    bool ok = run_sql(w, table);

    for (size_t i = 0; ok && i < sizeof all / sizeof *all; i++)
        ok = sqlite3_prepare_v2(w->db, all[i].sql, -1, all[i].st, NULL) == SQLITE_OK;
    return ok;
}

/* Anyone may have made the database: the statements must run on tables, and there must be no trigger. */
static bool are_modules_trustworthy(const struct work *w)
{
    return query_int(w, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('frame', "
                        "'module', 'meta') AND sql NOT LIKE 'create virtual%'") == 3 &&
           query_int(w, "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' OR (name = "
                        "'inlined_frame' AND (type <> 'table' OR sql LIKE 'create virtual%'))") == 0 &&
           query_int(w, "PRAGMA application_id") == GS_APPLICATION_ID &&
           query_int(w, "PRAGMA user_version") <= GS_SCHEMA_VERSION;
}

static bool write_symbolized(struct work *w)
{
    char done[160];
    uint64_t changed = w->s->changed;

    snprintf(done, sizeof done, "INSERT OR REPLACE INTO meta VALUES ('symbolized', '%s')", GPUSPY_VERSION);
    w->all = (uint64_t)query_int(w, "SELECT count(*) FROM frame WHERE kind = 1");
    return prepare_symbolize(w) && all_frames(w) && all_build_ids(w) &&
           (w->s->changed == changed && query_int(w, "SELECT 1 FROM meta WHERE key = 'symbolized'") == 1
                ? true
                : run_sql(w, done));
}

static void close_work(struct work *w)
{
    sqlite3_finalize(w->update);
    sqlite3_finalize(w->forget);
    sqlite3_finalize(w->add);
    sqlite3_finalize(w->build_id);
    sqlite3_close(w->db);
}

bool symbolize_database(struct symbolize *s, const char *path, char *error, size_t error_size)
{
    struct work w = {.s = s, .path = path};
    bool ok = sqlite3_open_v2(path, &w.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK;

    if (ok) {
        sqlite3_busy_timeout(w.db, BUSY_MS);
        sqlite3_limit(w.db, SQLITE_LIMIT_LENGTH, 64 << 20);
        run_sql(&w, "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON");
    }
    if (ok && sqlite3_db_readonly(w.db, "main") == 1)
        ok = report_symbolize_failure(
            error, error_size, "cannot write '%s': it is read-only; write a copy elsewhere with: -o COPY.db", path);
    else if (!ok || !run_sql(&w, "BEGIN IMMEDIATE"))
        ok = cannot_write(&w, error, error_size);
    else if (!are_modules_trustworthy(&w))
        ok = report_symbolize_failure(error, error_size,
                                      "cannot write '%s': it is not a recording of gpuspy; it is unchanged", path);
    else if (!write_symbolized(&w) || !run_sql(&w, "COMMIT"))
        ok = cannot_write(&w, error, error_size);
    if (!ok && w.db && !sqlite3_get_autocommit(w.db)) run_sql(&w, "ROLLBACK");
    close_work(&w);
    return ok;
}

bool symbolize_copy(const char *from, const char *to, char *error, size_t error_size)
{
    struct work source = {.path = from}, target = {.path = to};
    bool ok = sqlite3_open_v2(from, &source.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK;
    int rc = SQLITE_ERROR;

    if (!ok)
        report_symbolize_failure(error, error_size, "cannot read '%s': %s", from, sqlite3_errmsg(source.db));
    else if (sqlite3_open_v2(to, &target.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) !=
             SQLITE_OK)
        ok = report_symbolize_failure(error, error_size, "cannot write '%s': %s; give a path where you may write", to,
                                      sqlite3_errmsg(target.db));
    sqlite3_backup *copy = ok ? sqlite3_backup_init(target.db, "main", source.db, "main") : NULL;
    if (copy) {
        sqlite3_backup_step(copy, -1);
        rc = sqlite3_backup_finish(copy);
    }
    if (ok && rc != SQLITE_OK)
        ok = report_symbolize_failure(error, error_size, "cannot copy '%s' to '%s': %s", from, to, sqlite3_errstr(rc));
    sqlite3_close(target.db);
    sqlite3_close(source.db);
    return ok;
}

SORT_ORDER(by_frames, struct symbolize_module, SORT_DOWN(x->frames, y->frames) ?: strcmp(x->path, y->path))

void symbolize_finish(struct symbolize *s)
{
    EACH_IN (m, s->modules) {
        const char *build_id;
        m->lack = m->lines == m->frames
                      ? NULL
                      : symbolizer_lack(s->symbols, m->path, *m->build_id ? m->build_id : NULL, &build_id);
    }
    SORT(s->modules, s->modules_n, by_frames);
}

void symbolize_free(struct symbolize *s)
{
    for (size_t i = 0; i < s->modules_n; i++) ARENA_RELEASE(s->modules[i].path, s->modules[i].build_id);
    free(s->modules);
}
