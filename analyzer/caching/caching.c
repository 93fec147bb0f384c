/* Names in brackets are the PyTorch functions that a function here replays. */
#include "analyzer/caching/caching.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/caching/block_set.h"

#define MIB ((int64_t)1 << 20)
/* kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kRoundLarge */
static const int64_t least_block = 512, small_request = MIB, small_segment = 2 * MIB, large_request = 10 * MIB,
                     large_step = 2 * MIB;
static const int64_t most_reserved = INT64_MAX / 4; /* no sum overflows, even with a damaged file */

struct pool {
    struct caching_set free, unmapped;
    size_t whole;      /* free blocks that are a segment, or a part of an area: what release_pool() can give back */
    uint64_t searches; /* for the age of its free blocks */
    bool small;
    bool unsplit;  /* no block is split */
    bool releases; /* its cached segments may be freed: the default pool, and pools that nothing uses any more */
};

struct area { /* of an expandable segment */
    uint64_t address;
    int64_t page;
};

struct caching_allocator {
    struct caching_rules rules;
    struct caching_driver driver;
    ARENA_LIST(struct caching_block, blocks);
    uint32_t *spare, *pending;
    size_t spare_n, spare_cap, pending_n, pending_cap;
    ARENA_LIST(struct pool, pools); /* two for each: small, large */
    ARENA_LIST(struct area, areas);
    uint32_t spare_area; /* 1 + the first unused area, whose address is the next such number; 0 none */
    struct caching_totals totals;
    enum { BY_ADDRESS, BY_BLOCK, BY_SEGMENT } order; /* of free blocks with the same size */
    uint64_t ranks;                                  /* the last rank assigned */
    uint32_t placed; /* the latest block of the segment that is being placed, CACHING_NONE */
    bool capturing;  /* the next request is part of a CUDA graph */
};

struct request {
    int64_t bytes;
    uint64_t stream;
    uint16_t pool;
};

struct caching_allocator *caching_allocator_new(const struct caching_rules *rules, const struct caching_driver *driver)
{
    struct caching_allocator *a =
        ARENA_NEW(struct caching_allocator, .rules = *rules, .driver = *driver, .placed = CACHING_NONE);
    a->order = caching_rules_have(rules, CACHING_SEGMENT_ORDER, NULL) ? BY_SEGMENT
               : caching_rules_have(rules, CACHING_BLOCK_ORDER, NULL) ? BY_BLOCK
                                                                      : BY_ADDRESS;
    return a;
}

void caching_allocator_free(struct caching_allocator *a)
{
    if (!a) return;
    EACH_IN (pool, a->pools) {
        caching_set_free(&pool->free);
        caching_set_free(&pool->unmapped);
    }
    ARENA_RELEASE(a->blocks, a->spare, a->pending, a->pools, a->areas, a);
}

uint64_t caching_block_address(const struct caching_allocator *a, uint32_t block)
{
    return a->blocks[block].address;
}

int64_t caching_block_bytes(const struct caching_allocator *a, uint32_t block)
{
    return a->blocks[block].bytes;
}

const struct caching_totals *caching_totals(const struct caching_allocator *a)
{
    return &a->totals;
}

int64_t caching_cached(const struct caching_allocator *a, int64_t *largest)
{
    int64_t sum = 0;
    *largest = 0;
    EACH_IN (b, a->blocks) {
        if (!b->bytes || b->allocated || b->pending || !b->mapped) continue;
        sum += b->bytes;
        *largest = b->bytes > *largest ? b->bytes : *largest;
    }
    return sum;
}

/* [get_allocation_size] */
static int64_t segment_bytes(const struct caching_rules *rules, int64_t bytes)
{
    return bytes <= small_request  ? small_segment
           : bytes < large_request ? rules->large_bytes
                                   : (bytes + large_step - 1) / large_step * large_step;
}

static uint32_t add_block(struct caching_allocator *a, struct caching_block block)
{
    uint32_t at = a->spare_n ? a->spare[--a->spare_n] : (uint32_t)a->blocks_n;
    if (at == a->blocks_n) (void)ARENA_ADD(a->blocks);
    block.left = block.right = block.up = CACHING_NONE;
    block.priority = (uint32_t)map_hash(at + 1);
    a->blocks[at] = block;
    return at;
}

