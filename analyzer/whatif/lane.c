#include "analyzer/whatif/lane.h"
#include "analyzer/base/sort.h"

#include <stdlib.h>
#include <string.h>

/* Below or above the recorded addresses. */
static const struct whatif_hole lower = {(uint64_t)1 << 44, (uint64_t)1 << 43},
                                upper = {(uint64_t)1 << 47, (uint64_t)1 << 46};
static const uint64_t page = 2 << 20; /* CUDA allocates large memory in physical pages of 2 MiB */

static void whatif_space_start(struct whatif_space *s, bool descending)
{
    *s = (struct whatif_space){.descending = descending};
    *ARENA_PUSH(s->holes, s->n, s->cap) = descending ? lower : upper;
}

static void whatif_space_free(struct whatif_space *s)
{
    free(s->holes);
    *s = (struct whatif_space){0};
}

static uint64_t whatif_space_take(struct whatif_space *s, uint64_t bytes)
{
    bytes = (bytes + page - 1) / page * page;
    for (size_t k = 0; k < s->n; k++) {
        struct whatif_hole *h = &s->holes[s->descending ? s->n - 1 - k : k];
        if (h->bytes < bytes) continue;
        h->bytes -= bytes;
        uint64_t address = s->descending ? h->address + h->bytes : h->address;
        if (!s->descending) h->address += bytes;
        if (!h->bytes) memmove(h, h + 1, (size_t)(s->holes + --s->n - h) * sizeof *h);
        return address;
    }
    return 0;
}

/* The first that begins at an address or above it. */
static size_t first_hole(const struct whatif_hole *list, size_t n, uint64_t address)
{
    return SORT_COUNT(n, i, list[i].address < address);
}

static void drop_hole(struct whatif_hole *list, size_t *n, size_t at)
{
    memmove(&list[at], &list[at + 1], (--*n - at) * sizeof *list);
}

static void insert_hole(struct whatif_hole *list, size_t n, size_t at, struct whatif_hole hole)
{
    memmove(&list[at + 1], &list[at], (n - at) * sizeof *list);
    list[at] = hole;
}

static void whatif_space_give_back(struct whatif_space *s, uint64_t address, uint64_t bytes)
{
    bytes = (bytes + page - 1) / page * page;
    const size_t at = first_hole(s->holes, s->n, address);
    const bool joins_before = at > 0 && s->holes[at - 1].address + s->holes[at - 1].bytes == address;
    const bool joins_after = at < s->n && address + bytes == s->holes[at].address;
    if (joins_before) {
        s->holes[at - 1].bytes += bytes + (joins_after ? s->holes[at].bytes : 0);
        if (joins_after) drop_hole(s->holes, &s->n, at);
    } else if (joins_after) {
        s->holes[at].address = address;
        s->holes[at].bytes += bytes;
    } else {
        (void)ARENA_PUSH(s->holes, s->n, s->cap);
        insert_hole(s->holes, s->n - 1, at, (struct whatif_hole){address, bytes});
    }
}

/* Takes the room out of the holes that have a part of it. */
static void whatif_space_take_out(struct whatif_space *s, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    size_t at = first_hole(s->holes, s->n, address);
    if (at && s->holes[at - 1].address + s->holes[at - 1].bytes > address) at--;
    while (at < s->n && s->holes[at].address < end) {
        const struct whatif_hole h = s->holes[at];
        drop_hole(s->holes, &s->n, at);
        if (h.address < address) whatif_space_give_back(s, h.address, address - h.address);
        if (h.address + h.bytes > end) whatif_space_give_back(s, end, h.address + h.bytes - end);
        at += h.address < address;
    }
}

