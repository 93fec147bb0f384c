/* In which of the program's own steps it ran out of memory. */
#include "analyzer/category/category_use.h"
#include "analyzer/oom/oom.h"
#include "analyzer/step/step.h"

int64_t oom_step_of(const struct site_builder *b, const struct result_oom_verdict *v)
{
    const struct step_list *steps = step_list_of(b, v->process);
    if (!steps) return category_uses_is_first_step(b->report->uses, v->process, v->time_ns) ? 1 : RUN_UNKNOWN;
    if (steps->source == STEP_SOURCE_PERIOD || v->time_ns < step_start_ns(steps, 0)) return RUN_UNKNOWN;
    return (int64_t)step_count_done(steps, v->time_ns) + 1;
}
