/* Conclusions from an estimate: transfer times, what would help, what to type next. */
#include <string.h>
#include "analyzer/view/view_estimate_parts.h"
#include "analyzer/base/arena.h"

static bool one_link(const struct estimate_wires *w)
{
    for (size_t i = 1; i < w->n; i++)
        if (w->rows[i].bandwidth != w->rows[0].bandwidth || strcmp(w->rows[i].link, w->rows[0].link) != 0) return false;
    return true;
}

static void wire_row(const struct view_estimate *v, const struct estimate_wire *r, bool link, struct text_table *t)
{
    char what[320], bytes[UNITS_TEXT], times[64], factor[24];

    snprintf(times, sizeof times, r->times == 1 ? "once" : "%.4g times", r->times);
    snprintf(what, sizeof what, "%s, %s", r->name, estimate_wire_kind_word[r->kind]);
    if (link)
        snprintf(what, sizeof what, "%s, %s; %s, %s", r->name, estimate_wire_kind_word[r->kind], r->link,
                 UNITS_RATE(r->bandwidth));
    snprintf(factor, sizeof factor, "x%.3g", r->factor);
    const char *cells[] = {view_estimate_bytes(bytes, r->bytes),
                           times,
                           UNITS_SECONDS(r->one_pass_s),
                           factor,
                           UNITS_SECONDS(r->ring_s),
                           what};
    text_table_add(t, cells, NULL);
}

/* S/B can be longer than the actual time, or shorter: the factor between them. */
static void ring_meant(const struct view_estimate *v, const struct estimate_wires *w)
{
    bool inside = false, across = false;

    for (size_t i = 0; i < w->n; i++)
        if (w->rows[i].nodes > 1)
            across |= w->rows[i].factor != 1;
        else
            inside |= w->rows[i].factor != 1;
    if (!inside && !across) return;
    char text[320] = "S/B: all bytes once over one GPU's link.";
    size_t n = strlen(text);
    if (inside)
        n +=
            (size_t)snprintf(text + n, sizeof text - n, " Ring of n GPUs: 2(n-1)/n times S/B (all-reduce) or (n-1)/n.");
    if (across)
        snprintf(text + n, sizeof text - n,
                 " Between machines, the GPUs of a machine share the bytes; each sends its part over its "
                 "share of the network.");
    view_estimate_indented(v, text);
}

void view_estimate_wires(const struct view_estimate *v)
{
    const struct estimate_wires *w = &v->a->wires;
    bool one = one_link(w);
    struct text_table t = {.head = {"bytes", "per step", "S/B", "ring", "time", ""}, .left = {[5] = true}};
    char text[256], took[UNITS_TEXT];

    if (!w->n) return;
    fprintf(v->out, "\n%sTransfers per step%s", terminal_style(&v->term, TERMINAL_BOLD),
            terminal_style(&v->term, TERMINAL_PLAIN));
    if (one) fprintf(v->out, ": %s, %s", w->rows[0].link, UNITS_RATE(w->rows[0].bandwidth));
    putc('\n', v->out);
    for (size_t i = 0; i < w->n; i++) wire_row(v, &w->rows[i], !one, &t);
    text_table_print(&t, &v->term, INDENT, v->out);
    units_format_seconds(took, w->sum_s);
    snprintf(text, sizeof text, "%s in total, if nothing overlaps.", took);
    if (w->compute_s > 0) {
        snprintf(text, sizeof text,
                 "%s in total, if nothing overlaps; the step's computation takes %s at the GPU's full rate.", took,
                 UNITS_SECONDS(w->compute_s));
    }
    view_estimate_indented(v, text);
    ring_meant(v, w);
    for (size_t i = 0; i < w->notes_n; i++) view_estimate_indented(v, w->notes[i]);
    if (v->explain) view_estimate_explain_wires(v);
}

enum { FEW = 5 };

/* Bytes of the first clause: the most important part comes first. */
static int is_clause(const char *text)
{
    int n = 0;

    for (; text[n]; n++)
        if (strchr(":;", text[n]) && text[n + 1] == ' ') break;
    return n;
}

static void change_row(const struct view_estimate *v, const struct estimate_change *c, struct text_table *t)
{
    char saved[UNITS_TEXT], then[UNITS_TEXT], what[640];
    bool held = v->a->plan.memory > 0;

    if (v->explain)
        snprintf(what, sizeof what, "%s: %s; %s%s", c->option, c->what,
                 strncmp(c->cost, "nothing", 7) == 0 ? "costs " : "", c->cost);
    else
        snprintf(what, sizeof what, "%s%s%.*s", *c->option ? c->option : c->what, *c->cost ? ": " : "",
                 is_clause(c->cost), c->cost);
    const char *cells[] = {view_estimate_bytes(saved, c->saved.likely), view_estimate_bytes(then, c->peak.likely),
                           held ? estimate_fit_words[c->fit.verdict] : what, held ? what : NULL};
    text_table_add(t, cells, NULL);
}

