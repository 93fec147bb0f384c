#include "analyzer/page/card.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"

enum {
    WIDTH = 1200, /* the size of previews in chats and on the web, in pixels */
    HEIGHT = 630,
    MARGIN = 56,
    LINE = 28, /* from one line of text to the next */
    TITLE = 38,
    TEXT = 20, /* sizes of the text; a character is 0.602 of its size wide */
    SMALL = 16,
    CHART_TOP = 384,
    CHART_BOTTOM = 556,
    COLUMNS = 90,
    SAMPLES = 136,
    LIMIT_FAR = 4 /* a device that is this many times the peak would leave no room for the curve */
};

static const char *const ink = "#e6e7e9", *const soft = "#a3a8b0", *const bad = "#ff8a7a", *const good = "#6fd0a5",
                         *const accent = "#8ab0ff", *const of_tensors = "#099d76", *const of_cache = "#2f4470",
                         *const of_others = "#53575f";

struct card {
    const struct result_report *report;
    FILE *out;
    int y; /* baseline of the next line */
};

static void put_escaped(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (text[i]) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(text[i], out);
        }
    }
}

static void put_text_at(struct card *c, int x, int y, int size, const char *colour, const char *weight,
                        const char *text, size_t n)
{
    fprintf(c->out, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" fill=\"%s\" font-weight=\"%s\" xml:space=\"preserve\">",
            x, y, size, colour, weight);
    put_escaped(c->out, text, n);
    fputs("</text>\n", c->out);
}

/* In large letters, as wide as the card at most. */
static void put_card_title(struct card *c, const char *colour, const char *title)
{
    const int fits = (int)((WIDTH - 2 * MARGIN) / (0.602 * (double)strlen(title)));

    put_text_at(c, MARGIN, c->y, fits < TITLE ? fits : TITLE, colour, "700", title, strlen(title));
    c->y += LINE + 14;
}

/* At most `lines` lines of words; the last one ends with an ellipsis if there are more. */
static void put_paragraph(struct card *c, const char *colour, const char *raw, int lines)
{
    char clean[2048];
    const char *p = terminal_clean(clean, sizeof clean, raw, true);

    for (int i = 0; i < lines && *p; i++) {
        char line[COLUMNS * 4 + 8];
        const size_t n = text_line_length(p, COLUMNS);
        bool cut = p[n] && i + 1 == lines;
        text_put(line, sizeof line, "%.*s%s", (int)n, p, cut ? "…" : "");
        put_text_at(c, MARGIN, c->y, TEXT, colour, "400", line, strlen(line));
        c->y += LINE;
        p += n;
        p += strspn(p, " ");
    }
}

static void sample_card_columns(const struct result_timeline *t, double end, int64_t most[SAMPLES])
{
    size_t i = 0;
    int64_t now = 0;

    for (int s = 0; s < SAMPLES; s++) {
        double until = end * (s + 1) / SAMPLES;
        most[s] = now;
        for (; i < t->n && (t->points[i].time_s < until || s + 1 == SAMPLES); i++) {
            now = t->points[i].bytes;
            most[s] = now > most[s] ? now : most[s];
        }
    }
}

static double height_of(int64_t bytes, int64_t top)
{
    return CHART_BOTTOM - (double)bytes / (double)top * (CHART_BOTTOM - CHART_TOP);
}

static void put_area(struct card *c, const int64_t most[SAMPLES], int64_t top, const char *colour)
{
    const double step = (double)(WIDTH - 2 * MARGIN) / SAMPLES;

    fprintf(c->out, "<path fill=\"%s\" d=\"M%d %d", colour, MARGIN, CHART_BOTTOM);
    for (int s = 0; s < SAMPLES; s++)
        fprintf(c->out, "L%.1f %.1fH%.1f", MARGIN + s * step, height_of(most[s], top), MARGIN + (s + 1) * step);
    fprintf(c->out, "V%dZ\"/>\n", CHART_BOTTOM);
}

