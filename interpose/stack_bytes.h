/* Reads numbers from bytes that may be damaged: past the end everything is 0 and `bad` is set. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct gs_bytes {
    const uint8_t *at, *end;
    bool bad;
};

static inline void gs_skip(struct gs_bytes *b, uint64_t bytes)
{
    b->bad |= bytes > (size_t)(b->end - b->at);
    b->at = b->bad ? b->end : b->at + bytes;
}

/* An unsigned number of this many bytes, at most 8, in the machine's order (little-endian). */
static inline uint64_t gs_take(struct gs_bytes *b, unsigned bytes)
{
    const uint8_t *from = b->at;
    uint64_t value = 0;
    gs_skip(b, bytes);
    if (!b->bad) memcpy(&value, from, bytes);
    return value;
}

static inline uint64_t gs_take_leb(struct gs_bytes *b, bool is_signed)
{
    uint64_t value = 0, byte;
    unsigned shift = 0;
    do {
        byte = gs_take(b, 1);
        if (shift < 64) value |= (byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80 && !b->bad);
    if (is_signed && byte & 0x40 && shift < 64) value |= ~0ull << shift;
    return value;
}

static inline uint64_t gs_take_uleb(struct gs_bytes *b)
{
    return gs_take_leb(b, false);
}

static inline int64_t gs_take_sleb(struct gs_bytes *b)
{
    return (int64_t)gs_take_leb(b, true);
}
