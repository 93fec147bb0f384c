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
    char what[320], bytes[UNITS_TEXT], times[64], one[UNITS_TEXT], took[UNITS_TEXT];

    snprintf(times, sizeof times, r->times == 1 ? "once" : "%.4g times", r->times);
    snprintf(what, sizeof what, "%s, %s%s%s", r->name, wire_kind_word[r->kind], link ? "; " : "", link ? r->link : "");
    const char *cells[] = {view_estimate_bytes(bytes, r->bytes), times, format_seconds(one, r->one_pass_s),
                           format_seconds(took, r->ring_s), what};
    table_add(t, cells, NULL);
}

void view_estimate_wires(const struct view_estimate *v)
{
    const struct wires *w = &v->a->wires;
    bool one = one_link(w);
    struct table t = {.head = {"bytes", "a step", "one pass", "takes", ""}, .left = {[4] = true}};
    char text[256], took[UNITS_TEXT];

    if (!w->n)
        return;
    fprintf(v->out, "\n%sOn the wires%s", term_style(&v->term, TERM_BOLD), term_style(&v->term, TERM_PLAIN));
    if (one)
        fprintf(v->out, ": %s", w->rows[0].link);
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

/* ---------------------------------------------------------------- what would help */

enum { FEW = 5 };

static void change_row(const struct view_estimate *v, const struct change *c, struct table *t)
{
    char saved[UNITS_TEXT], then[UNITS_TEXT], what[640];
    bool held = v->a->targets_n > 0;

    snprintf(what, sizeof what, "%s%s%s%s", *c->option ? c->option : c->what, *c->cost ? ": " : "", c->cost, "");
    const char *cells[] = {view_estimate_bytes(saved, c->saved.likely), view_estimate_bytes(then, c->peak.likely),
                           held ? view_estimate_verdict[c->fit.verdict] : what, held ? what : NULL};
    table_add(t, cells, NULL);
}

void view_estimate_changes(const struct view_estimate *v)
{
    const struct changes *c = &v->a->changes;
    bool held = v->a->targets_n > 0;
    size_t shown = v->explain || c->n <= FEW ? c->n : FEW;
    struct table t = {.head = {"saves", "then", held ? "" : "change", held ? "change" : NULL},
                      .left = {[2] = true, [3] = true}};

    if (!shown)
        return;
    fprintf(v->out, "\n%sWhat would save memory%s\n", term_style(&v->term, TERM_BOLD), term_style(&v->term, TERM_PLAIN));
    for (size_t i = 0; i < shown; i++)
        change_row(v, &c->rows[i], &t);
    table_print(&t, &v->term, INDENT, v->out);
    if (c->n > shown)
        fprintf(v->out, "%*s%sand %zu more: --explain shows them%s\n", INDENT, "", term_style(&v->term, TERM_DIM),
                c->n - shown, term_style(&v->term, TERM_PLAIN));
}

/* "--optimizer adamw8bit --checkpointing full" */
static void way_options(const struct changes *c, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (size_t i = 0; i < c->way_n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? " " : "", c->way[i].option);
}

static void found(const struct view_estimate *v, const char *how, const struct solve_answer *s)
{
    char peak[UNITS_TEXT], next[UNITS_TEXT], text[512];

    if (!s->any)
        snprintf(text, sizeof text, "%s: none fits.", how);
    else if (s->next.likely > 0)
        snprintf(text, sizeof text, "%s: %s, %s; one more makes %s.", how, s->option,
                 view_estimate_bytes(peak, s->peak.likely), view_estimate_bytes(next, s->next.likely));
    else
        snprintf(text, sizeof text, "%s: %s, %s%s.", how, s->option, view_estimate_bytes(peak, s->peak.likely),
                 s->limited ? "; no more was tried" : "");
    view_estimate_indented(v, text);
}

void view_estimate_solution(const struct view_estimate *v)
{
    const struct solution *s = &v->a->solution;

    if (!v->a->solved)
        return;
    fprintf(v->out, "\n%sSolved for the %s%s\n", term_style(&v->term, TERM_BOLD), solve_words_of[s->what],
            term_style(&v->term, TERM_PLAIN));
    if (s->surely.any != s->likely.any || s->surely.value != s->likely.value)
        found(v, "likely", &s->likely);
    found(v, "surely", &s->surely);
    if (*s->note)
        view_estimate_indented(v, s->note);
}

void view_estimate_next(const struct view_estimate *v)
{
    const struct estimate_answer *a = v->a;
    char options[512], text[3072] = "";

    if (!a->targets_n) {
        snprintf(text, sizeof text, "%s --gpu h100", a->command);
    } else if (a->changes.way_n) {
        way_options(&a->changes, options, sizeof options);
        snprintf(text, sizeof text, "%s %s", a->command, options);
    } else if (!v->explain) {
        snprintf(text, sizeof text, "%s --explain", a->command);
    }
    if (!*text)
        return;
    fprintf(v->out, "\n%sNext:%s ", term_style(&v->term, TERM_BOLD), term_style(&v->term, TERM_PLAIN));
    view_estimate_wrap(v, 6, 6, text);
}
