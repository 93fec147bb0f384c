/* Lines and notes of an estimate. */
#include "analyzer/estimate/estimate.h"

#include <stdio.h>
#include "analyzer/base/text.h"

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
    line->source = source;
    TEXT_FORMAT(line->formula, sizeof line->formula, formula);
}

void estimate_note(struct estimate_result *r, const char *text, ...)
{
    if (r->notes_n == ESTIMATE_NOTES_MAX) return;
    TEXT_FORMAT(r->notes[r->notes_n++], sizeof *r->notes, text);
}
