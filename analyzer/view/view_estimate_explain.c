/* The origin of each number of an estimate. */
#include "analyzer/view/view_estimate_parts.h"
#include "analyzer/base/text.h"

/* "end of forward, optimizer step" */
static void format_line_phases(const struct view_estimate *v, const struct estimate_line *line, char *out, size_t size)
{
    size_t at = 0;

    snprintf(out, size, "in host memory");
    for (int phase = 0; phase < ESTIMATE_PHASES_N && !line->host; phase++)
        if ((line->phases & 1u << phase) && view_estimate_phase(v, phase) && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", view_estimate_phase(v, phase));
}

static void print_explained_label(const struct view_estimate *v, const char *name, const char *text)
{
    enum { INDENTED = 6, WIDTH = 9 };

    if (!text || !*text) return;
    fprintf(v->out, "%*s%s%-*s%s", INDENTED, "", terminal_style(&v->term, TERMINAL_DIM), WIDTH, name,
            terminal_style(&v->term, TERMINAL_PLAIN));
    view_estimate_wrap(v, INDENTED + WIDTH, INDENTED + WIDTH, text);
}

static void print_explained_line(const struct view_estimate *v, const struct estimate_line *line, bool alone)
{
    char size[UNITS_TEXT], range[VIEW_RANGE], phases[128], text[512];

    format_line_phases(v, line, phases, sizeof phases);
    view_estimate_range(v, range, line->bytes);
    snprintf(text, sizeof text, "%s%s%s%s%s%s, %s", alone ? "" : line->name, alone ? "" : ": ",
             view_estimate_bytes(size, line->bytes.likely), *range ? " (" : "", range, *range ? ")" : "", phases);
    fprintf(v->out, "%*s", 2 * INDENT, "");
    view_estimate_wrap(v, 2 * INDENT + 2, 2 * INDENT, text);
    print_explained_label(v, "=", line->formula);
}

void view_estimate_explain_wires(const struct view_estimate *v)
{
    const struct estimate_wires *w = &v->a->wires;
    char text[128];

    for (size_t i = 0; i < w->n; i++) {
        const struct estimate_wire *r = &w->rows[i];
        bool last = i + 1 == w->n || !text_is_same(r->source, w->rows[i + 1].source);
        snprintf(text, sizeof text, "%s, %s", r->name, estimate_wire_kind_word[r->kind]);
        fprintf(v->out, "%*s", 2 * INDENT, "");
        view_estimate_wrap(v, 2 * INDENT + 2, 2 * INDENT, text);
        print_explained_label(v, "=", r->formula);
        print_explained_label(v, "source", last ? r->source : NULL);
    }
    if (w->compute_s > 0) {
        fprintf(v->out, "%*scompute\n", 2 * INDENT, "");
        print_explained_label(v, "=", w->compute);
        print_explained_label(v, "source", "Kaplan et al. 2020, section 2.1; the GPU's datasheet");
    }
}

/* A reason is not repeated in the next line. */
static void reason_of(const struct view_estimate *v, const struct estimate_line *line, const struct estimate_line *next)
{
    if (next && text_is_same(line->source, next->source) && text_is_same(line->why, next->why)) return;
    print_explained_label(v, "source", line->source);
    print_explained_label(v, "range", line->why);
}

static const struct estimate_line *next_of(const struct estimate_result *r, int part, const struct estimate_line *after)
{
    for (const struct estimate_line *l = after ? after + 1 : r->lines; l < r->lines + r->lines_n; l++)
        if ((int)l->part == part) return l;
    return NULL;
}

void view_estimate_explain(const struct view_estimate *v)
{
    const struct estimate_result *r = &v->a->result;

    for (int part = 0; part < ESTIMATE_PARTS_N; part++) {
        const struct estimate_line *line = next_of(r, part, NULL);
        /* "weights: weights" is useless */
        bool alone = line && text_is_same(line->name, estimate_part_title[part]);
        if (line)
            fprintf(v->out, "\n  %s%s%s\n", terminal_style(&v->term, TERMINAL_BOLD), estimate_part_title[part],
                    terminal_style(&v->term, TERMINAL_PLAIN));
        for (; line; line = next_of(r, part, line)) {
            print_explained_line(v, line, alone && text_is_same(line->name, estimate_part_title[part]));
            reason_of(v, line, next_of(r, part, line));
        }
    }
}
