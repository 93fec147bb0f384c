/* The private pool of a block: what the recorder read from PyTorch's allocator for one block of each segment holds for
 * all of them, and for the pages beside it. */
#ifndef GPUSPY_WHATIF_POOL_MAP_H
#define GPUSPY_WHATIF_POOL_MAP_H

#include "analyzer/run/run.h"

/* Of a device, in order of time. */
struct whatif_fact {
    int64_t ns;
    uint64_t address;
    int64_t value; /* of a pool: its number from 1 in order of appearance, 0 the default one, -1 unknown; else bytes */
    uint8_t kind;  /* enum gs_allocator_fact, or: */
};
enum { WHATIF_FACT_UNMAP = 0xfe, WHATIF_FACT_MAP = 0xff }; /* pages at an address */
struct whatif_facts {
    struct whatif_fact *list;
    size_t n, cap;
    bool pools;  /* some say of which pool a block is */
    bool mapped; /* some say where pages are mapped: their allocations do not */
};
/* What the recording has of one device, with pools numbered. To be freed by whatif_facts_free. */
void whatif_facts_read(struct whatif_facts *f, const struct run *run, uint32_t process, int device);
/* Seen at `ns`: nothing allocates from the pool any more. */
void whatif_facts_add_unused(struct whatif_facts *f, int64_t ns, int64_t pool);
void whatif_facts_free(struct whatif_facts *f);

/* Segments that are there, while a recording is replayed. Zeroed at the start. */
struct whatif_pool_map {
    struct whatif_range *ranges; /* by address */
    size_t n, cap, next;         /* next: of the facts */
    bool any_private;            /* there was one */
    int64_t unmapped;            /* the pool of the pages that were unmapped last; -1 unknown */
};
void whatif_pool_map_add(struct whatif_pool_map *m, uint64_t address, int64_t bytes, bool page);
/* Up to a time that never goes back. */
void whatif_pool_map_advance(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns);
/* Takes out what was added, and returns its pool. */
int64_t whatif_pool_map_remove(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns, uint64_t address,
                               int64_t bytes);
/* The number of the pool in which an address lies at a time that never goes back; -1 unknown. */
int64_t whatif_pool_map_at(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns, uint64_t address);
void whatif_pool_map_free(struct whatif_pool_map *m);

#endif
