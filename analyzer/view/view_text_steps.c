/* The program's own steps: "500 steps of 21 ms, by Adam.step at train.py:41". */
#include <stdio.h>
#include <string.h>
#include "analyzer/step/step.h"
#include "analyzer/base/each.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

static bool are_steps_alike(const struct step_list *a, const struct step_list *b)
{
    return a->n == b->n && strcmp(a->by, b->by) == 0;
}

/* The step in which memory ran out is none of them: its number is one more, which the verdict names. */
static bool is_last_step_incomplete(const struct result_report *r, const struct step_list *s)
{
    return ANY_IN(o, r->ooms, o->fatal && o->process == s->process && o->step == (int64_t)s->n + 1);
}

void view_text_steps(const struct draw_text *v)
{
    enum { LINES = 4 };
    const struct result_report *r = v->report;

    for (size_t i = 0, lines = 0; i < r->steps_n && lines < LINES; i++) {
        const struct step_list *s = r->steps[i];
        char by[512], who[64] = "", since[2 * UNITS_TEXT + 64] = "", kept[UNITS_TEXT];
        size_t others = 0, before = 0;
        for (size_t k = 0; k < r->steps_n; k++) {
            before += k < i && are_steps_alike(s, r->steps[k]);
            others += k > i && are_steps_alike(s, r->steps[k]);
        }
        if (before) continue;
        lines++;
        terminal_clean(by, sizeof by, s->by, v->term.utf8);
        if (others)
            snprintf(who, sizeof who, ", in each of %zu processes", others + 1);
        else if (r->processes_n > 1)
            snprintf(who, sizeof who, ", in process %u", r->processes[s->process].pid);
        const int64_t from = r->processes[s->process].kept_from_ns;
        if (s->removed)
            snprintf(since, sizeof since, ", %s of them after %s", units_format_count(kept, s->n - s->removed),
                     UNITS_SECONDS((double)from / 1e9));
        else if (from)
            snprintf(since, sizeof since, " after %s", UNITS_SECONDS((double)from / 1e9));
        draw_wrap(v, 0, "", "%s %s%s%s%s%s, by %s%s", UNITS_COUNT(s->n),
                  is_last_step_incomplete(r, s) ? "complete " : "", s->n == 1 ? "step" : "steps",
                  r->no_times ? "" : " of ", r->no_times ? "" : UNITS_SECONDS((double)s->median_ns / 1e9), since, by,
                  who);
    }
}
