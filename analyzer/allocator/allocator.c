/* During the replay: determines the stream and pool of each of PyTorch's segments. */
#include "analyzer/allocator/allocator_parts.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/site/owner.h"
#include "analyzer/base/words.h"

enum { UNSEEN = 64 };
static const int64_t small_block = 1 << 20; /* larger blocks are in the pool of large ones */

WORDS_FUNCTION(allocator_moment_word, enum allocator_moment_kind, ALLOCATOR_MOMENTS, WORDS_FIRST, NULL)
WORDS_FUNCTION(allocator_pool_word, enum allocator_pool_kind, ALLOCATOR_POOLS, WORDS_FIRST, NULL)
WORDS_FUNCTION(allocator_flush_word, enum allocator_flush_kind, ALLOCATOR_FLUSHES, WORDS_FIRST, NULL)

static enum run_known is_torch_owner(const struct site_builder *b, uint32_t owner)
{
    return !owner ? RUN_UNSURE : site_owner_kind(b, owner) == RESULT_OWNER_TORCH ? RUN_YES : RUN_NO;
}

enum run_known allocator_owns(struct site_builder *b, uint32_t location)
{
    return is_torch_owner(b, site_owner_of_location(b, location));
}

enum run_known allocator_maps(struct site_builder *b, uint32_t stack)
{
    return is_torch_owner(b, site_owner_of_segment(b, stack));
}

static uint64_t moment_key(uint64_t address, int64_t alloc_ns)
{
    return map_hash(address) ^ (uint64_t)alloc_ns;
}

static void segment_add(struct allocator_replay *a, const struct run_lifetime *life)
{
    uint32_t at = a->spare_n ? a->spare[--a->spare_n] : (uint32_t)a->segments_n;
    if (at == a->segments_n) (void)ARENA_ADD(a->segments);
    a->segments[at] = (struct allocator_segment){.address = life->address,
                                                 .bytes = life->bytes,
                                                 .alloc_ns = life->alloc_ns,
                                                 .location = life->location,
                                                 .device = life->device};
    *map_at(&a->of_address, life->address) = at;
    if (a->unseen_n == UNSEEN) memmove(a->unseen, a->unseen + 1, --a->unseen_n * sizeof *a->unseen);
    a->unseen[a->unseen_n++] = at;
}

/* Kept if it was live at the highest total so far, or at a failure: if the total rises later, the segment was kept
 * unnecessarily, but such segments are few. */
static void segment_gone(struct allocator_replay *a, const struct run_lifetime *life)
{
    uint32_t at = map_get(&a->of_address, life->address);
    if (at == MAP_NEW || at >= a->segments_n || a->segments[at].address != life->address ||
        a->segments[at].alloc_ns != life->alloc_ns)
        return;
    struct allocator_segment *s = &a->segments[at];
    const int64_t peak = s->device >= 0 && s->device < 128 ? a->peak[s->device].ns : -1;
    const bool at_end = a->end_ns >= s->alloc_ns && life->free_ns > a->end_ns;
    if (peak >= s->alloc_ns || a->last_oom_ns >= s->alloc_ns || at_end) {
        *map_at(&a->kept, moment_key(s->address, s->alloc_ns)) = (uint32_t)a->kept_n;
        *ARENA_PUSH(a->kept_list, a->kept_n, a->kept_cap) = *s;
    }
    for (size_t i = 0; i < a->unseen_n; i++)
        if (a->unseen[i] == at) a->unseen[i] = a->unseen[--a->unseen_n];
    s->address = 0;
    s->alloc_ns = -1;
    *ARENA_ADD(a->spare) = at;
}

struct allocator_affinity allocator_segment_affinity(const struct allocator_replay *a, uint64_t address,
                                                     int64_t alloc_ns)
{
    static const struct allocator_affinity nothing;
    uint32_t at = map_get(&a->kept, moment_key(address, alloc_ns));
    const struct allocator_segment *s = at == MAP_NEW ? NULL : &a->kept_list[at];
    return s && s->address == address && s->alloc_ns == alloc_ns ? s->affinity : nothing;
}

