/* The holes in an allocator's segments. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct allocator_range {
    uint64_t address;
    int64_t bytes;
};
struct allocator_heap_map {
    int64_t segment_bytes; /* of segments that contain a block, and empty ones as far as `reserved` accounts for them */
    int64_t block_bytes, free_bytes, largest_free_bytes;
    uint64_t segments, blocks;
    uint64_t strays; /* blocks in no segment: the picture is incomplete */
    uint64_t holes;
    int64_t page_bytes; /* of the holes, approximately what growing segments would have freed: they are mapped by pages
                           of 20 MiB */
};
/* Sorts both arrays. `reserved` is the allocator's own total, RUN_UNKNOWN if it was not reported. */
struct allocator_heap_map allocator_heap_map(struct allocator_range *segments, size_t segments_n,
                                             struct allocator_range *blocks, size_t blocks_n, int64_t reserved);
