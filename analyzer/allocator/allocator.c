/* During the replay: which stream and pool each of PyTorch's segments belongs to. */
#include "analyzer/allocator/allocator_parts.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/site/owner.h"

enum { UNTOLD = 64 };
static const int64_t small_block = 1 << 20; /* larger blocks lie in the pool of large ones */

static const char *const moment_words[] = {
#define WORD(s, w) [GS_MOMENT_##s] = w,
    GS_MOMENTS(WORD)
#undef WORD
};
static const char *const pool_words[] = {
#define WORD(s, w) [GS_POOL_##s] = w,
    GS_POOLS(WORD)
#undef WORD
};
static const char *const flush_words[] = {
#define WORD(s, w) [GS_FLUSH_##s] = w,
    GS_FLUSHES(WORD)
#undef WORD
};
const char *gs_moment_word(enum gs_moment_kind moment)
{
    return moment_words[moment];
}
const char *gs_pool_word(enum gs_pool_kind pool)
{
    return pool_words[pool];
}
const char *gs_flush_word(enum gs_flush_kind kind)
{
    return flush_words[kind];
}

/* --- segments ------------------------------------------------------------------------------------ */

static enum gs_known torchs(const struct gs_builder *b, uint32_t owner)
{
    return !owner ? GS_UNSURE : gs_owner_kind(b, owner) == GS_OWNER_TORCH ? GS_YES : GS_NO;
}

enum gs_known gs_allocators_own(struct gs_builder *b, uint32_t location)
{
    return torchs(b, gs_owner_of_location(b, location));
}

enum gs_known gs_allocators_maps(struct gs_builder *b, uint32_t stack)
{
    return torchs(b, stack == GS_NONE ? 0 : gs_owner_of(b, stack));
}

static uint64_t moment_key(uint64_t address, int64_t alloc_ns)
{
    return gs_hash64(address) ^ (uint64_t)alloc_ns;
}

static void segment_add(struct gs_allocators *a, const struct gs_lifetime *life)
{
    uint32_t at = a->spare_n ? a->spare[--a->spare_n] : (uint32_t)a->segments_n;
    if (at == a->segments_n) {
        (void)GS_PUSH(a->segments, a->segments_n, a->segments_cap);
    }
    a->segments[at] = (struct gs_segment){.address = life->address,
                                          .bytes = life->bytes,
                                          .alloc_ns = life->alloc_ns,
                                          .location = life->location,
                                          .device = life->device};
    *gs_map_at(&a->of_address, life->address) = at;
    if (a->untold_n == UNTOLD) {
        memmove(a->untold, a->untold + 1, --a->untold_n * sizeof *a->untold);
    }
    a->untold[a->untold_n++] = at;
}

/* Kept where it was live at the highest total so far, or at a failure: if the total rises later, it was
 * kept in vain, but few are. */
static void segment_gone(struct gs_allocators *a, const struct gs_lifetime *life)
{
    uint32_t at = gs_map_get(&a->of_address, life->address);
    if (at == GS_MAP_NEW || at >= a->segments_n || a->segments[at].address != life->address ||
        a->segments[at].alloc_ns != life->alloc_ns) {
        return;
    }
    struct gs_segment *s = &a->segments[at];
    const int64_t peak = s->device >= 0 && s->device < 128 ? a->peak[s->device].ns : -1;
    const bool at_end = a->end_ns >= s->alloc_ns && life->free_ns > a->end_ns;
    if (peak >= s->alloc_ns || a->last_oom_ns >= s->alloc_ns || at_end) {
        *gs_map_at(&a->kept, moment_key(s->address, s->alloc_ns)) = (uint32_t)a->kept_n;
        *GS_PUSH(a->kept_list, a->kept_n, a->kept_cap) = *s;
    }
    for (size_t i = 0; i < a->untold_n; i++) {
        if (a->untold[i] == at) {
            a->untold[i] = a->untold[--a->untold_n];
        }
    }
    s->address = 0;
    s->alloc_ns = -1;
    *GS_PUSH(a->spare, a->spare_n, a->spare_cap) = at;
}

struct gs_told gs_allocators_told(const struct gs_allocators *a, uint64_t address, int64_t alloc_ns)
{
    static const struct gs_told nothing;
    uint32_t at = gs_map_get(&a->kept, moment_key(address, alloc_ns));
    const struct gs_segment *s = at == GS_MAP_NEW ? NULL : &a->kept_list[at];
    return s && s->address == address && s->alloc_ns == alloc_ns ? s->told : nothing;
}

/* --- what a block tells -------------------------------------------------------------------------- */

struct gs_told gs_told_by(const struct gs_allocators *a, int64_t bytes, uint64_t stream, bool captured)
{
    const bool small = bytes <= small_block;
    return (struct gs_told){.stream = stream,
                            .stream_known = a->streams_known && stream != GS_STREAM_UNKNOWN,
                            .pool = captured ? (small ? GS_POOL_PRIVATE_SMALL : GS_POOL_PRIVATE_LARGE)
                                             : (small ? GS_POOL_SMALL : GS_POOL_LARGE)};
}

static struct gs_told told_by(const struct gs_allocators *a, const struct gs_lifetime *block)
{
    return gs_told_by(a, block->bytes, block->stream, block->space == GS_SPACE_POOL);
}

static void tell_segments(struct gs_allocators *a, const struct gs_lifetime *block)
{
    for (size_t i = 0; i < a->untold_n;) {
        struct gs_segment *s = &a->segments[a->untold[i]];
        if (block->address - s->address < (uint64_t)s->bytes) {
            s->told = told_by(a, block);
            a->untold[i] = a->untold[--a->untold_n];
        } else {
            i++;
        }
    }
}

