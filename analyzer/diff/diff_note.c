#include "analyzer/diff/diff_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void diff_add_note(struct diff_owner *o, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (size_t i = 0; i < o->diff.notes_n; i++)
        if (strcmp(o->diff.notes[i], line) == 0) return;
    *ARENA_PUSH(o->diff.notes, o->diff.notes_n, o->notes_cap) = arena_printf(&o->arena, "%s", line);
}
