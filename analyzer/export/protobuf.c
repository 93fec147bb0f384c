#include "analyzer/export/protobuf.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"

enum { VARINT = 0, LENGTH = 2, VARINT_MOST = 10 };

static uint8_t *protobuf_room(struct export_protobuf *p, size_t n)
{
    while (p->n + n > p->cap) {
        p->cap = p->cap ? p->cap * 2 : 256;
        p->bytes = arena_realloc(p->bytes, p->cap, 1);
    }
    return p->bytes + p->n;
}

static void put_protobuf_varint(struct export_protobuf *p, uint64_t value)
{
    uint8_t *at = protobuf_room(p, VARINT_MOST);
    do {
        *at++ = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    p->n = (size_t)(at - p->bytes);
}

static void put_protobuf_tag(struct export_protobuf *p, unsigned field, unsigned kind)
{
    put_protobuf_varint(p, (uint64_t)field << 3 | kind);
}

void export_protobuf_int(struct export_protobuf *p, unsigned field, uint64_t value)
{
    if (value) {
        put_protobuf_tag(p, field, VARINT);
        put_protobuf_varint(p, value);
    }
}

void export_protobuf_bytes(struct export_protobuf *p, unsigned field, const void *bytes, size_t n)
{
    put_protobuf_tag(p, field, LENGTH);
    put_protobuf_varint(p, n);
    if (n) {
        memcpy(protobuf_room(p, n), bytes, n);
        p->n += n;
    }
}

void export_protobuf_message(struct export_protobuf *p, unsigned field, struct export_protobuf *inner)
{
    export_protobuf_bytes(p, field, inner->bytes, inner->n);
    inner->n = 0;
}

void export_protobuf_packed(struct export_protobuf *p, unsigned field, const uint64_t *values, size_t n)
{
    struct export_protobuf list = {0};
    for (size_t i = 0; i < n; i++) put_protobuf_varint(&list, values[i]);
    export_protobuf_bytes(p, field, list.bytes, list.n);
    export_protobuf_free(&list);
}

void export_protobuf_free(struct export_protobuf *p)
{
    free(p->bytes);
    *p = (struct export_protobuf){0};
}
