/* A line of the screen while it is built. */
#include "analyzer/top/view_parts.h"

#include <math.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/draw/view.h"

void top_put(struct top_line *l, enum terminal_style style, const char *format, ...)
{
    char raw[TOP_LINE], text[TOP_LINE];
    TEXT_FORMAT(raw, sizeof raw, format);
    terminal_clean(text, sizeof text, raw, l->v->term.utf8);
    size_t n = terminal_fit(text, l->v->columns - l->at);
    text[n] = 0;
    if (n) {
        fprintf(l->out, "%s%s%s", terminal_style(&l->v->term, style), text,
                style == TERMINAL_PLAIN ? "" : terminal_style(&l->v->term, TERMINAL_PLAIN));
    }
    l->at += terminal_columns(text);
}

void top_finish(struct top_line *l)
{
    fputc('\n', l->out);
    l->at = 0;
}

void top_words(struct top_line *l, int hang, enum terminal_style style, const char *text)
{
    char word[TOP_LINE];
    for (const char *p = text; *p; p += strspn(p, " ")) {
        size_t n = text_word_length(p);
        snprintf(word, sizeof word, "%.*s", (int)top_min((int64_t)n, TOP_LINE - 1), p);
        if (l->at > hang && l->at + 1 + terminal_columns(word) > l->v->columns) {
            top_finish(l);
            top_put(l, TERMINAL_PLAIN, "%*s", hang, "");
        } else if (l->at > hang) {
            top_put(l, style, " ");
        }
        top_put(l, style, "%s", word);
        p += n;
    }
    top_finish(l);
}

char *top_bytes(char out[UNITS_TEXT], int64_t bytes)
{
    return units_format_bytes(out, (uint64_t)top_max(bytes, 0));
}

char *top_rate(char out[UNITS_TEXT], double rate)
{
    if (isnan(rate)) return strcpy(out, "?");
    const char *unit = rate >= 999500 ? "M" : rate >= 999.5 ? "k" : "";
    double n = *unit == 'M' ? rate / 1e6 : *unit ? rate / 1e3 : rate;
    snprintf(out, UNITS_TEXT, n >= 99.95 || (n == 0 && !*unit) ? "%.0f%s" : n >= 9.995 ? "%.1f%s" : "%.2f%s", n, unit);
    return out;
}

char *top_site_text(const struct top_view *v, char *out, size_t size, const struct result_site *site, int columns)
{
    const struct top_model *m = v->tables->model;
    struct run_process process = {.cwd = m->sources_n ? m->sources[0].cwd : NULL};
    struct result_report report = {.processes = &process, .processes_n = 1};
    struct draw_text text = {.report = &report, .term = v->term};
    return draw_site(&text, out, size, site, columns);
}
