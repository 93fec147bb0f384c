/* What the questions share. A question that looks at the events is three functions: _start (its
 * state and its observer), the observer's callbacks, _finish (state → report; frees the state).
 * report.c runs all of them in one replay. */
#ifndef GPUSPY_QUESTION_H
#define GPUSPY_QUESTION_H

#include "analyzer/site/builder.h"
#include "analyzer/step/step.h"

struct gs_peaks;
struct gs_peaks *gs_peaks_start(struct gs_builder *b, struct gs_observer *observer);
void gs_peaks_finish(struct gs_peaks *p); /* peaks, leaks */

struct gs_timelines;
struct gs_timelines *gs_timelines_start(struct gs_builder *b, struct gs_observer *observer);
void gs_timelines_finish(struct gs_timelines *t);

struct gs_memory;
struct gs_memory *gs_memory_start(struct gs_builder *b, struct gs_observer *observer);
void gs_memory_finish(struct gs_memory *m); /* memory, utilisation of fragmentation */

struct gs_growths;
struct gs_growths *gs_growths_start(struct gs_builder *b, struct gs_observer *observer);
void gs_growths_finish(struct gs_growths *g); /* growth, b->growing; after peaks, before leaks and ooms */

struct gs_churns;
struct gs_churns *gs_churns_start(struct gs_builder *b, struct gs_observer *observer);
void gs_churns_finish(struct gs_churns *c);

struct gs_preallocations;
struct gs_preallocations *gs_preallocations_start(struct gs_builder *b, struct gs_observer *observer);
void gs_preallocations_finish(struct gs_preallocations *p); /* after peaks, before ooms */
/* What took the device in advance past PyTorch, NULL nothing. */
const struct gs_preallocation *gs_preallocated(const struct gs_report *r, uint32_t process, int device);
/* The device's total, as it or a failure there said; GS_UNKNOWN. */
int64_t gs_device_total(const struct gs_builder *b, uint32_t process, int device);

/* said.c: what NVML said of the device nearest to that time, NULL nothing. */
const struct gs_device_sample *gs_sample_near(const struct gs_builder *b, uint32_t process, int device,
                                              int64_t time_ns);

struct gs_syncs;
struct gs_syncs *gs_syncs_start(struct gs_builder *b);
void gs_syncs_call(struct gs_syncs *s, const struct gs_copy *copy, const struct gs_sync *sync);
void gs_syncs_finish(struct gs_syncs *s);

struct gs_transfers;
struct gs_transfers *gs_transfers_start(struct gs_builder *b);
void gs_transfers_call(struct gs_transfers *t, const struct gs_copy *copy);
void gs_transfers_finish(struct gs_transfers *t);

void gs_leaks_build(struct gs_builder *b); /* after growth */
void gs_marks_build(struct gs_builder *b);
void gs_loop_build(struct gs_builder *b);  /* after the OOMs */
void gs_loop_advice(struct gs_builder *b); /* after the advice */
void gs_samples_build(struct gs_builder *b);
struct gs_budgets;
/* → b->budgets; a replay of its own where an estimate is wanted: what blocks are is known after the first */
bool gs_budgets_read(struct gs_builder *b, char *error, size_t error_size);
void gs_budgets_build(struct gs_builder *b); /* after categories, steps, failures */
void gs_budgets_free(struct gs_budgets *g);
/* budget_why.c: the sentence of each row. */
struct gs_budget_facts {
    struct gs_builder *b;
    const struct gs_budget *budget;
    const struct gs_budget_row *of[GS_CATEGORIES_N]; /* by category, never NULL */
    bool later[GS_CATEGORIES_N];                     /* its own peak came after the measured one */
    uint64_t blocks[GS_CATEGORIES_N];                /* at the peak */
    int64_t buckets, in_step; /* at the peak: DistributedDataParallel's; the optimizer's temporaries */
    uint64_t in_step_blocks;
    uint32_t process;
    size_t ranks;       /* processes that hold tensors */
    bool stepped;       /* an optimizer was seen to step */
    int8_t pass_inside; /* the level of that name; -1 not estimated */
    bool failed;        /* the process ran out of memory for good */
};
/* budget_plan.c: what an estimate with activations says. Phase -1: the most of all phases. */
bool gs_plan_has_activations(const struct estimate_result *e);
/* Are weights or gradients of several GPUs whole for a moment? */
bool gs_plan_gathers(const struct estimate_result *e);
/* Activations, logits and temporaries together, as backward begins. */
struct interval gs_plan_pass(const struct estimate_result *e);
struct interval gs_plan_category(const struct estimate_result *e, enum gs_category c, int phase);
int8_t gs_plan_inside(const struct interval *expected, double measured);
void gs_plan_levels(const struct gs_report *r, const struct gs_peak *peak, struct gs_budget *b,
                    const struct estimate_result *e, int phase);
/* The phase of an allocation made while `during` (category.def). */
int gs_moment_of(const char *during, double activations, double most_activations);
const char *gs_budget_why(const struct gs_budget_facts *f, enum gs_category category);
/* Of the report's syncs these are looked at: what matters stands first, then what waited longest. */
enum { GS_ADVICE_SYNCS = 32 };
/* What is to be done at the wait numbered `from` and at those after it for which it is the same, which
 * are marked in `done`. */
struct gs_advice gs_advice_of_waits(struct gs_builder *b, size_t from, bool *done);
void gs_advice_build(struct gs_builder *b); /* last */

#endif