static bool do_overlap(struct whatif_hole a, struct whatif_hole b)
{
    return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

/* From now on the lane's segments are not the recorded ones. Where these were freed, the driver has room. */
static void part_lane(struct whatif_lane *l)
{
    l->parted = true;
    EACH (h, l->freed.holes, l->freed.n) whatif_space_give_back(&l->space, h->address, h->bytes);
    l->freed.n = l->recorded_n = 0;
}

/* The recorded address of a segment of that size that the recorded allocator requested for the same tensor; 0 none. */
static uint64_t take_recorded(struct whatif_lane *l, uint64_t bytes)
{
    size_t i = 0;
    while (i < l->recorded_n && l->recorded[i].bytes != bytes) i++;
    const struct whatif_hole r = i < l->recorded_n ? l->recorded[i] : (struct whatif_hole){0};
    const size_t at = first_hole(l->taken, l->taken_n, r.address);
    const bool is_free =
        r.bytes && !(at < l->taken_n && do_overlap(l->taken[at], r)) && !(at > 0 && do_overlap(l->taken[at - 1], r));
    if (!is_free && !l->parted) part_lane(l);
    if (!is_free) return 0;
    l->recorded[i] = l->recorded[--l->recorded_n];
    whatif_space_take_out(&l->freed, r.address, r.bytes);
    (void)ARENA_ADD(l->taken);
    insert_hole(l->taken, l->taken_n - 1, at, r);
    return r.address;
}

static bool give_back_recorded(struct whatif_lane *l, uint64_t address)
{
    enum { FREED_MOST = 4096 }; /* a driver that never reuses an address must not fill the memory */
    const size_t at = first_hole(l->taken, l->taken_n, address);
    if (at == l->taken_n || l->taken[at].address != address) return false;
    const struct whatif_hole r = l->taken[at];
    drop_hole(l->taken, &l->taken_n, at);
    if (l->parted)
        whatif_space_give_back(&l->space, r.address, r.bytes);
    else if (l->freed.n < FREED_MOST)
        whatif_space_give_back(&l->freed, r.address, r.bytes);
    return true;
}

void whatif_lane_note_segment(struct whatif_lane *l, uint64_t address, int64_t bytes)
{
    if (!l->parted) *ARENA_ADD(l->recorded) = (struct whatif_hole){address, (uint64_t)bytes};
}

/* Some segments, in no order, are above all others. */
static uint64_t moved_by(const struct whatif_lane *l, uint64_t address)
{
    static const uint64_t above = (uint64_t)1 << 61;
    return l->order & WHATIF_MIXED && map_hash(address / page) & 1 ? above : 0;
}

static uint64_t ordered_address(const struct whatif_lane *l, uint64_t address, int64_t bytes)
{
    const uint64_t moved = moved_by(l, address);
    return moved + (l->order & WHATIF_MIRRORED ? ((uint64_t)1 << 48) - address - (uint64_t)bytes : address);
}

static uint64_t own_address(const struct whatif_lane *l, uint64_t address, int64_t bytes)
{
    address &= ((uint64_t)1 << 61) - 1;
    return l->order & WHATIF_MIRRORED ? ((uint64_t)1 << 48) - address - (uint64_t)bytes : address;
}

static bool lane_take(void *self, int64_t bytes, int64_t page_bytes, uint64_t *address)
{
    struct whatif_lane *l = self;
    if (l->capacity != INT64_MAX && bytes > l->capacity - l->other) return false;
    if (!page_bytes) {
        *address = take_recorded(l, (uint64_t)bytes);
        if (!*address) *address = whatif_space_take(&l->space, (uint64_t)bytes);
        *address = ordered_address(l, *address, bytes);
    }
    l->other = arena_add_capped(l->other, bytes); /* the allocator's memory is counted there, too */
    return true;
}

static void lane_give_back(void *self, uint64_t address, int64_t bytes, int64_t page_bytes)
{
    struct whatif_lane *l = self;
    l->other = arena_add_capped(l->other, -bytes);
    if (page_bytes) return;
    address = own_address(l, address, bytes);
    if (give_back_recorded(l, address)) return;
    whatif_space_give_back(&l->space, address, (uint64_t)bytes);
}

/* Address space is never freed, and is separate from memory that is. */
static uint64_t lane_reserve(void *self, int64_t bytes)
{
    struct whatif_lane *l = self;
    static const uint64_t first = (uint64_t)1 << 62;
    const uint64_t size = ((uint64_t)bytes + page - 1) / page * page + page, before = l->reserved;
    l->reserved += size;
    return moved_by(l, before) +
           (l->space.descending != (l->order & WHATIF_MIRRORED) ? first - l->reserved : first + before);
}

void whatif_lane_start(struct whatif_lane *l, const struct caching_rules *rules, bool descending, int64_t capacity)
{
    *l = (struct whatif_lane){.capacity = capacity};
    whatif_space_start(&l->space, descending);
    const struct caching_driver driver = {l, lane_take, lane_give_back, lane_reserve};
    l->allocator = caching_allocator_new(rules, &driver);
}

void whatif_lane_free(struct whatif_lane *l)
{
    caching_allocator_free(l->allocator);
    whatif_space_free(&l->space);
    whatif_lane_forget(l);
}

void whatif_lane_forget(struct whatif_lane *l)
{
    ARENA_RELEASE(l->block_of, l->recorded, l->taken, l->pool_blocks);
    whatif_space_free(&l->freed);
    map_free(&l->placed);
    map_free(&l->in_pools);
    l->recorded = l->taken = NULL;
    l->recorded_n = l->recorded_cap = l->taken_n = l->taken_cap = 0;
    l->block_of = NULL;
    l->block_of_n = 0;
}

static void number_room(struct whatif_lane *l, uint32_t number)
{
    const size_t n = l->block_of_n;
    if (number < n) return;
    l->block_of_n = (size_t)number * 2 + 1024;
    l->block_of = arena_realloc(l->block_of, l->block_of_n, sizeof *l->block_of);
    memset(l->block_of + n, 0xff, (l->block_of_n - n) * sizeof *l->block_of);
}

void whatif_lane_note_thread(struct whatif_lane *l, uint32_t thread, uint32_t pool)
{
    if (pool)
        l->pool_thread = thread + 1;
    else if (l->pool_thread == thread + 1)
        l->pool_thread = 0;
    l->pool_elsewhere = !pool && l->pool_thread;
}

uint32_t whatif_lane_allocate(struct whatif_lane *l, uint32_t number, int64_t bytes, uint64_t stream, uint32_t pool)
{
    const uint64_t retries = caching_totals(l->allocator)->retries;
    number_room(l, number);
    l->block_of[number] = caching_allocate(l->allocator, bytes, stream, pool);
    if (l->pool_elsewhere && l->block_of[number] != CACHING_NO_BLOCK)
        l->unsure_retry = l->unsure_retry || caching_totals(l->allocator)->retries != retries;
    if (l->recorded_n) part_lane(l); /* segments that the lane does not need */
    return l->block_of[number];
}

void whatif_lane_note_pool(struct whatif_lane *l, uint32_t number, uint64_t recorded)
{
    const uint32_t block = l->block_of[number], known = map_get(&l->in_pools, recorded);
    if (block == CACHING_NO_BLOCK) return;
    if (known == MAP_NEW) *map_at(&l->in_pools, recorded) = (uint32_t)l->pool_blocks_n;
    struct whatif_hole *b = known == MAP_NEW ? ARENA_ADD(l->pool_blocks) : &l->pool_blocks[known];
    *b = (struct whatif_hole){caching_block_address(l->allocator, block),
                              (uint64_t)caching_block_bytes(l->allocator, block)};
}

bool whatif_lane_restore(struct whatif_lane *l, uint32_t number, uint64_t recorded, uint32_t pool)
{
    const uint32_t known = map_get(&l->in_pools, recorded);
    if (known == MAP_NEW) return false;
    const struct whatif_hole *b = &l->pool_blocks[known];
    number_room(l, number);
    l->block_of[number] = caching_allocate_at(l->allocator, b->address, (int64_t)b->bytes, pool);
    return l->block_of[number] != CACHING_NO_BLOCK;
}

enum { TAKEN = UINT32_MAX - 1 }; /* in `placed`: a block that was freed */

uint32_t whatif_lane_take_placed(struct whatif_lane *l, uint64_t address)
{
    const uint32_t block = map_get(&l->placed, address);
    if (block != MAP_NEW && block != TAKEN) {
        *map_at(&l->placed, address) = TAKEN;
        return block;
    }
    l->missing++;
    return CACHING_NO_BLOCK;
}

uint32_t whatif_lane_take(struct whatif_lane *l, uint32_t number, uint64_t address)
{
    const uint32_t block = number < l->block_of_n ? l->block_of[number] : CACHING_NO_BLOCK;
    if (block == CACHING_NO_BLOCK) return whatif_lane_take_placed(l, address);
    l->block_of[number] = CACHING_NO_BLOCK;
    return block;
}

/* A segment comes before the block that it begins with. */
SORT_ORDER(order_blocks_by_address, struct whatif_piece, SORT_UP(x->address, y->address) ?: SORT_UP(x->block, y->block))

SORT_ORDER_OF_POINTERS(order_pieces_by_request, struct whatif_piece,
                       SORT_UP(x->since_ns, y->since_ns) ?: SORT_UP(x->address, y->address))

/* In which order segments were requested: since 2.13, it decides between free blocks of the same size. */
static void rank_pieces(struct whatif_piece *pieces, size_t n)
{
    struct whatif_piece **segments = arena_zeroed(n + 1, sizeof *segments);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!pieces[i].block) segments[count++] = &pieces[i];
    SORT(segments, count, order_pieces_by_request);
    for (size_t i = 0; i < count; i++) segments[i]->rank = i + 1;
    free(segments);
}

