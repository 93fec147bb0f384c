/* The text of a CPython str as UTF-8. */
#include "interpose/stack_python.h"

static uint32_t character_at(const void *data, int64_t i, int kind)
{
    if (kind == 1) return ((const uint8_t *)data)[i];
    if (kind == 2) return ((const uint16_t *)data)[i];
    return ((const uint32_t *)data)[i];
}

uint32_t gs_python_utf8(const void *data, int64_t length, int kind, char *to, uint32_t max)
{
    uint32_t n = 0;
    for (int64_t i = 0; i < length; i++) {
        uint32_t c = character_at(data, i, kind);
        /* Half of a surrogate pair, into which os.fsdecode turns a byte that is not UTF-8: not text. */
        if ((c >= 0xd800 && c < 0xe000) || c > 0x10ffff) c = 0xfffd;
        uint32_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (n + bytes > max) break;
        static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (uint32_t k = bytes - 1; k; k--, c >>= 6) to[n + k] = (char)(0x80 | (c & 0x3f));
        to[n] = (char)(lead[bytes] | c);
        n += bytes;
    }
    return n;
}

static uint32_t copy_python_text(const struct gs_python *p, const char *str, char *to, uint32_t max)
{
    const struct gs_python_layout *at = &p->at;
    if (!str || *(const char *const *)(str + at->type) != p->str_type) return 0;
    uint32_t state = *(const uint32_t *)(str + at->size + 16) >> at->text_state_shift;
    int kind = state & 7;
    if (!(state & 8) || (kind != 1 && kind != 2 && kind != 4))
        return 0; /* not in one piece: never true for names that the compiler made */
    int data = state & 16 ? at->text_ascii : at->text_compact;
    int64_t length = *(const int64_t *)(str + at->size);
    return gs_python_utf8(str + data, length, kind, to, max);
}

uint32_t gs_python_function(const struct gs_python *p, const char *code, char *to, uint32_t max)
{
    int at = p->at.qualname >= 0 ? p->at.qualname : p->at.name;
    return copy_python_text(p, *(const char *const *)(code + at), to, max);
}

uint32_t gs_python_file(const struct gs_python *p, const char *code, char *to, uint32_t max)
{
    return copy_python_text(p, *(const char *const *)(code + p->at.filename), to, max);
}
