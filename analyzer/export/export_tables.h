/* What the tables share: rows by process, GPU and line, added up. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/export/export.h"
#include "analyzer/export/export_table.h"
#include "analyzer/report/report.h"

enum { EXPORT_LINE_VALUES = 6 };

struct export_line {
    uint32_t process, stack;
    int device;
    uint32_t kind; /* the table's own meaning; part of the key */
    int64_t values[EXPORT_LINE_VALUES];
    struct result_site site; /* set by export_lines_gather */
    uint32_t next;
};

/* Zero-initialise; export_lines_free. */
struct export_lines {
    struct export_line *list;
    size_t n, cap;
    struct map index;
    unsigned greatest; /* index of the value that is a maximum; the others are sums. 0: none */
};

struct export_line *export_lines_at(struct export_lines *l, uint32_t process, uint32_t stack, int device,
                                    uint32_t kind);
/* Replaces stacks by lines of the program; sorts by process, then by the first value, largest first. */
void export_lines_free(struct export_lines *l);

struct export_tables {
    struct export_run *e;
    struct result_report *report;
    struct export_table t;
    uint32_t process; /* only its rows; RUN_NONE: all */
    struct export_lines sites, waits, copies;
};

#define TABLE(name, columns, meaning) void export_table_of_##name(struct export_tables *x);
#include "analyzer/export/tables.def"
/* export_lines.c: gathers sites, waits and copies, one pass each. */
bool export_tables_gather(struct export_tables *x, char *error, size_t error_size);
/* Only waits and copies. */
bool export_tables_gather_calls(struct export_tables *x, char *error, size_t error_size);

/* Writes the keys of a row; false: the row's process was not requested. */
bool export_table_keys(struct export_tables *x, uint32_t process);
