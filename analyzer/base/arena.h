/* Small memory tools of the analyzer. Out of memory ends the program with exit code 3 and a line: a
 * half-built answer is of no use to anyone. */
#ifndef GPUSPY_ARENA_H
#define GPUSPY_ARENA_H

#include <stddef.h>
#include <stdint.h>

/* Memory that is freed all at once. Zero-initialise; gs_arena_free at the end. */
struct gs_arena {
    struct gs_arena_chunk *chunks;
    char *at;
    size_t left;
};
void *gs_arena_alloc(struct gs_arena *arena, size_t size); /* zeroed */
char *gs_arena_printf(struct gs_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gs_arena_free(struct gs_arena *arena);

void *gs_realloc(void *p, size_t count, size_t size);
/* Room for one more element in the array `p` of `*cap` elements. */
void *gs_grow(void *p, size_t n, size_t *cap, size_t size);
#define GS_PUSH(p, n, cap) ((p) = gs_grow((p), (n), &(cap), sizeof *(p)), &(p)[(n)++])

/* A map from 64-bit keys to 32-bit values. Zero-initialise. */
struct gs_map {
    struct gs_map_slot *slots;
    size_t mask, n;
};
/* The value's place, added with GS_MAP_NEW where the key was not there. Valid until the next call.
 */
#define GS_MAP_NEW UINT32_MAX
uint32_t *gs_map_at(struct gs_map *map, uint64_t key);
uint32_t gs_map_get(const struct gs_map *map, uint64_t key); /* GS_MAP_NEW: not there */
void gs_map_free(struct gs_map *map);

static inline uint64_t gs_hash64(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* Sums over a file that anyone may have written: they stop at the limit instead of overflowing. */
static inline int64_t gs_add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b < 0 ? INT64_MIN + 1 : INT64_MAX - 1) : sum;
}

#endif
