#include "analyzer/base/json_out.h"

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
