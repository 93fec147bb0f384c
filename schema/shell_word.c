#include "schema/shell_word.h"
#include "schema/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *at;
    size_t size, used;
    bool cut;
};

static void add_shell_text(struct text *t, const char *from, size_t n)
{
    if (n >= t->size - t->used) {
        t->cut = true;
        return;
    }
    memcpy(t->at + t->used, from, n);
    t->used += n;
    t->at[t->used] = 0;
}

static bool is_plain(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
    return *text && *text != '=' && !text[strspn(text, plain)];
}

/* Control characters, invisible characters, and those that change the direction of text. */
static bool is_hidden(unsigned c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

static bool is_shell_printable(const char *text)
{
    uint32_t code;
    size_t n;
    for (const char *p = text; *p; p += n)
        if ((n = gs_utf8_decode(p, SIZE_MAX, &code)) == 0 || is_hidden(code)) return false;
    return true;
}

static void add_shell_quoted(struct text *t, const char *text)
{
    add_shell_text(t, "'", 1);
    for (; *text; text++)
        if (*text == '\'')
            add_shell_text(t, "'\\''", 4);
        else
            add_shell_text(t, text, 1);
    add_shell_text(t, "'", 1);
}

/* A substitution strips newlines at its end, so they follow it in quotes. */
static void add_printf(struct text *t, const char *text)
{
    char octal[8];
    size_t end = strlen(text);
    while (end && text[end - 1] == '\n') end--;
    if (end) add_shell_text(t, "\"$(printf '", 11);
    for (size_t i = 0; i < end; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool itself = c >= ' ' && c < 0x7f && !strchr("'\\%!\"$`", c);
        if (itself)
            add_shell_text(t, (const char *)&c, 1);
        else
            add_shell_text(t, octal, (size_t)snprintf(octal, sizeof octal, "\\%03o", c));
    }
    if (end) add_shell_text(t, "')\"", 3);
    if (text[end]) add_shell_quoted(t, text + end);
}

char *gs_shell_word(char *out, size_t size, const char *text)
{
    struct text t = {.at = out, .size = size};
    if (!size) return out;
    *out = 0;
    if (is_plain(text))
        add_shell_text(&t, text, strlen(text));
    else if (is_shell_printable(text))
        add_shell_quoted(&t, text);
    else
        add_printf(&t, text);
    if (t.cut) *out = 0;
    return out;
}

char *gs_shell_path(char *out, size_t size, const char *path)
{
    if (*path != '-' || size < 3) return gs_shell_word(out, size, path);
    gs_shell_word(out + 2, size - 2, path);
    if (!out[2]) return memset(out, 0, 1);
    return memcpy(out, "./", 2);
}