/* The areas' colours, in order, with words. */
static void put_card_legend(struct card *c, const char *const words[], const char *const colours[], int n)
{
    int x = MARGIN;

    for (int i = 0; i < n; i++) {
        if (!words[i]) continue;
        fprintf(c->out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, CHART_BOTTOM + 9,
                colours[i]);
        put_text_at(c, x + 19, CHART_BOTTOM + 20, SMALL, soft, "400", words[i], strlen(words[i]));
        x += 19 + (int)(0.602 * SMALL * (double)strlen(words[i])) + 28;
    }
}

static void put_card_limit(struct card *c, int device, int64_t limit, double y)
{
    char label[64];

    fprintf(c->out,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\" "
            "stroke-dasharray=\"9 7\"/>\n",
            MARGIN, WIDTH - MARGIN, y, y, bad);
    text_put(label, sizeof label, "GPU %d: %s", device, UNITS_BYTES((uint64_t)limit));
    put_text_at(c, MARGIN, (int)y - 8, SMALL, soft, "400", label, strlen(label));
}

/* Memory over time below the dashed line of the device's size, up to the failure `o` if it ended the program. What the
 * device held besides is known at the failure only, and drawn as if it had been the same before. */
static void put_chart(struct card *c, uint32_t process, int device, const struct result_oom_verdict *o)
{
    const char *const colours[] = {of_tensors, of_cache, of_others};
    const struct result_report *r = c->report;
    const bool pinned = o && o->space == GS_SPACE_PINNED;
    const struct result_timeline *tensors = result_timeline_of(r, process, device, RUN_SERIES_TENSOR),
                                 *held = result_timeline_of(r, process, device, RUN_SERIES_DEVICE);
    const struct run_device *d = pinned ? NULL : result_device_of(r, device);
    int64_t back[SAMPLES] = {0}, front[SAMPLES] = {0}, base[SAMPLES] = {0};
    int64_t limit = d && d->total_bytes > 0 ? d->total_bytes : 0, top = 0, others = 0;
    double end = process < r->processes_n ? (double)r->processes[process].end_ns / 1e9 : r->duration_s;

    if (o && o->fatal && o->time_s > 0 && o->time_s * 1.02 < end) end = o->time_s * 1.02;
    if (pinned) {
        tensors = NULL;
        held = result_timeline_of(r, process, -1, RUN_SERIES_PINNED);
    }
    if (!(end > 0) || (!tensors && !held) || r->no_history) return;
    if (o && !pinned && o->outside != RUN_UNKNOWN && o->outside > 0 && held) others = o->outside;
    if (held) sample_card_columns(held, end, back);
    if (tensors) sample_card_columns(tensors, end, front);
    for (int s = 0; s < SAMPLES; s++) {
        base[s] = others;
        back[s] += others;
        front[s] += tensors ? others : 0;
        top = back[s] > top ? back[s] : top;
        top = front[s] > top ? front[s] : top;
    }
    if (top <= 0) return;
    if (limit > top * LIMIT_FAR) limit = 0;
    top = limit > top ? limit : top;
    if (held) put_area(c, back, top, of_cache);
    if (tensors) put_area(c, front, top, of_tensors);
    if (others) put_area(c, base, top, of_others);
    if (limit) put_card_limit(c, device, limit, height_of(limit, top));
    put_card_legend(c,
                    (const char *[]){tensors ? "PyTorch's tensors" : NULL,
                                     pinned    ? "pinned host memory"
                                     : !held   ? NULL
                                     : tensors ? "PyTorch's cache, other CUDA allocations"
                                               : "CUDA allocations",
                                     others ? "context, other processes (at the failure)" : NULL},
                    colours, 3);
    if (o && o->time_s >= 0 && o->time_s <= end)
        fprintf(c->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"%s\"/>\n",
                MARGIN + o->time_s / end * (WIDTH - 2 * MARGIN), height_of(limit ? limit : top, top), bad);
}

