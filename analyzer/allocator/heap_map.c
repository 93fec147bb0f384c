/* The holes in an allocator's segments, from the addresses of segments and blocks. */
#include "analyzer/allocator/heap_map.h"
#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"
#include "analyzer/base/sort.h"

#include <stdbool.h>
#include <stdlib.h>

enum {
    SEGMENT_GRAIN = 2 << 20, /* PyTorch's segments are multiples of it */
    PAGE =
        20 << 20 /* of its expandable segments for large blocks: on average, a neighbour keeps half a page at either end
                    of a hole. Free memory at a segment's end would serve the next block: there is only one segment */
};

SORT_ORDER(order_rows_by_address, struct allocator_range, SORT_UP(x->address, y->address))

static void add_hole(struct allocator_heap_map *map, int64_t bytes)
{
    if (bytes > 0) {
        map->holes++;
        map->page_bytes = arena_add_capped(map->page_bytes, bytes > PAGE ? bytes - PAGE : 0);
        map->free_bytes = arena_add_capped(map->free_bytes, bytes);
        map->largest_free_bytes = bytes > map->largest_free_bytes ? bytes : map->largest_free_bytes;
    }
}

/* The blocks of one segment from blocks[*at] on; false if it has none. */
static bool walk_segment(struct allocator_heap_map *map, const struct allocator_range *s,
                         const struct allocator_range *blocks, size_t n, size_t *at)
{
    uint64_t end = s->address + (uint64_t)s->bytes, free_from = s->address;
    size_t first = *at;
    for (; *at < n && blocks[*at].address < end; (*at)++) {
        const struct allocator_range *block = &blocks[*at];
        if (block->address >= free_from) /* overlapping ones: a hostile file, no holes between them */
            add_hole(map, (int64_t)(block->address - free_from));
        uint64_t block_end = block->address + (uint64_t)block->bytes;
        free_from = block_end > free_from ? block_end : free_from;
        map->block_bytes = arena_add_capped(map->block_bytes, block->bytes);
        map->blocks++;
    }
    if (*at == first) return false;
    int64_t tail = end > free_from ? (int64_t)(end - free_from) : 0;
    add_hole(map, tail);
    map->page_bytes = arena_add_capped(map->page_bytes, tail > PAGE ? PAGE : tail);
    map->segment_bytes = arena_add_capped(map->segment_bytes, s->bytes);
    map->segments++;
    return true;
}

/* A segment without blocks may be PyTorch's, cached, or a direct allocation of another library. PyTorch's own total
 * decides: the largest segments of its granularity, as many as fit into the total. */
static void add_empty(struct allocator_heap_map *map, int64_t *empty, size_t n, int64_t reserved)
{
    if (reserved == RUN_UNKNOWN) return;
    SORT(empty, n, sort_int64_down);
    for (size_t i = 0; i < n; i++) {
        if (empty[i] % SEGMENT_GRAIN == 0 && arena_add_capped(map->segment_bytes, empty[i]) <= reserved) {
            map->segment_bytes += empty[i];
            map->segments++;
            add_hole(map, empty[i]);
        }
    }
}

struct allocator_heap_map allocator_heap_map(struct allocator_range *segments, size_t segments_n,
                                             struct allocator_range *blocks, size_t blocks_n, int64_t reserved)
{
    struct allocator_heap_map map = {0};
    int64_t *empty = arena_realloc(NULL, segments_n, sizeof *empty);
    size_t empty_n = 0, at = 0;
    SORT(segments, segments_n, order_rows_by_address);
    SORT(blocks, blocks_n, order_rows_by_address);
    for (size_t i = 0; i < segments_n; i++) {
        for (; at < blocks_n && blocks[at].address < segments[i].address; at++) map.strays++;
        if (!walk_segment(&map, &segments[i], blocks, blocks_n, &at)) empty[empty_n++] = segments[i].bytes;
    }
    map.strays += blocks_n - at;
    add_empty(&map, empty, empty_n, reserved);
    free(empty);
    return map;
}