/* Does the change keep what is trained or served? */
static bool same_task(const struct estimate_change *c)
{
    return c->cost_class != CHANGE_COST_RESULT;
}

/* " on h100-80g", if there are others. */
static const char *format_helped(const struct view_estimate *v, char *out, size_t size)
{
    const struct estimate_answer *a = v->a;
    bool several = a->targets_n > 1 && a->plan.memory > 0 && a->plan.gpu;

    snprintf(out, size, "%s%s", several ? " on " : "", several ? a->targets[a->helped].gpu->key : "");
    return out;
}

/* What makes it fit, and what to write for it: the rows of changes are single changes, and it may be several. */
void view_estimate_way(const struct view_estimate *v)
{
    const struct estimate_answer *a = v->a;
    const struct estimate_change *last;
    char options[512], peak[UNITS_TEXT], on[64], text[640];
    int at;

    if (!a->changes.way_n) return;
    last = &a->changes.way[a->changes.way_n - 1];
    format_helped(v, on, sizeof on);
    fprintf(v->out, "\n%s", terminal_style(&v->term, TERMINAL_BOLD));
    at = last->fit.verdict == FIT_YES ? fprintf(v->out, "Cheapest change that makes it fit%s: ", on)
                                      : fprintf(v->out, "Closest to fitting%s: ", on);
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
    snprintf(text, sizeof text, "%s; then it needs %s: %s.", estimate_answer_way(a, options, sizeof options),
             view_estimate_bytes(peak, last->peak.likely), estimate_fit_words[last->fit.verdict]);
    view_estimate_wrap(v, INDENT, at, text);
    EACH_IN (c, a->changes.way) {
        snprintf(text, sizeof text, "%s: %s; %s%.*s", c->option, c->what,
                 strncmp(c->cost, "nothing", 7) == 0 ? "costs " : "", is_clause(c->cost), c->cost);
        fprintf(v->out, "%*s", INDENT, "");
        view_estimate_wrap(v, 2 * INDENT, INDENT, text);
    }
}

/* If it fits already, a hint that more exists is enough. */
static bool print_savings_hint(const struct view_estimate *v)
{
    const struct estimate_answer *a = v->a;
    const struct estimate_change *most = NULL;
    char saved[UNITS_TEXT], text[256];

    if (v->explain || !a->targets_n || a->targets[a->helped].fit.verdict != FIT_YES) return false;
    for (size_t i = 0; i < a->changes.n && !most; i++)
        most = a->changes.rows[i].cost_class < CHANGE_COST_RESULT ? &a->changes.rows[i] : NULL;
    most = most ? most : &a->changes.rows[0];
    snprintf(text, sizeof text, ": %zu change%s, up to %s by %s; --explain shows them.", a->changes.n,
             a->changes.n == 1 ? "" : "s", view_estimate_bytes(saved, most->saved.likely), most->option);
    fprintf(v->out, "\n%sTo save memory%s", terminal_style(&v->term, TERMINAL_BOLD),
            terminal_style(&v->term, TERMINAL_PLAIN));
    view_estimate_wrap(v, INDENT, 14, text);
    return true;
}

void view_estimate_changes(const struct view_estimate *v)
{
    const struct estimate_changes *c = &v->a->changes;
    bool held = v->a->plan.memory > 0;
    char on[64];
    size_t left;
    size_t shown = v->explain || c->n <= FEW ? c->n : FEW;
    struct text_table t = {
        .head = {"saves", "then", held ? "" : "change: what it costs", held ? "change: what it costs" : NULL},
        .left = {[2] = true, [3] = true}};

    if (!shown || print_savings_hint(v)) return;
    format_helped(v, on, sizeof on);
    fprintf(v->out, "\n%sWhat would save memory%s%s%s\n", terminal_style(&v->term, TERMINAL_BOLD),
            terminal_style(&v->term, TERMINAL_PLAIN), *on ? "," : "", on);
    left = shown;
    for (int same = 1; same >= 0; same--) /* changes of the task come last, however much they save */
        for (size_t i = 0; i < c->n && left; i++)
            if (same_task(&c->rows[i]) == same) {
                change_row(v, &c->rows[i], &t);
                left--;
            }
    text_table_print(&t, &v->term, INDENT, v->out);
    if (c->n > shown)
        fprintf(v->out, "%*s%sand %zu more: --explain shows them%s\n", INDENT, "",
                terminal_style(&v->term, TERMINAL_DIM), c->n - shown, terminal_style(&v->term, TERMINAL_PLAIN));
}

