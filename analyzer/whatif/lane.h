/* One device of one process, replayed under one set of rules: the allocator, the driver's memory, and which of its
 * blocks corresponds to which recorded block. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/caching/caching.h"

/* Addresses that a driver returns: the first hole that fits, from the end of the address space at which the recorded
 * driver began. */
struct whatif_space {
    struct whatif_hole {
        uint64_t address, bytes;
    } * holes; /* ascending, never adjacent */
    size_t n, cap;
    bool descending;
};

enum {
    WHATIF_MIRRORED = 1, /* of two segments, the one that would have the higher address has the lower one */
    WHATIF_MIXED = 2     /* some are above all others */
};

struct whatif_lane {
    struct caching_allocator *allocator;
    ARENA_ROWS(uint32_t, block_of); /* by run_live_number, block_of_n of them: the block; CACHING_NO_BLOCK none */
    struct map placed;              /* recorded address → the block, of those that whatif_lane_place made */
    struct map in_pools; /* recorded address → index of pool_blocks: the last block of a private pool there */
    ARENA_LIST(struct whatif_hole, pool_blocks);
    struct whatif_space space;
    ARENA_LIST(struct whatif_hole, recorded); /* segments that the recorded allocator requested since the last tensor */
    ARENA_LIST(struct whatif_hole, taken);    /* segments that have their recorded addresses, ascending */
    struct whatif_space freed;                /* where such segments were freed before the lane parted */
    unsigned order;                           /* of the segments' addresses: WHATIF_MIRRORED, WHATIF_MIXED */
    bool parted;          /* from the recorded segments: new ones are placed as the recorded driver did most often */
    bool left_out;        /* unused segments were not placed, because they do not fit */
    uint32_t pool_thread; /* 1 + the thread whose latest request was in a private pool; 0 none */
    bool pool_elsewhere;  /* the next request is in the default pool, while that thread may use its private one */
    bool unsure_retry;    /* such a request freed the cache and then got memory */
    int64_t capacity;     /* bytes that the driver can allocate in total; INT64_MAX: unknown */
    int64_t other;        /* of it held now: by this allocator, the context, libraries, other processes */
    uint64_t reserved;    /* address space, bytes */
    uint64_t missing;     /* frees of blocks that the replay does not have, because they are older than the recording */
};

/* With its own driver, which refuses requests that exceed capacity - other. */
void whatif_lane_start(struct whatif_lane *l, const struct caching_rules *rules, bool descending, int64_t capacity);
void whatif_lane_free(struct whatif_lane *l);
void whatif_lane_forget(struct whatif_lane *l); /* frees only which recorded block is which */
/* The recorded allocator requested a segment for the next tensor: it has the same address in the lane if that requested
 * the same segments so far. */
void whatif_lane_note_segment(struct whatif_lane *l, uint64_t address, int64_t bytes);
/* Before a request: its thread and pool. */
void whatif_lane_note_thread(struct whatif_lane *l, uint32_t thread, uint32_t pool);
/* For the lifetime of this number. Returns the block; CACHING_NO_BLOCK: out of memory. */
uint32_t whatif_lane_allocate(struct whatif_lane *l, uint32_t number, int64_t bytes, uint64_t stream, uint32_t pool);
/* Notes the block of a lifetime in a private pool; allocates such a block again, where the last one with that recorded
 * address was, false: it is not free. */
void whatif_lane_note_pool(struct whatif_lane *l, uint32_t number, uint64_t recorded);
bool whatif_lane_restore(struct whatif_lane *l, uint32_t number, uint64_t recorded, uint32_t pool);
/* The lifetime's block, which the caller frees; if it has none, the placed one at its recorded address.
 * CACHING_NO_BLOCK: neither. */
uint32_t whatif_lane_take(struct whatif_lane *l, uint32_t number, uint64_t address);
uint32_t whatif_lane_take_placed(struct whatif_lane *l, uint64_t address);

/* The memory that existed when a recording of a ring began: segments and blocks, sorted here by address. */
struct whatif_piece {
    uint64_t address, stream;
    int64_t bytes;
    int64_t until_ns; /* of a block that was freed before, but waits for other streams until then; 0: it is live */
    uint32_t pool;    /* of a segment: 0 the default one */
    bool block;
    int64_t since_ns; /* of a segment: when it was requested; 0 unknown */
    uint64_t rank;    /* likewise: from 1, in that order; set by whatif_lane_place */
};
void whatif_lane_place(struct whatif_lane *l, struct whatif_piece *pieces, size_t n);
