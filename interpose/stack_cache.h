/* One thread's caches: which frames and stacks it has already written into its part of the spool. Private to
 * interpose/stack*.c and its tests. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack.h"
#include "interpose/stack_unwind.h"
#include "interpose/stack_walk.h"
#include "schema/spool.h"

/* A thread with more distinct stacks writes some again. The first ones have their own page, so that a thread with few
 * touches little memory. */
#define GS_CACHE_STACKS 16384u
#define GS_CACHE_WAYS 8u /* one cache line */
#define GS_CACHE_NEAR 512u
#define GS_CACHE_FRAMES 16384u
#define GS_CACHE_FRAMES_FIRST 256u  /* and 1024, 4096: grows as the thread needs */
#define GS_CACHE_FRAMES_USED 12288u /* beyond it: RESET, and start again */

#define GS_NATIVE_DEPTH 64
#define GS_NATIVE_DEPTH_MAX 255
#define GS_NATIVE_OWN 16 /* room for libgpuspy's own frames above the caller's */

struct gs_cached_frame {
    uint64_t key;
    uint32_t frame;
};

/* In the order in which a thread needs it: untouched memory costs nothing. */
struct gs_stacks {
    struct gs_writer *writer;
    uint64_t seed;  /* of the hashes; a new seed makes all cached stacks unknown */
    uint32_t epoch; /* the gs_stack_epoch of the seed */
    uint32_t era;   /* resets */
    uint32_t frames_used;
    uint32_t frames_size; /* slots of `frames` in use */
    uint32_t turn;        /* the stack to replace next */
    struct gs_unwinder unwinder;
    const char *python[GS_STACK_MAX_FRAMES];
    uint32_t numbers[GS_STACK_MAX_FRAMES];
    union {
        struct {
            char function[GS_STRING_MAX], file[GS_STRING_MAX];
        };
        struct gs_module module;
    } text;
    _Alignas(64) uint64_t stacks[GS_CACHE_STACKS]; /* hash; its index + 1 is the number */
    struct gs_cached_frame frames[(4 * GS_CACHE_FRAMES - GS_CACHE_FRAMES_FIRST) / 3];
    struct gs_walk walks[GS_WALKS];
};

/* The stack's ways: one of the first page, and one of the rest. */
static inline uint32_t gs_cache_near(uint64_t hash)
{
    return (uint32_t)(hash % (GS_CACHE_NEAR / GS_CACHE_WAYS)) * GS_CACHE_WAYS;
}

static inline uint32_t gs_cache_far(uint64_t hash)
{
    return GS_CACHE_NEAR + (uint32_t)(hash % ((GS_CACHE_STACKS - GS_CACHE_NEAR) / GS_CACHE_WAYS)) * GS_CACHE_WAYS;
}

static inline uint32_t gs_cache_in(const struct gs_stacks *s, uint32_t set, uint64_t hash)
{
    for (uint32_t way = set; way < set + GS_CACHE_WAYS; way++)
        if (s->stacks[way] == hash) return way + 1;
    return 0;
}

/* The number of the stack with this hash, 0 for none. The far ways are used once the near are full. */
static inline uint32_t gs_cache_stack(const struct gs_stacks *s, uint64_t hash)
{
    const uint32_t set = gs_cache_near(hash), near = gs_cache_in(s, set, hash);
    return near || !s->stacks[set + GS_CACHE_WAYS - 1] ? near : gs_cache_in(s, gs_cache_far(hash), hash);
}

/* The number of the frame with this key (never 0), 0 for none. */
uint32_t gs_cache_frame(struct gs_stacks *s, uint64_t key);
/* The number of the next frame; call it only if its definition is written. */
uint32_t gs_cache_next_frame(const struct gs_stacks *s);
void gs_cache_add_frame(struct gs_stacks *s, uint64_t key);

/* Makes room for this many new frames, by a RESET if necessary. False: that could not be written. */
bool gs_cache_make_room(struct gs_stacks *s, uint32_t frames);
/* Writes the stack's definition and returns its number, 0 if the spool has no room. `hash` is not 0. */
uint32_t gs_cache_add_stack(struct gs_stacks *s, uint64_t hash, const uint32_t *frames, uint32_t depth);
/* Forgets all cached stacks; frames stay. */
void gs_cache_new_epoch(struct gs_stacks *s, uint32_t epoch);

/* Space for a definition, with its header and zeroed padding; NULL if the spool has no room. */
void *gs_cache_reserve(struct gs_stacks *s, uint8_t type, uint32_t bytes);
