/* Passes over rows that only some runs need: to find the program's steps where nothing better tells. */
#include "analyzer/run_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* --- marks --------------------------------------------------------------------------------------- */

enum { TEXTS_MAX = 1 << 16 };

/* A text without its numbers, so that "step 1" and "step 2" are the same. The texts as they are may be
 * as many as the marks. */
static const char *pattern_of(struct gs_run *run, const unsigned char *text)
{
    char pattern[256];
    size_t n = 0;
    if (!text) {
        return NULL;
    }
    for (; *text && n + 1 < sizeof pattern; text++) {
        if (!isdigit(*text)) {
            pattern[n++] = (char)*text;
        } else if (n == 0 || pattern[n - 1] != '#') {
            pattern[n++] = '#';
        }
    }
    return gs_intern(run, pattern, n);
}

static bool finish(struct gs_database *db, sqlite3_stmt *st, int rc, char *error, size_t error_size)
{
    sqlite3_finalize(st);
    return rc == SQLITE_DONE || gs_database_bad(db, error, error_size);
}

bool gs_run_each_mark(struct gs_run *run, uint32_t process, gs_mark_fn each, void *self, char *error,
                      size_t error_size)
{
    struct gs_database *db = &run->databases[run->processes[process].database];
    size_t texts = run->strings_n;
    sqlite3_stmt *st = !run->marks_n ? NULL : gs_prepare(
        db, "SELECT m.kind, n.name, d.name, m.thread_id, m.start_ns, m.life_ns FROM mark m LEFT JOIN "
            "mark_name n ON n.id = m.name LEFT JOIN mark_name d ON d.id = m.domain ORDER BY m.id");
    int rc;
    int64_t now = 0;
    if (!st) { /* files of before marks have no such table */
        return true;
    }
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t start = sqlite3_column_int64(st, 4), life = gs_column_int(st, 5);
        now = start > now ? start : now;
        struct gs_mark mark = {.kind = (uint8_t)sqlite3_column_int64(st, 0),
                               .name = run->strings_n - texts > TEXTS_MAX
                                           ? NULL
                                           : pattern_of(run, sqlite3_column_text(st, 1)),
                               .domain = pattern_of(run, sqlite3_column_text(st, 2)),
                               .thread = (uint32_t)sqlite3_column_int64(st, 3),
                               .start_ns = now,
                               .end_ns = life == GS_UNKNOWN ? GS_NEVER : gs_add(now, life < 0 ? 0 : life)};
        each(self, &mark);
    }
    return finish(db, st, rc, error, error_size);
}

/* --- one stack's allocations --------------------------------------------------------------------- */

struct times {
    const struct gs_database *db;
    uint32_t stack;
    gs_time_fn each;
    void *self;
};

static void on_time(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct times *t = sqlite3_user_data(context);
    (void)n;
    if (gs_ids_get(&t->db->stacks, sqlite3_value_int64(v[1])) == t->stack) {
        t->each(t->self, sqlite3_value_int64(v[0]));
    }
}

static void on_times_end(sqlite3_context *context)
{
    sqlite3_result_null(context);
}

bool gs_run_stack_times(struct gs_run *run, uint32_t process, uint32_t stack, gs_time_fn each,
                        void *self, char *error, size_t error_size)
{
    struct gs_database *db = &run->databases[run->processes[process].database];
    struct times t = {.db = db, .stack = stack, .each = each, .self = self};
    sqlite3_stmt *st = NULL;
    char sql[128];
    if (sqlite3_create_function(db->db, "gs_time", -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, &t, NULL,
                                on_time, on_times_end) == SQLITE_OK) {
        snprintf(sql, sizeof sql, "SELECT gs_time(alloc_ns, alloc_stack_id) FROM %s NOT INDEXED",
                 db->allocations);
        st = gs_prepare(db, sql);
    }
    bool ok = (st && sqlite3_step(st) == SQLITE_ROW) || gs_database_bad(db, error, error_size);
    sqlite3_finalize(st);
    return ok;
}
