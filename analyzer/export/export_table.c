#include "analyzer/export/export_table.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/json_out.h"
#include "analyzer/run/run.h"
#include "analyzer/base/term.h"

void gs_table_begin(struct gs_table *t, FILE *out, bool json, const char *columns)
{
    *t = (struct gs_table){.out = out, .json = json, .columns = columns};
    for (const char *p = columns; *p && t->columns_n < GS_TABLE_COLUMNS; p += *p == ',') {
        size_t n = strcspn(p, ",");
        t->column[t->columns_n++] = (struct gs_table_column){p, (int)n};
        p += n;
    }
    if (!json) {
        fprintf(out, "%s\r\n", columns);
    }
}

static void before(struct gs_table *t)
{
    const struct gs_table_column *c = &t->column[t->at];
    if (t->json) {
        fprintf(t->out, "%s\"%.*s\":", t->at ? "," : "{", c->length, c->name);
    } else if (t->at) {
        putc(',', t->out);
    }
}

static void after(struct gs_table *t)
{
    if (++t->at == t->columns_n) {
        fputs(t->json ? "}\n" : "\r\n", t->out);
        t->at = 0;
        t->rows++;
    }
}

void gs_table_int(struct gs_table *t, int64_t value)
{
    before(t);
    if (value != GS_UNKNOWN) {
        fprintf(t->out, "%lld", (long long)value);
    } else if (t->json) {
        fputs("null", t->out);
    }
    after(t);
}

void gs_table_device(struct gs_table *t, int device)
{
    gs_table_int(t, device < 0 ? GS_UNKNOWN : device);
}

void gs_table_bool(struct gs_table *t, bool value)
{
    before(t);
    fputs(value ? "true" : "false", t->out);
    after(t);
}

static void quoted(FILE *out, const char *text)
{
    size_t size = strlen(text) + 1;
    char *clean = gs_realloc(NULL, size, 1);
    term_clean(clean, size, text, true);
    bool formula = *clean && strchr("=+-@", *clean), plain = !clean[strcspn(clean, ",\"")];
    if (plain && !formula) {
        fputs(clean, out);
    } else {
        fputs(formula ? "\"'" : "\"", out);
        for (const char *p = clean; *p; p++) {
            if (*p == '"') {
                putc('"', out);
            }
            putc(*p, out);
        }
        putc('"', out);
    }
    free(clean);
}

void gs_table_text(struct gs_table *t, const char *value)
{
    before(t);
    if (t->json) {
        json_out_text(t->out, value);
    } else if (value) {
        quoted(t->out, value);
    }
    after(t);
}
