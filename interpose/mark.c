#include "interpose/mark.h"

#include <errno.h>
#include <string.h>

/* --- strings --------------------------------------------------------------------------------- */

#define REPLACEMENT 0xfffd

struct gs_mark_text gs_mark_text(const char *text, size_t most)
{
    const size_t limit = most < GS_STRING_MAX ? most : GS_STRING_MAX;
    size_t n = text ? strnlen(text, limit) : 0;
    /* cut at the beginning of a character; the store repairs invalid text */
    if (n == GS_STRING_MAX && most > n)
        for (int i = 0; i < 3 && n && ((unsigned char)text[n] & 0xc0) == 0x80; i++) n--;
    return (struct gs_mark_text){.at = text, .bytes = n};
}

static uint32_t valid_character(wchar_t c)
{
    const uint32_t code = (uint32_t)c;
    return code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? REPLACEMENT : code;
}

static size_t utf8_bytes(uint32_t code)
{
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

struct gs_mark_text gs_mark_wide(const wchar_t *text)
{
    struct gs_mark_text t = {.at = text, .wide = true};
    for (; text && *text; text++) {
        const size_t more = utf8_bytes(valid_character(*text));
        if (t.bytes + more > GS_STRING_MAX) break;
        t.bytes += more;
    }
    return t;
}

struct gs_mark_text gs_mark_cut(struct gs_mark_text text, size_t most)
{
    const wchar_t *wide = text.at;
    const unsigned char *narrow = text.at;
    size_t n = 0, more;
    if (text.bytes <= most) return text;
    if (text.wide)
        while (n + (more = utf8_bytes(valid_character(*wide))) <= most) n += more, wide++;
    else
        for (n = most; n && (narrow[n] & 0xc0) == 0x80; n--) continue;
    text.bytes = n;
    return text;
}

static char *put_utf8(char *to, uint32_t code)
{
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t n = utf8_bytes(code);
    for (size_t i = n; i-- > 1; code >>= 6) to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(lead[n] | code);
    return to + n;
}

void gs_mark_copy(char *to, struct gs_mark_text text)
{
    if (!text.wide) {
        if (text.bytes) memcpy(to, text.at, text.bytes);
        return;
    }
    const wchar_t *from = text.at;
    for (char *end = to + text.bytes; to < end; from++) to = put_utf8(to, valid_character(*from));
}

bool gs_mark_same(struct gs_mark_text utf8, struct gs_mark_text text)
{
    const char *at = utf8.at;
    if (utf8.bytes != text.bytes) return false;
    if (!text.wide) return !text.bytes || memcmp(at, text.at, text.bytes) == 0;
    const wchar_t *from = text.at;
    for (const char *end = at + utf8.bytes; at < end; from++) {
        char one[4];
        const size_t n = (size_t)(put_utf8(one, valid_character(*from)) - one);
        if (memcmp(at, one, n) != 0) return false;
        at += n;
    }
    return true;
}

/* --- records --------------------------------------------------------------------------------- */

void gs_record_mark_text(struct gs_thread *t, uint8_t kind, uint64_t id, struct gs_mark_text domain,
                         struct gs_mark_text name)
{
    if (!t) return;
    int saved = errno;
    const size_t text = domain.bytes + name.bytes;
    const uint16_t bytes = (uint16_t)((sizeof(struct gs_rec_mark) + text + 7) & ~(size_t)7);
    struct gs_rec_mark *r = gs_record_begin(t, bytes, GS_REC_MARK);
    if (r) {
        char *to = (char *)(r + 1);
        memset((char *)r + bytes - 8, 0, 8); /* zero the padding before what it pads */
        r->rec.stack = 0;
        r->id = id;
        r->domain_len = (uint16_t)domain.bytes;
        r->name_len = (uint16_t)name.bytes;
        r->kind = kind;
        memset(r->pad, 0, sizeof r->pad);
        gs_mark_copy(to, domain);
        gs_mark_copy(to + domain.bytes, name);
        gs_record_end(t, r);
    }
    errno = saved;
}

void gs_record_mark(struct gs_thread *t, uint8_t kind, uint64_t id, const char *domain, const char *text, size_t len)
{
    gs_record_mark_text(t, kind, id, gs_mark_text(domain, SIZE_MAX), gs_mark_text(text, len));
}
