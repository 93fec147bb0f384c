/* Finds the allocation that contains an address: ordered, non-overlapping ranges in a treap. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gs_range {
    uint64_t start, bytes;
    int16_t device; /* -1 host memory */
    uint8_t space;  /* enum gs_space */
    uint32_t tag;   /* defined by the owner of the map */
};

struct gs_range_node;
struct gs_ranges { /* all zeros: an empty map */
    struct gs_range_node *nodes;
    uint32_t root, unused; /* 0 none */
    uint32_t capacity, count;
    uint32_t random;
};

/* Removes ranges that overlap the new one: an address belongs to one allocation, so they are stale. Ignores empty
 * ranges. False: out of memory. */
bool gs_ranges_add(struct gs_ranges *r, const struct gs_range *range);
/* Removes the range that begins at `start`; false if there is none. */
bool gs_ranges_remove(struct gs_ranges *r, uint64_t start);
/* The range that contains the address, or NULL. Valid until the next change. */
const struct gs_range *gs_ranges_find(const struct gs_ranges *r, uint64_t address);
/* The first range whose end is above `from`, in order of addresses; NULL at the end. */
const struct gs_range *gs_ranges_from(const struct gs_ranges *r, uint64_t from);
void gs_ranges_free(struct gs_ranges *r);
