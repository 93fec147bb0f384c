/* steps[] of the JSON report. */
#include "analyzer/json/json_parts.h"
#include "analyzer/step/step.h"

static json_t *steps_json(const struct result_report *r, const struct step_list *s)
{
    json_t *o = json_object();
    set_count(o, "pid", r->processes[s->process].pid);
    set_bytes(o, "rank", r->processes[s->process].rank);
    set_text(o, "source", step_source_word(s->source));
    SET_MEMBERS(o, s, evidence, n, steady);
    if (r->processes[s->process].kept_from_ns)
        set_bytes(o, "removed", s->removed_unknown ? RUN_UNKNOWN : (int64_t)s->removed);
    set_real(o, "median_s", (double)s->median_ns / 1e9);
    set_real(o, "first_s", (double)step_start_ns(s, 0) / 1e9);
    set_real(o, "last_s", (double)step_start_ns(s, s->n) / 1e9);
    set_json(o, "site", draw_json_site(&s->site));
    return o;
}

json_t *json_steps(const struct result_report *r)
{
    return LIST_OF(r->steps_n, i, steps_json(r, r->steps[i]));
}
