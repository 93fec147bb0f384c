/* The output of a check: sentences, on a terminal and in a GitHub summary. */
#include <math.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/check/check.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"

enum { LINES = 8, CLEAN = 2048 };

const char *check_status_word(enum check_status s)
{
    static const char *const words[] = {[CHECK_OK] = "ok", [CHECK_FAILED] = "failed", [CHECK_UNKNOWN] = "unknown"};
    return words[s];
}

char *check_who_text(const struct check_result *r, char *out, size_t size)
{
    char process[64] = "", gpu[32] = "";
    if (r->shared) { /* of all of them */
    } else if (r->several && r->rank >= 0) {
        snprintf(process, sizeof process, "rank %lld", (long long)r->rank);
    } else if (r->several) {
        snprintf(process, sizeof process, "process %u", r->pid);
    }
    if (r->device >= 0) snprintf(gpu, sizeof gpu, "GPU %d", r->device);
    snprintf(out, size, "%s%s%s", gpu, *gpu && *process ? " of " : "", process);
    return out;
}

static bool has_limit(const struct check_gate *g)
{
    return !check_gate_is_flag(g) && g->unit != UNIT_EVENTS;
}

/* The reason, as a sentence, if there is no figure. */
static char *flag_sentence(struct check *c, const struct check_result *r, const char *on, const char *who)
{
    char value[GATE_VALUE];
    check_gate_value(&check_gates[r->gate], r->value, value);
    if (r->gate == GATE_COMPLETE) {
        return r->status != CHECK_OK ? arena_printf(&c->arena, "the recording%s%s is not complete: %s", on, who, r->why)
               : c->processes > 1
                   ? arena_printf(&c->arena, "the recordings of all %zu processes are complete", c->processes)
                   : arena_printf(&c->arena, "the recording is complete");
    }
    if (r->status == CHECK_OK) {
        return arena_printf(&c->arena, "%s",
                            r->gate == GATE_OOM ? "memory never ran out" : "no GPU memory keeps growing");
    }
    if (r->gate == GATE_OOM)
        return arena_printf(&c->arena, "out of memory%s%s: %s", on, who, "an allocation failed for good");
    if (r->why) return arena_printf(&c->arena, "%s of GPU memory%s%s: %s", value, on, who, r->why);
    const char *since = c->kept_from_ns
                            ? arena_printf(&c->arena, "after %s", UNITS_SECONDS((double)c->kept_from_ns / 1e9))
                            : "over the run";
    return arena_printf(&c->arena, "GPU memory%s%s grew by %s %s", on, who, value, since);
}

char *check_sentence(struct check *c, const struct check_result *r)
{
    const struct check_gate *g = &check_gates[r->gate];
    char value[GATE_VALUE], limit[GATE_VALUE], over[GATE_VALUE], who[96];
    const char *what = r->what ? r->what : g->what;
    check_who_text(r, who, sizeof who);
    const char *on = *who ? (r->device >= 0 ? " on " : " in ") : "";
    if (r->status == CHECK_UNKNOWN) {
        return isnan(r->value) ? arena_printf(&c->arena, "cannot be judged%s%s: %s", on, who, r->why)
                               : arena_printf(&c->arena, "cannot be judged%s%s: %s (so far: %s %s)", on, who, r->why,
                                              what, check_gate_value(g, r->value, value));
    }
    if (!has_limit(g)) return flag_sentence(c, r, on, who);
    check_gate_value(g, r->value, value);
    check_gate_value(g, r->limit, limit);
    if (r->status == CHECK_OK) return arena_printf(&c->arena, "%s%s%s: %s, %s allowed", what, on, who, value, limit);
    return arena_printf(&c->arena, "%s%s%s: %s%s, %s over the limit of %s%s%s%s", what, on, who,
                        r->at_least ? "at least " : "", value, check_gate_value(g, r->value - r->limit, over), limit,
                        r->why ? " (" : "", r->why ? r->why : "", r->why ? ")" : "");
}

static const char *const marks[] = {[CHECK_OK] = "ok", [CHECK_FAILED] = "FAILED", [CHECK_UNKNOWN] = "UNKNOWN"};
static const enum terminal_style styles[] = {
    [CHECK_OK] = TERMINAL_GREEN, [CHECK_FAILED] = TERMINAL_RED, [CHECK_UNKNOWN] = TERMINAL_YELLOW};

enum { INDENT = 4, AMOUNT = CHECK_LINE_START - INDENT - 2 };

/* "3.00 MiB", and "train.py:15  step", with the note if all that fits. */
static bool format_check_line(const struct check_result *r, const struct check_line *l, const struct terminal *t,
                              char amount[GATE_VALUE], char line[2 * CLEAN])
{
    char place[CLEAN], note[CLEAN];
    check_gate_value(&check_gates[r->gate], l->amount, amount);
    terminal_clean(place, sizeof place, l->place, t->utf8);
    terminal_clean(note, sizeof note, l->note ? l->note : "", t->utf8);
    text_put(line, 2 * CLEAN, "%s%s%s", place, *note ? "  " : "", note);
    const bool whole = terminal_columns(line) <= t->width - INDENT - AMOUNT - 2;
    if (!whole) terminal_clean(line, 2 * CLEAN, l->brief, t->utf8);
    return whole;
}

/* Columns of the amounts: they move to the left for call sites that are too wide. */
static int amount_columns(const struct check_result *r, size_t shown, const struct terminal *t)
{
    int widest = 0, least = 0;
    EACH (l, r->lines, shown) {
        char amount[GATE_VALUE], line[2 * CLEAN];
        if (isnan(l->amount)) continue;
        format_check_line(r, l, t, amount, line);
        if (terminal_columns(line) > widest) widest = terminal_columns(line);
        if (terminal_columns(amount) > least) least = terminal_columns(amount);
    }
    const int room = t->width - INDENT - 2 - widest;
    return room >= AMOUNT ? AMOUNT : room > least ? room : least;
}

