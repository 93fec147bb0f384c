/* Identifies the code object at an address. CPython reuses the memory of a dead code object at once, so an address is
 * not an identity. Each code object that is written into the spool gets a number that is never reused, and gpuspy
 * replaces the type's dealloc slot to learn of its death. Only the death of a recorded one counts: gs_stack_epoch then
 * grows, and every thread's cache of whole stacks becomes stale at once. No lock: a signal handler may run at any
 * point, and a process may be forked at any point. */
#include "interpose/stack_python.h"

/* Living code objects that were seen in a stack: each in one of its set's slots. */
#define SETS 8192u
#define SLOTS 8u

/* A slot: the code object's address without its 4 lower bits, which are 0 (0: free), and below it how many objects were
 * in this slot before. */
#define PAST_BITS 20
#define PAST ((1ull << PAST_BITS) - 1)

_Atomic uint32_t gs_stack_epoch;

static _Atomic uint64_t sets[SETS][SLOTS];

static void (*original_dealloc)(void *);

static uint32_t code_set_of(const void *code)
{
    return (uint32_t)((uint64_t)(uintptr_t)code * 0x9e3779b97f4a7c15u >> 40) % SETS;
}

static uint64_t code_word_of(const void *code)
{
    return (uint64_t)(uintptr_t)code >> 4 << PAST_BITS;
}

/* Empties the slot if it still holds `held`. */
static void leave_slot(_Atomic uint64_t *slot, uint64_t held)
{
    if (atomic_compare_exchange_strong(slot, &held, (held + 1) & PAST)) atomic_fetch_add(&gs_stack_epoch, 1);
}

uint64_t gs_code_identity(const void *code)
{
    const uint32_t set = code_set_of(code);
    const uint64_t held = code_word_of(code);
    for (;;) {
        int free = -1;
        uint64_t seen[SLOTS];
        for (uint32_t i = 0; i < SLOTS; i++) {
            const uint64_t word = seen[i] = atomic_load_explicit(&sets[set][i], memory_order_acquire);
            if ((word & ~PAST) == held) return (uint64_t)(set * SLOTS + i) << PAST_BITS | (word & PAST);
            if (free < 0 && !(word & ~PAST)) free = (int)i;
        }
        if (free >= 0) {
            uint64_t empty = atomic_load(&sets[set][free]) & PAST;
            atomic_compare_exchange_strong(&sets[set][free], &empty, empty | held);
            continue;
        }
        /* Forgets all of them, as if they had died, except those that another thread stored meanwhile. */
        for (uint32_t i = 0; i < SLOTS; i++) leave_slot(&sets[set][i], seen[i]);
    }
}

static void dealloc_code(void *code)
{
    const uint32_t set = code_set_of(code);
    for (uint32_t i = 0; i < SLOTS; i++) {
        const uint64_t word = atomic_load_explicit(&sets[set][i], memory_order_acquire);
        if ((word & ~PAST) == code_word_of(code)) leave_slot(&sets[set][i], word);
    }
    original_dealloc(code);
}

void gs_code_watch(void (**slot)(void *))
{
    if (original_dealloc) return;
    original_dealloc = *slot;
    __atomic_store_n(slot, dealloc_code, __ATOMIC_RELEASE);
}