static void drop_block(struct caching_allocator *a, uint32_t at)
{
    a->blocks[at] = (struct caching_block){
        .prev = CACHING_NONE, .next = CACHING_NONE, .left = CACHING_NONE, .right = CACHING_NONE, .up = CACHING_NONE};
    *ARENA_ADD(a->spare) = at;
}

static inline struct pool *caching_pool_of(struct caching_allocator *a, uint32_t pool)
{
    while (pool >= a->pools_n) {
        size_t at = a->pools_n;
        *ARENA_ADD(a->pools) = (struct pool){.unmapped.by_address = true, .small = at % 2 == 0, .releases = at < 2};
    }
    return &a->pools[pool];
}

static bool is_split(const struct caching_block *b)
{
    return b->prev != CACHING_NONE || b->next != CACHING_NONE;
}

static inline void set_insert(struct caching_allocator *a, uint32_t at)
{
    struct caching_block *b = &a->blocks[at];
    struct pool *pool = &a->pools[b->pool];
    b->gc_since = pool->searches;
    b->whole = b->mapped && (b->area != CACHING_NONE || !is_split(b));
    pool->whole += b->whole;
    caching_set_insert(a->blocks, b->mapped ? &pool->free : &pool->unmapped, at);
}

static inline void set_erase(struct caching_allocator *a, uint32_t at)
{
    struct pool *pool = &a->pools[a->blocks[at].pool];
    pool->whole -= a->blocks[at].whole;
    a->blocks[at].whole = false;
    caching_set_erase(a->blocks, a->blocks[at].mapped ? &pool->free : &pool->unmapped, at);
}

static uint64_t next_rank(struct caching_allocator *a)
{
    return a->order == BY_ADDRESS ? 0 : ++a->ranks;
}

/* In a split, PyTorch makes a new block of `at`; the other part keeps its identity. */
static void renumber_block(struct caching_allocator *a, uint32_t at)
{
    if (a->order == BY_BLOCK) a->blocks[at].rank = ++a->ranks;
}

/* Splits off a block after `at`, which keeps its first `bytes`. Neither may be in a set. */
static uint32_t split_block(struct caching_allocator *a, uint32_t at, int64_t bytes)
{
    struct caching_block rest = a->blocks[at];
    rest.address += (uint64_t)bytes;
    rest.bytes -= bytes;
    rest.prev = at;
    rest.allocated = false;
    uint32_t behind = add_block(a, rest);
    if (rest.next != CACHING_NONE) a->blocks[rest.next].prev = behind;
    a->blocks[at].next = behind;
    a->blocks[at].bytes = bytes;
    return behind;
}

/* `other`, a neighbour of `at` that is in a set, becomes part of `at`, which is in none. [try_merge_blocks] */
static void merge_blocks(struct caching_allocator *a, uint32_t at, uint32_t other)
{
    if (other == CACHING_NONE) return;
    struct caching_block *b = &a->blocks[at], *o = &a->blocks[other];
    if (o->allocated || o->pending || o->mapped != b->mapped) return;
    set_erase(a, other);
    if (b->prev == other) {
        b->address = o->address;
        b->prev = o->prev;
        if (b->prev != CACHING_NONE) a->blocks[b->prev].next = at;
    } else {
        b->next = o->next;
        if (b->next != CACHING_NONE) a->blocks[b->next].prev = at;
    }
    b->bytes += o->bytes;
    drop_block(a, other);
}

/* [free_block] */
static void free_block(struct caching_allocator *a, uint32_t at)
{
    a->blocks[at].allocated = a->blocks[at].pending = false;
    merge_blocks(a, at, a->blocks[at].prev);
    merge_blocks(a, at, a->blocks[at].next);
    set_insert(a, at);
}

static void count_reserved(struct caching_allocator *a, int64_t bytes, int segments)
{
    struct caching_totals *t = &a->totals;
    t->reserved += bytes;
    t->segments += (uint64_t)(int64_t)segments;
    if (t->reserved > t->peak_reserved) {
        t->peak_reserved = t->reserved;
        t->peak_segments = t->segments;
    }
}