/* Whether a piece has been mapped by then that was not looked at. */
static inline bool mapping_waits(const struct gs_allocators *a, int64_t ns)
{
    if (a->mapping_next >= a->mappings_n) {
        return false;
    }
    const struct gs_mapping *m = &a->mappings[a->mapping_next];
    return m->process == a->process && m->map_ns <= ns;
}

/* Pieces wait for the block that they were mapped for; a large one is mapped in many. */
static void mapped_until(struct gs_allocators *a, int64_t ns)
{
    for (; mapping_waits(a, ns) && a->untold_mappings_n < UNTOLD; a->mapping_next++) {
        if (gs_allocators_maps(a->b, a->mappings[a->mapping_next].stack) != GS_NO) {
            a->untold_mappings[a->untold_mappings_n++] = a->mapping_next;
        }
    }
}

static bool overlap(uint64_t a, int64_t a_bytes, uint64_t b, int64_t b_bytes)
{
    return a < b + (uint64_t)b_bytes && b < a + (uint64_t)a_bytes;
}

static void tell_mappings(struct gs_allocators *a, const struct gs_lifetime *block)
{
    do {
        mapped_until(a, block->alloc_ns);
        for (size_t i = 0; i < a->untold_mappings_n;) {
            const size_t at = a->untold_mappings[i];
            const struct gs_mapping *m = &a->mappings[at];
            const bool gone = m->unmap_ns <= block->alloc_ns;
            if (!gone && !overlap(m->address, m->bytes, block->address, block->bytes)) {
                i++;
                continue;
            }
            if (!gone) {
                a->mapping_told[at] = told_by(a, block);
            }
            a->untold_mappings[i] = a->untold_mappings[--a->untold_mappings_n];
        }
        if (a->untold_mappings_n == UNTOLD) {
            a->untold_mappings_n = 0; /* no block ever came into them */
        }
    } while (mapping_waits(a, block->alloc_ns));
}

/* --- the replay ------------------------------------------------------------------------------------ */

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_allocators *a = self;
    if (life->layer == GS_LAYER_TENSOR) {
        if (life->device >= 0 && life->device < 128 && series->live_bytes > a->peak[life->device].bytes) {
            a->peak[life->device] = (struct gs_peak_now){series->live_bytes, life->alloc_ns};
        }
        if (a->untold_n) {
            tell_segments(a, life);
        }
        if (a->untold_mappings_n || mapping_waits(a, life->alloc_ns)) {
            tell_mappings(a, life);
        }
        a->blocks_made++;
        return;
    }
    if (series->layer != GS_SERIES_DEVICE) {
        return;
    }
    const enum gs_known own = gs_allocators_own(a->b, life->location);
    if (own != GS_NO && life->space == GS_SPACE_DEVICE) {
        segment_add(a, life);
    }
    gs_flushes_alloc(a->flushes, life, own == GS_YES);
}

static void on_free(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_allocators *a = self;
    if (series->layer != GS_SERIES_DEVICE) {
        return;
    }
    if (gs_allocators_own(a->b, life->location) == GS_YES) {
        gs_flushes_free(a->flushes, life);
    }
    if (life->space == GS_SPACE_DEVICE) {
        segment_gone(a, life);
    }
}

static void on_oom(void *self, const struct gs_oom *oom, size_t index)
{
    struct gs_allocators *a = self;
    (void)index;
    a->last_oom_ns = oom->time_ns;
    gs_flushes_oom(a->flushes, oom);
}

static void on_process_start(void *self, uint32_t process)
{
    struct gs_allocators *a = self;
    a->process = process;
    a->streams_known = gs_run_settings_known(a->b->run, process);
    a->segments_n = a->spare_n = a->untold_n = a->untold_mappings_n = 0;
    gs_map_free(&a->of_address);
    a->of_address = (struct gs_map){0};
    a->mapping_next = 0;
    while (a->mapping_next < a->mappings_n && a->mappings[a->mapping_next].process < process) {
        a->mapping_next++;
    }
    for (size_t i = 0; i < 128; i++) {
        a->peak[i] = (struct gs_peak_now){0, -1};
    }
    a->last_oom_ns = -1;
    size_t n;
    a->end_ns = gs_run_processes(a->b->run, &n)[process].last_alloc_ns;
    gs_flushes_process(a->flushes, process);
}

/* What is live at the end may be asked for, too. */
static void on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct gs_allocators *a = self;
    (void)process;
    (void)end_ns;
    for (size_t i = 0; i < a->segments_n; i++) {
        const struct gs_segment *s = &a->segments[i];
        if (s->alloc_ns >= 0) {
            *gs_map_at(&a->kept, moment_key(s->address, s->alloc_ns)) = (uint32_t)a->kept_n;
            *GS_PUSH(a->kept_list, a->kept_n, a->kept_cap) = *s;
        }
    }
}

void gs_allocators_start(struct gs_builder *b, struct gs_observer *observer)
{
    struct gs_allocators *a = gs_realloc(NULL, 1, sizeof *a);
    memset(a, 0, sizeof *a);
    a->b = b;
    a->mappings = gs_run_mappings(b->run, &a->mappings_n);
    a->mapping_told = gs_realloc(NULL, a->mappings_n + 1, sizeof *a->mapping_told);
    memset(a->mapping_told, 0, a->mappings_n * sizeof *a->mapping_told);
    a->flushes = gs_flushes_new(a);
    b->allocators = a;
    *observer = (struct gs_observer){.self = a,
                                     .process_start = on_process_start,
                                     .alloc = on_alloc,
                                     .free = on_free,
                                     .oom = on_oom,
                                     .process_end = on_process_end};
}

void gs_allocators_call(struct gs_builder *b, const struct gs_sync *sync)
{
    gs_flushes_sync(b->allocators->flushes, sync);
}
