#include "interpose/stack_cache.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include "interpose/stack_python.h"

struct gs_stacks *gs_stacks_open(struct gs_writer *w)
{
    struct gs_stacks *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED) {
        gs_stack_lacks("threads without stacks: %s", strerror(errno));
        return NULL;
    }
    s->writer = w;
    gs_cache_new_epoch(s, atomic_load_explicit(&gs_stack_epoch, memory_order_acquire));
    return s;
}

void gs_stacks_close(struct gs_stacks *s)
{
    if (s)
        munmap(s, sizeof *s);
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
    if (!r)
        return NULL;
    memset((char *)r + bytes - 8, 0, 8);
    memset(r, 0, sizeof *r);
    r->size = (uint16_t)bytes;
    r->type = type;
    return r;
}

/* --- frames ----------------------------------------------------------------------------------- */

static uint32_t frame_slot(const struct gs_stacks *s, uint64_t key)
{
    uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) % GS_CACHE_FRAMES;
    while (s->frame_keys[i] && s->frame_keys[i] != key)
        i = (i + 1) % GS_CACHE_FRAMES;
    return i;
}

uint32_t gs_cache_frame(const struct gs_stacks *s, uint64_t key)
{
    uint32_t i = frame_slot(s, key);
    return s->frame_keys[i] ? s->frame_numbers[i] : 0;
}

uint32_t gs_cache_next_frame(const struct gs_stacks *s)
{
    return s->frames_used + 1;
}

void gs_cache_add_frame(struct gs_stacks *s, uint64_t key)
{
    uint32_t i = frame_slot(s, key);
    s->frame_keys[i] = key;
    s->frame_numbers[i] = ++s->frames_used;
}

bool gs_cache_make_room(struct gs_stacks *s, uint32_t frames)
{
    if (s->frames_used + frames <= GS_CACHE_FRAMES_USED)
        return true;
    struct gs_rec *r = gs_cache_reserve(s, GS_REC_RESET, sizeof *r);
    if (!r)
        return false;
    gs_writer_commit(s->writer, r->size);
    memset(s->frame_keys, 0, sizeof s->frame_keys);
    s->frames_used = 0;
    s->era++;
    gs_cache_new_epoch(s, s->epoch);
    return true;
}

/* --- stacks ----------------------------------------------------------------------------------- */

/* An empty way, else each in turn: cheap, and no pattern of use makes it thrash for ever. */
static uint32_t place_for(struct gs_stacks *s, uint64_t hash)
{
    uint32_t set = (uint32_t)(hash % (GS_CACHE_STACKS / GS_CACHE_WAYS)) * GS_CACHE_WAYS;
    for (uint32_t way = 0; way < GS_CACHE_WAYS; way++)
        if (!s->stacks[set + way])
            return set + way;
    return set + s->turn++ % GS_CACHE_WAYS;
}

uint32_t gs_cache_add_stack(struct gs_stacks *s, uint64_t hash, const uint32_t *frames,
                            uint32_t depth)
{
    struct gs_rec_stack *r =
        gs_cache_reserve(s, GS_REC_STACK, (uint32_t)(sizeof *r + depth * sizeof *frames));
    if (!r)
        return 0;
    uint32_t place = place_for(s, hash);
    r->rec.stack = place + 1;
    r->depth = depth;
    memcpy(r->frames, frames, depth * sizeof *frames);
    gs_writer_commit(s->writer, r->rec.size);
    s->stacks[place] = hash;
    return place + 1;
}