/* [release_block] */
static void release_segment(struct caching_allocator *a, uint32_t at)
{
    struct caching_block *b = &a->blocks[at];
    set_erase(a, at);
    a->driver.give_back(a->driver.self, b->address, b->bytes, 0);
    count_reserved(a, -b->bytes, -1);
    drop_block(a, at);
}

/* The whole pages of a block, as offsets in its area. False: none. */
static bool has_whole_pages(const struct caching_allocator *a, const struct caching_block *b, uint64_t *from,
                            uint64_t *to)
{
    const struct area area = a->areas[b->area];
    const uint64_t page = (uint64_t)area.page, offset = b->address - area.address;
    *from = (offset + page - 1) / page * page;
    *to = (offset + (uint64_t)b->bytes) / page * page;
    return *from < *to;
}

bool caching_has_spare(const struct caching_allocator *a)
{
    uint64_t from, to;
    bool has = false;
    EACH_IN (b, a->blocks)
        has = has || (b->bytes && !b->allocated && !b->pending && b->mapped && a->pools[b->pool].releases &&
                      (b->area == CACHING_NONE ? !is_split(b) : has_whole_pages(a, b, &from, &to)));
    return has;
}

/* [release_expandable_segment] */
static void drop_area(struct caching_allocator *a, uint32_t block)
{
    const uint32_t area = a->blocks[block].area;
    a->areas[area] = (struct area){.address = a->spare_area};
    a->spare_area = area + 1;
    drop_block(a, block);
}

/* Unmaps the whole pages of a free mapped block, and frees an area without pages. [unmap_block] */
static void unmap_block(struct caching_allocator *a, uint32_t at)
{
    const struct area area = a->areas[a->blocks[at].area];
    const uint64_t offset = a->blocks[at].address - area.address;
    uint64_t from, to;
    if (!has_whole_pages(a, &a->blocks[at], &from, &to)) return;
    set_erase(a, at);
    if (from > offset) { /* the part before the pages becomes its own block; the rest is unmapped */
        uint32_t rest = split_block(a, at, (int64_t)(from - offset));
        renumber_block(a, at);
        set_insert(a, at);
        at = rest;
    }
    if (a->blocks[at].bytes > (int64_t)(to - from)) {
        const uint32_t rest = split_block(a, at, (int64_t)(to - from));
        renumber_block(a, rest);
        set_insert(a, rest);
    }
    a->driver.give_back(a->driver.self, area.address + from, (int64_t)(to - from), area.page);
    count_reserved(a, -(int64_t)(to - from), -1);
    a->blocks[at].mapped = false;
    merge_blocks(a, at, a->blocks[at].prev);
    merge_blocks(a, at, a->blocks[at].next);
    if (is_split(&a->blocks[at]))
        set_insert(a, at);
    else
        drop_area(a, at);
}

/* [release_blocks] */
static void release_pool(struct caching_allocator *a, struct pool *pool)
{
    uint32_t *maps = NULL;
    size_t maps_n = 0, maps_cap = 0;
    if (!pool->whole) return;
    uint32_t next, at = caching_set_find(a->blocks, &pool->free, (struct caching_key){0}, false);
    for (; at != CACHING_NONE && pool->whole > maps_n; at = next) {
        next = caching_set_find(a->blocks, &pool->free, caching_key_of(&a->blocks[at]), true);
        if (a->blocks[at].area != CACHING_NONE)
            *ARENA_ADD(maps) = at;
        else if (!is_split(&a->blocks[at]))
            release_segment(a, at);
    }
    for (size_t i = 0; i < maps_n; i++) unmap_block(a, maps[i]);
    free(maps);
}

/* Finishes the blocks that other streams may still use, then frees all segments that no block needs.
 * [release_cached_blocks] */
void caching_empty_cache(struct caching_allocator *a)
{
    for (size_t i = 0; i < a->pending_n; i++)
        if (a->blocks[a->pending[i]].pending) free_block(a, a->pending[i]);
    a->pending_n = 0;
    (void)caching_pool_of(a, 1);
    release_pool(a, &a->pools[1]); /* large ones first */
    release_pool(a, &a->pools[0]);
    for (size_t i = 2; i < a->pools_n; i++)
        if (a->pools[i].releases) release_pool(a, &a->pools[i]);
}

