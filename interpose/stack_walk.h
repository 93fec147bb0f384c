/* Paths up the C stack that have been unwound before: which return addresses were at which places. As long as all of
 * them are still there, the path is the same, because a frame's position and code determine where its return address
 * is. Where the code finds it from the frame pointer, the saved frame pointer is compared too: otherwise a frame of
 * variable size (alloca) could be mistaken for one of another size. Comparing takes 1 ns per frame, unwinding 6.
 *
 * Private to interpose/stack*.c and its tests. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack_memory.h"

#define GS_WALKS 256u      /* a thread */
#define GS_WALK_STEPS 132u /* longer paths are unwound every time */
/* Of addresses; AArch64 signs return addresses in the bits above. */
#if defined(__aarch64__)
#define GS_WALK_BITS 48
#else
#define GS_WALK_BITS 64
#endif
/* Paths that differ only further up share a slot, and replace each other there in turn. */
#define GS_WALK_TURN 4

struct gs_walk {
    uint64_t key;   /* what else the stack depends on */
    uintptr_t here; /* where its first return address is */
    uint64_t hash;  /* of the stack */
    uint32_t misses;
    uint32_t count, words;         /* from `here` to the last */
    int32_t offset[GS_WALK_STEPS]; /* words from `here` to a word on the stack */
    uint64_t value[GS_WALK_STEPS]; /* its value */
};

static inline bool gs_walk_same(uint64_t a, uint64_t b)
{
    return !((a ^ b) << (64 - GS_WALK_BITS));
}

/* All words are in the thread's stack, which ends at `end`, whether or not the path is the same. A sanitizer may
 * object to reading them if the path is another one. Without a branch per word: most paths are the same. */
static inline __attribute__((no_sanitize("address", "thread"))) bool
gs_walk_holds(const struct gs_walk *w, uint64_t key, uintptr_t here, uintptr_t end)
{
    if (w->key != key || w->here != here || end - here <= w->words * sizeof(uintptr_t)) return false;
    const uintptr_t *at = (const uintptr_t *)here;
    uint64_t different = 0;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < w->count; i++) different |= at[w->offset[i]] ^ w->value[i];
    return w->count != 0 && gs_walk_same(different, 0);
}

static inline __attribute__((no_sanitize("address", "thread"))) bool gs_walk_step(struct gs_walk *w, uint32_t *count,
                                                                                  uintptr_t to)
{
    const int64_t words = ((int64_t)to - (int64_t)w->here) / (int64_t)sizeof to;
    if ((to | w->here) % sizeof to || words < -1 || words != (int32_t)words || *count == GS_WALK_STEPS) return false;
    w->offset[*count] = (int32_t)words;
    w->value[(*count)++] = gs_memory_load(to);
    return true;
}

/* Stores the path that has just been unwound, unless this slot was recently given to another path: the places of its
 * addresses, and what leaving each frame depended on (see stack_unwind.h). The first address is not compared: it is in
 * the key. The position of a signal's frame does not depend on its caller: no path includes one. */
static inline __attribute__((no_sanitize("address", "thread"))) void
gs_walk_learn(struct gs_walk *w, uint64_t key, uint64_t hash, const uintptr_t *place, const uintptr_t *held,
              uint32_t frames)
{
    if (w->misses++ % GS_WALK_TURN) return;
    w->count = 0;
    w->key = key;
    w->here = place[0];
    w->hash = hash;
    w->words = (uint32_t)((place[frames - 1] - place[0]) / sizeof(uintptr_t));
    uint32_t count = 0;
    for (uint32_t i = 1; i < frames; i++) {
        if (place[i] <= place[i - 1] || held[i - 1] > place[i]) return;
        if (held[i - 1] && !gs_walk_step(w, &count, held[i - 1])) return;
        if (!gs_walk_step(w, &count, place[i])) return;
    }
    w->count = count;
}
