/* The program's own ranges, where it has marked some: the few that took longest. */
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/text/view_text_parts.h"

#define MOST 5

void view_text_marks(const struct view_text *v)
{
    const struct gs_report *r = v->report;
    struct table t = {.head = {"time", "times", "range"}, .left = {false, false, true}};
    size_t shown = 0, most = v->top < MOST ? v->top : MOST;

    for (size_t i = 0; i < r->marks_n && shown < most; i++) {
        const struct gs_mark_total *m = &r->marks[i];
        char time[UNITS_TEXT], count[UNITS_TEXT], name[128], domain[64], text[256];
        if (m->total_ns <= 0) continue;
        if (!shown++) view_heading(v, TERM_BOLD, "Ranges", " that the program marks (NVTX)");
        term_clean(name, sizeof name, m->name ? m->name : "(no name)", v->term.utf8);
        term_clean(domain, sizeof domain, m->domain ? m->domain : "", v->term.utf8);
        snprintf(text, sizeof text, "%s%s%s", domain, *domain ? ": " : "", name);
        const char *cells[] = {format_seconds(time, (double)m->total_ns / 1e9), format_count(count, m->count), text};
        table_add(&t, cells, NULL);
    }
    if (shown) table_print(&t, &v->term, INDENT, v->out);
}
