/* A table with aligned numbers, whose last column, the call site, takes the rest of the line. */
#pragma once

#include <stdio.h>
#include "analyzer/base/term.h"

#define TEXT_TABLE_COLUMNS 8

struct text_table_row {
    char *cell[TEXT_TABLE_COLUMNS];
    const void *item;               /* from which `last` makes the last cell; NULL: the cell's text is given */
    char colour[TERMINAL_SEQUENCE]; /* of the cell in the table's column `coloured`; "" none */
    char *below;                    /* lines under the row, each ends with a newline; NULL none */
};

/* Cells are cleaned text (terminal_clean) or this program's own. All but the last column are aligned to
 * the right, except those marked in `left`. */
struct text_table {
    /* Writes the last cell of a row, at most `columns` wide: how much that is, is known only when all
     * rows are there. NULL: the last cells are texts, wrapped where they are too long. */
    void (*last)(const void *self, const void *item, char *out, size_t size, int columns);
    const void *self;
    const char *head[TEXT_TABLE_COLUMNS]; /* NULL ends the columns; "": no heading */
    bool left[TEXT_TABLE_COLUMNS];
    int coloured; /* the column whose cells have their rows' colours, such as bars */
    struct text_table_row *rows;
    size_t n, capacity;
};

/* Adds a row; `cells` are copied, NULL is empty; if `item` is given, they do not include the last cell. */
struct text_table_row *text_table_add(struct text_table *t, const char *const *cells, const void *item);
/* Prints with `indent` leading blanks, and frees the rows. */
void text_table_print(struct text_table *t, const struct terminal *term, int indent, FILE *out);
