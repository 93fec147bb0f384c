#include "interpose/slots.h"

#include <stdatomic.h>
#include <string.h>
#include "interpose/stack_cache.h"

static struct slot {
    struct gs_writer writer;
    struct gs_stacks *stacks;
    uint32_t session;
} slots[64];
static _Atomic uint64_t used;   /* one bit per slot: a thread fills, keeps or empties it */
static _Atomic uint64_t parked; /* … it is complete, and the thread that clears the bit owns it */

static int lowest_bit(uint64_t bits)
{
    return bits ? __builtin_ctzll(bits) : -1;
}

bool gs_slot_park(struct gs_writer *writer, struct gs_stacks *stacks, uint32_t session)
{
    uint64_t taken = atomic_load_explicit(&used, memory_order_relaxed);
    int i;
    if (!writer->chunk) return false;
    do {
        i = lowest_bit(~taken);
        if (i < 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&used, &taken, taken | 1ull << i, memory_order_acquire,
                                                    memory_order_relaxed));
    gs_writer_park(writer);
    slots[i] = (struct slot){*writer, stacks, session};
    memset(writer, 0, sizeof *writer);
    atomic_fetch_or_explicit(&parked, 1ull << i, memory_order_release);
    return true;
}

bool gs_slot_adopt(struct gs_writer *writer, struct gs_stacks **stacks, uint32_t session)
{
    uint64_t ready = atomic_load_explicit(&parked, memory_order_relaxed);
    int i;
    do {
        i = lowest_bit(ready);
        if (i < 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&parked, &ready, ready & ~(1ull << i), memory_order_acquire,
                                                    memory_order_relaxed));
    const struct slot slot = slots[i];
    atomic_fetch_and_explicit(&used, ~(1ull << i), memory_order_release);
    if (slot.session != session) { /* cannot happen: a session ends with its process */
        gs_stacks_close(slot.stacks);
        return false;
    }
    *writer = slot.writer;
    *stacks = slot.stacks;
    gs_writer_adopt(writer);
    if (slot.stacks) {
        slot.stacks->writer = writer;
        gs_stacks_adopt(slot.stacks);
    }
    return true;
}

void gs_slots_forget(void)
{
    for (uint64_t left = atomic_exchange(&parked, 0); left; left &= left - 1)
        gs_stacks_close(slots[lowest_bit(left)].stacks); /* private memory, copied from the parent */
    atomic_store(&used, 0);
}