void caching_empty_pool(struct caching_allocator *a, uint32_t pool)
{
    for (size_t i = a->pending_n; i-- > 0;) {
        const uint32_t at = a->pending[i];
        if (a->blocks[at].pool / 2 != pool) continue;
        a->pending[i] = a->pending[--a->pending_n];
        if (a->blocks[at].pending) free_block(a, at);
    }
    caching_pool_unused(a, pool);
    release_pool(a, &a->pools[2 * pool]);
    release_pool(a, &a->pools[2 * pool + 1]);
}

void caching_pool_unused(struct caching_allocator *a, uint32_t pool)
{
    (void)caching_pool_of(a, 2 * pool + 1);
    a->pools[2 * pool].releases = a->pools[2 * pool + 1].releases = true;
}

void caching_set_unsplit(struct caching_allocator *a, uint32_t pool, bool unsplit)
{
    (void)caching_pool_of(a, 2 * pool + 1);
    a->pools[2 * pool].unsplit = a->pools[2 * pool + 1].unsplit = unsplit;
}

bool caching_is_capped(const struct caching_allocator *a)
{
    return a->rules.allowed_bytes != INT64_MAX;
}

bool caching_cap_frees(const struct caching_allocator *a, int64_t bytes)
{
    const double threshold = a->rules.gc_threshold * (double)a->rules.gc_memory;
    return bytes > a->rules.allowed_bytes - a->totals.reserved ||
           (threshold > 0 && (double)a->totals.reserved > threshold);
}

void caching_set_cap(struct caching_allocator *a, int64_t bytes)
{
    a->rules.allowed_bytes = bytes > 0 ? bytes : INT64_MAX;
    a->rules.gc_memory = bytes > 0 ? bytes : 0;
}

void caching_set_expandable(struct caching_allocator *a, bool expandable)
{
    a->rules.expandable = expandable;
}

/* `raises`: PyTorch raises an error instead of going on. [release_available_cached_blocks] */
static bool release_available(struct caching_allocator *a, const struct request *r, bool *raises)
{
    const int64_t most = a->rules.max_split_bytes;
    if (most == INT64_MAX) return false;
    const struct caching_set *free = &caching_pool_of(a, r->pool)->free;
    struct caching_key key = {.stream = r->stream, .bytes = r->bytes < most ? most : r->bytes};
    const bool spares = caching_rules_have(&a->rules, CACHING_SPARES_EXPANDABLE, NULL);
    uint32_t at = caching_set_find(a->blocks, free, key, false);
    int64_t released = 0;
    if (at != CACHING_NONE && a->blocks[at].stream == r->stream) {
        *raises = !spares && a->blocks[at].area != CACHING_NONE;
        if (*raises) return false;
        if (a->blocks[at].area == CACHING_NONE) {
            release_segment(a, at);
            return true;
        }
    }
    for (at = caching_set_before(a->blocks, free, key); at != CACHING_NONE && released < key.bytes;) {
        const struct caching_block b = a->blocks[at];
        if (b.bytes < most || b.stream != r->stream) break;
        *raises = !spares && b.area != CACHING_NONE;
        if (*raises) return false;
        uint32_t before = caching_set_before(a->blocks, free, caching_key_of(&b));
        if (b.area == CACHING_NONE && !is_split(&b)) {
            release_segment(a, at);
            released += b.bytes;
        }
        at = before;
    }
    return released >= key.bytes;
}

/* [garbage_collect_cached_blocks]: the oldest free segments first, until the threshold is met. */
static void collect_garbage(struct caching_allocator *a)
{
    const int64_t threshold = (int64_t)(a->rules.gc_threshold * (double)a->rules.gc_memory);
    struct pool *pool = caching_pool_of(a, 1);
    const int64_t target = a->totals.reserved - threshold;
    double age = 0;
    int64_t reclaimed = 0, n = 0;
    bool any = true;
    if (target <= 0) return;
    for (int pass = 0; any && (!pass || (reclaimed < target && n > 0)); pass++) {
        const double least = pass ? age / (double)n : 0;
        uint32_t next, at = caching_set_find(a->blocks, &pool->free, (struct caching_key){0}, false);
        any = !pass;
        for (; at != CACHING_NONE; at = next) {
            const struct caching_block *b = &a->blocks[at];
            const double waited = (double)(pool->searches - b->gc_since);
            next = caching_set_find(a->blocks, &pool->free, caching_key_of(b), true);
            if (is_split(b) || b->area != CACHING_NONE) continue;
            if (!pass) {
                age += waited;
                n++;
            } else if (waited >= least) {
                any = true;
                reclaimed += b->bytes;
                age -= waited;
                n--;
                release_segment(a, at);
            }
        }
    }
}

