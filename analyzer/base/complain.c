#include "analyzer/base/term.h"

#include <stdarg.h>
#include <stdio.h>
#include "analyzer/base/progress.h"

static struct {
    char *out; /* NULL: stderr */
    size_t size;
} complaints;

void complain_into(char *out, size_t size)
{
    complaints.out = out;
    complaints.size = size;
    if (out && size) *out = 0;
}

static void complain_of(const char *format, va_list args)
{
    char raw[4096], clean[4096];

    vsnprintf(raw, sizeof raw, format, args);
    if (complaints.out) {
        if (!*complaints.out) terminal_clean(complaints.out, complaints.size, raw, true);
        return;
    }
    progress_clear();
    /* Paths are shown in UTF-8 in every locale, because that is the file's name. */
    fprintf(stderr, "gpuspy: %s\n", terminal_clean(clean, sizeof clean, raw, true));
}

void complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain_of(format, args);
    va_end(args);
}

int complain_with(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain_of(format, args);
    va_end(args);
    return code;
}
