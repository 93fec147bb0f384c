#include "analyzer/import/protobuf.h"

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

static bool read_message_varint(struct import_message *m, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; m->at < m->end && shift < 70; shift += 7) {
        unsigned char byte = *m->at++;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    m->broken = true;
    m->at = m->end;
    return false;
}

static bool read_fixed(struct import_message *m, unsigned size, uint64_t *value)
{
    *value = 0;
    if ((size_t)(m->end - m->at) < size) {
        m->broken = true;
        return false;
    }
    for (unsigned i = 0; i < size; i++) *value |= (uint64_t)m->at[i] << (8 * i);
    m->at += size;
    return true;
}

bool import_protobuf_next(struct import_message *m, struct import_field *field)
{
    uint64_t key, length;
    *field = (struct import_field){0};
    if (m->broken || m->at >= m->end || !read_message_varint(m, &key)) return false;
    field->number = (uint32_t)(key >> 3);
    switch (key & 7) {
    case VARINT: return read_message_varint(m, &field->integer);
    case FIXED64: return read_fixed(m, 8, &field->integer);
    case FIXED32: return read_fixed(m, 4, &field->integer);
    case BYTES:
        if (!read_message_varint(m, &length)) return false;
        if (length <= (uint64_t)(m->end - m->at)) {
            field->is_bytes = true;
            field->bytes = (struct import_message){m->at, m->at + length, false};
            m->at += length;
            return true;
        }
        break;
    default: break;
    }
    m->broken = true;
    return false;
}

bool import_protobuf_integer(struct import_field *field, uint64_t *value)
{
    if (field->is_bytes) return field->bytes.at < field->bytes.end && read_message_varint(&field->bytes, value);
    *value = field->integer;
    field->is_bytes = true; /* becomes an empty field: this was the only integer */
    field->bytes = (struct import_message){0};
    return true;
}
