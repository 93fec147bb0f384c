/* A dry run in a loop that waits for values that a simulated GPU does not compute (the driver's mark,
 * fixtures/simcuda/driver/loop.c): the memory that such a loop collects is no evidence about the program on a real GPU.
 */
#include "analyzer/question/question.h"

static const char advice[] = "give the loop a maximum that the dry run can reach (max_steps, max_new_tokens); on a "
                             "real GPU the values may end it";

/* The last of the OOMs whose memory the loop may have collected: their cause is not a verdict on the program. */
static void explain_ooms(struct site_builder *b)
{
    struct result_report *r = b->report;
    EACH_IN (o, r->ooms) {
        if (!o->fatal && o->outcome != RESULT_OUTCOME_UNKNOWN) continue;
        o->cause = RESULT_CAUSE_CAPACITY;
        o->verdict = arena_printf(b->arena,
                                  "%s; the memory was used up in that loop, which may end earlier on a "
                                  "real GPU (inferred: the loop was running when memory ran out)",
                                  r->loop);
        o->advice = arena_alloc(b->arena, sizeof *o->advice);
        o->advice[0] = advice;
        o->advice_n = 1;
        o->measures_n = 0;
    }
}

void question_loop_build(struct site_builder *b)
{
    struct result_report *r = b->report;
    r->loop = run_endless_loop(b->run);
    if (!r->loop) return;
    explain_ooms(b);
    r->growth_n = r->growth_total = 0;
    for (size_t i = 0; i < r->leaks_n; i++) r->leaks[i].growing = false;
}

void question_loop_advice(struct site_builder *b)
{
    struct result_report *r = b->report;
    if (!r->loop) return;
    struct result_advice *list = arena_alloc(b->arena, sizeof *list);
    *list = (struct result_advice){.impact = 2, .topic = r->ooms_n ? "oom" : "loop", .text = advice};
    r->advice = list;
    r->advice_n = 1;
}
