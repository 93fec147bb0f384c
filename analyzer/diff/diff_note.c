#include "analyzer/diff/diff_parts.h"

#include <string.h>
#include "analyzer/base/text.h"

void diff_add_note(struct diff_owner *o, const char *format, ...)
{
    char line[1024];
    TEXT_FORMAT(line, sizeof line, format);
    for (size_t i = 0; i < o->diff.notes_n; i++)
        if (strcmp(o->diff.notes[i], line) == 0) return;
    *ARENA_PUSH(o->diff.notes, o->diff.notes_n, o->notes_cap) = arena_printf(&o->arena, "%s", line);
}
