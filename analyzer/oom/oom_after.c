/* How it went on after a failure: did it end the program, or was it handled?
 *
 * What tells, surest first: further steps of the program's own; the status that it gave to exit; call paths
 * that had allocated before and did so again. A thread of Python's that dies of an exception ends nobody
 * else, so the program's status says nothing of it. A program that writes a checkpoint before it gives up
 * allocates, too, and perhaps more than was refused: but on call paths of its own, it takes no further step,
 * and exits with an error. Where a recording has no status (of an earlier gpuspy, or a signal or _exit ended
 * the process) only what was allocated later is left, as the recorder saw it and as seen here.
 */
#include "analyzer/oom/oom_words.h"
#include "analyzer/step/step.h"

#include <string.h>

enum { AGAIN = 8, SOME = 16, STEPS = 2 /* the one it fell into, and a further one */ };

static bool of_its_own(const struct gs_run *run, const struct gs_oom *row, uint32_t *main_thread)
{
    size_t n, processes_n;
    const struct gs_thread *t = gs_run_threads(run, &n);
    int64_t pid = gs_run_processes(run, &processes_n)[row->process].pid;
    bool is_main = false;
    *main_thread = row->thread;
    for (size_t i = 0; i < n; i++) {
        if (t[i].process == row->process && t[i].tid == pid) {
            *main_thread = t[i].number;
            is_main = t[i].number == row->thread;
        }
    }
    return !is_main && gs_stack_in(run, row->stack, "threading", "_bootstrap");
}

void gs_oom_after_begin(const struct gs_run *run, const struct gs_oom *row, struct gs_oom_after *a)
{
    *a = (struct gs_oom_after){.known_paths = gs_run_locations(run),
                               .failed = gs_stack_python(run, row->stack),
                               .first_stack = GS_NONE,
                               .thread = row->thread,
                               .steps = GS_UNKNOWN,
                               .exit_status = -1};
    a->own_thread = of_its_own(run, row, &a->main_thread);
}

void gs_oom_after_alloc(struct gs_oom_after *a, const struct gs_lifetime *life, uint32_t line)
{
    if (life->layer > GS_LAYER_TENSOR ||
        (life->thread != a->thread && (a->own_thread || life->thread != a->main_thread))) {
        return;
    }
    if (!a->times++) {
        a->first_stack = life->stack;
    }
    a->again += life->location < a->known_paths;
    a->granted = a->granted || line == a->failed;
}

/* As much new memory as was live, in an orderly process: tear-down needs none. */
static bool allocated_on(const struct gs_oom_after *a, bool complete)
{
    return complete && a->live > 0 && a->allocations >= SOME && a->bytes >= a->live;
}

/* `served`: as the recorder saw it. */
static enum gs_oom_outcome without_status(const struct gs_oom_after *a, bool served, bool complete)
{
    if (served || (a->steps == GS_UNKNOWN && allocated_on(a, complete))) {
        return GS_OUTCOME_HANDLED;
    }
    return a->again || (a->times && !complete) ? GS_OUTCOME_UNKNOWN : GS_OUTCOME_ENDED;
}

static enum gs_oom_outcome at_an_error(const struct gs_oom_after *a, bool served)
{
    if (a->granted || a->again >= AGAIN) {
        return GS_OUTCOME_HANDLED;
    }
    return !a->times || (!served && !a->again) ? GS_OUTCOME_ENDED : GS_OUTCOME_UNKNOWN;
}

/* PyTorch throws, and what nobody catches makes a status; CUDA's result can be passed over in silence. */
static enum gs_oom_outcome at_success(const struct gs_oom_after *a, const struct gs_oom *row, bool served)
{
    bool thrown = row->layer == GS_LAYER_TENSOR && !a->own_thread;
    return thrown || served || a->times ? GS_OUTCOME_HANDLED : GS_OUTCOME_UNKNOWN;
}

enum gs_oom_outcome gs_oom_after_end(const struct gs_builder *b, const struct gs_oom *row, bool served,
                                     struct gs_oom_after *a)
{
    size_t n;
    const struct gs_process *p = &gs_run_processes(b->run, &n)[row->process];
    const struct gs_steps *steps = gs_steps_of(b, row->process);
    a->exit_status = p->exit_status;
    if (steps && steps->source != GS_STEP_PERIOD) {
        a->steps = (int64_t)(steps->n - gs_steps_done(steps, row->time_ns));
    }
    if (a->steps != GS_UNKNOWN && a->steps >= STEPS) {
        return GS_OUTCOME_HANDLED;
    }
    if (p->exit_status < 0) {
        return without_status(a, served, p->complete);
    }
    return p->exit_status ? at_an_error(a, served) : at_success(a, row, served);
}

/* --- in words ------------------------------------------------------------------------------------
 */

#define TEXT(w, ...) gs_arena_printf((w)->b->arena, __VA_ARGS__)

static const char *end_text(struct gs_oom_words *w, const struct gs_oom_after *a)
{
    size_t n;
    const struct gs_process *p = &gs_run_processes(w->b->run, &n)[w->f->row->process];
    return a->exit_status >= 0 ? TEXT(w, "the program exited with status %d", a->exit_status)
           : p->complete       ? "how the program ended was not recorded"
                               : "the program was killed, or left by _exit";
}

static const char *followed(struct gs_oom_words *w, const struct gs_oom_after *a)
{
    if (!a->times) {
        return "nothing was allocated after it";
    }
    const char *first = a->first_stack != GS_NONE ? gs_oom_place(w, a->first_stack) : NULL;
    return TEXT(w, "%llu allocation%s followed%s%s, %s", (unsigned long long)a->times, a->times == 1 ? "" : "s",
                first ? ", the first at " : "", first ? first : "",
                a->again ? TEXT(w, "%llu of them where it had allocated before", (unsigned long long)a->again)
                         : "none where it had allocated before");
}

const char *gs_oom_after_text(struct gs_oom_words *w)
{
    const struct gs_oom_after *a = &w->f->after;
    bool stepped = a->steps != GS_UNKNOWN && a->steps >= STEPS;
    switch (w->f->outcome) {
    case GS_OUTCOME_HANDLED:
        return stepped ? TEXT(w, "the program made %lld more step%s", (long long)a->steps - 1, a->steps == 2 ? "" : "s")
               : a->exit_status == 0 ? "the program went on, and exited with status 0"
               : a->granted          ? "the program came by the line that failed again"
                                     : followed(w, a);
    case GS_OUTCOME_ENDED: return TEXT(w, "%s; %s", followed(w, a), end_text(w, a));
    case GS_OUTCOME_UNKNOWN:
        return TEXT(w, "whether the program handled it cannot be told: %s; %s%s", followed(w, a),
                    a->steps != GS_UNKNOWN ? "no further step; " : "", end_text(w, a));
    default: return NULL;
    }
}
