/* Writing protocol buffers: messages are built in memory, and put into one another. */
#ifndef GPUSPY_PROTOBUF_H
#define GPUSPY_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

struct protobuf { /* zero-initialise; protobuf_free */
    uint8_t *bytes;
    size_t n, cap;
};

/* 0 is not written, as is usual for what is not in a list. */
void protobuf_int(struct protobuf *p, unsigned field, uint64_t value);
void protobuf_bytes(struct protobuf *p, unsigned field, const void *bytes, size_t n);
/* `inner` is empty afterwards. */
void protobuf_message(struct protobuf *p, unsigned field, struct protobuf *inner);
void protobuf_packed(struct protobuf *p, unsigned field, const uint64_t *values, size_t n);
void protobuf_free(struct protobuf *p);

#endif
