/* What the tables share: rows by process, GPU and line, added up. */
#ifndef GPUSPY_EXPORT_TABLES_H
#define GPUSPY_EXPORT_TABLES_H

#include "analyzer/base/arena.h"
#include "analyzer/export/export.h"
#include "analyzer/export/export_table.h"
#include "analyzer/report/report.h"

enum { GS_LINE_VALUES = 6 };

struct gs_line {
    uint32_t process, stack;
    int device;
    uint32_t kind; /* of the table's own; a part of the key */
    int64_t values[GS_LINE_VALUES];
    struct gs_site site; /* once they are gathered */
    uint32_t next;
};

/* Zero-initialise; gs_lines_free. */
struct gs_lines {
    struct gs_line *list;
    size_t n, cap;
    struct gs_map index;
    unsigned greatest; /* the value of which the greatest counts, others are sums; 0 none (never the first) */
};

struct gs_line *gs_lines_at(struct gs_lines *l, uint32_t process, uint32_t stack, int device, uint32_t kind);
/* From stacks to lines of the program; by process, then heaviest by their first value. */
void gs_lines_gather(struct gs_lines *l, struct gs_run *run);
void gs_lines_free(struct gs_lines *l);

struct gs_tables {
    struct gs_export_run *e;
    struct gs_report *report;
    struct gs_table t;
    uint32_t process; /* only its rows; GS_NONE all */
    struct gs_lines sites, waits, copies;
};

/* Each fills one table; false after an error. */
#define TABLE(name, columns, meaning) void gs_table_of_##name(struct gs_tables *x);
#include "analyzer/export/tables.def"
#undef TABLE
/* export_lines.c: what sites, waits and copies are made of; one pass each. */
bool gs_tables_gather(struct gs_tables *x, char *error, size_t error_size);
/* Waits and copies alone. */
bool gs_tables_gather_calls(struct gs_tables *x, char *error, size_t error_size);

/* The keys of a row; false: it is of a process that is not meant. */
bool gs_table_keys(struct gs_tables *x, uint32_t process);

#endif
