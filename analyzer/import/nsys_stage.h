/* An export of Nsight Systems, opened as hostile input, and its rows in a temporary database of one form for all
 * schemas: tables call, event, range, domain, chain, text, thread, process and gpu (nsys_stage.c). Beyond a few MiB
 * SQLite keeps that database on disk. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* event.kind; events of the same time come in this order. */
enum import_staged {
    IMPORT_STAGED_RANGE_END,
    IMPORT_STAGED_CALL, /* a call that may allocate or free: memory events that name no call belong to it */
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
    int first_chain;       /* offset between the staged chain of a call, minus 1, and chain.id */
    bool memory;           /* the export has memory events */
    uint64_t damaged;      /* number of damaged rows */
    int64_t size;          /* size of the export in bytes */
    int64_t budget, spent; /* steps of SQLite's virtual machine, in thousands */
    uint32_t page;         /* page size of the export in bytes */
    char *unpacked;        /* a file of gpuspy's; NULL: none */
    void (*progress)(void *self, uint64_t bytes);
    void *self;
};

/* Opens `path`; unpacks a file that gzip packed to a file beside `to`. import_nsys_stage then converts the rows. False
 * and a line in `error` on failure. */
bool import_nsys_open(struct import_nsys *s, const char *path, const char *to, char *error, size_t error_size);
bool import_nsys_stage(struct import_nsys *s, char *error, size_t error_size);
void import_nsys_close(struct import_nsys *s);

/* NULL and a line in `error` on failure. */
sqlite3_stmt *import_nsys_prepare(struct import_nsys *s, const char *sql, char *error, size_t error_size);
/* Puts SQLite's error into `error`; always false. */
bool import_nsys_bad(struct import_nsys *s, char *error, size_t error_size);
