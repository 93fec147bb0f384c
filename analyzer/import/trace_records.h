/* A trace's records in order of time, in bounded memory: what exceeds so many is sorted in pieces, in files without a
 * name beside the database. */
#ifndef GPUSPY_IMPORT_TRACE_RECORDS_H
#define GPUSPY_IMPORT_TRACE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum import_trace_kind {
    IMPORT_TRACE_OP,
    IMPORT_TRACE_PYTHON,
    IMPORT_TRACE_RANGE,
    IMPORT_TRACE_RANGE_END,
    IMPORT_TRACE_MEMORY,
    IMPORT_TRACE_OOM, /* its `bytes` are what was asked for */
    IMPORT_TRACE_COPY,
    IMPORT_TRACE_FILL,
    IMPORT_TRACE_WAIT,
    IMPORT_TRACE_GRAPH, /* a launch of a graph: the GPU's copies in it name this call */
    IMPORT_TRACE_ALONE, /* a copy on the GPU without its call */
};

struct import_trace_record {
    int64_t at_ns, duration_ns; /* duration -1: a moment */
    uint64_t address;           /* MEMORY */
    int64_t bytes;              /* MEMORY, OOM: negative: freed; calls: -1 unknown */
    union {
        struct {
            int64_t allocated, reserved; /* MEMORY, OOM: -1 unknown */
        };
        struct {
            uint32_t
                a; /* OP: its "Call stack"; PYTHON: its id; RANGE: id; calls: correlation, then 1 + the GPU's first */
            uint32_t b; /* PYTHON: the caller's id */
        };
    };
    uint32_t name, thread;
    uint32_t number; /* in the file */
    uint8_t kind, sync;
    int8_t device; /* MEMORY, OOM: -1 is the CPU */
    bool placed;   /* MEMORY: the trace gave the address */
};

enum { IMPORT_RECORDS_HELD = 1 << 18 };

struct import_records;
/* `beside`: files are made beside this path; `held`: at least 3 records are in memory at most. */
struct import_records *import_records_new(const char *beside, size_t held);
void import_records_free(struct import_records *s);
/* The record to be filled in, valid until the next one is added. */
struct import_trace_record *import_records_add(struct import_records *s);
/* The one that was added last, or the one before it (back 1); NULL: there is none, or it is in a file. The last two
 * that were added one after the other are never in a file. */
struct import_trace_record *import_records_last(struct import_records *s, size_t back);
void import_records_drop(struct import_records *s, size_t n); /* the last one or two */
uint64_t import_records_count(const struct import_records *s);

/* In order of time; of the same time the longest first, which holds the others. Afterwards nothing can be added. `each`
 * sees them in that order and may change all but what orders them. False: a file could not be written or read. */
bool import_records_sort(struct import_records *s, void (*each)(void *self, struct import_trace_record *r), void *self);
/* Again in that order; NULL after the last, or if the file cannot be read (import_records_error). */
const struct import_trace_record *import_records_next(struct import_records *s);
int import_records_error(const struct import_records *s); /* an errno, 0 none */

#endif
