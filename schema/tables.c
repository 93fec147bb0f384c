#include "schema/tables.h"

#include <stdlib.h>
#include <string.h>

bool gs_array_grow(void **at, size_t *capacity, size_t needed, size_t size)
{
    size_t n = *capacity ? *capacity : 16;
    while (n < needed) n *= 2;
    void *grown = realloc(*at, n * size);
    if (!grown) return false;
    *at = grown;
    *capacity = n;
    return true;
}

static uint64_t mix_hash(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xe7037ed1a0b428dbu);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* ---------------------------------------------------------------- live allocations */

static size_t live_slot(const struct gs_live_map *m, uint8_t layer, uint64_t address)
{
    return mix_hash(address, layer) & m->mask;
}

struct gs_live *gs_live_find(const struct gs_live_map *m, uint8_t layer, uint64_t address)
{
    if (!m->slots) return NULL;
    for (size_t i = live_slot(m, layer, address);; i = (i + 1) & m->mask) {
        struct gs_live *live = &m->slots[i];
        if (!live->id) return NULL;
        if (live->address == address && live->layer == layer) return live;
    }
}

void gs_live_expect(const struct gs_live_map *m, uint8_t layer, uint64_t address)
{
    if (!m->slots) return;
    const struct gs_live *at = &m->slots[live_slot(m, layer, address)];
    __builtin_prefetch(at);
    __builtin_prefetch((const char *)(at + 1) - 1);
}

static void live_put(struct gs_live_map *m, const struct gs_live *live)
{
    size_t i = live_slot(m, live->layer, live->address);
    while (m->slots[i].id) i = (i + 1) & m->mask;
    m->slots[i] = *live;
}

static bool live_grow(struct gs_live_map *m)
{
    size_t capacity = m->slots ? (m->mask + 1) * 2 : 256;
    struct gs_live_map grown = {calloc(capacity, sizeof *grown.slots), m->count, capacity - 1};
    if (!grown.slots) return false;
    for (size_t i = 0; m->slots && i <= m->mask; i++)
        if (m->slots[i].id) live_put(&grown, &m->slots[i]);
    free(m->slots);
    *m = grown;
    return true;
}

bool gs_live_add(struct gs_live_map *m, const struct gs_live *live)
{
    if ((!m->slots || m->count + 1 > (m->mask + 1) / 4 * 3) && !live_grow(m)) return false;
    live_put(m, live);
    m->count++;
    return true;
}

void gs_live_remove(struct gs_live_map *m, struct gs_live *live)
{
    size_t hole = (size_t)(live - m->slots);
    m->count--;
    /* Later entries of the same run move up if the hole is between their own slot and them. */
    for (size_t i = (hole + 1) & m->mask; m->slots[i].id; i = (i + 1) & m->mask) {
        size_t own = live_slot(m, m->slots[i].layer, m->slots[i].address);
        if (((i - own) & m->mask) >= ((i - hole) & m->mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole].id = 0;
}

void gs_live_free(struct gs_live_map *m)
{
    free(m->slots);
    memset(m, 0, sizeof *m);
}

/* ---------------------------------------------------------------- content → id */

struct gs_id_slot {
    struct gs_content key;
    uint32_t id; /* 0: empty */
};

struct gs_content gs_content_hash(struct gs_content seed, const void *bytes, size_t count)
{
    const uint8_t *p = bytes;
    uint64_t a = seed.a ^ count, b = seed.b + count;
    for (size_t left = count; left;) {
        uint64_t word = 0;
        size_t n = left < 8 ? left : 8;
        memcpy(&word, p, n);
        a = mix_hash(a ^ word, 0x8ebc6af09c88c6e3u);
        b = mix_hash(b + word, 0x589965cc75374cc3u);
        p += n;
        left -= n;
    }
    return (struct gs_content){mix_hash(a, count + 1), mix_hash(b, count + 2)};
}

static size_t id_slot(const struct gs_id_map *m, struct gs_content key)
{
    size_t i = mix_hash(key.a, key.b) & m->mask;
    while (m->slots[i].id && (m->slots[i].key.a != key.a || m->slots[i].key.b != key.b)) i = (i + 1) & m->mask;
    return i;
}

uint32_t gs_id_find(const struct gs_id_map *m, struct gs_content key)
{
    return m->slots ? m->slots[id_slot(m, key)].id : 0;
}

static bool id_grow(struct gs_id_map *m)
{
    size_t capacity = m->slots ? (m->mask + 1) * 2 : 256;
    struct gs_id_map grown = {calloc(capacity, sizeof *grown.slots), m->count, capacity - 1};
    if (!grown.slots) return false;
    for (size_t i = 0; m->slots && i <= m->mask; i++)
        if (m->slots[i].id) grown.slots[id_slot(&grown, m->slots[i].key)] = m->slots[i];
    free(m->slots);
    *m = grown;
    return true;
}

bool gs_id_add(struct gs_id_map *m, struct gs_content key, uint32_t id)
{
    if ((!m->slots || m->count + 1 > (m->mask + 1) / 4 * 3) && !id_grow(m)) return false;
    m->slots[id_slot(m, key)] = (struct gs_id_slot){key, id};
    m->count++;
    return true;
}

void gs_id_free(struct gs_id_map *m)
{
    free(m->slots);
    memset(m, 0, sizeof *m);
}
