/* What a trace's memory events imply about memory that was allocated before the first of them. */
#ifndef GPUSPY_IMPORT_TRACE_MEMORY_H
#define GPUSPY_IMPORT_TRACE_MEMORY_H

#include "analyzer/import/trace_file.h"

struct import_before { /* a block that was allocated before the trace; one stands for all that the trace does not free
                        */
    uint64_t address;
    int64_t bytes;
    uint32_t process;
    int16_t device;
};

struct import_level { /* one device of one process */
    uint32_t process;
    int16_t device;
    bool has_total;
    int64_t before;      /* by PyTorch's total at the first event; only if has_total */
    int64_t blocks;      /* that the trace frees, but does not allocate */
    int64_t kept;        /* allocated before the trace and not freed in it: before - blocks */
    int64_t now;         /* PyTorch's total as its events add up */
    uint64_t mismatches; /* events after which it is another */
};

struct import_finding;

struct import_trace_levels {
    struct import_before *before;
    struct import_level *list;
    size_t before_n, before_cap, n, cap;
    struct map index;
    uint64_t unplaced; /* memory events without an address */
};

/* Takes memory events in order of time. Gives those without an address one that no other live block has: a free without
 * one frees the youngest live block of its size. */
struct import_finding *import_trace_finding_new(struct import_trace_levels *l);
void import_trace_finding_add(struct import_finding *f, uint32_t process, struct import_trace_record *m);
/* Adds what is kept, and frees the finding. */
void import_trace_finding_end(struct import_finding *f);
void import_trace_levels_free(struct import_trace_levels *l);
/* In one database, blocks of several processes must not have the same address. */
uint64_t import_trace_address(uint64_t address, uint32_t process);

#endif
