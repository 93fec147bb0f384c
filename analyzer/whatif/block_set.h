/* Blocks of the replayed allocator, and ordered sets of them: treaps by stream, size, rank and address, or by stream
 * and address. A block is in at most one set. */
#ifndef GPUSPY_WHATIF_BLOCK_SET_H
#define GPUSPY_WHATIF_BLOCK_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WHATIF_NONE UINT32_MAX

struct whatif_block {
    uint64_t address, stream;
    int64_t bytes;
    uint64_t rank;            /* among blocks of the same size: the lowest is taken first */
    uint64_t gc_since;        /* the pool's searches when it came into the set */
    uint32_t prev, next;      /* neighbours in the segment, WHATIF_NONE */
    uint32_t left, right, up; /* in the set; WHATIF_NONE */
    uint32_t priority;
    uint32_t area; /* index of its expandable segment, WHATIF_NONE: an ordinary segment */
    uint16_t pool;
    bool allocated, mapped, pending;
};

struct whatif_set {
    uint32_t root; /* WHATIF_NONE: empty */
    bool by_address;
};

struct whatif_key {
    uint64_t stream;
    int64_t bytes;
    uint64_t rank, address;
};

void whatif_set_insert(struct whatif_block *blocks, struct whatif_set *set, uint32_t block);
void whatif_set_erase(struct whatif_block *blocks, struct whatif_set *set, uint32_t block);
/* The first that is not below the key; `above`: the first above it. WHATIF_NONE: there is none. */
uint32_t whatif_set_find(const struct whatif_block *blocks, const struct whatif_set *set, struct whatif_key key,
                         bool above);
/* The last below the key. */
uint32_t whatif_set_before(const struct whatif_block *blocks, const struct whatif_set *set, struct whatif_key key);

static inline struct whatif_key whatif_key_of(const struct whatif_block *b)
{
    return (struct whatif_key){b->stream, b->bytes, b->rank, b->address};
}

#endif