/* Maps the first `bytes` of an unmapped block, in whole pages; false: refused. [map_block] */
static bool map_block(struct caching_allocator *a, uint32_t at, int64_t bytes)
{
    const struct area area = a->areas[a->blocks[at].area];
    const int64_t size = (bytes + area.page - 1) / area.page * area.page;
    uint64_t address = a->blocks[at].address;
    if (!a->driver.take(a->driver.self, size, area.page, &address)) return false;
    set_erase(a, at);
    if (size < a->blocks[at].bytes) {
        const uint32_t rest = split_block(a, at, size);
        renumber_block(a, rest);
        set_insert(a, rest);
    }
    a->blocks[at].mapped = true;
    count_reserved(a, size, 1);
    merge_blocks(a, at, a->blocks[at].prev);
    merge_blocks(a, at, a->blocks[at].next);
    set_insert(a, at);
    return true;
}

static bool is_available(const struct caching_allocator *a, uint32_t at)
{
    return at != CACHING_NONE && !a->blocks[at].allocated && !a->blocks[at].pending;
}

static bool has_expandable_room(const struct caching_allocator *a, uint32_t at, int64_t bytes)
{
    for (; bytes > 0 && is_available(a, at); at = a->blocks[at].next) bytes -= a->blocks[at].bytes;
    return bytes <= 0;
}

static uint32_t add_expandable_area(struct caching_allocator *a, const struct request *r, uint64_t address,
                                    int64_t bytes)
{
    const bool small = caching_pool_of(a, r->pool)->small;
    const uint32_t spare = a->spare_area, area = spare ? spare - 1 : (uint32_t)a->areas_n;
    if (!spare) (void)ARENA_ADD(a->areas);
    if (spare) a->spare_area = (uint32_t)a->areas[area].address;
    a->areas[area] = (struct area){address, small ? small_segment : a->rules.large_bytes};
    uint32_t at = add_block(a, (struct caching_block){.address = address,
                                                      .rank = next_rank(a),
                                                      .stream = r->stream,
                                                      .bytes = bytes,
                                                      .prev = CACHING_NONE,
                                                      .next = CACHING_NONE,
                                                      .area = area,
                                                      .pool = r->pool});
    set_insert(a, at);
    return at;
}

static int64_t reserve_of(const struct caching_rules *rules, int64_t device)
{
    const int64_t most = device + device / 8;
    const double set = rules->reserve_share > 0 ? rules->reserve_share * (double)device : (double)rules->reserve_bytes;
    return set > 0 && set < (double)most ? (int64_t)set : most;
}

static int64_t area_bytes(const struct caching_allocator *a, bool small)
{
    const int64_t page = small ? small_segment : a->rules.large_bytes;
    const int64_t device = a->rules.device_bytes < most_reserved ? a->rules.device_bytes : most_reserved;
    return (reserve_of(&a->rules, device) + page - 1) / page * page;
}

bool caching_is_too_large(const struct caching_allocator *a, int64_t bytes)
{
    return a->rules.expandable && bytes > area_bytes(a, bytes <= small_request) &&
           caching_rules_have(&a->rules, CACHING_EXPANDABLE_RESERVE, NULL);
}

