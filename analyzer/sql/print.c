#include "analyzer/sql/sql.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

enum { MEASURED = 500, GAP = 2, LEAST = 8 };

/* The text of a cell, cleaned; line breaks stay. Free the result. */
static char *cell_text(sqlite3_stmt *st, int column, bool utf8)
{
    if (sqlite3_column_type(st, column) == SQLITE_BLOB) {
        const unsigned char *bytes = sqlite3_column_blob(st, column);
        size_t n = (size_t)sqlite3_column_bytes(st, column);
        char *hex = arena_realloc(NULL, 2 * n + 4, 1), *at = hex + sprintf(hex, "x'");
        for (size_t i = 0; i < n; i++) at += sprintf(at, "%02x", bytes[i]);
        memcpy(at, "'", 2);
        return hex;
    }
    const char *text = (const char *)sqlite3_column_text(st, column);
    size_t n = text ? strlen(text) : 0;
    char *out = arena_realloc(NULL, n + 1, 1), *at = out;
    for (const char *p = text ? text : ""; *p;) {
        size_t length = strcspn(p, "\n");
        char *line = strndup(p, length);
        terminal_clean(at, (size_t)(out + n + 1 - at), line, utf8);
        at += strlen(at);
        free(line);
        p += length;
        if (*p) *at++ = *p++;
    }
    *at = 0;
    return out;
}

struct row {
    char **cells;
    bool *numbers;
};

struct table {
    const struct sql_printer *p;
    sqlite3_stmt *st;
    int n, *width;
    ARENA_LIST(struct row, rows);
};

static int widest_line(const char *text)
{
    int most = 0;
    for (const char *p = text; *p; p += *p == '\n') {
        size_t n = strcspn(p, "\n");
        char *line = strndup(p, n);
        int w = terminal_columns(line);
        most = w > most ? w : most;
        free(line);
        p += n;
    }
    return most;
}

/* Narrows the widest columns until a row fits the terminal. */
static void fit_columns(struct table *t)
{
    int sum = GAP * (t->n - 1), room = t->p->width;
    for (int c = 0; c < t->n; c++) sum += t->width[c];
    while (room > 0 && sum > room) {
        int at = 0;
        for (int c = 1; c < t->n; c++) at = t->width[c] > t->width[at] ? c : at;
        if (t->width[at] <= LEAST) break;
        t->width[at]--;
        sum--;
    }
}

static void put_table_cell(const struct table *t, int c, const char *text, bool right)
{
    char shown[4096];
    const char *out = text;
    if (t->p->width > 0 && terminal_columns(text) > t->width[c]) {
        text_elide(shown, sizeof shown, text, t->width[c], t->p->utf8);
        out = shown;
    }
    int pad = t->width[c] - terminal_columns(out);
    pad = pad < 0 ? 0 : pad;
    bool last = c == t->n - 1;
    fprintf(t->p->out, "%*s%s%*s", right ? pad : 0, "", out, last ? 0 : (right ? 0 : pad) + GAP, "");
}

/* Cells of several lines make a row of several lines. */
static void print_sql_row(const struct table *t, const struct row *r)
{
    const char **at = arena_realloc(NULL, (size_t)t->n, sizeof *at);
    bool more = true;
    for (int c = 0; c < t->n; c++) at[c] = r->cells[c];
    while (more) {
        more = false;
        for (int c = 0; c < t->n; c++) {
            size_t n = strcspn(at[c], "\n");
            char *line = strndup(at[c], n);
            put_table_cell(t, c, line, r->numbers[c]);
            free(line);
            at[c] += n;
            if (*at[c]) {
                at[c]++;
                more = true;
            }
        }
        fputc('\n', t->p->out);
    }
    free(at);
}

static void free_sql_row(struct table *t, struct row *r)
{
    for (int c = 0; c < t->n; c++) free(r->cells[c]);
    ARENA_RELEASE(r->cells, r->numbers);
}

static struct row take_sql_row(struct table *t)
{
    struct row r = {arena_realloc(NULL, (size_t)t->n, sizeof *r.cells),
                    arena_realloc(NULL, (size_t)t->n, sizeof *r.numbers)};
    for (int c = 0; c < t->n; c++) {
        int type = sqlite3_column_type(t->st, c);
        r.numbers[c] = type == SQLITE_INTEGER || type == SQLITE_FLOAT;
        r.cells[c] = cell_text(t->st, c, t->p->utf8);
    }
    return r;
}