void whatif_lane_place(struct whatif_lane *l, struct whatif_piece *pieces, size_t n)
{
    const int64_t small = 1 << 20;
    int64_t total = l->other;
    SORT(pieces, n, order_blocks_by_address);
    rank_pieces(pieces, n);
    for (size_t i = 0; i < n; i++) total = arena_add_capped(total, pieces[i].block ? 0 : pieces[i].bytes);
    l->left_out = l->capacity && total > l->capacity;
    for (size_t i = 0; i < n; i++) {
        const struct whatif_piece *p = &pieces[i], *first = i + 1 < n && pieces[i + 1].block ? &pieces[i + 1] : NULL;
        if (!p->block && !first && l->left_out) continue;
        if (!p->block) {
            caching_place_end(l->allocator);
            caching_place_segment(l->allocator, p->address, p->bytes, first ? first->stream : p->stream,
                                  first ? p->bytes <= 2 * small && first->bytes <= small : p->bytes <= 2 * small,
                                  p->pool, p->rank);
            l->other = arena_add_capped(l->other, p->bytes);
            *ARENA_ADD(l->taken) = (struct whatif_hole){p->address, (uint64_t)p->bytes};
        } else {
            const uint32_t block = caching_place_block(l->allocator, p->address, p->bytes);
            if (block != CACHING_NO_BLOCK) *map_at(&l->placed, p->address) = block;
        }
    }
    caching_place_end(l->allocator);
}
