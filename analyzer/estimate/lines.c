/* Lines and notes of an estimate. */
#include "analyzer/estimate/estimate.h"

#include <stdarg.h>
#include <stdio.h>

struct estimate_line *estimate_add(struct estimate_result *r, enum estimate_part part, unsigned phases,
                                   const char *name, struct estimate_interval bytes)
{
    struct estimate_line *line;

    if (r->lines_n == ESTIMATE_LINES_MAX) {
        line = &r->lines[r->lines_n - 1];
        line->bytes = estimate_interval_add(line->bytes, bytes);
        return line;
    }
    line = &r->lines[r->lines_n++];
    *line = (struct estimate_line){.part = part, .phases = phases, .bytes = bytes};
    snprintf(line->name, sizeof line->name, "%s", name);
    return line;
}

void estimate_explain(struct estimate_line *line, const char *source, const char *formula, ...)
{
    va_list arguments;

    line->source = source;
    va_start(arguments, formula);
    vsnprintf(line->formula, sizeof line->formula, formula, arguments);
    va_end(arguments);
}

void estimate_note(struct estimate_result *r, const char *text, ...)
{
    va_list arguments;

    if (r->notes_n == ESTIMATE_NOTES_MAX) return;
    va_start(arguments, text);
    vsnprintf(r->notes[r->notes_n++], sizeof *r->notes, text, arguments);
    va_end(arguments);
}
