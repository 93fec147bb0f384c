#include "analyzer/export/export_list.h"

#include <stdint.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/export/export_table.h"

enum { KEY = 64 };

struct columns {
    char key[EXPORT_TABLE_COLUMNS][KEY];
    unsigned n;
};

static void add_column(struct columns *c, const char *outer, const char *inner)
{
    char key[KEY];

    snprintf(key, sizeof key, "%s%s%s", outer, inner ? "." : "", inner ? inner : "");
    for (unsigned i = 0; i < c->n; i++)
        if (strcmp(c->key[i], key) == 0) return;
    if (c->n < EXPORT_TABLE_COLUMNS) memcpy(c->key[c->n++], key, sizeof key);
}

/* The columns of all rows, because some rows have keys that others lack. */
static struct columns list_columns_of(const json_t *rows)
{
    struct columns c = {.n = 0};
    size_t i;
    json_t *row, *value, *inner;
    const char *key, *within;

    json_array_foreach(rows, i, row) json_object_foreach(row, key, value) if (json_is_object(value))
        json_object_foreach(value, within, inner) add_column(&c, key, within);
    else add_column(&c, key, NULL);
    return c;
}

static const json_t *list_value_of(const json_t *row, const char *key)
{
    const char *dot = strchr(key, '.');
    char outer[KEY];

    if (!dot) return json_object_get(row, key);
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
    return json_object_get(json_object_get(row, outer), dot + 1);
}

void export_list_csv(const json_t *rows, FILE *out)
{
    struct columns c = list_columns_of(rows);
    struct export_table t;
    char head[EXPORT_TABLE_COLUMNS * KEY] = "", number[32];
    size_t i, at = 0;
    json_t *row;

    for (unsigned k = 0; k < c.n && at < sizeof head; k++)
        at += (size_t)snprintf(head + at, sizeof head - at, "%s%s", k ? "," : "", c.key[k]);
    export_table_begin(&t, out, false, head);
    json_array_foreach(rows, i, row) for (unsigned k = 0; k < c.n; k++)
    {
        const json_t *v = list_value_of(row, c.key[k]);
        if (json_is_integer(v)) {
            export_table_int(&t, json_integer_value(v));
        } else if (json_is_boolean(v)) {
            export_table_bool(&t, json_is_true(v));
        } else if (json_is_real(v)) {
            snprintf(number, sizeof number, "%.12g", json_real_value(v));
            export_table_text(&t, number);
        } else {
            export_table_text(&t, json_string_value(v));
        }
    }
}

static void put_list_text(const char *text, FILE *out)
{
    char clean[1024];

    terminal_clean(clean, sizeof clean, text, true);
    for (const char *p = clean; *p; p++)
        if (strchr("<>&\"'", *p))
            fprintf(out, "&#%d;", *p);
        else
            fputc(*p, out);
}

/* Removes the unit from a name such as "total_bytes", because each number has one. */
static void put_list_head(const char *key, FILE *out)
{
    static const char *const units[] = {"_bytes_per_s", "_bytes"};
    char text[KEY];

    snprintf(text, sizeof text, "%s", key);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (text_ends_with(text, units[i])) text[strlen(text) - strlen(units[i])] = 0;
    for (char *p = text; *p; p++) *p = *p == '_' || *p == '.' ? ' ' : *p;
    fputs("<th>", out);
    put_list_text(text, out);
    fputs("</th>", out);
}

static void put_cell(const char *key, const json_t *v, FILE *out)
{
    char text[UNITS_TEXT] = "";

    if (json_is_string(v) || json_is_boolean(v)) {
        fputs("<td>", out);
        put_list_text(json_is_string(v) ? json_string_value(v) : json_is_true(v) ? "yes" : "no", out);
    } else {
        double n = json_number_value(v);
        if (n > 0 && text_ends_with(key, "_bytes_per_s"))
            units_format_rate(text, n);
        else if (n > 0 && text_ends_with(key, "_bytes"))
            units_format_bytes(text, (uint64_t)n);
        else if (json_is_integer(v) && n > 0)
            units_format_count(text, (uint64_t)n);
        else if (n > 0)
            snprintf(text, sizeof text, "%.4g", n);
        fprintf(out, "<td class=\"n\">%s", text);
    }
    fputs("</td>", out);
}

void export_list_html(const char *title, const json_t *rows, FILE *out)
{
    struct columns c = list_columns_of(rows);
    size_t i;
    json_t *row;

    fprintf(out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\">\n<title>gpuspy: %s</title>\n"
            "<style>body{font:14px/1.4 system-ui,sans-serif;margin:1.5rem}table{border-collapse:collapse}"
            "th{position:sticky;top:0;background:Canvas;text-align:left;vertical-align:bottom}"
            "th,td{padding:.25rem .7rem;border-bottom:1px solid color-mix(in srgb,CanvasText "
            "18%%,Canvas);white-space:nowrap}"
            ".n{text-align:right;font-variant-numeric:tabular-nums}</style>\n</head>\n<body>\n<h1>%s</"
            "h1>\n<table>\n<thead><tr>",
            title, title);
    for (unsigned k = 0; k < c.n; k++) put_list_head(c.key[k], out);
    fputs("</tr></thead>\n<tbody>\n", out);
    json_array_foreach(rows, i, row)
    {
        fputs("<tr>", out);
        for (unsigned k = 0; k < c.n; k++) put_cell(c.key[k], list_value_of(row, c.key[k]), out);
        fputs("</tr>\n", out);
    }
    fputs("</tbody>\n</table>\n</body>\n</html>\n", out);
}