/* The first thing to do and what it frees, without how certain that is: the report has that. */
static void put_advice(struct card *c, const char *advice)
{
    static const char *const certainties[] = {" (recorded", " (inferred", " (guessed"};
    char text[2048], action[2048];
    const int lines = (CHART_TOP - LINE - c->y) / LINE + 1; /* down to the label of the limit */

    text_put(text, sizeof text, "%s", advice);
    for (size_t i = 0; i < COUNT_OF(certainties); i++) {
        char *at = strstr(text, certainties[i]);
        if (at) *at = 0;
    }
    char *frees = strstr(text, ": frees ");
    if (frees) *frees = 0;
    text_put(action, sizeof action, "To do: %s", text);
    put_paragraph(c, good, action, lines - (frees != NULL) < 3 ? lines - (frees != NULL) : 3);
    if (!frees) return;
    text_put(action, sizeof action, "Frees %s", frees + strlen(": frees "));
    put_paragraph(c, good, action, 1);
}

static void put_source(struct card *c, const struct result_oom_verdict *o)
{
    const struct result_excerpt *e = o->source_n ? o->source : NULL;
    const int at = e ? e->line - e->first_line : -1;
    char line[512];

    if (at < 0 || (size_t)at >= e->n) return;
    text_put(line, sizeof line, "%d | %s", e->line, e->lines[at] + strspn(e->lines[at], " \t"));
    put_paragraph(c, accent, line, 1);
}

static void put_card_cause(struct card *c, const char *verdict)
{
    char text[2048];

    text_put(text, sizeof text, "%s", verdict);
    if (!memchr(text, '.', strcspn(text, " "))) text[0] = (char)toupper((unsigned char)text[0]); /* not of a file */
    char *evidence = strstr(text, ". Evidence: ");
    if (evidence) *evidence = 0;
    put_paragraph(c, ink, text, 3);
}

static void put_failure(struct card *c, const struct result_oom_verdict *o)
{
    const char *const what = o->fatal     ? "OUT OF MEMORY"
                             : o->handled ? "Out of memory, handled,"
                                          : "Succeeded on a retry,";
    char title[128], asked[UNITS_TEXT], at[UNITS_TEXT], line[256], free_[UNITS_TEXT] = "?";
    char bytes[UNITS_TEXT], segment[UNITS_TEXT + 16] = "", rank[32] = "";
    const int64_t of = c->report->processes[o->process].rank;

    units_format_seconds(at, o->time_s);
    if (of != RUN_UNKNOWN) text_put(rank, sizeof rank, "rank %lld, ", (long long)of);
    if (o->space == GS_SPACE_PINNED)
        text_put(title, sizeof title, "%s: pinned host memory, at %s", o->fatal ? what : "Handled", at);
    else
        text_put(title, sizeof title, "%s on %sGPU %d at %s", what, rank, o->device, at);
    put_card_title(c, bad, title);
    if (o->free_bytes != RUN_UNKNOWN) units_format_bytes(free_, (uint64_t)o->free_bytes);
    units_format_bytes(asked, (uint64_t)o->requested_bytes);
    if (o->segment_bytes) {
        units_format_bytes(bytes, (uint64_t)o->segment_bytes);
        if (strcmp(bytes, asked) != 0) text_put(segment, sizeof segment, " (%s from CUDA)", bytes);
    }
    if (o->space == GS_SPACE_PINNED)
        text_put(line, sizeof line, "%s of pinned host memory requested", asked);
    else
        text_put(line, sizeof line, "%s requested%s, %s free", asked, segment, free_);
    put_paragraph(c, soft, line, 1);
    if (o->verdict) put_card_cause(c, o->verdict);
    put_source(c, o);
    if (o->advice_n) put_advice(c, o->advice[0]);
    put_chart(c, o->process, o->device, o);
}

static void format_card_site(char *out, size_t size, const struct result_site *s)
{
    const char *file = s->file ? s->file : "", *at = file, *function = s->function ? s->function : "";
    const int n = (int)text_without_comprehension(function);
    while (*(at += strcspn(at, "/\\"))) file = ++at;
    if (!s->known)
        text_put(out, size, "(no stack recorded)");
    else if (s->line > 0)
        text_put(out, size, "%s:%d  %.*s%s%s", file, s->line, n, function, s->operation ? " → " : "",
                 s->operation ? s->operation : "");
    else
        text_put(out, size, "%s%s%.*s", file, *file ? "  " : "", n, function);
}

#define FIGURE_SPACE "\u2007" /* as wide as a digit */

