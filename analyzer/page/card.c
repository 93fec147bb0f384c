#include "analyzer/page/card.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"

enum {
    WIDTH = 1200, /* the size of previews in chats and on the web, in pixels */
    HEIGHT = 630,
    MARGIN = 56,
    LINE = 34, /* from one line of text to the next */
    CHART_TOP = 372,
    CHART_BOTTOM = 560,
    COLUMNS = 78, /* characters per line: 14 px each, of 1088 px */
    SAMPLES = 136,
    LIMIT_FAR = 4 /* a device that is this many times the peak would leave no room for the curve */
};

static const char *const ink = "#e6e7e9", *const soft = "#a3a8b0", *const bad = "#ff8a7a", *const good = "#6fd0a5",
                         *const accent = "#8ab0ff";

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
        put_text_at(c, MARGIN, c->y, 23, colour, "400", line, strlen(line));
        c->y += LINE;
        p += n;
        p += strspn(p, " ");
    }
}

static const struct result_timeline *card_timeline_of(const struct result_report *r, uint32_t process, int device,
                                                      enum run_series_layer layer)
{
    for (size_t i = 0; i < r->timelines_n; i++)
        if (r->timelines[i].process == process && r->timelines[i].device == device && r->timelines[i].layer == layer)
            return &r->timelines[i];
    return NULL;
}

/* The maximum of each of SAMPLES intervals. */
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

/* Memory over time below the dashed line of the device's size. */
static void put_chart(struct card *c, uint32_t process, int device, double failed_s)
{
    const struct result_report *r = c->report;
    const struct result_timeline *tensors = card_timeline_of(r, process, device, RUN_SERIES_TENSOR),
                                 *held = card_timeline_of(r, process, device, RUN_SERIES_DEVICE);
    const struct run_device *d = result_device_of(r, device);
    int64_t back[SAMPLES] = {0}, front[SAMPLES] = {0}, limit = d && d->total_bytes > 0 ? d->total_bytes : 0, top = 0;
    const double end = process < r->processes_n ? (double)r->processes[process].end_ns / 1e9 : r->duration_s;
    char label[64], size[UNITS_TEXT];

    if (!(end > 0) || (!tensors && !held) || r->no_history) return;
    if (held) sample_card_columns(held, end, back);
    if (tensors) sample_card_columns(tensors, end, front);
    for (int s = 0; s < SAMPLES; s++) {
        top = back[s] > top ? back[s] : top;
        top = front[s] > top ? front[s] : top;
    }
    if (top <= 0) return;
    if (limit > top * LIMIT_FAR) limit = 0;
    top = limit > top ? limit : top;
    put_area(c, back, top, "#2b3a55");
    put_area(c, front, top, "#099d76");
    if (limit) {
        double y = height_of(limit, top);
        fprintf(c->out,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\" "
                "stroke-dasharray=\"9 7\"/>\n",
                MARGIN, WIDTH - MARGIN, y, y, bad);
        text_put(label, sizeof label, "GPU %d: %s", device, units_format_bytes(size, (uint64_t)limit));
        put_text_at(c, MARGIN, (int)y - 8, 18, soft, "400", label, strlen(label));
    }
    if (failed_s >= 0 && failed_s <= end) {
        double x = MARGIN + failed_s / end * (WIDTH - 2 * MARGIN);
        fprintf(c->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"%s\"/>\n", x,
                height_of(limit ? limit : top, top), bad);
    }
}

/* A sentence begins with a capital, unless its first word is a name such as train.py:12. */
static void put_sentence(struct card *c, const char *colour, const char *raw, int lines)
{
    char text[2048];

    text_put(text, sizeof text, "%s", raw);
    if (strcspn(text, "._=(") > strcspn(text, " ,") && text[0] >= 'a' && text[0] <= 'z')
        text[0] = (char)(text[0] - 'a' + 'A');
    put_paragraph(c, colour, text, lines);
}

