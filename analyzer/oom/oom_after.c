/* What happened after a failure: did it end the program, or did the program handle it?
 *
 * The evidence, strongest first: the exception that ended the program (a pool of threads finishes its other items
 * first); further steps of the program; its exit status; call paths that had allocated before
 * and did so again. An exception that ends a Python thread does not end the process, so the exit status shows nothing
 * about it. A program that writes a checkpoint before it gives up also allocates, perhaps more than was refused, but on
 * new call paths, without a further step, and it exits with an error. If a recording has no exit status (an earlier
 * gpuspy made it, or a signal or _exit ended the process), only the later allocations remain as evidence: those that
 * the recorder noted and those found here.
 */
#include "analyzer/oom/oom_notebook.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/run/backward.h"
#include "analyzer/step/step.h"

#include <stdlib.h>

enum { AGAIN = 8, SOME = 16, STEPS = 2 /* the step of the failure, and a further one */ };

static bool of_its_own(const struct run *run, const struct run_oom *row, uint32_t *main_thread)
{
    size_t n, processes_n;
    const struct run_thread *t = run_threads(run, &n);
    int64_t pid = run_processes(run, &processes_n)[row->process].pid;
    bool is_main = false;
    *main_thread = row->thread;
    for (size_t i = 0; i < n; i++) {
        if (t[i].process == row->process && t[i].tid == pid) {
            *main_thread = t[i].number;
            is_main = t[i].number == row->thread;
        }
    }
    return !is_main && run_stack_is_in(run, row->stack, "threading", "_bootstrap");
}

bool oom_after_same_thread(const struct run *run, const struct oom_after *a, const struct run_oom *next)
{
    uint32_t main_thread;
    const bool own = of_its_own(run, next, &main_thread);
    return (a->own_thread ? a->thread : a->main_thread) == (own ? next->thread : main_thread);
}

void oom_after_begin(const struct run *run, const struct run_oom *row, struct oom_after *a)
{
    *a = (struct oom_after){.known_paths = run_location_count(run),
                            .failed = run_stack_python(run, row->stack),
                            .first_stack = RUN_NONE,
                            .thread = row->thread,
                            .steps = RUN_UNKNOWN,
                            .exit_status = -1};
    a->own_thread = of_its_own(run, row, &a->main_thread);
}

void oom_after_add_alloc(struct oom_after *a, const struct run_lifetime *life, uint32_t line)
{
    if (life->layer > GS_LAYER_TENSOR ||
        (life->thread != a->thread && (a->own_thread || life->thread != a->main_thread)))
        return;
    if (!a->times++) a->first_stack = life->stack;
    a->again += life->location < a->known_paths;
    a->granted = a->granted || line == a->failed;
}

/* As much new memory as was live, in a process that ended cleanly: tear-down needs none. */
static bool allocated_on(const struct oom_after *a, bool complete)
{
    return complete && a->live > 0 && a->allocations >= SOME && a->bytes >= a->live;
}

/* `served`: as the recorder noted. */
static enum result_oom_outcome without_status(const struct oom_after *a, bool served, bool complete)
{
    if (served || (a->steps == RUN_UNKNOWN && allocated_on(a, complete))) return RESULT_OUTCOME_HANDLED;
    return a->again || (a->times && !complete) ? RESULT_OUTCOME_UNKNOWN : RESULT_OUTCOME_ENDED;
}

static enum result_oom_outcome at_an_error(const struct oom_after *a, bool served, bool pool)
{
    if ((a->granted && !pool) || a->again >= AGAIN) return RESULT_OUTCOME_HANDLED;
    return !a->times || pool || (!served && !a->again) ? RESULT_OUTCOME_ENDED : RESULT_OUTCOME_UNKNOWN;
}

/* PyTorch throws, and an uncaught exception sets the exit status; CUDA's result can be ignored silently. */
static enum result_oom_outcome at_success(const struct oom_after *a, const struct run_oom *row, bool served)
{
    bool thrown = row->layer == GS_LAYER_TENSOR && !a->own_thread;
    return thrown || served || a->times ? RESULT_OUTCOME_HANDLED : RESULT_OUTCOME_UNKNOWN;
}

static bool is_in_another_cell(const struct run *run, uint32_t failed, uint32_t next)
{
    const struct run_frame *a = oom_notebook_cell(run, failed), *b = a ? oom_notebook_cell(run, next) : NULL;
    return b && a->file != b->file;
}

