#include "analyzer/page/page_writer.h"
#include "schema/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void page_column_grow(struct page_column *c)
{
    c->cap = c->cap ? c->cap * 2 : 256;
    c->text = arena_realloc(c->text, c->cap, 1);
}

uint64_t page_column_divide(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void page_column_free(struct page_column *c)
{
    free(c->text);
    *c = (struct page_column){0};
}

void page_put_bytes(struct page_writer *w, const char *bytes, size_t n)
{
    if (w->out) {
        if (n) fwrite(bytes, 1, n, w->out);
    } else {
        if (w->kept_cap - w->kept_n < n) w->kept = arena_realloc(w->kept, w->kept_cap = 2 * (w->kept_cap + n), 1);
        memcpy(w->kept + w->kept_n, bytes, n);
        w->kept_n += n;
    }
    w->bytes += n;
}

static void put_page_text(struct page_writer *w, const char *text)
{
    page_put_bytes(w, text, strlen(text));
}

void page_put_key(struct page_writer *w, const char *key)
{
    if (w->follows) put_page_text(w, ",");
    w->follows = true;
    if (key) {
        page_put_string(w, key);
        put_page_text(w, ":");
    }
}

void page_put_open(struct page_writer *w, const char *key, char bracket)
{
    page_put_key(w, key);
    page_put_bytes(w, &bracket, 1);
    w->follows = false;
}

void page_put_close(struct page_writer *w, char bracket)
{
    page_put_bytes(w, &bracket, 1);
    w->follows = true;
}

void page_put_int(struct page_writer *w, const char *key, int64_t value)
{
    page_put_key(w, key);
    if (value == INT64_MIN) {
        put_page_text(w, "null");
    } else {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)value);
        put_page_text(w, text);
    }
}

void page_put_real(struct page_writer *w, const char *key, double value)
{
    page_put_key(w, key);
    if (isfinite(value)) {
        char text[40];
        snprintf(text, sizeof text, "%.15g", value);
        put_page_text(w, text);
    } else {
        put_page_text(w, "null");
    }
}

void page_put_bool(struct page_writer *w, const char *key, bool value)
{
    page_put_key(w, key);
    put_page_text(w, value ? "true" : "false");
}

void page_put_text(struct page_writer *w, const char *key, const char *text)
{
    page_put_key(w, key);
    if (text)
        page_put_string(w, text);
    else
        put_page_text(w, "null");
}

void page_put_column(struct page_writer *w, const char *key, struct page_column *c)
{
    page_put_key(w, key);
    put_page_text(w, "\"");
    page_put_bytes(w, c->text, c->n);
    put_page_text(w, "\"");
    page_column_free(c);
}

static size_t copy_safe_bytes(const void *from, size_t n, char *out)
{
    memcpy(out, from, n);
    return n;
}

/* Writes it as JSON; returns how many bytes that is, at most CHARACTER. */
enum { CHARACTER = 6 };
static size_t write_safe_text(const unsigned char *s, size_t n, char *out)
{
    static const char hex[] = "0123456789abcdef";
    if (n == 0) return copy_safe_bytes("\xef\xbf\xbd", 3, out);                   /* U+FFFD */
    if (n == 3 && s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9)) /* line ends for some readers */
        return copy_safe_bytes(s[2] == 0xa8 ? "\\u2028" : "\\u2029", 6, out);
    if (n == 1 && (s[0] < 0x20 || s[0] == '<' || s[0] == '>' || s[0] == '&' || s[0] == 0x7f)) {
        copy_safe_bytes("\\u00", 4, out);
        out[4] = hex[s[0] >> 4];
        out[5] = hex[s[0] & 15];
        return 6;
    }
    if (n == 1 && (s[0] == '"' || s[0] == '\\')) {
        *out++ = '\\';
        *out = (char)s[0];
        return 2;
    }
    return copy_safe_bytes(s, n, out);
}

/* Written as it is. */
static inline bool is_plain_character(unsigned char c)
{
    return c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
}

size_t page_text_bytes(const char *text)
{
    char out[CHARACTER];
    size_t bytes = 0, n;
    for (const unsigned char *s = (const unsigned char *)text; *s; s += n ? n : 1) {
        const bool plain = is_plain_character(*s);
        n = plain ? 1 : gs_utf8_decode((const char *)s, SIZE_MAX, NULL);
        bytes += plain ? 1 : write_safe_text(s, n, out);
    }
    return bytes;
}

/* A text that is valid JSON as it is. */
static void put_plain_text(struct page_writer *w, const char *text, size_t bytes)
{
    page_put_bytes(w, "\"", 1);
    page_put_bytes(w, text, bytes);
    page_put_bytes(w, "\"", 1);
    w->text_bytes += bytes + 2;
}

/* A text that is too long keeps its beginning and its end, so that names with the same beginning stay distinct. */
void page_put_string(struct page_writer *w, const char *text)
{
    size_t bytes = page_text_bytes(text), most = page_text_most(w), at = 0, kept = 1, n;
    bool cut = bytes > most, left_out = false;
    char out[PAGE_TEXT + CHARACTER + 8];
    if (!cut && bytes == strlen(text)) { /* what is escaped becomes longer */
        put_plain_text(w, text, bytes);
        return;
    }
    out[0] = '"';
    for (const unsigned char *s = (const unsigned char *)text; *s; s += n ? n : 1) {
        n = gs_utf8_decode((const char *)s, SIZE_MAX, NULL);
        size_t size = write_safe_text(s, n, out + kept);
        if (!cut || at + size <= most / 2 || bytes - at <= most / 2) {
            kept += size;
        } else if (!left_out) {
            left_out = true;
            kept += copy_safe_bytes("\xe2\x80\xa6", 3, out + kept);
        }
        at += size;
    }
    out[kept++] = '"';
    page_put_bytes(w, out, kept);
    w->cut += cut;
    w->text_bytes += kept;
}

size_t page_text_most(const struct page_writer *w)
{
    size_t most = w->text_bytes < PAGE_TEXTS ? PAGE_TEXT : PAGE_TEXT_LESS;
    return w->text_most && w->text_most < most ? w->text_most : most;
}

const char *page_put_up_to(const char *from, const char *mark, FILE *out)
{
    const char *at = strstr(from, mark);
    fwrite(from, 1, (size_t)(at - from), out);
    return at + strlen(mark);
}