/* [find_expandable_block] */
static uint32_t find_area(struct caching_allocator *a, const struct request *r)
{
    struct pool *pool = caching_pool_of(a, r->pool);
    struct caching_key key = {.stream = r->stream};
    uint32_t at = caching_set_find(a->blocks, &pool->unmapped, key, false);
    uint32_t found = CACHING_NONE;
    for (; at != CACHING_NONE && a->blocks[at].stream == r->stream;
         at = caching_set_find(a->blocks, &pool->unmapped, caching_key_of(&a->blocks[at]), true)) {
        const uint32_t before = a->blocks[at].prev, from = is_available(a, before) ? before : at;
        if (found != CACHING_NONE && a->blocks[at].area == a->blocks[found].area) continue;
        if (!has_expandable_room(a, from, r->bytes)) continue;
        if (found != CACHING_NONE) a->totals.area_choices++;
        if (found != CACHING_NONE) break;
        found = from;
    }
    if (found != CACHING_NONE) return found;
    if (caching_is_too_large(a, r->bytes)) return CACHING_NONE;
    const int64_t bytes = area_bytes(a, pool->small);
    return add_expandable_area(a, r, a->driver.reserve(a->driver.self, bytes), bytes);
}

/* [try_allocate_expandable_block] */
static uint32_t expand_segment(struct caching_allocator *a, const struct request *r)
{
    uint32_t at = find_area(a, r);
    if (at == CACHING_NONE) return at;
    int64_t bytes = a->blocks[at].bytes < r->bytes ? a->blocks[at].bytes : r->bytes;
    if (!a->blocks[at].mapped && !map_block(a, at, bytes)) return CACHING_NONE;
    while (a->blocks[at].bytes < r->bytes) {
        uint32_t next = a->blocks[at].next;
        if (next == CACHING_NONE) return CACHING_NONE; /* larger than any area: only if the GPU's size is unknown */
        int64_t left = r->bytes - a->blocks[at].bytes, room = a->blocks[next].bytes;
        if (!map_block(a, next, left < room ? left : room)) return CACHING_NONE;
        at = next;
    }
    set_erase(a, at);
    return at;
}

static int64_t size_when_grown(const struct caching_allocator *a, const struct caching_block *b)
{
    const struct caching_block *next = b->next == CACHING_NONE ? NULL : &a->blocks[b->next];
    return b->bytes + (next && !next->mapped ? next->bytes : 0);
}

static uint32_t next_free(const struct caching_allocator *a, const struct pool *pool, uint32_t at)
{
    uint32_t next = caching_set_find(a->blocks, &pool->free, caching_key_of(&a->blocks[at]), true);
    return next != CACHING_NONE && a->blocks[next].stream == a->blocks[at].stream ? next : CACHING_NONE;
}

/* [get_free_block] */
static uint32_t find_free(struct caching_allocator *a, const struct request *r)
{
    struct pool *pool = caching_pool_of(a, r->pool);
    if (a->rules.gc_memory && a->rules.gc_threshold > 0) pool->searches++;
    uint32_t next, at = caching_set_find(a->blocks, &pool->free,
                                         (struct caching_key){.stream = r->stream, .bytes = r->bytes}, false);
    if (at == CACHING_NONE || a->blocks[at].stream != r->stream) return CACHING_NONE;
    if (a->blocks[at].area != CACHING_NONE && a->rules.expandable)
        while (a->blocks[at].area != CACHING_NONE && (next = next_free(a, pool, at)) != CACHING_NONE &&
               size_when_grown(a, &a->blocks[next]) < size_when_grown(a, &a->blocks[at]))
            at = next;
    while (at != CACHING_NONE && a->blocks[at].area != CACHING_NONE && !a->rules.expandable)
        at = next_free(a, pool, at);
    if (at == CACHING_NONE) return at;
    const int64_t most = a->rules.max_split_bytes, bytes = a->blocks[at].bytes;
    if (r->bytes < most && bytes >= most) return CACHING_NONE;
    if (r->bytes >= most && bytes >= r->bytes + a->rules.max_round_bytes) return CACHING_NONE;
    set_erase(a, at);
    return at;
}

/* Does PyTorch raise an error before it asks the driver? */
static bool is_rejected_at_once(const struct caching_allocator *a, int64_t bytes)
{
    const double share = a->rules.throws_share > 0 ? a->rules.throws_share : 1;
    return a->rules.throws && !a->rules.device_guessed &&
           bytes > (int64_t)(share * (double)a->rules.device_bytes) - a->totals.reserved;
}

