/* Sorts a trace's records by time in bounded memory: what exceeds it is sorted in pieces, in nameless files beside the
 * database. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum import_trace_kind {
    IMPORT_TRACE_OP,
    IMPORT_TRACE_PYTHON,
    IMPORT_TRACE_RANGE,
    IMPORT_TRACE_RANGE_END,
    IMPORT_TRACE_MEMORY,
    IMPORT_TRACE_OOM, /* `bytes` is the requested size */
    IMPORT_TRACE_COPY,
    IMPORT_TRACE_FILL,
    IMPORT_TRACE_WAIT,
    IMPORT_TRACE_GRAPH, /* a launch of a graph: the GPU's copies in it refer to this call */
    IMPORT_TRACE_ALONE, /* a copy on the GPU whose call is missing */
};

struct import_trace_record {
    int64_t at_ns, duration_ns; /* duration -1: a moment */
    uint64_t address;           /* MEMORY */
    int64_t bytes;              /* MEMORY, OOM: negative: freed; calls: -1: unknown */
    union {
        struct {
            int64_t allocated, reserved; /* MEMORY, OOM: -1: unknown */
        };
        struct {
            uint32_t a; /* OP: its "Call stack"; PYTHON: its id; RANGE: its id; calls: correlation id, later 1 + the
                           first of the GPU's entries */
            uint32_t b; /* PYTHON: the caller's id */
        };
    };
    uint32_t name, thread;
    uint32_t number; /* number in the file */
    uint8_t kind, sync;
    int8_t device; /* MEMORY, OOM: -1 is the CPU */
    bool placed;   /* MEMORY: the trace has the address */
};

enum { IMPORT_RECORDS_HELD = 1 << 18 };

struct import_records;
/* `beside`: creates temporary files beside this path; `held`: at most this many records are in memory, at least 3. */
struct import_records *import_records_new(const char *beside, size_t held);
void import_records_free(struct import_records *s);
/* Adds a record for the caller to fill in; valid until the next call. */
struct import_trace_record *import_records_add(struct import_records *s);
/* The record that was added last, or the one before it (back 1); NULL: there is none, or it is in a file. The last two
 * records are never in a file. */
struct import_trace_record *import_records_last(struct import_records *s, size_t back);
void import_records_drop(struct import_records *s, size_t n); /* the last one or two */
uint64_t import_records_count(const struct import_records *s);

/* Sorts by time; of records with the same time the longest comes first, because it contains the others. No record can
 * be added afterwards. Calls `each` in that order; it may change everything except what determines the order. False: a
 * file could not be written or read. */
bool import_records_sort(struct import_records *s, void (*each)(void *self, struct import_trace_record *r), void *self);
/* The next record in that order; NULL after the last, or if the file cannot be read (import_records_error). */
const struct import_trace_record *import_records_next(struct import_records *s);
int import_records_error(const struct import_records *s); /* an errno; 0: none */
