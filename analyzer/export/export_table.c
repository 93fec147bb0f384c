#include "analyzer/export/export_table.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/json_out.h"
#include "analyzer/run/run.h"
#include "analyzer/base/term.h"

void export_table_begin(struct export_table *t, FILE *out, bool json, const char *columns)
{
    *t = (struct export_table){.out = out, .json = json, .columns = columns};
    for (const char *p = columns; *p && t->columns_n < EXPORT_TABLE_COLUMNS; p += *p == ',') {
        size_t n = strcspn(p, ",");
        t->column[t->columns_n++] = (struct export_table_column){p, (int)n};
        p += n;
    }
    if (!json) fprintf(out, "%s\r\n", columns);
}

static void begin_cell(struct export_table *t)
{
    const struct export_table_column *c = &t->column[t->at];
    if (t->json)
        fprintf(t->out, "%s\"%.*s\":", t->at ? "," : "{", c->length, c->name);
    else if (t->at)
        putc(',', t->out);
}

static void end_cell(struct export_table *t)
{
    if (++t->at == t->columns_n) {
        fputs(t->json ? "}\n" : "\r\n", t->out);
        t->at = 0;
        t->rows++;
    }
}

void export_table_int(struct export_table *t, int64_t value)
{
    begin_cell(t);
    if (value != RUN_UNKNOWN)
        fprintf(t->out, "%lld", (long long)value);
    else if (t->json)
        fputs("null", t->out);
    end_cell(t);
}

void export_table_device(struct export_table *t, int device)
{
    export_table_int(t, device < 0 ? RUN_UNKNOWN : device);
}

void export_table_bool(struct export_table *t, bool value)
{
    begin_cell(t);
    fputs(value ? "true" : "false", t->out);
    end_cell(t);
}

static void put_quoted(FILE *out, const char *text)
{
    size_t size = strlen(text) + 1;
    char *clean = arena_realloc(NULL, size, 1);
    terminal_clean(clean, size, text, true);
    bool formula = *clean && strchr("=+-@", *clean), plain = !clean[strcspn(clean, ",\"")];
    if (plain && !formula) {
        fputs(clean, out);
    } else {
        fputs(formula ? "\"'" : "\"", out);
        for (const char *p = clean; *p; p++) {
            if (*p == '"') putc('"', out);
            putc(*p, out);
        }
        putc('"', out);
    }
    free(clean);
}

void export_table_text(struct export_table *t, const char *value)
{
    begin_cell(t);
    if (t->json)
        json_out_text(t->out, value);
    else if (value)
        put_quoted(t->out, value);
    end_cell(t);
}
