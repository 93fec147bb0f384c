/* Reads the fields of a protobuf message in memory. It never reads outside the message. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct import_message {
    const unsigned char *at, *end;
    bool broken; /* a field ends outside the message */
};

struct import_field {
    uint32_t number;
    bool is_bytes;
    uint64_t integer;            /* if !is_bytes; fields of 32 and 64 fixed bits, too */
    struct import_message bytes; /* if is_bytes: a text, a message or packed integers */
};

/* False at the end, or if the message is broken. */
bool import_protobuf_next(struct import_message *m, struct import_field *field);
/* The next integer of a repeated field, packed or not. The first call takes the field, later calls continue in it. */
bool import_protobuf_integer(struct import_field *field, uint64_t *value);
