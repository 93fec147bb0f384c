/* In which of the program's own steps it ran out of memory. */
#include "analyzer/category/category_use.h"
#include "analyzer/oom/oom.h"
#include "analyzer/step/step.h"

int64_t gs_oom_step(const struct gs_builder *b, const struct gs_oom_verdict *v)
{
    const struct gs_steps *steps = gs_steps_of(b, v->process);
    if (!steps) {
        return gs_uses_first_step(b->report->uses, v->process, v->time_ns) ? 1 : GS_UNKNOWN;
    }
    if (steps->source == GS_STEP_PERIOD || v->time_ns < gs_step_start(steps, 0)) {
        return GS_UNKNOWN;
    }
    return (int64_t)gs_steps_done(steps, v->time_ns) + 1;
}
