/* Stores the text of the program's own Python files with the first frame that names them, so that a recording of a
 * process that dies has them, too. Reads from the database which files it has, so that a failed transaction leaves no
 * wrong state. */
#include "schema/store_state.h"
#include "schema/source_file.h"

#include <stdlib.h>
#include <string.h>

static int load_start(struct gs_store *s, sqlite3_stmt *row)
{
    const char *folder = (const char *)sqlite3_column_text(row, 0);
    free(s->sources.folder);
    s->sources.folder = folder ? strdup(folder) : NULL;
    s->sources.start_real_ns = sqlite3_column_int64(row, 1);
    s->sources.stored = sqlite3_column_int64(row, 2) == 1;
    return 0;
}

/* A recording of an older gpuspy has neither the table nor the row in meta. */
int gs_store_open_sources(struct gs_store *s)
{
    return gs_store_each(s, "SELECT cwd,start_real_ns,(SELECT value FROM meta WHERE key='sources') FROM process",
                         load_start);
}

void gs_store_free_sources(struct gs_store *s)
{
    free(s->sources.folder);
    free(s->sources.installed.at);
}

static sqlite3_stmt *find_file(struct gs_store *s, const char *file, size_t length)
{
    sqlite3_stmt *st = gs_store_statement(s, GS_SQL_SOURCE_KNOWN);
    if (st) sqlite3_bind_text(st, 1, file, (int)length, SQLITE_STATIC);
    return st;
}

/* Returns 1: the file is known; 0: it is not, and *files and *bytes tell what is stored; -1: an error. */
static int is_known(struct gs_store *s, const char *file, size_t length, int64_t *files, int64_t *bytes)
{
    sqlite3_stmt *st = find_file(s, file, length);
    if (!st) return -1;
    int rc = sqlite3_step(st);
    const int known = rc == SQLITE_ROW ? sqlite3_column_int(st, 0) : 0;
    if (rc == SQLITE_ROW && !known) {
        *files = sqlite3_column_int64(st, 1);
        *bytes = sqlite3_column_int64(st, 2);
    }
    sqlite3_reset(st);
    return rc == SQLITE_ROW ? known : gs_store_fail(s, "read");
}

static int insert_source(struct gs_store *s, const char *file, size_t length, struct gs_text text, const char *left_out)
{
    sqlite3_stmt *st = gs_store_statement(s, GS_SQL_SOURCE);
    if (!st) return -1;
    sqlite3_bind_text(st, 1, file, (int)length, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, left_out ? 0 : text.length);
    sqlite3_bind_text(st, 3, left_out, -1, SQLITE_STATIC);
    if (left_out)
        sqlite3_bind_null(st, 4);
    else
        sqlite3_bind_text(st, 4, s->text.at + text.at, (int)text.length, SQLITE_STATIC);
    return gs_store_run(s, st);
}

/* `file` must be a copy, because reading the file may move s->text. */
static int add_file(struct gs_store *s, const char *file, size_t length)
{
    int64_t files = 0, bytes = 0;
    const int known = is_known(s, file, length, &files, &bytes);
    if (known || files >= GS_SOURCE_FILES) return known < 0 ? -1 : 0;
    const char *left_out = GS_SOURCE_FULL;
    char *read = NULL;
    size_t n = 0;
    if (gs_source_is_installed(&s->sources.installed, file, s->sources.folder))
        left_out = GS_SOURCE_INSTALLED;
    else if (bytes < GS_SOURCE_TOTAL_BYTES)
        read = gs_source_read(file, s->sources.folder, s->sources.start_real_ns, true, &n, &left_out);
    const size_t before = s->text.count;
    struct gs_text text = {0};
    int rc = read ? gs_store_add_text(s, read, n, &text) : 0;
    free(read);
    if (!left_out && bytes + text.length > GS_SOURCE_TOTAL_BYTES) left_out = GS_SOURCE_FULL;
    if (!rc) rc = insert_source(s, file, length, text, left_out);
    s->text.count = before;
    return rc;
}

int gs_store_write_sources(struct gs_store *s)
{
    char *last = NULL;
    int rc = 0;
    for (size_t i = 0; i < s->frames.count && s->sources.stored && !rc; i++) {
        const struct gs_row_frame *row = &s->frames.at[i];
        const char *name = s->text.at + row->file.at;
        if (row->kind != GS_FRAME_PYTHON || !row->file.length) continue;
        if (last && strlen(last) == row->file.length && !memcmp(last, name, row->file.length)) continue;
        free(last);
        last = strndup(name, row->file.length);
        if (!last)
            rc = gs_store_no_memory(s);
        else if (gs_source_is_own(last) && !(rc = add_file(s, last, strlen(last))) && s->pause)
            s->pause(NULL); /* masking a large file takes as long as storing thousands of rows */
    }
    free(last);
    return rc;
}
