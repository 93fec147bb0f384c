/* Line tables of CPython: from the byte offset of an instruction to its line.
 *
 * Three formats in seven versions; each is a list of ranges, given as differences. */
#include "interpose/stack_python.h"

/* 3.8, 3.9: pairs (unsigned Δaddress, signed Δline). */
static int line_from_lnotab(const uint8_t *t, int64_t bytes, int line, int64_t offset)
{
    int64_t at = 0;
    for (int64_t i = 0; i + 1 < bytes; i += 2) {
        at += t[i];
        if (at > offset) break;
        line += (int8_t)t[i + 1];
    }
    return line;
}

/* 3.10: pairs (unsigned length, signed Δline); -128: this range has no line. */
static int line_from_linetable(const uint8_t *t, int64_t bytes, int line, int64_t offset)
{
    int64_t end = 0;
    for (int64_t i = 0; i + 1 < bytes; i += 2) {
        int delta = (int8_t)t[i + 1];
        end += t[i];
        if (delta != -128) line += delta;
        if (offset < end) return delta == -128 ? 0 : line;
    }
    return 0;
}

struct varints {
    const uint8_t *at, *end;
};

/* Six bits per byte, low ones first; 0x40 means that more follow. */
static uint32_t read_line_varint(struct varints *v)
{
    uint32_t value = 0;
    for (unsigned shift = 0; v->at < v->end; shift += 6) {
        uint8_t b = *v->at++;
        if (shift < 32) value |= (uint32_t)(b & 0x3f) << shift;
        if (!(b & 0x40)) break;
    }
    return value;
}

static int read_line_svarint(struct varints *v)
{
    uint32_t u = read_line_varint(v);
    return u & 1 ? -(int)(u >> 1) : (int)(u >> 1);
}

/* 3.11 and later: entries of a head byte 1cccclll (code c, l + 1 units of two bytes), then operands that depend on the
 * code. */
static int line_from_locations(const uint8_t *t, int64_t bytes, int line, int64_t offset)
{
    struct varints v = {t, t + bytes};
    int64_t end = 0;
    while (v.at < v.end) {
        uint8_t head = *v.at++;
        unsigned code = head >> 3 & 15;
        end += ((head & 7) + 1) * 2;
        if (code <= 9) { /* same line, short columns */
            v.at += 1;
        } else if (code <= 12) { /* line + 0, 1, 2 and columns */
            line += (int)code - 10;
            v.at += 2;
        } else if (code <= 14) { /* any line; 14: end line and columns too */
            line += read_line_svarint(&v);
            for (int i = 0; code == 14 && i < 3; i++) read_line_varint(&v);
        }
        if (offset < end) return code == 15 ? 0 : line;
    }
    return 0;
}

int gs_python_line_at(enum gs_python_lines format, const uint8_t *table, int64_t bytes, int first_line, int64_t offset)
{
    if (offset < 0) return first_line;
    switch (format) {
    case GS_LINES_LNOTAB: return line_from_lnotab(table, bytes, first_line, offset);
    case GS_LINES_LINETABLE: return line_from_linetable(table, bytes, first_line, offset);
    case GS_LINES_LOCATIONS: return line_from_locations(table, bytes, first_line, offset);
    }
    return 0;
}
