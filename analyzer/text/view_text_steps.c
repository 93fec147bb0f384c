/* The program's own steps: "500 steps of 21 ms, by Adam.step at train.py:41". */
#include <stdio.h>
#include <string.h>
#include "analyzer/step/step.h"
#include "analyzer/base/units.h"
#include "analyzer/text/view_text_parts.h"

static bool alike(const struct gs_steps *a, const struct gs_steps *b)
{
    return a->n == b->n && strcmp(a->by, b->by) == 0;
}

void view_text_steps(const struct view_text *v)
{
    enum { LINES = 4 };
    const struct gs_report *r = v->report;

    for (size_t i = 0, lines = 0; i < r->steps_n && lines < LINES; i++) {
        const struct gs_steps *s = r->steps[i];
        char count[UNITS_TEXT], time[UNITS_TEXT], by[512], line[1024], who[64] = "";
        size_t others = 0, before = 0;
        for (size_t k = 0; k < r->steps_n; k++) {
            before += k < i && alike(s, r->steps[k]);
            others += k > i && alike(s, r->steps[k]);
        }
        if (before) continue;
        lines++;
        term_clean(by, sizeof by, s->by, v->term.utf8);
        if (others)
            snprintf(who, sizeof who, ", in each of %zu processes", others + 1);
        else if (r->processes_n > 1)
            snprintf(who, sizeof who, ", in process %u", r->processes[s->process].pid);
        snprintf(line, sizeof line, "%s of %s, by %s%s", format_plural(count, s->n, "step", NULL),
                 format_seconds(time, (double)s->median_ns / 1e9), by, who);
        view_wrap(v, 0, "", line);
    }
}
