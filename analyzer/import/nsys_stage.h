/* An export of Nsight Systems, opened as hostile input, and its rows in a temporary database of one form, whatever the
 * schema of the export: tables call, event, range, domain, chain, text, thread, process and gpu (nsys_stage.c). SQLite
 * keeps that on disk beyond a few MiB of memory. */
#ifndef GPUSPY_IMPORT_NSYS_STAGE_H
#define GPUSPY_IMPORT_NSYS_STAGE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* event.kind; of one time they come in this order. */
enum import_staged {
    IMPORT_STAGED_RANGE_END,
    IMPORT_STAGED_CALL, /* that may allocate or free: what memory events do not name lies in it */
    IMPORT_STAGED_FREE,
    IMPORT_STAGED_ALLOC,
    IMPORT_STAGED_COPY,
    IMPORT_STAGED_FILL,
    IMPORT_STAGED_WAIT,
    IMPORT_STAGED_RANGE,
    IMPORT_STAGED_MOMENT
};

struct import_nsys {
    sqlite3 *db;           /* the temporary database; the export is attached as x */
    int first_chain;       /* a call's chain, less 1, and this: chain.id */
    bool memory;           /* the export has events of memory */
    uint64_t damaged;      /* rows of it that make no sense */
    int64_t size;          /* bytes of the export */
    int64_t budget, spent; /* steps of SQLite's machine, in thousands */
    uint32_t page;         /* its bytes */
    char *unpacked;        /* a file of ours, NULL none */
    void (*progress)(void *self, uint64_t bytes);
    void *self;
};

/* Does it begin as a SQLite database that gpuspy did not make? Are there tables of an export in it? */
bool import_nsys_is_database(const unsigned char *head, size_t n);
bool import_nsys_has_tables(const char *path);

/* Opens `path`; one packed by gzip is unpacked to a file beside `to`. Then the rows. False and a line in `error`. */
bool import_nsys_open(struct import_nsys *s, const char *path, const char *to, char *error, size_t error_size);
bool import_nsys_stage(struct import_nsys *s, char *error, size_t error_size);
void import_nsys_close(struct import_nsys *s);

/* NULL and a line in `error`. */
sqlite3_stmt *import_nsys_prepare(struct import_nsys *s, const char *sql, char *error, size_t error_size);
/* What SQLite says is wrong, as a line; always false. */
bool import_nsys_bad(struct import_nsys *s, char *error, size_t error_size);

#endif
