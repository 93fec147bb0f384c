/* The private pool of a block: the recorder reads the pool from PyTorch's allocator for one block of each segment; the
 * pool holds for all blocks of the segment, and for adjacent pages. */
#pragma once

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
    bool pools;  /* some state the pool of a block */
    bool syncs;  /* some state how often the allocator waited for all streams */
    bool mapped; /* some state where pages are mapped, which their allocations do not */
};
/* Reads the recorded facts about one device, with pools numbered. Free them with whatif_facts_free. */
void whatif_facts_read(struct whatif_facts *f, const struct run *run, uint32_t process, int device);
/* From `ns` on, nothing allocates from the pool any more. */
void whatif_facts_add_unused(struct whatif_facts *f, int64_t ns, int64_t pool);
void whatif_facts_free(struct whatif_facts *f);

/* The segments that exist at the current time of a replay. Zero-initialise. */
struct whatif_pool_map {
    struct whatif_range *ranges; /* by address */
    size_t n, cap, next;         /* next: of the facts */
    bool any_private;            /* a private pool was seen */
    int64_t unmapped;            /* the pool of the pages that were unmapped last; -1 unknown */
};
void whatif_pool_map_add(struct whatif_pool_map *m, uint64_t address, int64_t bytes, bool page);
/* Applies the facts up to a time, which never decreases. */
void whatif_pool_map_advance(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns);
/* Removes a segment or page that was added, and returns its pool. */
int64_t whatif_pool_map_remove(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns, uint64_t address,
                               int64_t bytes);
/* The number of the pool that contains an address at a time, which never decreases; -1 unknown. */
int64_t whatif_pool_map_at(struct whatif_pool_map *m, const struct whatif_facts *f, int64_t ns, uint64_t address);
void whatif_pool_map_free(struct whatif_pool_map *m);
