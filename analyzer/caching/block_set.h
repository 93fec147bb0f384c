/* Blocks of the replayed allocator, and ordered sets of them: by stream, size, rank and address, or by stream and
 * address. A set by size is a treap for each range of sizes, so that most searches see a few blocks. A block is in at
 * most one set, and keeps its key meanwhile. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CACHING_NONE UINT32_MAX

struct caching_block {
    uint64_t address, stream;
    int64_t bytes;
    uint64_t rank;            /* among blocks of the same size, the lowest is used first */
    uint64_t gc_since;        /* the pool's number of searches when it was added to the set */
    uint32_t prev, next;      /* neighbours in the segment, CACHING_NONE */
    uint32_t left, right, up; /* in the set; CACHING_NONE */
    uint32_t priority;
    uint32_t area; /* index of its expandable segment, CACHING_NONE: an ordinary segment */
    uint16_t pool;
    bool allocated, mapped, pending;
    bool whole; /* in the set of free blocks: not split, or of an area */
};

struct caching_set {
    struct caching_bins *bins; /* NULL: empty */
    bool by_address;
};

struct caching_key {
    uint64_t stream;
    int64_t bytes;
    uint64_t rank, address;
};

void caching_set_insert(struct caching_block *blocks, struct caching_set *set, uint32_t block);
void caching_set_erase(struct caching_block *blocks, struct caching_set *set, uint32_t block);
/* The first that is not below the key; `above`: the first above it. CACHING_NONE: there is none. */
uint32_t caching_set_find(const struct caching_block *blocks, const struct caching_set *set, struct caching_key key,
                          bool above);
/* The last of the key's stream that is below the key. */
uint32_t caching_set_before(const struct caching_block *blocks, const struct caching_set *set, struct caching_key key);

void caching_set_free(struct caching_set *set);

static inline struct caching_key caching_key_of(const struct caching_block *b)
{
    return (struct caching_key){b->stream, b->bytes, b->rank, b->address};
}
