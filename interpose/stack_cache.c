#include "interpose/stack_cache.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include "interpose/stack_python.h"

struct gs_stacks *gs_stacks_open(struct gs_writer *w)
{
    struct gs_stacks *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED) {
        gs_stack_lacks("threads without stacks: %s", strerror(errno));
        return NULL;
    }
    s->writer = w;
    s->frames_size = GS_CACHE_FRAMES_FIRST;
    gs_cache_new_epoch(s, atomic_load_explicit(&gs_stack_epoch, memory_order_acquire));
    return s;
}

void gs_stacks_close(struct gs_stacks *s)
{
    if (s) munmap(s, sizeof *s);
}

void gs_stacks_adopt(struct gs_stacks *s)
{
    if (s) memset(&s->unwinder.memory, 0, sizeof s->unwinder.memory);
}

void gs_cache_new_epoch(struct gs_stacks *s, uint32_t epoch)
{
    s->epoch = epoch;
    s->seed = gs_stack_mix(0x8c5f3a1de7b94f21u, epoch, (uint64_t)s->era << 32);
}

void *gs_cache_reserve(struct gs_stacks *s, uint8_t type, uint32_t bytes)
{
    bytes = (bytes + 7) & ~7u;
    struct gs_rec *r = gs_writer_reserve(s->writer, bytes);
    if (!r) return NULL;
    memset((char *)r + bytes - 8, 0, 8);
    memset(r, 0, sizeof *r);
    r->size = (uint16_t)bytes;
    r->type = type;
    return r;
}

/* --- frames ----------------------------------------------------------------------------------- */

/* Tables of growing size follow one another; the last one is in use. */
static struct gs_cached_frame *cache_table_of(struct gs_stacks *s)
{
    return s->frames + (s->frames_size - GS_CACHE_FRAMES_FIRST) / 3;
}

static struct gs_cached_frame *cache_slot_of(struct gs_stacks *s, uint64_t key)
{
    struct gs_cached_frame *table = cache_table_of(s);
    uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) % s->frames_size;
    while (table[i].key && table[i].key != key) i = (i + 1) % s->frames_size;
    return &table[i];
}

uint32_t gs_cache_frame(struct gs_stacks *s, uint64_t key)
{
    return cache_slot_of(s, key)->frame;
}

uint32_t gs_cache_next_frame(const struct gs_stacks *s)
{
    return s->frames_used + 1;
}

static void grow_cache(struct gs_stacks *s)
{
    const struct gs_cached_frame *old = cache_table_of(s), *end = old + s->frames_size;
    s->frames_size *= 4;
    for (; old < end; old++)
        if (old->key) *cache_slot_of(s, old->key) = *old;
}

void gs_cache_add_frame(struct gs_stacks *s, uint64_t key)
{
    if (s->frames_used >= s->frames_size / 4 * 3) grow_cache(s);
    *cache_slot_of(s, key) = (struct gs_cached_frame){key, ++s->frames_used};
}

bool gs_cache_make_room(struct gs_stacks *s, uint32_t frames)
{
    if (s->frames_used + frames <= GS_CACHE_FRAMES_USED) return true;
    struct gs_rec *r = gs_cache_reserve(s, GS_REC_RESET, sizeof *r);
    if (!r) return false;
    gs_writer_commit(s->writer, r->size);
    memset(cache_table_of(s), 0, s->frames_size * sizeof *s->frames);
    s->frames_used = 0;
    s->era++;
    gs_cache_new_epoch(s, s->epoch);
    return true;
}

/* --- stacks ----------------------------------------------------------------------------------- */

static uint32_t empty_way(const struct gs_stacks *s, uint32_t set)
{
    for (uint32_t way = set; way < set + GS_CACHE_WAYS; way++)
        if (!s->stacks[way]) return way;
    return GS_CACHE_STACKS;
}

/* An empty way, otherwise each in turn: cheap, and no pattern of use makes it thrash forever. */
static uint32_t place_for(struct gs_stacks *s, uint64_t hash)
{
    uint32_t way = empty_way(s, gs_cache_near(hash));
    if (way == GS_CACHE_STACKS) way = empty_way(s, gs_cache_far(hash));
    return way < GS_CACHE_STACKS ? way : gs_cache_far(hash) + s->turn++ % GS_CACHE_WAYS;
}

uint32_t gs_cache_add_stack(struct gs_stacks *s, uint64_t hash, const uint32_t *frames, uint32_t depth)
{
    struct gs_rec_stack *r = gs_cache_reserve(s, GS_REC_STACK, (uint32_t)(sizeof *r + depth * sizeof *frames));
    if (!r) return 0;
    uint32_t place = place_for(s, hash);
    r->rec.stack = place + 1;
    r->depth = depth;
    memcpy(r->frames, frames, depth * sizeof *frames);
    gs_writer_commit(s->writer, r->rec.size);
    s->stacks[place] = hash;
    return place + 1;
}