struct allocator_affinity allocator_block_affinity(const struct allocator_replay *a, int64_t bytes, uint64_t stream,
                                                   bool captured)
{
    const bool small = bytes <= small_block;
    return (struct allocator_affinity){
        .stream = stream,
        .stream_known = a->streams_known && stream != GS_STREAM_UNKNOWN,
        .pool = captured ? (small ? ALLOCATOR_POOL_PRIVATE_SMALL : ALLOCATOR_POOL_PRIVATE_LARGE)
                         : (small ? ALLOCATOR_POOL_SMALL : ALLOCATOR_POOL_LARGE)};
}

/* The memory of a graph, or of a torch.cuda.MemPool. */
static bool is_private(struct allocator_replay *a, const struct run_lifetime *block)
{
    size_t n;
    const struct run_allocator_fact *facts = run_allocator_facts(a->b->run, &n);
    for (; a->facts_next < n; a->facts_next++) { /* ordered by process, then by time */
        const struct run_allocator_fact *f = &facts[a->facts_next];
        if (f->process > a->process || (f->process == a->process && f->time_ns > block->alloc_ns)) break;
        if (f->process == a->process && f->kind == GS_ALLOCATOR_POOL)
            *map_at(&a->private_of, f->address) = f->value > 0;
    }
    return block->space == GS_SPACE_POOL || map_get(&a->private_of, block->address) == 1;
}

static struct allocator_affinity affinity_of(struct allocator_replay *a, const struct run_lifetime *block)
{
    return allocator_block_affinity(a, block->bytes, block->stream, is_private(a, block));
}

static void set_segment_affinity(struct allocator_replay *a, const struct run_lifetime *block)
{
    for (size_t i = 0; i < a->unseen_n;) {
        struct allocator_segment *s = &a->segments[a->unseen[i]];
        if (block->address - s->address < (uint64_t)s->bytes) {
            s->affinity = affinity_of(a, block);
            a->unseen[i] = a->unseen[--a->unseen_n];
        } else {
            i++;
        }
    }
}

/* Has a piece been mapped by then that was not processed? */
static inline bool mapping_waits(const struct allocator_replay *a, int64_t ns)
{
    if (a->mapping_next >= a->mappings_n) return false;
    const struct run_mapping *m = &a->mappings[a->mapping_next];
    return m->process == a->process && m->map_ns <= ns;
}

/* Pieces wait for the block for which they were mapped; a large one is mapped in many pieces. */
static void mapped_until(struct allocator_replay *a, int64_t ns)
{
    for (; mapping_waits(a, ns) && a->unseen_mappings_n < UNSEEN; a->mapping_next++)
        if (allocator_maps(a->b, a->mappings[a->mapping_next].stack) != RUN_NO)
            a->unseen_mappings[a->unseen_mappings_n++] = a->mapping_next;
}

static bool ranges_overlap(uint64_t a, int64_t a_bytes, uint64_t b, int64_t b_bytes)
{
    return a < b + (uint64_t)b_bytes && b < a + (uint64_t)a_bytes;
}

static void set_mapping_affinity(struct allocator_replay *a, const struct run_lifetime *block)
{
    do {
        mapped_until(a, block->alloc_ns);
        for (size_t i = 0; i < a->unseen_mappings_n;) {
            const size_t at = a->unseen_mappings[i];
            const struct run_mapping *m = &a->mappings[at];
            const bool gone = m->unmap_ns <= block->alloc_ns;
            if (!gone && !ranges_overlap(m->address, m->bytes, block->address, block->bytes)) {
                i++;
                continue;
            }
            if (!gone) a->mapping_affinity[at] = affinity_of(a, block);
            a->unseen_mappings[i] = a->unseen_mappings[--a->unseen_mappings_n];
        }
        if (a->unseen_mappings_n == UNSEEN) a->unseen_mappings_n = 0; /* no block was ever placed in them */
    } while (mapping_waits(a, block->alloc_ns));
}

