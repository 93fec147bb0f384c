#include "analyzer/base/arena.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 << 10, ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    _Alignas(ALIGN) char data[];
};

static _Noreturn void exit_out_of_memory(size_t size)
{
    fprintf(stderr, "gpuspy: out of memory (%zu bytes requested)\n", size);
    exit(3);
}

void *arena_realloc(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) exit_out_of_memory(SIZE_MAX);
    void *grown = realloc(p, bytes ? bytes : 1);
    if (!grown) exit_out_of_memory(bytes);
    return grown;
}

void arena_release(void *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) free(list[i]);
}

void *arena_zeroed(size_t count, size_t size)
{
    return memset(arena_realloc(NULL, count, size), 0, count * size);
}

char *arena_copy(const char *text)
{
    const size_t size = text ? strlen(text) + 1 : 0;
    return text ? memcpy(arena_realloc(NULL, size, 1), text, size) : NULL;
}

FILE *arena_stream(char **text, size_t *size)
{
    FILE *stream = open_memstream(text, size);
    if (!stream) exit_out_of_memory(BUFSIZ);
    return stream;
}

void *arena_grow(void *p, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return p;
    *cap = *cap ? *cap * 2 : 16;
    return arena_realloc(p, *cap, size);
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size = ((size ? size : 1) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (size > arena->left) {
        size_t room = size > CHUNK ? size : CHUNK;
        struct arena_chunk *chunk = arena_realloc(NULL, 1, sizeof *chunk + room);
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        arena->at = chunk->data;
        arena->left = room;
    }
    void *p = arena->at;
    arena->at += size;
    arena->left -= size;
    return memset(p, 0, size);
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = arena_alloc(arena, (size_t)(length < 0 ? 0 : length) + 1);
    if (length >= 0) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void arena_free(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->chunks; chunk;) {
        struct arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (struct arena){0};
}

/* Linear probing; a slot is empty while its value is MAP_NEW. */
struct map_slot {
    uint64_t key;
    uint32_t value;
};

static void map_resize(struct map *map, size_t size)
{
    struct map_slot *old = map->slots;
    size_t old_size = old ? map->mask + 1 : 0;
    map->slots = arena_realloc(NULL, size, sizeof *map->slots);
    map->mask = size - 1;
    for (size_t i = 0; i < size; i++) map->slots[i].value = MAP_NEW;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].value == MAP_NEW) continue;
        size_t at = map_hash(old[i].key) & map->mask;
        while (map->slots[at].value != MAP_NEW) at = (at + 1) & map->mask;
        map->slots[at] = old[i];
    }
    free(old);
}

/* The caller sets the value of a new key at once; until then the slot counts as empty. */
uint32_t *map_at(struct map *map, uint64_t key)
{
    if (!map->slots || map->n * 2 > map->mask) map_resize(map, map->slots ? (map->mask + 1) * 2 : 64);
    size_t at = map_hash(key) & map->mask;
    while (map->slots[at].value != MAP_NEW) {
        if (map->slots[at].key == key) return &map->slots[at].value;
        at = (at + 1) & map->mask;
    }
    map->slots[at].key = key;
    map->n++;
    return &map->slots[at].value;
}

uint32_t map_get(const struct map *map, uint64_t key)
{
    if (!map->slots) return MAP_NEW;
    size_t at = map_hash(key) & map->mask;
    while (map->slots[at].value != MAP_NEW) {
        if (map->slots[at].key == key) return map->slots[at].value;
        at = (at + 1) & map->mask;
    }
    return MAP_NEW;
}

uint64_t map_hash_bytes(uint64_t seed, const void *bytes, size_t n)
{
    uint64_t hash = map_hash(seed ^ n);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t part = 0;
        memcpy(&part, (const char *)bytes + i, n - i < 8 ? n - i : 8);
        hash = map_hash(hash ^ part);
    }
    return hash;
}

uint64_t map_hash_text(uint64_t seed, const char *text)
{
    return map_hash_bytes(seed, text, text ? strlen(text) : 0);
}

void map_free(struct map *map)
{
    free(map->slots);
    *map = (struct map){0};
}

void map_release(struct map *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) map_free(list[i]);
}