static void print_solution(const struct view_estimate *v, const char *how, const struct estimate_solve_answer *s,
                           bool surely)
{
    char peak[UNITS_TEXT], text[512];
    const char *limit = "";

    view_estimate_bytes(peak, surely ? s->peak.high : s->peak.likely);
    if (s->limited)
        limit = "; larger values were not tried";
    else if (v->a->solution.what == SOLVE_GPUS && s->value > 1)
        limit = surely ? "; fewer might not be enough" : "; fewer are not enough";
    else if (v->a->solution.what != SOLVE_GPUS)
        limit = surely ? "; one more might not fit" : "; one more does not fit";
    if (s->any)
        snprintf(text, sizeof text, "%s: %s, which needs %s%s.", how, s->option, peak, limit);
    else
        snprintf(text, sizeof text, "%s: nothing fits.", how);
    view_estimate_indented(v, text);
}

void view_estimate_solution(const struct view_estimate *v)
{
    const struct estimate_solution *s = &v->a->solution;

    if (!v->a->solved) return;
    fprintf(v->out, "\n%sSolved for the %s%s\n", terminal_style(&v->term, TERMINAL_BOLD),
            estimate_solve_words_of[s->what], terminal_style(&v->term, TERMINAL_PLAIN));
    if (!s->likely.any) {
        char text[64];
        snprintf(text, sizeof text,
                 s->what == SOLVE_GPUS ? "No number of GPUs fits." : "Nothing fits, not even --%s 1.",
                 estimate_solve_word[s->what]);
        view_estimate_indented(v, text);
    } else {
        if (s->surely.any != s->likely.any || s->surely.value != s->likely.value)
            print_solution(v, "expected", &s->likely, false);
        print_solution(v, "at the high end", &s->surely, true);
    }
    view_estimate_sentence(v, INDENT, s->note);
}

static void next_command(const struct view_estimate *v, const char *command, const char *what)
{
    char clean[4096];
    bool beside;

    terminal_clean(clean, sizeof clean, command, v->term.utf8);
    beside = 6 + terminal_columns(clean) + terminal_columns(what) <= v->term.width;
    if (!beside && *what) /* a comment, for users who paste both lines */
        fprintf(v->out, "  %s# %s%s\n", terminal_style(&v->term, TERMINAL_DIM), what,
                terminal_style(&v->term, TERMINAL_PLAIN));
    terminal_print_command(v->out, clean, INDENT, v->term.width);
    if (beside && *what)
        fprintf(v->out, "  %s# %s%s", terminal_style(&v->term, TERMINAL_DIM), what,
                terminal_style(&v->term, TERMINAL_PLAIN));
    putc('\n', v->out);
}

void view_estimate_next(const struct view_estimate *v)
{
    const struct estimate_answer *a = v->a;
    char text[4096];

    fprintf(v->out, "\n%sNext%s\n", terminal_style(&v->term, TERMINAL_BOLD), terminal_style(&v->term, TERMINAL_PLAIN));
    if (!a->targets_n) {
        next_command(v, estimate_answer_command(a, "--gpu h100-80g", text, sizeof text), "does it fit there?");
    } else if (a->targets_n > ANSWER_FEW && estimate_answer_fits(a)) {
        char gpu[64];
        const struct estimate_target *t = view_estimate_smallest(v);
        snprintf(gpu, sizeof gpu, "--gpu %s", t->gpu->key);
        next_command(v, estimate_answer_command(a, gpu, text, sizeof text),
                     t->fit.verdict == FIT_YES ? "the smallest on which it fits" : "the smallest on which it is tight");
    } else if (a->changes.way_n) {
        char way[512];
        next_command(v, estimate_answer_command(a, estimate_answer_way(a, way, sizeof way), text, sizeof text),
                     "the cheapest change that makes it fit");
    } else if (a->targets_n == 1 && !estimate_answer_fits(a) && !a->solved) {
        next_command(v, estimate_answer_command(a, "--solve gpus", text, sizeof text),
                     "the fewest GPUs on which it fits");
    } else if (estimate_answer_fits(a) && !a->plan.inference) {
        snprintf(text, sizeof text, "gpuspy report run.db%s", a->beside);
        next_command(v, "gpuspy run -- python train.py", "record what it needs, then compare:");
        next_command(v, text, "the measured and the estimated figures");
    }
    if (!v->explain) next_command(v, estimate_answer_command(a, "--explain", text, sizeof text), "");
}
