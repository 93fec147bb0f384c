#include "analyzer/base/json_out.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"

void json_out_text(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    putc('"', out);
    for (const char *p = text, *plain = text;; p++) {
        unsigned char c = (unsigned char)*p;
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        fwrite(plain, 1, (size_t)(p - plain), out);
        plain = p + 1;
        if (!c) break;
        if (c == '"' || c == '\\') {
            putc('\\', out);
            putc(c, out);
        } else {
            fprintf(out, "\\u%04x", c);
        }
    }
    putc('"', out);
}

bool json_out_tree(FILE *out, json_t *tree, size_t flags)
{
    const bool written = tree && json_dumpf(tree, out, flags) == 0;
    json_decref(tree);
    return fputc('\n', out) != EOF && written;
}

json_t *json_out_string(const char *text)
{
    json_t *string = text ? json_string(text) : json_null();
    if (string) return string;
    const size_t size = strlen(text) + 1;
    char *clean = arena_realloc(NULL, size, 1);
    string = json_string(terminal_clean(clean, size, text, true));
    free(clean);
    return string;
}
