/* One character of UTF-8 (RFC 3629): the shortest form, no surrogates, nothing above U+10FFFF. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How many of the n > 0 bytes at `text` the first character takes, 0 if it is invalid; its code in *code, which may be
 * NULL. For a text that ends with a zero, n may exceed what is left. */
static inline size_t gs_utf8_decode(const char *text, size_t n, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    const size_t length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    uint32_t value = length > 1 ? p[0] & (0x7fu >> length) : p[0];
    if (length > n) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (p[i] & 0x3f);
    }
    if (length && (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))) return 0;
    if (code) *code = value;
    return length;
}

/* Writes the character with this code; returns how many bytes that is, at most 4. */
static inline size_t gs_utf8_encode(uint32_t code, char *out)
{
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(first[length] | code);
    return length;
}