/* The lines that held most. */
static void put_card_lines(struct card *c, const struct result_peak *peak)
{
    char bytes[UNITS_TEXT], site[192], line[256];
    size_t wide = 0;

    for (size_t i = 0; i < peak->by_line_n && i < 3; i++) {
        const size_t n = strlen(units_format_bytes(bytes, (uint64_t)peak->by_line[i].bytes));
        wide = n > wide ? n : wide;
    }
    for (size_t i = 0; i < peak->by_line_n && i < 3; i++) {
        format_card_site(site, sizeof site, &peak->by_line[i].site);
        size_t pad = wide - strlen(units_format_bytes(bytes, (uint64_t)peak->by_line[i].bytes));
        *line = 0;
        while (pad--) strcat(line, FIGURE_SPACE);
        text_put(line + strlen(line), sizeof line - strlen(line), "%s  %s", bytes, site);
        put_paragraph(c, ink, line, 1);
    }
}

/* How the program failed, if it did, although no allocation failed for good. */
static void put_card_ending(struct card *c)
{
    char how[RUN_FAILURE_TEXT], line[RUN_FAILURE_TEXT + 256];
    EACH_IN (p, c->report->processes) {
        if (!run_process_failure(p, how, sizeof how)) continue;
        const char *outcome = result_outcome_text(c->report), *hint = result_outcome_hint(c->report);
        text_put(line, sizeof line, "%s; %c%s", how, text_first_in_clause(outcome), outcome + 1);
        put_paragraph(c, bad, line, 2);
        if (hint) put_paragraph(c, ink, hint, 2);
        return;
    }
}

static void no_failure(struct card *c)
{
    const struct result_report *r = c->report;
    const struct result_peak *peak = NULL, *tensors = NULL;
    char title[128], line[256];

    for (size_t i = 0; i < r->peaks_n; i++)
        if (r->peaks[i].device >= 0 && r->peaks[i].layer != RUN_SERIES_SHARED &&
            (!peak || r->peaks[i].bytes > peak->bytes))
            peak = &r->peaks[i];
    for (size_t i = 0; peak && i < r->peaks_n; i++) /* as in the report: tensors if there are any */
        if (r->peaks[i].layer == RUN_SERIES_TENSOR && r->peaks[i].process == peak->process &&
            r->peaks[i].device == peak->device)
            tensors = &r->peaks[i];
    const struct run_device *d = peak ? result_device_of(r, peak->device) : NULL;
    if (!peak)
        text_put(title, sizeof title, "No GPU memory was allocated");
    else
        text_put(title, sizeof title, "%s %s", r->no_history ? "Live" : "Peak", UNITS_BYTES((uint64_t)peak->bytes));
    put_card_title(c, accent, title);
    put_card_ending(c);
    if (d && d->total_bytes > 0) {
        text_put(line, sizeof line, "%s of GPU %d's %s", UNITS_SHARE((double)peak->bytes / (double)d->total_bytes),
                 peak->device, UNITS_BYTES((uint64_t)d->total_bytes));
        put_paragraph(c, soft, line, 1);
    }
    if (peak) put_card_lines(c, tensors ? tensors : peak);
    if (r->advice_n) put_advice(c, r->advice[0].text);
    if (peak) put_chart(c, peak->process, peak->device, NULL);
}

void page_card(const struct result_report *report, FILE *out)
{
    struct card c = {.report = report, .out = out, .y = MARGIN + 34};
    char command[512], shown[COLUMNS * 4];

    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#111316\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    if (report->ooms_n)
        put_failure(&c, &report->ooms[0]);
    else
        no_failure(&c);
    terminal_clean(command, sizeof command, report->command ? report->command : "", true);
    text_command(shown, sizeof shown, command, COLUMNS, true);
    put_text_at(&c, MARGIN, HEIGHT - 20, SMALL, soft, "400", shown, strlen(shown));
    fprintf(out, "<text x=\"%d\" y=\"%d\" font-size=\"18\" fill=\"%s\" text-anchor=\"end\">gpuspy</text>\n</svg>\n",
            WIDTH - MARGIN, HEIGHT - 20, accent);
}