enum result_oom_outcome oom_after_end(const struct site_builder *b, const struct run_oom *row, bool served,
                                      struct oom_after *a)
{
    const struct run_process *p = run_process_at(b->run, row->process);
    const struct step_list *steps = step_list_of(b, row->process);
    a->exit_status = p->exit_status;
    const uint32_t line = run_backward_stack_of_line(b->run, row->stack);
    a->prompt = oom_notebook_prompt(b->run, p, line);
    if (a->prompt) a->exit_status = -1;
    if (a->raised || (a->prompt && is_in_another_cell(b->run, line, a->first_stack))) return RESULT_OUTCOME_ENDED;
    if (steps && steps->source != STEP_SOURCE_PERIOD)
        a->steps = (int64_t)(steps->n - step_count_done(steps, row->time_ns));
    if (a->steps != RUN_UNKNOWN && a->steps >= STEPS) return RESULT_OUTCOME_HANDLED;
    if (a->exit_status < 0) return without_status(a, served, p->complete);
    return a->exit_status ? at_an_error(a, served, question_in_pool(b->run, row)) : at_success(a, row, served);
}

bool oom_convolution_went_on(const struct run *run, const struct oom_after *a, const struct run_oom *next)
{
    const uint32_t then = run_stack_python(run, a->times ? a->first_stack : next->stack);
    bool same = false;
    for (uint32_t at = a->failed; at != RUN_NONE && !same; at = run_stack_parent(run, at)) same = at == then;
    return same && run_stack_is_in(run, a->failed, "/torch/nn/modules/conv.py", NULL);
}

static const char *end_text(struct oom_words *w, const struct oom_after *a)
{
    const struct run_process *p = run_process_at(w->b->run, w->f->row->process);
    char how[RUN_FAILURE_TEXT] = "";
    (void)run_process_failure(p, how, sizeof how);
    return a->exit_status >= 0                   ? TEXT(w, "the program exited with status %d", a->exit_status)
           : p->recording                        ? "the program was still running when gpuspy read this"
           : a->prompt                           ? TEXT(w, "%s went on", a->prompt)
           : p->complete                         ? "how the program ended was not recorded"
           : p->exit_signal > 0 && !p->exception ? TEXT(w, "the program was %s", how)
                                                 : "the program was killed or called _exit";
}

bool oom_after_rows_are_missing(const struct oom_words *w)
{
    const struct run_oom *row = w->f->row;
    return row->time_ns < run_process_at(w->b->run, row->process)->kept_from_ns;
}

static const char *what_followed(struct oom_words *w, const struct oom_after *a)
{
    if (!a->times)
        return oom_after_rows_are_missing(w) ? "gpuspy does not know whether anything was allocated after it"
                                             : "nothing was allocated after it";
    const char *first = a->first_stack != RUN_NONE ? oom_place_text(w, a->first_stack) : NULL;
    return TEXT(w, "%s%llu allocation%s followed%s%s, %s", oom_after_rows_are_missing(w) ? "at least " : "",
                (unsigned long long)a->times, a->times == 1 ? "" : "s", first ? ", the first at " : "",
                first ? first : "",
                a->again ? TEXT(w, "%llu of them on earlier call paths", (unsigned long long)a->again)
                         : "none on earlier call paths");
}

const char *oom_after_text(struct oom_words *w)
{
    const struct oom_after *a = &w->f->after;
    bool stepped = a->steps != RUN_UNKNOWN && a->steps >= STEPS;
    switch (w->f->outcome) {
    case RESULT_OUTCOME_HANDLED:
        return stepped
                   ? TEXT(w, "the program made %s%lld more step%s", oom_after_rows_are_missing(w) ? "at least " : "",
                          (long long)a->steps - 1, a->steps == 2 ? "" : "s")
               : a->exit_status == 0 ? "the program went on, and exited with status 0"
               : a->granted          ? "the program executed the failing line again"
                                     : what_followed(w, a);
    case RESULT_OUTCOME_ENDED:
        if (a->raised && a->exit_status >= 0)
            return TEXT(w, "its exception ended the program with status %d", a->exit_status);
        if (a->raised) return TEXT(w, "its exception ended the program; %s", end_text(w, a));
        return TEXT(w, "%s; %s", what_followed(w, a), end_text(w, a));
    case RESULT_OUTCOME_UNKNOWN:
        return TEXT(w, "gpuspy does not know whether the program handled it: %s; %s%s", what_followed(w, a),
                    a->steps != RUN_UNKNOWN ? "no further step; " : "", end_text(w, a));
    default: return NULL;
    }
}
