/* Opens recordings for SQL queries: gpuspy sql.
 *
 * The tables are those of schema/gpuspy.sql, whatever version the file has: tables and columns that an older file
 * lacks exist and are empty, and `missing` names them. The views are this program's own, as temporary ones: a file may
 * contain other views of the same names. Several processes of a run are one database: each table is the union of
 * theirs, process_id is 1 for the first, 2 for the next and so on, and gpuspy adds the process's index (from 0) times
 * SQL_STRIDE to numbers that are unique only within one process (stack_id, frame_id, id, …), so that joins work
 * unchanged. Nothing can be written.
 */
#pragma once

#include <sqlite3.h>
#include <stdio.h>
#include "analyzer/report/report.h"
#include "analyzer/run/run_internal.h"

enum { SQL_PROCESSES = 11 }; /* SQLite attaches at most ten files to one */
#define SQL_STRIDE ((int64_t)1 << 40)

struct sql_session {
    sqlite3 *db;
    struct run_database databases[SQL_PROCESSES];
    size_t n;
    char missing[512];   /* tables that the recording lacks; "" none */
    const char *refused; /* what the last statement tried to do although it may not; NULL: nothing */
    char refused_text[128];
    /* names, read when first asked for */
    struct run *run;
    struct map helpers;
    uint32_t *python;        /* by stack: from its innermost Python frame on */
    uint32_t *site_of_stack; /* index in `sites`, from 1; 0: not requested yet */
    ARENA_LIST(struct result_site, sites);
    run_symbol_fn symbol;
    void *symbol_data;
};

/* Opens them all; the first is the main one. False and a line in `error`. */
bool sql_open(struct sql_session *s, char *const *paths, size_t n, char *error, size_t error_size);
void sql_close(struct sql_session *s);

/* functions.c: bytes(), seconds(), site(), stack_text(). */
bool sql_functions(struct sql_session *s);
void sql_functions_free(struct sql_session *s);

/* views.c: what is queried. */
bool sql_views(struct sql_session *s, char *error, size_t error_size);

/* print.c */
enum sql_format { SQL_TABLE, SQL_JSON, SQL_CSV };
struct sql_printer {
    enum sql_format format;
    FILE *out;
    int width; /* of the terminal; 0: cells are never cut */
    bool utf8;
};
/* Steps the statement to its end. Returns the last result code: SQLITE_DONE if everything succeeded. */
int sql_print(const struct sql_printer *p, sqlite3_stmt *st);
