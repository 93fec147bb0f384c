#include "analyzer/base/text_table.h"
#include "analyzer/base/arena.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"

#define GAP 2
#define LEAST 20 /* columns for the last cell; if there are fewer, it gets its own line */
#define EASY 40  /* with fewer, also if a word of it does not fit */

static int count_table_columns(const struct text_table *t)
{
    int n = 0;

    while (n < TEXT_TABLE_COLUMNS && t->head[n]) n++;
    return n;
}

struct text_table_row *text_table_add(struct text_table *t, const char *const *cells, const void *item)
{
    int n = count_table_columns(t) - (item != NULL);

    struct text_table_row *row = ARENA_PUSH(t->rows, t->n, t->capacity);
    *row = (struct text_table_row){.item = item};
    for (int c = 0; c < n; c++) row->cell[c] = arena_copy(cells[c] ? cells[c] : "");
    return row;
}

static const char *table_cell_of(const struct text_table_row *row, int column)
{
    return row->cell[column] ? row->cell[column] : "";
}

static int table_column_width(const struct text_table *t, int column)
{
    int width = terminal_columns(t->head[column]);

    for (size_t i = 0; i < t->n; i++) {
        int w = terminal_columns(table_cell_of(&t->rows[i], column));
        if (w > width) width = w;
    }
    return width;
}

static bool are_last_cells_short(const struct text_table *t, int n, int room)
{
    return !ANY_OF(r, t->rows, t->n, r->item) && table_column_width(t, n - 1) <= room;
}

/* Columns left for the last cell. */
static int last_column_room(const int *width, int n, const struct terminal *term, int indent)
{
    int room = term->width - indent;

    for (int c = 0; c < n - 1; c++) room -= width[c] + GAP;
    return room;
}

static bool is_word_too_long(const struct text_table *t, int column, int room)
{
    for (size_t i = 0; i < t->n; i++) {
        const char *text = table_cell_of(&t->rows[i], column);
        if (t->rows[i].item) continue;
        for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
            const size_t n = text_word_length(p);
            if ((int)n > room && terminal_fit(p, room) < n) return true;
            p += n;
        }
    }
    return false;
}

static void print_last_column(const struct text_table *t, const struct text_table_row *row, int n, int room, int start,
                              FILE *out)
{
    char text[4096]; /* including escape sequences and links */

    if (row->item && t->last) {
        t->last(t->self, row->item, text, sizeof text, room);
        fputs(text, out);
        return;
    }
    for (const char *p = table_cell_of(row, n - 1); *p;) {
        size_t length = text_line_length(p, room);
        fprintf(out, "%.*s", (int)length, p);
        p += length;
        p += strspn(p, " ");
        if (*p) fprintf(out, "\n%*s", start, "");
    }
}

/* The cells before the last: side by side, or on several lines if the terminal is too narrow, where an empty cell takes
 * none. `ends`: nothing follows on the line. */
static void print_cells(const struct text_table *t, const char *const *cell, const char *colour, const int *width,
                        const struct terminal *term, int indent, bool ends, FILE *out)
{
    int n = count_table_columns(t), at = indent, blanks = indent; /* not printed yet: no line ends with them */

    for (int c = 0; c < n - 1; c++) {
        const int pad = width[c] - terminal_columns(cell[c]);
        const bool wraps = at > indent && at + width[c] > term->width, coloured = *colour && c == t->coloured;
        if (wraps && !*cell[c]) continue;
        if (wraps) {
            fputc('\n', out);
            at = blanks = indent + GAP;
        }
        if (*cell[c]) {
            fprintf(out, "%*s%s%s%s", blanks + (t->left[c] ? 0 : pad), "", coloured ? colour : "", cell[c],
                    coloured ? terminal_style(term, TERMINAL_PLAIN) : "");
            blanks = t->left[c] ? pad : 0;
        } else
            blanks += pad;
        blanks += GAP;
        at += width[c] + GAP;
    }
    if (!ends) fprintf(out, "%*s", blanks, "");
}

