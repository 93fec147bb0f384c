/* One thread's caches: which frames and stacks it has already written into its part of the spool.
 * Private to interpose/stack*.c and its tests. */
#ifndef GPUSPY_STACK_CACHE_H
#define GPUSPY_STACK_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack.h"
#include "interpose/stack_native.h"
#include "interpose/stack_walk.h"
#include "schema/spool.h"

#define GS_CACHE_STACKS                                                                     \
    16384u               /* of 8 bytes; a thread with more distinct stacks writes some anew \
                          */
#define GS_CACHE_WAYS 8u /* one cache line */
#define GS_CACHE_FRAMES 16384u
#define GS_CACHE_FRAMES_USED 12288u /* beyond it: RESET, and start anew */

#define GS_NATIVE_DEPTH 64
#define GS_NATIVE_DEPTH_MAX 255
#define GS_NATIVE_OWN 16 /* room for libgpuspy's own frames above the caller's */

/* How far up the interpreter's frame stands: an unwound frame costs 10 ns, so no more are asked for
 * than were needed lately by the same Python line from as deep in the C stack, which is nearly
 * always the same way down. */
struct gs_reach {
    uint16_t size, peak, left;
};
#define GS_REACHES 256u

struct gs_stacks {
    struct gs_writer *writer;
    uint64_t seed;  /* of the hashes; a new one makes all cached stacks unknown */
    uint32_t epoch; /* gs_stack_epoch that the seed stands for */
    uint32_t era;   /* resets */
    uint32_t frames_used;
    uint32_t turn; /* the way to replace next */
    struct gs_reach reach[GS_REACHES];
    const char *python[GS_STACK_MAX_FRAMES];
    void *native[GS_NATIVE_OWN + GS_NATIVE_DEPTH_MAX + 1];
    uint32_t numbers[GS_STACK_MAX_FRAMES];
    union {
        struct {
            char function[GS_STRING_MAX], file[GS_STRING_MAX];
        };
        struct gs_module module;
    } text;
    struct gs_walk walks[GS_WALKS];
    _Alignas(64) uint64_t stacks[GS_CACHE_STACKS]; /* hash; its place + 1 is the number */
    uint64_t frame_keys[GS_CACHE_FRAMES];
    uint32_t frame_numbers[GS_CACHE_FRAMES];
};

/* The number of the stack with this hash, 0 for none. */
static inline uint32_t gs_cache_stack(const struct gs_stacks *s, uint64_t hash)
{
    uint32_t set = (uint32_t)(hash % (GS_CACHE_STACKS / GS_CACHE_WAYS)) * GS_CACHE_WAYS;
    for (uint32_t way = 0; way < GS_CACHE_WAYS; way++)
        if (s->stacks[set + way] == hash)
            return set + way + 1;
    return 0;
}

/* The number of the frame with this key (never 0), 0 for none. */
uint32_t gs_cache_frame(const struct gs_stacks *s, uint64_t key);
/* The number that the next frame defined will have, and its definition written: it counts. */
uint32_t gs_cache_next_frame(const struct gs_stacks *s);
void gs_cache_add_frame(struct gs_stacks *s, uint64_t key);

/* Makes room for so many new frames, if need be by a RESET. False: that could not be written. */
bool gs_cache_make_room(struct gs_stacks *s, uint32_t frames);
/* Writes the stack's definition and returns its number, 0 where the spool has no room. `hash` is
 * not 0. */
uint32_t gs_cache_add_stack(struct gs_stacks *s, uint64_t hash, const uint32_t *frames,
                            uint32_t depth);
/* All cached stacks are unknown from now on, frames stay. */
void gs_cache_new_epoch(struct gs_stacks *s, uint32_t epoch);

/* A definition's space, header and zeroed padding made; NULL where the spool has no room. */
void *gs_cache_reserve(struct gs_stacks *s, uint8_t type, uint32_t bytes);

#endif