static void segments_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct allocator_replay *a = self;
    if (life->layer == GS_LAYER_TENSOR) {
        if (life->device >= 0 && series->live_bytes > a->peak[life->device].bytes)
            a->peak[life->device] = (struct allocator_peak_now){series->live_bytes, life->alloc_ns};
        if (a->unseen_n) set_segment_affinity(a, life);
        if (a->unseen_mappings_n || mapping_waits(a, life->alloc_ns)) set_mapping_affinity(a, life);
        a->blocks_made++;
        return;
    }
    if (series->layer != RUN_SERIES_DEVICE) return;
    const enum run_known own = allocator_owns(a->b, life->location);
    if (own != RUN_NO && life->space == GS_SPACE_DEVICE) segment_add(a, life);
    allocator_flushes_alloc(a->flushes, life, own == RUN_YES);
}

static void segments_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct allocator_replay *a = self;
    if (series->layer != RUN_SERIES_DEVICE) return;
    const enum run_known own = allocator_owns(a->b, life->location);
    if (own == RUN_YES) allocator_flushes_free(a->flushes, life);
    if (own != RUN_NO && life->space == GS_SPACE_DEVICE) segment_gone(a, life);
}

static void segments_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct allocator_replay *a = self;
    a->last_oom_ns = oom->time_ns;
    allocator_flushes_oom(a->flushes, oom);
}

static void segments_on_process_start(void *self, uint32_t process)
{
    struct allocator_replay *a = self;
    a->process = process;
    a->streams_known = run_settings_are_known(a->b->run, process);
    a->segments_n = a->spare_n = a->unseen_n = a->unseen_mappings_n = 0;
    map_free(&a->of_address);
    a->of_address = (struct map){0};
    map_free(&a->private_of);
    a->private_of = (struct map){0};
    a->facts_next = 0;
    a->mapping_next = 0;
    while (a->mapping_next < a->mappings_n && a->mappings[a->mapping_next].process < process) a->mapping_next++;
    for (size_t i = 0; i < 128; i++) a->peak[i] = (struct allocator_peak_now){0, -1};
    a->last_oom_ns = -1;
    a->end_ns = run_process_at(a->b->run, process)->last_alloc_ns;
    allocator_flushes_process(a->flushes);
}

/* The state at the end may be requested, too. */
static void segments_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct allocator_replay *a = self;
    EACH_IN (s, a->segments) {
        if (s->alloc_ns >= 0) {
            *map_at(&a->kept, moment_key(s->address, s->alloc_ns)) = (uint32_t)a->kept_n;
            *ARENA_PUSH(a->kept_list, a->kept_n, a->kept_cap) = *s;
        }
    }
}

void allocator_start(struct site_builder *b, struct run_observer *observer)
{
    struct allocator_replay *a = arena_zeroed(1, sizeof *a);
    a->b = b;
    a->mappings = run_mappings(b->run, &a->mappings_n);
    a->mapping_affinity = arena_realloc(NULL, a->mappings_n + 1, sizeof *a->mapping_affinity);
    memset(a->mapping_affinity, 0, a->mappings_n * sizeof *a->mapping_affinity);
    a->flushes = allocator_flushes_new(a);
    b->allocators = a;
    *observer = (struct run_observer){.self = a,
                                      .process_start = segments_on_process_start,
                                      .alloc = segments_on_alloc,
                                      .free = segments_on_free,
                                      .oom = segments_on_oom,
                                      .process_end = segments_on_process_end};
}

void allocator_add_sync(struct site_builder *b, const struct run_sync *sync)
{
    allocator_flushes_sync(b->allocators->flushes, sync);
}