static void print_check_line(const struct check_result *r, const struct check_line *l, int columns,
                             const struct terminal *t, FILE *out)
{
    char amount[GATE_VALUE], place[CLEAN], note[CLEAN], line[2 * CLEAN];
    terminal_clean(note, sizeof note, l->note ? l->note : "", t->utf8);
    if (isnan(l->amount)) { /* the note is the content */
        terminal_clean(place, sizeof place, l->place, t->utf8);
        if (INDENT + terminal_columns(place) > t->width) terminal_clean(place, sizeof place, l->brief, t->utf8);
        fprintf(out, "%*s%s\n", INDENT, "", place);
        if (*note) {
            fprintf(out, "%*s", INDENT + 2, "");
            text_wrap(out, t, INDENT + 2, INDENT + 2, true, note);
        }
        return;
    }
    const bool whole = format_check_line(r, l, t, amount, line);
    fprintf(out, "%*s%*s  %s\n", INDENT, "", columns, amount, line);
    if (!whole && l == r->lines && *note) { /* only the largest line is worth two */
        fprintf(out, "%*s", INDENT + columns + 4, "");
        text_wrap(out, t, INDENT + columns + 4, INDENT + columns + 4, true, note);
    }
}

static void print_lines(const struct check_result *r, const struct terminal *t, FILE *out, bool all)
{
    size_t most = all ? r->lines_n : LINES, shown = r->lines_n < most ? r->lines_n : most;
    const int columns = amount_columns(r, shown, t);
    EACH (l, r->lines, shown) print_check_line(r, l, columns, t, out);
    if (r->lines_total > shown) {
        fprintf(out, "%*s%sand %zu more%s\n", INDENT + columns + 2, "", terminal_style(t, TERMINAL_DIM),
                r->lines_total - shown, terminal_style(t, TERMINAL_PLAIN));
    }
}

/* Of a gate's results that are ok only the first is shown. */
static bool is_result_shown(const struct check *c, size_t i)
{
    const struct check_result *r = &c->results[i];
    if (r->status != CHECK_OK || i == 0 || c->results[i - 1].gate != r->gate || c->results[i - 1].scope != r->scope)
        return true;
    return check_gates[r->gate].unit == UNIT_BUDGET; /* each states something else */
}

static int name_columns(const struct check *c)
{
    int most = 0;
    for (size_t i = 0; i < c->n; i++) {
        int n = (int)strlen(check_gate_name(c->results[i].gate));
        most = n > most ? n : most;
    }
    return most;
}

void check_view_text(struct check *c, FILE *out, bool all)
{
    struct terminal t = terminal_of(out);
    int names = name_columns(c);
    size_t failed = 0, unknown = 0, n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct check_result *r = &c->results[i];
        if (!is_result_shown(c, i)) continue;
        n++;
        failed += r->status == CHECK_FAILED;
        unknown += r->status == CHECK_UNKNOWN;
        fprintf(out, "%s%-7s%s  %-*s  ", terminal_style(&t, styles[r->status]), marks[r->status],
                terminal_style(&t, TERMINAL_PLAIN), names, check_gate_name(r->gate));
        text_wrap(out, &t, 11 + names, 11 + names, true, check_sentence(c, r));
        print_lines(r, &t, out, all);
    }
    if (failed || unknown) {
        char also[64] = "";
        if (unknown) {
            text_put(also, sizeof also, ", %zu %s unknown, which counts as failure", unknown,
                     unknown == 1 ? "is" : "are");
        }
        fprintf(out, "\n%s", terminal_style(&t, TERMINAL_BOLD));
        text_wrap(out, &t, 0, 0, true, arena_printf(&c->arena, "%zu of %zu checks failed%s", failed, n, also));
        fputs(terminal_style(&t, TERMINAL_PLAIN), out);
    }
}

/* In Markdown's table: escapes characters that would end a cell or begin markup. */
static void print_markdown_cell(FILE *out, const char *text)
{
    char clean[CLEAN];
    terminal_clean(clean, sizeof clean, text, true);
    for (const char *p = clean; *p; p++)
        if (strchr("&<>", *p))
            fputs(*p == '&' ? "&amp;" : *p == '<' ? "&lt;" : "&gt;", out);
        else if (strchr("|\\`*_[]#~", *p))
            fprintf(out, "\\%c", *p);
        else
            fputc(*p, out);
}

void check_view_summary(struct check *c, FILE *out)
{
    fputs("### gpuspy check: ", out);
    print_markdown_cell(out, c->source);
    fputs("\n\n| | check | |\n|---|---|---|\n", out);
    for (size_t i = 0; i < c->n; i++) {
        const struct check_result *r = &c->results[i];
        if (!is_result_shown(c, i)) continue;
        fprintf(out, "| %s | %s | ", r->status == CHECK_OK ? ":white_check_mark:" : ":x:", check_gate_name(r->gate));
        print_markdown_cell(out, check_sentence(c, r));
        for (size_t k = 0; k < r->lines_n && k < LINES; k++) {
            char amount[GATE_VALUE] = "";
            if (!isnan(r->lines[k].amount)) check_gate_value(&check_gates[r->gate], r->lines[k].amount, amount);
            fputs("<br>", out);
            print_markdown_cell(out, r->lines[k].place);
            fprintf(out, "%s%s", *amount ? ": " : "", amount);
        }
        fputs(" |\n", out);
    }
    fputc('\n', out);
}
