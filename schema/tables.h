/* The store's tables in memory: growing arrays, the live allocations, and content → id. If memory runs
 * out, each keeps its content and returns an error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing array of `type`. */
#define GS_ARRAY(type)          \
    struct {                    \
        type *at;               \
        size_t count, capacity; \
    }
bool gs_array_grow(void **at, size_t *capacity, size_t needed, size_t size);
/* A pointer to one more element (not cleared), or NULL. */
#define GS_ARRAY_ADD(a)                                                                                              \
    ((a)->count < (a)->capacity || gs_array_grow((void **)&(a)->at, &(a)->capacity, (a)->count + 1, sizeof *(a)->at) \
         ? &(a)->at[(a)->count++]                                                                                    \
         : NULL)

/* --- live allocations by (layer, address) ----------------------------------------------------- */
/* Open addressing with linear probing and no tombstones: there are millions of allocations and frees, and a chained
 * table (uthash) would cost a malloc and three cache misses for each. */
struct gs_live {
    uint64_t address;
    uint64_t id; /* of the row; 0 in an empty slot */
    uint64_t bytes;
    uint64_t alloc_ns;
    int16_t device;
    uint8_t layer, space;
    uint16_t context; /* gs_rec_alloc.context: freed with it, unless 0 */
    int16_t home;     /* freed with this device's primary context, if context is 0; -1 none */
    uint32_t course;  /* of gs_courses, plus 1; 0: none */
};
struct gs_live_map {
    struct gs_live *slots;
    size_t count, mask; /* capacity - 1 */
};
struct gs_live *gs_live_find(const struct gs_live_map *m, uint8_t layer, uint64_t address);
/* Requests the memory in which gs_live_find will look first. */
void gs_live_expect(const struct gs_live_map *m, uint8_t layer, uint64_t address);
/* No entry with this layer and address may exist. False: out of memory. */
bool gs_live_add(struct gs_live_map *m, const struct gs_live *live);
/* `live` was returned by gs_live_find. */
void gs_live_remove(struct gs_live_map *m, struct gs_live *live);
void gs_live_free(struct gs_live_map *m);

/* --- content → id ------------------------------------------------------------------------------ */
/* The content itself is in the database; its 128-bit hash represents it here. */
struct gs_content {
    uint64_t a, b;
};
struct gs_id_map {
    struct gs_id_slot *slots;
    size_t count, mask;
};
struct gs_content gs_content_hash(struct gs_content seed, const void *bytes, size_t count);
/* The id, or 0. */
uint32_t gs_id_find(const struct gs_id_map *m, struct gs_content key);
bool gs_id_add(struct gs_id_map *m, struct gs_content key, uint32_t id);
void gs_id_free(struct gs_id_map *m);