static void print_measured_table(struct table *t)
{
    char head[4096];
    for (int c = 0; c < t->n; c++) {
        terminal_clean(head, sizeof head, sqlite3_column_name(t->st, c), t->p->utf8);
        t->width[c] = terminal_columns(head);
    }
    for (size_t i = 0; i < t->rows_n; i++) {
        for (int c = 0; c < t->n; c++) {
            int w = widest_line(t->rows[i].cells[c]);
            t->width[c] = w > t->width[c] ? w : t->width[c];
        }
    }
    fit_columns(t);
    for (int c = 0; c < t->n; c++) {
        terminal_clean(head, sizeof head, sqlite3_column_name(t->st, c), t->p->utf8);
        put_table_cell(t, c, head, t->rows_n > 0 && t->rows[0].numbers[c]);
    }
    fputc('\n', t->p->out);
    for (int c = 0; c < t->n; c++) {
        for (int i = 0; i < t->width[c]; i++) fputs(t->p->utf8 ? "─" : "-", t->p->out);
        fprintf(t->p->out, "%*s", c < t->n - 1 ? GAP : 0, "");
    }
    fputc('\n', t->p->out);
    for (size_t i = 0; i < t->rows_n; i++) {
        print_sql_row(t, &t->rows[i]);
        free_sql_row(t, &t->rows[i]);
    }
    t->rows_n = 0;
}

/* The first rows determine how wide the columns are; later rows are printed as they come. */
static int print_sql_table(const struct sql_printer *p, sqlite3_stmt *st)
{
    struct table t = {.p = p, .st = st, .n = sqlite3_column_count(st)};
    int rc;
    bool head = false;
    t.width = arena_realloc(NULL, (size_t)t.n + 1, sizeof *t.width);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !ferror(p->out)) {
        struct row r = take_sql_row(&t);
        if (head) {
            print_sql_row(&t, &r);
            free_sql_row(&t, &r);
            continue;
        }
        *ARENA_ADD(t.rows) = r;
        if (t.rows_n == MEASURED) {
            print_measured_table(&t);
            head = true;
        }
    }
    if (!head && (rc == SQLITE_DONE || t.rows_n)) print_measured_table(&t);
    ARENA_RELEASE(t.rows, t.width);
    return rc;
}

static void csv_field(FILE *out, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *p = text; *p; p++) fputs(*p == '"' ? "\"\"" : (char[]){*p, 0}, out);
    fputc('"', out);
}

static int print_csv(const struct sql_printer *p, sqlite3_stmt *st)
{
    const int n = sqlite3_column_count(st);
    char head[4096];
    int rc;
    for (int c = 0; c < n; c++) {
        fputs(c ? "," : "", p->out);
        csv_field(p->out, terminal_clean(head, sizeof head, sqlite3_column_name(st, c), true));
    }
    fputs("\r\n", p->out);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !ferror(p->out)) {
        for (int c = 0; c < n; c++) {
            char *text = cell_text(st, c, true);
            fputs(c ? "," : "", p->out);
            csv_field(p->out, text);
            free(text);
        }
        fputs("\r\n", p->out);
    }
    return rc;
}

static json_t *statement_column_json(sqlite3_stmt *st, int column)
{
    switch (sqlite3_column_type(st, column)) {
    case SQLITE_INTEGER: return json_integer(sqlite3_column_int64(st, column));
    case SQLITE_FLOAT:
        return isfinite(sqlite3_column_double(st, column)) ? json_real(sqlite3_column_double(st, column)) : json_null();
    case SQLITE_NULL: return json_null();
    default: {
        char *text = cell_text(st, column, true);
        json_t *o = json_string(text);
        free(text);
        return o ? o : json_null();
    }
    }
}

/* Two columns with one name are distinguished by a number. */
static void set_column(json_t *row, const char *name, int column, json_t *value)
{
    char clean[512], other[600];
    terminal_clean(clean, sizeof clean, name, true);
    snprintf(other, sizeof other, "%s", clean);
    if (json_object_get(row, clean)) snprintf(other, sizeof other, "%s:%d", clean, column + 1);
    json_object_set_new(row, other, value);
}

static int print_sql_json(const struct sql_printer *p, sqlite3_stmt *st)
{
    const int n = sqlite3_column_count(st);
    bool first = true;
    int rc;
    fputc('[', p->out);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !ferror(p->out)) {
        json_t *row = json_object();
        for (int c = 0; c < n; c++) set_column(row, sqlite3_column_name(st, c), c, statement_column_json(st, c));
        fputs(first ? "" : ",\n ", p->out);
        json_dumpf(row, p->out, JSON_COMPACT);
        json_decref(row);
        first = false;
    }
    fputs("]\n", p->out);
    return rc;
}

int sql_print(const struct sql_printer *p, sqlite3_stmt *st)
{
    if (sqlite3_column_count(st) == 0) return sqlite3_step(st);
    return p->format == SQL_JSON  ? print_sql_json(p, st)
           : p->format == SQL_CSV ? print_csv(p, st)
                                  : print_sql_table(p, st);
}