static void print_table_head(const struct text_table *t, const struct terminal *term, int indent, const int *width,
                             bool below, FILE *out)
{
    int n = count_table_columns(t);
    bool any = false;

    for (int c = 0; c < n; c++) any = any || *t->head[c];
    if (!any) return;
    fputs(terminal_style(term, TERMINAL_DIM), out);
    print_cells(t, t->head, "", width, term, indent, below || !*t->head[n - 1], out);
    fprintf(out, "%s%s\n", below ? "" : t->head[n - 1], terminal_style(term, TERMINAL_PLAIN));
}

static void free_text_row(struct text_table_row *row)
{
    for (int c = 0; c < TEXT_TABLE_COLUMNS; c++) free(row->cell[c]);
    free(row->below);
}

static bool is_only_last_cell(const struct text_table_row *row, int n)
{
    for (int c = 0; c < n - 1; c++)
        if (*table_cell_of(row, c)) return false;
    return row->item != NULL;
}

/* Columns of a text with colours and links. */
static int visible_columns(const char *text)
{
    int columns = terminal_columns(text);

    for (const char *p = text; (p = strchr(p, '\033')) != NULL;) {
        const char *end = p[1] == ']' ? strstr(p, "\033\\") : strchr(p, 'm');
        const size_t n = end ? (size_t)(end - p) + (p[1] == ']' ? 2 : 1) : strlen(p);
        char sequence[4096];
        text_put(sequence, sizeof sequence, "%.*s", (int)n, p);
        columns -= terminal_columns(sequence);
        p += n;
    }
    return columns;
}

/* Columns that the last cell of a row lacks: it keeps its file and line. */
static int lacking_columns(const struct text_table *t, const struct text_table_row *row, int room)
{
    char text[4096];

    if (!t->last || !row->item) return 0;
    t->last(t->self, row->item, text, sizeof text, room);
    return strchr(text, '\n') ? 0 : visible_columns(text) - room;
}

static bool is_item_too_wide(const struct text_table *t, int n, int room)
{
    return ANY_OF(row, t->rows, t->n, !is_only_last_cell(row, n) && lacking_columns(t, row, room) > 0);
}

/* Rows with nothing but their last cell begin so much further left. */
static int columns_left_of(const struct text_table *t, int n, int room, int most)
{
    int lacks = 0;

    EACH (row, t->rows, t->n) {
        const int more = is_only_last_cell(row, n) ? lacking_columns(t, row, room) : 0;
        lacks = more > lacks ? more : lacks;
    }
    return lacks < most ? lacks : most;
}

void text_table_print(struct text_table *t, const struct terminal *term, int indent, FILE *out)
{
    int width[TEXT_TABLE_COLUMNS] = {0}, n = count_table_columns(t);

    for (int c = 0; c < n; c++) width[c] = table_column_width(t, c);
    int room = last_column_room(width, n, term, indent), start = indent;
    for (int c = 0; c < n - 1; c++) start += width[c] + GAP;
    bool below = n > 1 && !are_last_cells_short(t, n, room) &&
                 (room < LEAST || (room < EASY && (is_word_too_long(t, n - 1, room) || is_item_too_wide(t, n, room))));
    if (below) {
        start = indent + GAP;
        room = term->width - start;
    }
    const int left = below ? 0 : columns_left_of(t, n, room, start - indent - GAP);
    if (t->n) print_table_head(t, term, indent, width, below, out);
    EACH (row, t->rows, t->n) {
        const char *cells[TEXT_TABLE_COLUMNS] = {NULL};
        bool empty = !row->item && !*table_cell_of(row, n - 1);
        int spare = left > 0 && is_only_last_cell(row, n) ? left : 0;
        const int lacks = below || spare || n == 1 ? 0 : lacking_columns(t, row, room);
        for (int c = 0; c < n; c++) cells[c] = table_cell_of(row, c);
        if (spare)
            fprintf(out, "%*s", start - spare, "");
        else
            print_cells(t, cells, row->colour, width, term, indent, below || empty || lacks > 0, out);
        if (lacks > 0) spare = start - indent - GAP; /* a long name, below its figures */
        if ((below || lacks > 0) && !empty) fprintf(out, "\n%*s", start - spare, "");
        print_last_column(t, row, n, room + spare, start - spare, out);
        fprintf(out, "\n%s", row->below ? row->below : "");
        free_text_row(row);
    }
    free(t->rows);
    t->rows = NULL;
    t->n = t->capacity = 0;
}
