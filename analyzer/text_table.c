#include "analyzer/text_table.h"

#include <stdlib.h>
#include <string.h>

#define GAP 2
#define LEAST 20 /* columns for the last cell; where there are fewer, it has a line of its own */

static int columns_of(const struct table *t)
{
    int n = 0;

    while (n < TABLE_COLUMNS && t->head[n])
        n++;
    return n;
}

struct table_row *table_add(struct table *t, const char *const *cells, const void *item)
{
    int n = columns_of(t) - (item != NULL);

    if (t->n == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 16;
        struct table_row *rows = realloc(t->rows, capacity * sizeof *rows);
        if (!rows)
            return NULL;
        t->rows = rows;
        t->capacity = capacity;
    }
    struct table_row *row = &t->rows[t->n++];
    *row = (struct table_row){.item = item};
    for (int c = 0; c < n; c++)
        row->cell[c] = strdup(cells[c] ? cells[c] : "");
    return row;
}

static const char *cell_of(const struct table_row *row, int column)
{
    return row->cell[column] ? row->cell[column] : "";
}

static int width_of(const struct table *t, int column)
{
    int width = term_columns(t->head[column]);

    for (size_t i = 0; i < t->n; i++) {
        int w = term_columns(cell_of(&t->rows[i], column));
        if (w > width)
            width = w;
    }
    return width;
}

/* Columns that are left for the last cell. */
static int room_of(const int *width, int n, const struct term *term, int indent)
{
    int room = term->width - indent;

    for (int c = 0; c < n - 1; c++)
        room -= width[c] + GAP;
    return room;
}

/* Bytes of `text` that make a line: up to a blank, or cut where a word alone is too long. */
static size_t line_of(const char *text, int room)
{
    size_t fits = term_fit(text, room), at = fits;

    if (!text[fits])
        return fits;
    while (at > 0 && text[at] != ' ')
        at--;
    return at ? at : fits;
}

static void print_last(const struct table *t, const struct table_row *row, int n, int room,
                       int start, FILE *out)
{
    char text[1024];

    if (row->item && t->last) {
        t->last(t->self, row->item, text, sizeof text, room);
        fputs(text, out);
        return;
    }
    for (const char *p = cell_of(row, n - 1); *p;) {
        size_t length = line_of(p, room);
        fprintf(out, "%.*s", (int)length, p);
        p += length;
        p += strspn(p, " ");
        if (*p)
            fprintf(out, "\n%*s", start, "");
    }
}

static void print_cell(FILE *out, const char *text, int width, bool left, bool last)
{
    int pad = width - term_columns(text);

    fprintf(out, "%*s%s%*s", left ? 0 : pad, "", text, last ? 0 : (left ? pad : 0) + GAP, "");
}

static void print_head(const struct table *t, const struct term *term, int indent, const int *width,
                       bool below, FILE *out)
{
    int n = columns_of(t);
    bool any = false;

    for (int c = 0; c < n; c++)
        any = any || *t->head[c];
    if (!any)
        return;
    fprintf(out, "%*s%s", indent, "", term_style(term, TERM_DIM));
    for (int c = 0; c < n - 1; c++)
        print_cell(out, t->head[c], width[c], t->left[c], below && c == n - 2);
    fprintf(out, "%s%s\n", below ? "" : t->head[n - 1], term_style(term, TERM_PLAIN));
}

static void free_row(struct table_row *row)
{
    for (int c = 0; c < TABLE_COLUMNS; c++)
        free(row->cell[c]);
    free(row->below);
}

void table_print(struct table *t, const struct term *term, int indent, FILE *out)
{
    int width[TABLE_COLUMNS] = {0}, n = columns_of(t);

    for (int c = 0; c < n; c++)
        width[c] = width_of(t, c);
    int room = room_of(width, n, term, indent), start = indent;
    for (int c = 0; c < n - 1; c++)
        start += width[c] + GAP;
    bool below = room < LEAST && n > 1;
    if (below) {
        start = indent + GAP;
        room = term->width - start;
    }
    if (t->n)
        print_head(t, term, indent, width, below, out);
    for (size_t i = 0; i < t->n; i++) {
        struct table_row *row = &t->rows[i];
        fprintf(out, "%*s", indent, "");
        for (int c = 0; c < n - 1; c++)
            print_cell(out, cell_of(row, c), width[c], t->left[c], below && c == n - 2);
        if (below)
            fprintf(out, "\n%*s", start, "");
        print_last(t, row, n, room, start, out);
        fprintf(out, "\n%s", row->below ? row->below : "");
        free_row(row);
    }
    free(t->rows);
    t->rows = NULL;
    t->n = t->capacity = 0;
}
