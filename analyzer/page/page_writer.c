#include "analyzer/page/page_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- columns ------------------------------------------------------------------------------------ */

void gs_column_add(struct gs_column *c, int64_t value)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    unsigned sign = value < 0;
    enum { MOST = 16 };
    if (c->cap - c->n < MOST) {
        c->cap = c->cap ? c->cap * 2 : 256;
        c->text = gs_realloc(c->text, c->cap, 1);
    }
    /* the sign takes the first digit's lowest bit */
    unsigned digit = (unsigned)(size & 15) << 1 | sign;
    size >>= 4;
    while (size) {
        c->text[c->n++] = digits[digit | 32];
        digit = size & 31;
        size >>= 5;
    }
    c->text[c->n++] = digits[digit];
}

void gs_column_step(struct gs_column *c, int64_t value)
{
    gs_column_add(c, (int64_t)((uint64_t)value - (uint64_t)c->last));
    c->last = value;
}

void gs_column_free(struct gs_column *c)
{
    free(c->text);
    *c = (struct gs_column){0};
}

/* --- JSON --------------------------------------------------------------------------------------- */

void gs_put_key(struct gs_page_writer *w, const char *key)
{
    if (w->follows) {
        fputc(',', w->out);
    }
    w->follows = true;
    if (key) {
        gs_put_string(w, key);
        fputc(':', w->out);
    }
}

void gs_put_open(struct gs_page_writer *w, const char *key, char bracket)
{
    gs_put_key(w, key);
    fputc(bracket, w->out);
    w->follows = false;
}

void gs_put_close(struct gs_page_writer *w, char bracket)
{
    fputc(bracket, w->out);
    w->follows = true;
}

void gs_put_int(struct gs_page_writer *w, const char *key, int64_t value)
{
    gs_put_key(w, key);
    if (value == INT64_MIN) {
        fputs("null", w->out);
    } else {
        fprintf(w->out, "%lld", (long long)value);
    }
}

void gs_put_real(struct gs_page_writer *w, const char *key, double value)
{
    gs_put_key(w, key);
    if (isfinite(value)) {
        fprintf(w->out, "%.15g", value);
    } else {
        fputs("null", w->out);
    }
}

void gs_put_bool(struct gs_page_writer *w, const char *key, bool value)
{
    gs_put_key(w, key);
    fputs(value ? "true" : "false", w->out);
}

void gs_put_text(struct gs_page_writer *w, const char *key, const char *text)
{
    gs_put_key(w, key);
    if (text) {
        gs_put_string(w, text);
    } else {
        fputs("null", w->out);
    }
}

void gs_put_column(struct gs_page_writer *w, const char *key, struct gs_column *c)
{
    gs_put_key(w, key);
    fputc('"', w->out);
    if (c->n) {
        fwrite(c->text, 1, c->n, w->out);
    }
    fputc('"', w->out);
    gs_column_free(c);
}

/* The bytes of the character at `s`, 0 where there is none: not UTF-8, a surrogate, past the last one. */
static size_t character(const unsigned char *s)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } kinds[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t n = 0; n < 4; n++) {
        if ((s[0] & kinds[n].mask) != kinds[n].lead) {
            continue;
        }
        uint32_t code = s[0] & (unsigned char)~kinds[n].mask;
        for (size_t i = 1; i <= n; i++) {
            if ((s[i] & 0xc0) != 0x80) {
                return 0;
            }
            code = code << 6 | (s[i] & 0x3f);
        }
        bool known = code >= kinds[n].least && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
        return known ? n + 1 : 0;
    }
    return 0;
}

static void put_character(FILE *out, const unsigned char *s, size_t n)
{
    if (n == 0) {
        fputs("\xef\xbf\xbd", out); /* U+FFFD */
    } else if (n == 1 && (s[0] == '"' || s[0] == '\\')) {
        fputc('\\', out);
        fputc(s[0], out);
    } else if (n == 1 && (s[0] < 0x20 || s[0] == '<' || s[0] == '>' || s[0] == '&' || s[0] == 0x7f)) {
        fprintf(out, "\\u%04x", s[0]);
    } else if (n == 3 && s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9)) {
        fputs(s[2] == 0xa8 ? "\\u2028" : "\\u2029", out); /* line ends, to some */
    } else {
        fwrite(s, 1, n, out);
    }
}

void gs_put_string(struct gs_page_writer *w, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t most = w->text_bytes < GS_PAGE_TEXTS ? GS_PAGE_TEXT : GS_PAGE_TEXT_LESS, at = 0;
    fputc('"', w->out);
    while (s[at]) {
        size_t n = character(s + at), step = n ? n : 1;
        if (at + step > most) {
            fputs("\xe2\x80\xa6", w->out);
            w->cut++;
            break;
        }
        put_character(w->out, s + at, n);
        at += step;
    }
    w->text_bytes += at;
    fputc('"', w->out);
}
