/* The program's own steps: the iterations of a training loop, an inference loop or any loop that allocates. They are
 * found from the recorded calls only; the program need not mark them.
 *
 * Sources, strongest first:
 *   optimizer  calls of an optimizer's step: several backward passes before one are one step, and if several optimizers
 *              take turns, the rarest counts. One that allocates only in its first step is counted by the clipping or
 *              unscaling of gradients next to it
 *   mark       NVTX ranges or moments that the program repeats
 *   backward   backward passes, for an optimizer that allocates nothing and is therefore not seen
 *   period     the outermost loop whose lines recur during at least half of the time. A line that its source shows
 *              below a condition, beside a line that recurs more often, is not the loop's: logging, an evaluation
 * If none of these sources fits, no steps are reported.
 *
 * A step begins with the first call of its loop and ends when the next one begins, so that calls after the optimizer in
 * the loop (logging, .item()) belong to it. If far more time than usual passes (more than twice the median: an
 * evaluation, a checkpoint), the step ends twice its usual tail after its optimizer call, and the time until the next
 * step is in no step.
 *
 * The steps are found during the replay: those of a process are known after all of its allocations (in process_end of
 * the observers after this one, in every _finish, and in each later pass: run_each_call, run_each_live_at). They belong
 * to the report's arena.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "analyzer/result/result.h"

enum { STEP_REMOVED_SINGLE = 64 }; /* removed steps whose beginnings are known more closely than those of later ones */

#define STEP_SOURCES(X) X(OPTIMIZER, "optimizer") X(MARK, "mark") X(BACKWARD, "backward") X(PERIOD, "period")
#define STEP_ENUM_SOURCE(s, w) STEP_SOURCE_##s,
enum step_source { STEP_SOURCES(STEP_ENUM_SOURCE) STEP_SOURCES_N };

struct step_list {
    uint32_t process;
    enum step_source source; /* word: step_source_word() */
    const char *by;          /* "Adam.step at train.py:41" */
    const char *evidence;    /* "Adam.step at train.py:41, 500 times" */
    struct result_site site; /* the line that makes the call; unknown for marks */
    uint32_t stack;          /* that line's stack, RUN_NONE for marks */
    size_t n;                /* steps, at least 2 */
    size_t steady;  /* the first step after the warm-up, below n: figures of a usual step leave earlier ones out */
    size_t removed; /* the first ones, whose rows a bounded recording removed; their number is computed from totals */
    bool removed_unknown; /* it had such steps, and their number is unknown */
    int64_t median_ns;    /* from a step's beginning to the next one's, of the steady steps */
    /* Times of every `stride`-th step (1 but for very long runs, which are thinned): starts_n beginnings and the end of
     * the last step, without the removed ones. Use step_start_ns and step_at instead. */
    size_t stride, starts_n;
    const int64_t *start_ns;   /* starts_n + 1 of them, ascending */
    const int64_t *end_ns;     /* starts_n of them, none after the next beginning; NULL: no gaps */
    const int64_t *removed_ns; /* approximate times of the removed steps: evenly chosen beginnings … */
    size_t removed_points;     /* … this many, and the end of the last one */
};

struct site_builder;
/* The steps of that process, NULL if none were found. */
const struct step_list *step_list_of(const struct site_builder *b, uint32_t process);
/* The step that contains a time, 0 … n - 1. SIZE_MAX: before the first, after the last, or between two (see above).
 * Interpolated between the times of thinned and removed steps. */
size_t step_at(const struct step_list *steps, int64_t ns);
/* When step i begins, 0 … n; n: the end of the last one. */
int64_t step_start_ns(const struct step_list *steps, size_t i);
/* How many steps have ended by then: n - 1 in the last one, n after it, 0 before the first. Never decreases with ns. */
size_t step_count_done(const struct step_list *steps, int64_t ns);
/* How often the process executed the torch.nn.Module call that contains a stack, seen from outside of the model;
 * UINT64_MAX: no such call. Known at the process_end of the observers after this one. */
uint64_t step_module_calls(const struct site_builder *b, uint32_t stack);
const char *step_source_word(enum step_source source);

/* For report.c: the observer comes before those of the questions that need steps. */
struct step_finder;
struct step_finder *step_finder_start(struct site_builder *b, struct run_observer *observer);
/* Uses the steps that a report of the same run found, instead of a finder. The report must outlive it. */
void step_finder_adopt(struct site_builder *b, const struct result_report *report);
void step_finder_build(struct site_builder *b);    /* the report's steps[] */
void step_finder_free(struct step_finder *finder); /* the steps stay */