/* The first advice, without how certain it is: the report has that. */
static void put_advice(struct card *c, const char *advice)
{
    static const char *const certainties[] = {" (recorded", " (inferred", " (guessed"};
    char text[2048];
    int lines = (CHART_TOP - c->y) / LINE;

    text_put(text, sizeof text, "%s", advice);
    for (size_t i = 0; i < sizeof certainties / sizeof *certainties; i++) {
        char *at = strstr(text, certainties[i]);
        if (at) *at = 0;
    }
    put_sentence(c, good, text, lines < 3 ? lines : 3);
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

static void put_failure(struct card *c, const struct result_oom_verdict *o)
{
    char title[128], asked[UNITS_TEXT], at[UNITS_TEXT], line[256], free_[UNITS_TEXT] = "?";

    text_put(title, sizeof title, "%s on GPU %d at %s", o->fatal ? "OUT OF MEMORY" : "Ran out of memory, and went on",
             o->device, units_format_seconds(at, o->time_s));
    put_text_at(c, MARGIN, c->y, 38, bad, "700", title, strlen(title));
    c->y += LINE + 10;
    if (o->free_bytes != RUN_UNKNOWN) units_format_bytes(free_, (uint64_t)o->free_bytes);
    units_format_bytes(asked, (uint64_t)o->requested_bytes);
    if (o->cause == RESULT_CAUSE_PINNED_HOST)
        text_put(line, sizeof line, "%s of pinned host memory requested", asked);
    else
        text_put(line, sizeof line, "%s requested, %s free", asked, free_);
    put_paragraph(c, soft, line, 1);
    if (o->verdict) put_sentence(c, ink, o->verdict, 3);
    put_source(c, o);
    if (o->advice_n) put_advice(c, o->advice[0]);
    put_chart(c, o->process, o->device, o->time_s);
}

static void format_card_site(char *out, size_t size, const struct result_site *s)
{
    const char *file = s->file ? s->file : "", *at = file;
    while (*(at += strcspn(at, "/\\"))) file = ++at;
    if (!s->known)
        text_put(out, size, "(no stack recorded)");
    else if (s->line > 0)
        text_put(out, size, "%s:%d  %s", file, s->line, s->function ? s->function : "");
    else
        text_put(out, size, "%s%s%s", file, *file ? "  " : "", s->function ? s->function : "");
}

static void no_failure(struct card *c)
{
    const struct result_report *r = c->report;
    const struct result_peak *peak = NULL;
    char title[128], bytes[UNITS_TEXT], total[UNITS_TEXT], share[UNITS_TEXT], site[192], line[256];

    for (size_t i = 0; i < r->peaks_n; i++)
        if (r->peaks[i].device >= 0 && r->peaks[i].layer != RUN_SERIES_SHARED &&
            (!peak || r->peaks[i].bytes > peak->bytes))
            peak = &r->peaks[i];
    const struct run_device *d = peak ? result_device_of(r, peak->device) : NULL;
    if (!peak)
        text_put(title, sizeof title, "No GPU memory");
    else
        text_put(title, sizeof title, "%s %s", r->no_history ? "Live" : "Peak",
                 units_format_bytes(bytes, (uint64_t)peak->bytes));
    put_text_at(c, MARGIN, c->y, 38, accent, "700", title, strlen(title));
    c->y += LINE + 10;
    if (d && d->total_bytes > 0) {
        text_put(line, sizeof line, "%s of GPU %d's %s",
                 units_format_share(share, (double)peak->bytes / (double)d->total_bytes), peak->device,
                 units_format_bytes(total, (uint64_t)d->total_bytes));
        put_paragraph(c, soft, line, 1);
    }
    for (size_t i = 0; peak && i < peak->by_line_n && i < 3; i++) {
        format_card_site(site, sizeof site, &peak->by_line[i].site);
        text_put(line, sizeof line, "%11s  %s", units_format_bytes(bytes, (uint64_t)peak->by_line[i].bytes), site);
        put_paragraph(c, ink, line, 1);
    }
    for (size_t i = 0; i < r->advice_n && i < 1; i++) put_sentence(c, good, r->advice[i].text, 2);
    if (peak) put_chart(c, peak->process, peak->device, -1);
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
    text_elide(shown, sizeof shown, command, COLUMNS, true);
    put_text_at(&c, MARGIN, HEIGHT - 28, 18, soft, "400", shown, strlen(shown));
    fprintf(out, "<text x=\"%d\" y=\"%d\" font-size=\"18\" fill=\"%s\" text-anchor=\"end\">gpuspy</text>\n</svg>\n",
            WIDTH - MARGIN, HEIGHT - 28, accent);
}
