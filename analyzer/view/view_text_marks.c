/* The program's own ranges, where it has marked some: the few that took longest. */
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

#define MOST 5

void view_text_marks(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table t = {.head = {"time", "times", "range"}, .left = {false, false, true}};
    size_t shown = 0, most = v->top < MOST ? v->top : MOST;

    for (size_t i = 0; i < r->marks_n && shown < most; i++) {
        const struct run_mark_total *m = &r->marks[i];
        char time[UNITS_TEXT], count[UNITS_TEXT], name[128], domain[64], text[256];
        if (m->total_ns <= 0) continue;
        if (!shown++) draw_heading(v, TERMINAL_BOLD, "Ranges", " that the program marks (NVTX)");
        terminal_clean(name, sizeof name, m->name ? m->name : "(no name)", v->term.utf8);
        terminal_clean(domain, sizeof domain, m->domain ? m->domain : "", v->term.utf8);
        snprintf(text, sizeof text, "%s%s%s", domain, *domain ? ": " : "", name);
        const char *cells[] = {units_format_seconds(time, (double)m->total_ns / 1e9),
                               units_format_count(count, m->count), text};
        text_table_add(&t, cells, NULL);
    }
    if (shown) text_table_print(&t, &v->term, INDENT, v->out);
}
