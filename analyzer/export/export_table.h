/* Tables for other programs: the same columns as CSV (RFC 4180) and as JSON, a line a row. */
#ifndef GPUSPY_EXPORT_TABLE_H
#define GPUSPY_EXPORT_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GS_TABLE_COLUMNS = 32 };

struct gs_table {
    FILE *out;
    bool json;
    const char *columns; /* "run_id,host,…" */
    struct gs_table_column {
        const char *name;
        int length;
    } column[GS_TABLE_COLUMNS];
    unsigned columns_n, at;
    uint64_t rows;
};

/* Writes the header, where the form has one. */
void gs_table_begin(struct gs_table *t, FILE *out, bool json, const char *columns);
/* The cells of a row, in order of the columns; the last one ends the row. GS_UNKNOWN and NULL are
 * null. */
void gs_table_int(struct gs_table *t, int64_t value);
void gs_table_device(struct gs_table *t, int device); /* -1: of none, null */
void gs_table_bool(struct gs_table *t, bool value);
/* In CSV cleaned (term_clean), and with an apostrophe before what a spreadsheet would take for a formula. */
void gs_table_text(struct gs_table *t, const char *value);

#endif
