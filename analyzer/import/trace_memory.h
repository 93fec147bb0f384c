/* What a trace's memory events imply about memory that was allocated before the first one. */
#pragma once

#include "analyzer/import/trace_file.h"

struct import_before { /* a block that was allocated before the trace; one stands for all that the trace does not free
                        */
    uint64_t address;
    int64_t bytes;
    uint32_t process;
    int16_t device;
};

struct import_level { /* of one device of one process */
    uint32_t process;
    int16_t device;
    bool has_total;
    int64_t before;      /* from PyTorch's total at the first event; only if has_total */
    int64_t blocks;      /* bytes of blocks that the trace frees but does not allocate */
    int64_t kept;        /* before - blocks: allocated before the trace and not freed in it */
    int64_t now;         /* the sum of the events, which should be PyTorch's total */
    uint64_t mismatches; /* number of events whose total differs from it */
};

struct import_finding;

struct import_trace_levels {
    struct import_before *before;
    struct import_level *list;
    size_t before_n, before_cap, n, cap;
    struct map index;
    uint64_t unplaced; /* memory events without an address */
};

/* Add memory events in order of time. An event without an address gets one that no other live block has; a free without
 * an address frees the youngest live block of its size. */
struct import_finding *import_trace_finding_new(struct import_trace_levels *l);
void import_trace_finding_add(struct import_finding *f, uint32_t process, struct import_trace_record *m);
/* Adds what is kept, and frees the finding. */
void import_trace_finding_end(struct import_finding *f);
void import_trace_levels_free(struct import_trace_levels *l);
/* Makes addresses of several processes distinct, because they share a database. */
uint64_t import_trace_address(uint64_t address, uint32_t process);