/* [alloc_block] */
static uint32_t take_segment(struct caching_allocator *a, const struct request *r, bool *raises)
{
    const int64_t bytes = segment_bytes(&a->rules, r->bytes);
    uint64_t address = 0;
    if (bytes > a->rules.allowed_bytes - a->totals.reserved || bytes > most_reserved - a->totals.reserved)
        return CACHING_NONE;
    *raises = is_rejected_at_once(a, bytes);
    if (*raises) return CACHING_NONE;
    const bool private = r->pool > 1;
    if (a->rules.expandable && (!private || caching_rules_have(&a->rules, CACHING_EXPANDABLE_PRIVATE, NULL)))
        return expand_segment(a, r);
    if (!a->driver.take(a->driver.self, bytes, 0, &address)) return CACHING_NONE;
    count_reserved(a, bytes, 1);
    return add_block(a, (struct caching_block){.address = address,
                                               .rank = next_rank(a),
                                               .stream = r->stream,
                                               .bytes = bytes,
                                               .prev = CACHING_NONE,
                                               .next = CACHING_NONE,
                                               .area = CACHING_NONE,
                                               .pool = r->pool,
                                               .mapped = true});
}

/* [should_split] */
static bool is_to_split(const struct caching_allocator *a, uint32_t at, int64_t bytes)
{
    const int64_t rest = a->blocks[at].bytes - bytes;
    if (a->pools[a->blocks[at].pool].unsplit) return false;
    if (a->pools[a->blocks[at].pool].small || a->rules.expandable) return rest >= least_block;
    return bytes < a->rules.max_split_bytes && rest > small_request;
}

static void count_allocated(struct caching_allocator *a, int64_t bytes)
{
    struct caching_totals *t = &a->totals;
    t->allocated += bytes;
    t->peak_allocated = t->allocated > t->peak_allocated ? t->allocated : t->peak_allocated;
}

static struct request request_of(int64_t bytes, uint64_t stream, uint32_t pool)
{
    return (struct request){bytes, stream, (uint16_t)(2 * pool + (bytes > small_request))};
}

uint32_t caching_find_block(struct caching_allocator *a, int64_t bytes, uint64_t stream, uint32_t pool)
{
    const struct request r = request_of(bytes, stream, pool);
    const uint32_t at = find_free(a, &r);
    if (at == CACHING_NONE) return CACHING_NO_BLOCK;
    set_insert(a, at);
    return at;
}

static bool may_retry_in_pool(const struct caching_allocator *a)
{
    return !a->capturing && caching_rules_have(&a->rules, CACHING_POOL_RETRY, NULL);
}

void caching_set_capturing(struct caching_allocator *a, bool capturing)
{
    a->capturing = capturing;
}

uint32_t caching_allocate(struct caching_allocator *a, int64_t bytes, uint64_t stream, uint32_t pool)
{
    const struct request r = request_of(bytes, stream, pool);
    uint32_t at = find_free(a, &r);
    if (at == CACHING_NONE) {
        if (a->rules.gc_memory && a->rules.gc_threshold > 0) collect_garbage(a);
        bool raises = false;
        at = take_segment(a, &r, &raises);
        if (at == CACHING_NONE && !raises && release_available(a, &r, &raises)) at = take_segment(a, &r, &raises);
        if (at == CACHING_NONE && !raises && (!pool || may_retry_in_pool(a))) {
            caching_empty_cache(a);
            a->totals.retries++;
            at = take_segment(a, &r, &raises);
        }
    }
    if (at == CACHING_NONE) return CACHING_NO_BLOCK;
    if (is_to_split(a, at, bytes)) {
        set_insert(a, split_block(a, at, bytes));
        renumber_block(a, at);
    } else if (!a->pools[r.pool].small && !a->rules.expandable) {
        a->totals.unsplit++;
    }
    a->blocks[at].allocated = true;
    count_allocated(a, a->blocks[at].bytes);
    return at;
}

/* [setSegmentStateToCheckpoint] */
uint32_t caching_allocate_at(struct caching_allocator *a, uint64_t address, int64_t bytes, uint32_t pool)
{
    uint32_t at = 0;
    const struct caching_block *b = a->blocks;
    for (; at < a->blocks_n; at++, b++)
        if (b->bytes && !b->allocated && !b->pending && b->mapped && b->pool / 2 == pool && b->address <= address &&
            b->bytes - (int64_t)(address - b->address) >= bytes)
            break;
    if (at == a->blocks_n) return CACHING_NO_BLOCK;
    set_erase(a, at);
    if (address > a->blocks[at].address) {
        const uint32_t rest = split_block(a, at, (int64_t)(address - a->blocks[at].address));
        set_insert(a, at);
        at = rest;
    }
    if (a->blocks[at].bytes > bytes) set_insert(a, split_block(a, at, bytes));
    renumber_block(a, at);
    a->blocks[at].allocated = true;
    count_allocated(a, a->blocks[at].bytes);
    return at;
}

