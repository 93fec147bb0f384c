/* Small memory tools of the analyzer. If memory runs out, the program prints a line and exits with status 3: a partial
 * answer is useless. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "analyzer/base/each.h"

/* Memory that is freed all at once. Zero-initialise; arena_free at the end. */
struct arena {
    struct arena_chunk *chunks;
    char *at;
    size_t left;
};
void *arena_alloc(struct arena *arena, size_t size); /* zeroed */
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arena_free(struct arena *arena);

void *arena_realloc(void *p, size_t count, size_t size);
void *arena_zeroed(size_t count, size_t size);
/* A new `type` to free: ARENA_NEW(struct page, .run = run) */
#define ARENA_NEW(type, ...)                               \
    ({                                                     \
        type *new_ = arena_realloc(NULL, 1, sizeof *new_); \
        *new_ = (type){__VA_ARGS__};                       \
        new_;                                              \
    })
/* A copy to free; NULL is NULL. */
char *arena_copy(const char *text);
/* A stream whose text is in `*text` once it is closed; to free. */
FILE *arena_stream(char **text, size_t *size);
/* Frees each: ARENA_RELEASE(names, lengths) */
void arena_release(void *const *list, size_t n);
#define ARENA_RELEASE(...) \
    arena_release((void *const[]){__VA_ARGS__}, sizeof((void *const[]){__VA_ARGS__}) / sizeof(void *))
/* Room for one more element in the array `p` of `*cap` elements. */
void *arena_grow(void *p, size_t n, size_t *cap, size_t size);
#define ARENA_PUSH(p, n, cap) ((p) = (n) < (cap) ? (p) : arena_grow((p), (n), &(cap), sizeof *(p)), &(p)[(n)++])
/* Members: an array `name` of `name_n` elements; a list also has `name_cap`, for ARENA_ADD, which appends. */
#define ARENA_ROWS(type, name) \
    type *name;                \
    size_t name##_n
#define ARENA_LIST(type, name) \
    ARENA_ROWS(type, name);    \
    size_t name##_cap
#define ARENA_ADD(list) ARENA_PUSH(list, list##_n, list##_cap)
/* Appends an element with these members: ARENA_APPEND(run->pages, .number = 3) */
#define ARENA_APPEND_TO(p, n, cap, ...) ((void)(*ARENA_PUSH(p, n, cap) = (__typeof__(*(p))){__VA_ARGS__}))
#define ARENA_APPEND(list, ...) ARENA_APPEND_TO(list, list##_n, list##_cap, __VA_ARGS__)
/* A map from 64-bit keys to 32-bit values. Zero-initialise. */
struct map {
    struct map_slot *slots;
    size_t mask, n;
};
/* The address of the value; a new key is added with MAP_NEW. Valid until the next call. */
#define MAP_NEW UINT32_MAX
uint32_t *map_at(struct map *map, uint64_t key);
uint32_t map_get(const struct map *map, uint64_t key); /* MAP_NEW: the key is not in the map */
/* The element of `list` with a key, or its index; a new one is appended: MAP_ROW(&map, key, list, n, cap, new). */
#define MAP_INDEX(map, key, list, n, cap, ...)       \
    ({                                               \
        uint32_t *at_ = map_at((map), (key));        \
        if (*at_ == MAP_NEW) {                       \
            *at_ = (uint32_t)(n);                    \
            *ARENA_PUSH(list, n, cap) = __VA_ARGS__; \
        }                                            \
        *at_;                                        \
    })
#define MAP_ROW(map, key, list, n, cap, ...)                                  \
    ({                                                                        \
        const uint32_t row_ = MAP_INDEX(map, key, list, n, cap, __VA_ARGS__); \
        &(list)[row_];                                                        \
    })
/* The same for an ARENA_LIST. */
#define MAP_INDEX_IN(map, key, list, ...) MAP_INDEX(map, key, list, list##_n, list##_cap, __VA_ARGS__)
#define MAP_ROW_IN(map, key, list, ...) MAP_ROW(map, key, list, list##_n, list##_cap, __VA_ARGS__)
void map_free(struct map *map);
/* map_free for each: MAP_RELEASE(&paths, &sizes) */
void map_release(struct map *const *list, size_t n);
#define MAP_RELEASE(...) \
    map_release((struct map *const[]){__VA_ARGS__}, sizeof((struct map *const[]){__VA_ARGS__}) / sizeof(struct map *))

static inline uint64_t map_hash(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* The seed is 0, or the hash of what is before these bytes. */
uint64_t map_hash_bytes(uint64_t seed, const void *bytes, size_t n);
/* NULL is "". */
uint64_t map_hash_text(uint64_t seed, const char *text);

/* Sums over a file that anyone may have written: they stop at the limit instead of overflowing. */
static inline int64_t arena_add_capped(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b < 0 ? INT64_MIN + 1 : INT64_MAX - 1) : sum;
}
