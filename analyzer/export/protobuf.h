/* Writes protocol buffers: messages are built in memory and put into one another. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct export_protobuf { /* zero-initialise; export_protobuf_free */
    uint8_t *bytes;
    size_t n, cap;
};

/* Omits 0, as is usual outside of lists. */
void export_protobuf_int(struct export_protobuf *p, unsigned field, uint64_t value);
void export_protobuf_bytes(struct export_protobuf *p, unsigned field, const void *bytes, size_t n);
/* `inner` is empty afterwards. */
void export_protobuf_message(struct export_protobuf *p, unsigned field, struct export_protobuf *inner);
void export_protobuf_packed(struct export_protobuf *p, unsigned field, const uint64_t *values, size_t n);
void export_protobuf_free(struct export_protobuf *p);