void caching_release(struct caching_allocator *a, uint32_t block)
{
    count_allocated(a, -a->blocks[block].bytes);
    free_block(a, block);
}

void caching_release_later(struct caching_allocator *a, uint32_t block)
{
    count_allocated(a, -a->blocks[block].bytes);
    a->blocks[block].allocated = false;
    a->blocks[block].pending = true;
    *ARENA_ADD(a->pending) = block;
}

void caching_finish_pending(struct caching_allocator *a, uint32_t block)
{
    for (size_t i = a->pending_n; i-- > 0;) { /* the latest first: most wait for a short time */
        if (a->pending[i] != block) continue;
        a->pending[i] = a->pending[--a->pending_n];
        free_block(a, block);
        return;
    }
}

void caching_place_segment(struct caching_allocator *a, uint64_t address, int64_t bytes, uint64_t stream, bool small,
                           uint32_t in, uint64_t rank)
{
    const uint16_t pool = (uint16_t)(2 * in + !small);
    a->placed = CACHING_NONE;
    a->ranks = rank > a->ranks ? rank : a->ranks;
    if (bytes > most_reserved - a->totals.reserved) return;
    (void)caching_pool_of(a, pool);
    a->placed = add_block(a, (struct caching_block){.address = address,
                                                    .rank = a->order == BY_ADDRESS ? 0 : rank,
                                                    .stream = stream,
                                                    .bytes = bytes,
                                                    .prev = CACHING_NONE,
                                                    .next = CACHING_NONE,
                                                    .area = CACHING_NONE,
                                                    .pool = pool,
                                                    .mapped = true});
    set_insert(a, a->placed);
    count_reserved(a, bytes, 1);
}

uint32_t caching_place_block(struct caching_allocator *a, uint64_t address, int64_t bytes)
{
    uint32_t at = a->placed;
    if (at == CACHING_NONE || address < a->blocks[at].address ||
        address - a->blocks[at].address > (uint64_t)a->blocks[at].bytes ||
        (uint64_t)a->blocks[at].bytes - (address - a->blocks[at].address) < (uint64_t)bytes)
        return CACHING_NO_BLOCK;
    const int64_t gap = (int64_t)(address - a->blocks[at].address);
    set_erase(a, at);
    if (gap > 0) {
        const uint32_t before = a->blocks[at].prev;
        const bool joins = !a->pools[a->blocks[at].pool].small && gap <= small_request && before != CACHING_NONE;
        const uint32_t rest = split_block(a, at, gap);
        if (joins) { /* too little to have been split off */
            count_allocated(a, gap);
            a->blocks[before].bytes += gap;
            a->blocks[before].next = rest;
            a->blocks[rest].prev = before;
            drop_block(a, at);
        } else {
            set_insert(a, at);
        }
        at = rest;
    }
    a->placed = CACHING_NONE;
    if (a->blocks[at].bytes > bytes) {
        a->placed = split_block(a, at, bytes);
        set_insert(a, a->placed);
    }
    a->blocks[at].allocated = true;
    count_allocated(a, a->blocks[at].bytes);
    return at;
}

void caching_place_end(struct caching_allocator *a)
{
    const uint32_t at = a->placed;
    a->placed = CACHING_NONE;
    if (at == CACHING_NONE || a->pools[a->blocks[at].pool].small || a->blocks[at].prev == CACHING_NONE ||
        a->blocks[at].bytes > small_request)
        return;
    const uint32_t before = a->blocks[at].prev;
    set_erase(a, at);
    count_allocated(a, a->blocks[at].bytes);
    a->blocks[before].bytes += a->blocks[at].bytes;
    a->blocks[before].next = CACHING_NONE;
    drop_block(a, at);
}
