/* A list of non-negative times in ns, in ascending order, in half the memory of an array: the low 32 bits of each, and
 * the positions at which the high bits change (every 4.3 s). Zero-initialise. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct times_carry {
    uint32_t from, high; /* from this element on, until the next carry */
};

struct times {
    uint32_t *low;
    struct times_carry *carries;
    uint32_t n, cap, carries_n, carries_cap;
    uint32_t high; /* the high bits of the last element */
};

/* At most 2^32 - 1 elements. Ends the program with a message if no memory is left. */
void times_grow(struct times *t);
void times_carry(struct times *t, uint32_t high);
int64_t times_at(const struct times *t, size_t i);
/* Keeps the element `first` (0 or 1) and every second one after it. */
void times_halve(struct times *t, size_t first);
/* Back to empty. */
void times_free(struct times *t);

static inline void times_add(struct times *t, int64_t ns)
{
    uint32_t high = (uint32_t)((uint64_t)ns >> 32);
    if (t->n == t->cap) times_grow(t);
    if (high != t->high) times_carry(t, high);
    t->low[t->n++] = (uint32_t)ns;
    /* Hundreds of lists grow in turn, which the processor cannot predict. */
    __builtin_prefetch(&t->low[t->n + 16 < t->cap ? t->n + 16 : 0], 1);
}
