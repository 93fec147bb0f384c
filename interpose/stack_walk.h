/* Paths up the C stack that have been unwound before: which return addresses were at which places. As long as all of
 * them are still there, the path is the same, because a frame's position and code determine where its return address
 * is. Comparing takes 1 ns per frame, unwinding 6.
 *
 * Frames of variable size (alloca) are the exception. A frame of another size is mistaken for the old one only if
 * every old address, its callers' included, is still at its old place.
 *
 * Private to interpose/stack*.c and its tests. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define GS_WALKS 256u     /* a thread */
#define GS_WALK_STEPS 84u /* longer paths are unwound every time */
#define GS_WALK_SHIFT 48  /* a step: the return address, and above it the number of words since the last one */
/* Paths that differ only further up share a slot, and replace each other there in turn. */
#define GS_WALK_TURN 4

struct gs_walk {
    uint64_t key;   /* what else the stack depends on */
    uintptr_t here; /* where its first return address is */
    uint64_t hash;  /* of the stack */
    uint32_t misses;
    uint32_t count, words; /* from `here` to the last */
    uint64_t steps[GS_WALK_STEPS];
};

/* Each address is read only once the one before it proved to be in its place: so there is a frame above it and the
 * stack continues. If a frame of variable size has changed, the memory read is its own or its callers', which a
 * sanitizer may object to. `end`: of the thread's stack. */
static inline __attribute__((no_sanitize("address", "thread"))) bool
gs_walk_holds(const struct gs_walk *w, uint64_t key, uintptr_t here, uintptr_t end)
{
    if (w->key != key || w->here != here || end - here <= w->words * sizeof(uintptr_t)) return false;
    const uintptr_t *at = (const uintptr_t *)here;
    for (uint32_t i = 0; i < w->count; i++) {
        at += w->steps[i] >> GS_WALK_SHIFT;
        if (*at != (w->steps[i] & ((1ull << GS_WALK_SHIFT) - 1))) return false;
    }
    return w->count != 0;
}

/* Stores the path of addresses and their places on the stack, which have just been unwound, unless this slot was
 * recently given to another path. The first address is not compared: it is in the key. The position of a signal's frame
 * does not depend on its caller: no path includes one. */
static inline void gs_walk_learn(struct gs_walk *w, uint64_t key, uint64_t hash, const uintptr_t *address,
                                 const uintptr_t *place, uint32_t count)
{
    if (w->misses++ % GS_WALK_TURN) return;
    w->count = 0;
    if (count - 1 > GS_WALK_STEPS) return;
    for (uint32_t i = 1; i < count; i++) {
        const uintptr_t words = (place[i] - place[i - 1]) / sizeof(uintptr_t);
        if (place[i] <= place[i - 1] || place[i] % sizeof(uintptr_t) || words > UINT16_MAX) return;
        w->steps[i - 1] = (uint64_t)words << GS_WALK_SHIFT | address[i];
    }
    w->key = key;
    w->here = place[0];
    w->hash = hash;
    w->words = (uint32_t)((place[count - 1] - place[0]) / sizeof(uintptr_t));
    w->count = count - 1;
}
