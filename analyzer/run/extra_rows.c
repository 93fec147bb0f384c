/* Passes over rows that only some runs need: to find the program's steps if nothing better shows them. */
#include "analyzer/run/run_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEXTS_MAX = 1 << 16 };

/* A text without its numbers, so that "step 1" and "step 2" are equal. There may be as many different texts as marks.
 * */
static const char *like_pattern_of(struct run *run, const unsigned char *text)
{
    char pattern[256];
    size_t n = 0;
    if (!text) return NULL;
    for (; *text && n + 1 < sizeof pattern; text++)
        if (!isdigit(*text))
            pattern[n++] = (char)*text;
        else if (n == 0 || pattern[n - 1] != '#')
            pattern[n++] = '#';
    return run_text(run, pattern, n);
}

const char *run_mark_pattern(struct run *run, const char *name)
{
    return like_pattern_of(run, (const unsigned char *)name);
}

struct run_mark_rows {
    struct run *run;
    struct run_database *db;
    sqlite3_stmt *st;
    size_t texts; /* of the run, before this */
    int64_t now;
    int rc;
};

struct run_mark_rows *run_mark_rows_open(struct run *run, uint32_t process)
{
    struct run_database *db = &run->databases[run->processes[process].database];
    sqlite3_stmt *st =
        !run->marks_n
            ? NULL
            : run_database_prepare(
                  db, "SELECT m.kind, n.name, d.name, m.thread_id, m.start_ns, m.life_ns FROM mark m LEFT JOIN "
                      "mark_name n ON n.id = m.name LEFT JOIN mark_name d ON d.id = m.domain ORDER BY m.id");
    if (!st) /* files from before marks existed lack the table */
        return NULL;
    struct run_mark_rows *rows =
        ARENA_NEW(struct run_mark_rows, .run = run, .db = db, .st = st, .texts = run->strings.n, .rc = SQLITE_ROW);
    return rows;
}

bool run_mark_rows_next(struct run_mark_rows *rows, struct run_mark *mark)
{
    struct run *run = rows->run;
    sqlite3_stmt *st = rows->st;
    if (rows->rc != SQLITE_ROW || (rows->rc = sqlite3_step(st)) != SQLITE_ROW) return false;
    int64_t start = sqlite3_column_int64(st, 4), life = run_column_int(st, 5);
    rows->now = start > rows->now ? start : rows->now;
    *mark = (struct run_mark){
        .kind = (uint8_t)sqlite3_column_int64(st, 0),
        .name = run->strings.n - rows->texts > TEXTS_MAX ? NULL : like_pattern_of(run, sqlite3_column_text(st, 1)),
        .full = (const char *)sqlite3_column_text(st, 1),
        .domain = like_pattern_of(run, sqlite3_column_text(st, 2)),
        .full_domain = (const char *)sqlite3_column_text(st, 2),
        .thread = (uint32_t)sqlite3_column_int64(st, 3),
        .start_ns = rows->now,
        .end_ns = life == RUN_UNKNOWN ? RUN_NEVER : arena_add_capped(rows->now, life < 0 ? 0 : life)};
    return true;
}

bool run_mark_rows_close(struct run_mark_rows *rows, char *error, size_t error_size)
{
    bool ok = !rows || run_finish_rows(rows->db, rows->st, rows->rc, error, error_size);
    free(rows);
    return ok;
}

bool run_each_mark(struct run *run, uint32_t process, run_mark_fn each, void *self, char *error, size_t error_size)
{
    struct run_mark_rows *rows = run_mark_rows_open(run, process);
    struct run_mark mark;
    while (rows && run_mark_rows_next(rows, &mark)) each(self, &mark);
    return run_mark_rows_close(rows, error, error_size);
}

struct rows {
    const struct run_database *db;
    run_row_fn each;
    void *self;
};

static uint32_t extra_stack_of(const struct run_database *db, sqlite3_value *v)
{
    return sqlite3_value_type(v) == SQLITE_NULL ? RUN_NONE : run_ids_get(&db->stacks, sqlite3_value_int64(v));
}

static void extra_on_row(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct rows *r = sqlite3_user_data(context);
    bool freed = sqlite3_value_type(v[1]) != SQLITE_NULL;
    int64_t at = sqlite3_value_int64(v[0]), life = freed ? sqlite3_value_int64(v[1]) : 0;
    at = at < 0 ? 0 : at;
    const struct run_row row = {.stack = extra_stack_of(r->db, v[2]),
                                .free_stack = extra_stack_of(r->db, v[3]),
                                .alloc_ns = at,
                                .free_ns = freed ? arena_add_capped(at, life < 0 ? 0 : life) : RUN_NEVER};
    r->each(r->self, &row);
}

bool run_each_row(struct run *run, uint32_t process, run_row_fn each, void *self, char *error, size_t error_size)
{
    struct run_database *db = &run->databases[run->processes[process].database];
    struct rows r = {.db = db, .each = each, .self = self};
    sqlite3_stmt *st = NULL;
    char sql[200];
    if (sqlite3_create_function(db->db, "gs_each", -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, &r, NULL, extra_on_row,
                                sqlite3_result_null) == SQLITE_OK) {
        snprintf(
            sql, sizeof sql,
            "SELECT gs_each(alloc_ns, life_ns, alloc_stack_id, free_stack_id) FROM %s NOT INDEXED WHERE alloc_ns >= "
            "%lld",
            db->allocations, (long long)run->processes[process].kept_from_ns);
        st = run_database_prepare(db, sql);
    }
    bool ok = (st && sqlite3_step(st) == SQLITE_ROW) || run_database_bad(db, error, error_size);
    sqlite3_finalize(st);
    return ok;
}
