/* Ways down the C stack that have been unwound before: which return addresses stood where. As long
 * as they all still stand there, the way is the same, because a frame's place and code decide where
 * its return address lies. Looking costs 1 ns a frame, unwinding 11.
 *
 * Frames of variable size (alloca) are the exception: one of another size would have to leave every
 * one of the old addresses, its callers' included, at its old place to be taken for the old one.
 *
 * Private to interpose/stack*.c and its tests. */
#ifndef GPUSPY_STACK_WALK_H
#define GPUSPY_STACK_WALK_H

#include <stdbool.h>
#include <stdint.h>

#define GS_WALKS 256u     /* a thread */
#define GS_WALK_STEPS 84u /* a longer way is unwound every time */
#define GS_WALK_SHIFT 48  /* a step: the return address, and above it how many words after the last */

struct gs_walk {
    uint64_t key;          /* what else the stack depends on */
    const uintptr_t *here; /* the frame it begins at */
    uint64_t hash;         /* of the stack */
    uint32_t misses;
    uint32_t count;
    uint64_t steps[GS_WALK_STEPS];
};

/* Each address is read only once the one before it proved to be in its place: so there is a frame
 * above it and the stack goes on. Where a frame of variable size is another than it was, that is its
 * own memory or its callers', which a sanitizer need not like. */
static inline __attribute__((no_sanitize("address"))) bool
gs_walk_holds(const struct gs_walk *w, uint64_t key, const uintptr_t *here)
{
    if (w->key != key || w->here != here)
        return false;
    for (uint32_t i = 0; i < w->count; i++) {
        here += w->steps[i] >> GS_WALK_SHIFT;
        if (*here != (w->steps[i] & ((1ull << GS_WALK_SHIFT) - 1)))
            return false;
    }
    return w->count != 0;
}

/* Remembers the way from the caller's frame `here` through `addresses`, which have just been unwound,
 * unless this place has lately been given to another. */
void gs_walk_learn(struct gs_walk *w, uint64_t key, const uintptr_t *here, uint64_t hash,
                   void *const *addresses, uint32_t count);

#endif
