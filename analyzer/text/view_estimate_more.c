/* What follows from an estimate: time on the wires, what would help, what to type next. */
#include <string.h>
#include "analyzer/text/view_estimate_parts.h"

static bool one_link(const struct wires *w)
{
    for (size_t i = 1; i < w->n; i++)
        if (w->rows[i].bandwidth != w->rows[0].bandwidth || strcmp(w->rows[i].link, w->rows[0].link) != 0)
            return false;
    return true;
}

static void wire_row(const struct view_estimate *v, const struct wire *r, bool link, struct table *t)
{
    char what[320], bytes[UNITS_TEXT], times[64], one[UNITS_TEXT], took[UNITS_TEXT], over[160], rate[UNITS_TEXT];

    snprintf(what, sizeof what, "%s, %s", r->name, wire_kind_word[r->kind]);
    snprintf(times, sizeof times, r->times == 1 ? "once" : "%.4g times", r->times);
    snprintf(over, sizeof over, "%s, %s", r->link, format_rate(rate, r->bandwidth));
    if (link && strlen(what) + strlen(over) + 2 < sizeof what)
        snprintf(what + strlen(what), sizeof what - strlen(what), "; %s", over);
    const char *cells[] = {view_estimate_bytes(bytes, r->bytes), times, format_seconds(one, r->one_pass_s),
                           format_seconds(took, r->ring_s), what};
    table_add(t, cells, NULL);
}

void view_estimate_wires(const struct view_estimate *v)
{
    const struct wires *w = &v->a->wires;
    bool one = one_link(w);
    struct table t = {.head = {"bytes", "a step", "one pass", "takes", ""}, .left = {[4] = true}};
    char text[256], took[UNITS_TEXT], rate[UNITS_TEXT];

    if (!w->n)
        return;
    fprintf(v->out, "\n%sOn the wires%s", term_style(&v->term, TERM_BOLD), term_style(&v->term, TERM_PLAIN));
    if (one)
        fprintf(v->out, ": %s, %s", w->rows[0].link, format_rate(rate, w->rows[0].bandwidth));
    putc('\n', v->out);
    for (size_t i = 0; i < w->n; i++)
        wire_row(v, &w->rows[i], !one, &t);
    table_print(&t, &v->term, INDENT, v->out);
    format_seconds(took, w->sum_s);
    snprintf(text, sizeof text, "%s in all, if nothing overlaps.", took);
    if (w->compute_s > 0) {
        char compute[UNITS_TEXT];
        snprintf(text, sizeof text, "%s in all, if nothing overlaps; the step computes for %s at the GPU's full rate.",
                 took, format_seconds(compute, w->compute_s));
    }
    view_estimate_indented(v, text);
    for (size_t i = 0; i < w->notes_n; i++)
        view_estimate_indented(v, w->notes[i]);
}
