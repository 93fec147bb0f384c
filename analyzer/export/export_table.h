/* Tables for other programs: the same columns as CSV (RFC 4180) or as JSON, one line per row. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "analyzer/base/each_argument.h"

enum { EXPORT_TABLE_COLUMNS = 32 };

struct export_table {
    FILE *out;
    bool json;
    const char *columns; /* "run_id,host,…" */
    struct export_table_column {
        const char *name;
        int length;
    } column[EXPORT_TABLE_COLUMNS];
    unsigned columns_n, at;
    uint64_t rows;
};

/* Writes the header, if the format has one. */
void export_table_begin(struct export_table *t, FILE *out, bool json, const char *columns);
/* The cells of a row, in order of the columns; the last one ends the row. RUN_UNKNOWN and NULL become null. */
void export_table_int(struct export_table *t, int64_t value);
static inline void export_table_count(struct export_table *t, uint64_t n)
{
    export_table_int(t, (int64_t)n);
}
void export_table_device(struct export_table *t, int device); /* -1: no device, null */
void export_table_bool(struct export_table *t, bool value);
/* CSV only: cleans the text (terminal_clean), and puts an apostrophe before what a spreadsheet would take for a
 * formula. */
void export_table_text(struct export_table *t, const char *value);
/* The cells of values, each by its type. What is computed by ==, && or ! is an int: cast it to bool. */
#define EXPORT_CELL(t, unused, value) \
    _Generic((value),                                  \
        bool: export_table_bool,                       \
        char *: export_table_text,                     \
        const char *: export_table_text,               \
        int: export_table_int,                         \
        uint32_t: export_table_int,                    \
        int64_t: export_table_int,                     \
        long long: export_table_int,                   \
        uint64_t: export_table_count)(t, value);
#define EXPORT_CELLS(t, ...) EACH_ARGUMENT(EXPORT_CELL, t, , __VA_ARGS__)
