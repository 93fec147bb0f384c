#include "analyzer/export/protobuf.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"

enum { VARINT = 0, LENGTH = 2, VARINT_MOST = 10 };

static uint8_t *room(struct protobuf *p, size_t n)
{
    while (p->n + n > p->cap) {
        p->cap = p->cap ? p->cap * 2 : 256;
        p->bytes = gs_realloc(p->bytes, p->cap, 1);
    }
    return p->bytes + p->n;
}

static void varint(struct protobuf *p, uint64_t value)
{
    uint8_t *at = room(p, VARINT_MOST);
    do {
        *at++ = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    p->n = (size_t)(at - p->bytes);
}

static void tag(struct protobuf *p, unsigned field, unsigned kind)
{
    varint(p, (uint64_t)field << 3 | kind);
}

void protobuf_int(struct protobuf *p, unsigned field, uint64_t value)
{
    if (value) {
        tag(p, field, VARINT);
        varint(p, value);
    }
}

void protobuf_bytes(struct protobuf *p, unsigned field, const void *bytes, size_t n)
{
    tag(p, field, LENGTH);
    varint(p, n);
    if (n) {
        memcpy(room(p, n), bytes, n);
        p->n += n;
    }
}

void protobuf_message(struct protobuf *p, unsigned field, struct protobuf *inner)
{
    protobuf_bytes(p, field, inner->bytes, inner->n);
    inner->n = 0;
}

void protobuf_packed(struct protobuf *p, unsigned field, const uint64_t *values, size_t n)
{
    struct protobuf list = {0};
    for (size_t i = 0; i < n; i++) {
        varint(&list, values[i]);
    }
    protobuf_bytes(p, field, list.bytes, list.n);
    protobuf_free(&list);
}

void protobuf_free(struct protobuf *p)
{
    free(p->bytes);
    *p = (struct protobuf){0};
}
