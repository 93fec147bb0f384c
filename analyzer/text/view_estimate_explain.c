/* Where each number of an estimate comes from. */
#include <string.h>
#include "analyzer/text/view_estimate_parts.h"

/* "forward, step" */
static void when(const struct view_estimate *v, unsigned phases, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        if ((phases & 1u << phase) && v->a->result.phase[phase].high > 0 && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", view_estimate_phase[phase]);
}

static void label(const struct view_estimate *v, const char *name, const char *text)
{
    int at;

    if (!text || !*text)
        return;
    at = fprintf(v->out, "    %s%-8s%s", term_style(&v->term, TERM_DIM), name, term_style(&v->term, TERM_PLAIN));
    (void)at;
    view_estimate_wrap(v, 12, 12, text);
}

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* `next`: of which the source need not be said before it, too. */
static void line_of(const struct view_estimate *v, const struct estimate_line *line, const struct estimate_line *next)
{
    bool alike = next && same(line->source, next->source) && same(line->why, next->why);
    char size[UNITS_TEXT], range[VIEW_RANGE], phases[128];

    when(v, line->phases, phases, sizeof phases);
    view_estimate_range(v, range, line->bytes);
    fprintf(v->out, "\n  %s%s%s: %s  %s%s%s%s\n", term_style(&v->term, TERM_BOLD),
            estimate_part_title[line->part], term_style(&v->term, TERM_PLAIN), line->name,
            view_estimate_bytes(size, line->bytes.likely), *range ? " (" : "", range, *range ? ")" : "");
    label(v, "formula", line->formula);
    label(v, "when", line->host ? "in the host's memory" : phases);
    if (alike)
        return;
    label(v, "source", line->source);
    if (line->bytes.high > line->bytes.low || (line->why && *line->why))
        label(v, "between", line->why);
}

void view_estimate_explain(const struct view_estimate *v)
{
    for (size_t i = 0; i < v->a->result.lines_n; i++)
        line_of(v, &v->a->result.lines[i], i + 1 < v->a->result.lines_n ? &v->a->result.lines[i + 1] : NULL);
}
