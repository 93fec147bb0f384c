#include "interpose/stack_walk.h"

#include <stddef.h>
#include <ucontext.h>
#include "interpose/stack_native.h"

/* Ways that differ only further up share a place. Learning one takes as long as unwinding it a
 * hundred times, so they take turns at that. */
#define TURN 256

/* libunwind's own registers and cursor on x86-64: part of its ABI. */
enum { UNW_RSP = 7 };
struct cursor {
    uint64_t opaque[256]; /* 127 are used */
};

/* Steps to the next frame out: where the return address into it lies, NULL at the end. */
static const uintptr_t *step(struct cursor *cursor)
{
    uint64_t sp = 0;
    if (gs_unwind_by_step.step(cursor) <= 0 || gs_unwind_by_step.get_reg(cursor, UNW_RSP, &sp))
        return NULL;
    return (const uintptr_t *)(uintptr_t)sp - 1;
}

/* The number of steps, 0 where the addresses are not all found on the stack: another kind of frame
 * (a signal's), or too long a way. */
static __attribute__((noinline)) uint32_t find_steps(struct gs_walk *w, const uintptr_t *here,
                                                     void *const *addresses, uint32_t count)
{
    ucontext_t context;
    struct cursor cursor;
    if (!gs_unwind_by_step.step || count > GS_WALK_STEPS ||
        gs_unwind_by_step.get_context(&context) || gs_unwind_by_step.init(&cursor, &context))
        return 0;
    const uintptr_t *at = step(&cursor);
    while (at && at <= here) /* frames of ours that have been entered since */
        at = step(&cursor);
    for (uint32_t i = 0; i < count; i++) {
        const uintptr_t address = (uintptr_t)addresses[i];
        if (!at || at <= here || at - here > UINT16_MAX || *at != address ||
            address >> GS_WALK_SHIFT)
            return 0;
        w->steps[i] = (uint64_t)(at - here) << GS_WALK_SHIFT | address;
        here = at;
        if (i + 1 < count)
            at = step(&cursor);
    }
    return count;
}

void gs_walk_learn(struct gs_walk *w, uint64_t key, const uintptr_t *here, uint64_t hash,
                   void *const *addresses, uint32_t count)
{
    if (w->misses++ % TURN)
        return;
    w->key = key;
    w->here = here;
    w->hash = hash;
    w->count = find_steps(w, here, addresses, count);
}
