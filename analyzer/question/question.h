/* Declarations that the questions share. A question about events is three functions: _start (its state and its
 * observer), the observer's callbacks, _finish (state → report; frees the state). report.c runs all of them in one
 * replay. */
#pragma once

#include "analyzer/site/builder.h"
#include "analyzer/step/step.h"

struct question_peaks;
struct question_peaks *question_peaks_start(struct site_builder *b, struct run_observer *observer);
void question_peaks_finish(struct question_peaks *p); /* peaks, leaks */

struct question_timelines;
struct question_timelines *question_timelines_start(struct site_builder *b, struct run_observer *observer);
void question_timelines_finish(struct question_timelines *t);

struct question_memory;
struct question_memory *question_memory_start(struct site_builder *b, struct run_observer *observer);
void question_memory_finish(struct question_memory *m); /* memory, utilisation of fragmentation */

struct question_scopes;
struct question_scopes *question_scopes_start(struct site_builder *b, struct run_observer *observer);
void question_scopes_finish(struct question_scopes *s); /* scopes */
/* "'load', 'step' and 3 more", in the arena; NULL: the report has none. */
const char *question_scope_names(const struct result_report *r, struct arena *arena);

struct question_growths;
struct question_growths *question_growths_start(struct site_builder *b, struct run_observer *observer);
void question_growths_finish(struct question_growths *g); /* growth, b->growing; after peaks, before leaks and ooms */

/* Of a process's events (allocations; copies and waits), the first tenth are its warm-up: weights that are loaded,
 * buffers that are made once. Their number decides, because a pause can make any part of the time long. */
static inline bool question_in_warm_up(uint64_t earlier, uint64_t all)
{
    return earlier < all / 10;
}

struct question_churns;
struct question_churns *question_churns_start(struct site_builder *b, struct run_observer *observer);
void question_churns_finish(struct question_churns *c);

struct question_preallocations;
struct question_preallocations *question_preallocations_start(struct site_builder *b, struct run_observer *observer);
void question_preallocations_finish(struct question_preallocations *p); /* after peaks, before ooms */
/* The preallocation of the device outside of PyTorch, NULL none. */
const struct result_preallocation *question_preallocated(const struct result_report *r, uint32_t process, int device);
/* The framework that preallocates a device of `total` bytes by such a request, and how to make it ask for less; NULL:
 * none does. */
const char *question_preallocates(struct site_builder *b, uint32_t process, uint32_t stack, int64_t bytes,
                                  int64_t total, const char **less);

/* Of a pool that was not preallocated: did this request come from it? If not, advice about memory that it may hold
 * unused. */
bool question_is_from_pool(struct site_builder *b, const struct result_preallocation *pool, uint32_t stack);
const char *question_pool_advice(struct site_builder *b, const struct result_preallocation *pool);
/* What to do about CUDA allocations of this stack that grow: drop the objects that hold them, or free bare pointers.
 * `held`: a statement that keeps them is known. */
const char *question_instead_of_blocks(struct site_builder *b, uint32_t stack, bool held);

/* mark.c: NVML's sample of the device nearest to that time, NULL none. */
const struct run_device_sample *question_sample_near(const struct site_builder *b, uint32_t process, int device,
                                                     int64_t time_ns);

/* ending.c: the failures of a process, as their numbers in run_ooms; RUN_NONE: none. The one whose exception ended it;
 * the one at which it ended, if the recorder took a failure for the end. */
uint32_t question_raised_failure(const struct run *run, uint32_t process);
uint32_t question_ending_failure(const struct run *run, uint32_t process);
/* In a pool of threads, which passes the exception to the thread that waits for the result. */
bool question_in_pool(const struct run *run, const struct run_oom *row);

struct question_syncs;
struct question_syncs *question_syncs_start(struct site_builder *b);
void question_syncs_add(struct question_syncs *s, const struct run_copy *copy, const struct run_sync *sync);
void question_syncs_finish(struct question_syncs *s);

struct question_transfers;
struct question_transfers *question_transfers_start(struct site_builder *b);
void question_transfers_add(struct question_transfers *t, const struct run_copy *copy, const struct run_sync *sync);
void question_transfers_finish(struct question_transfers *t);

void question_leaks_build(struct site_builder *b); /* after growth */
void question_marks_build(struct site_builder *b);
void question_loop_build(struct site_builder *b);  /* after the OOMs */
void question_loop_advice(struct site_builder *b); /* after the advice */
void question_samples_build(struct site_builder *b);
struct question_budgets;
/* → b->budgets; a separate replay if an estimate is requested: the categories of blocks are known after the first */
bool question_budgets_replay(struct site_builder *b, char *error, size_t error_size);
void question_budgets_build(struct site_builder *b); /* after categories, steps, failures */
void question_budgets_free(struct question_budgets *g);
/* budget_why.c: the sentence of each row. */
struct question_budget_facts {
    struct site_builder *b;
    const struct result_budget *budget;
    const struct result_budget_row *of[RESULT_CATEGORIES_N]; /* by category, never NULL */
    bool later[RESULT_CATEGORIES_N];                         /* its own peak came after the measured one */
    uint64_t blocks[RESULT_CATEGORIES_N];                    /* at the peak */
    int64_t buckets, in_step; /* at the peak: DistributedDataParallel's; the optimizer's temporaries */
    uint64_t in_step_blocks;
    uint32_t process;
    size_t ranks;       /* processes that hold tensors */
    bool stepped;       /* a step of an optimizer was recorded */
    int8_t pass_inside; /* the level of that name; -1 not estimated */
    bool failed;        /* the process ran out of memory and did not recover */
};
/* budget_plan.c: the figures of an estimate with activations. Phase -1: the maximum of all phases. */
bool question_plan_has_activations(const struct estimate_result *e);
/* Are weights or gradients of several GPUs whole for a moment? */
bool question_plan_gathers(const struct estimate_result *e);
/* Activations, logits and temporaries together, as backward begins. */
struct estimate_interval question_plan_pass(const struct estimate_result *e);
struct estimate_interval question_plan_category(const struct estimate_result *e, enum result_category c, int phase);
int8_t question_plan_level_of(const struct estimate_interval *expected, double measured);
void question_plan_levels(const struct result_report *r, const struct result_peak *peak, struct result_budget *b,
                          const struct estimate_result *e, int phase);
/* The phase of an allocation made while `during` (category.def). */
int question_phase_of(const char *during, double activations, double most_activations);
const char *question_budget_reason(const struct question_budget_facts *f, enum result_category category);
/* May blocks of that size be numbers, which .item() copies to the host? PyTorch's allocator rounds sizes up to 512 B.
 */
static inline bool question_is_number(int64_t bytes)
{
    return bytes <= 512;
}
/* Of several values, item() raises an error; memory does not show how many a small tensor has. */
#define QUESTION_STORE_NUMBERS "`.item()` (`.tolist()` of several values)"
/* What replaces backward(create_graph=True). */
#define QUESTION_CREATE_GRAPH_ADVICE                                                                                  \
    "use `torch.autograd.grad(..., create_graph=True)` instead, or set `.grad` of every leaf to None after its last " \
    "use "                                                                                                            \
    "(`zero_grad(set_to_none=True)`)"
/* Of the report's syncs these are examined: those that matter come first, then the longest. */
enum { QUESTION_ADVICE_SYNCS = 32 };
/* The advice for the wait numbered `from` and for later ones with the same advice, which are marked in `done`. */
struct result_advice question_advice_of_waits(struct site_builder *b, size_t from, bool *done);
void question_advice_build(struct site_builder *b); /* last */
/* Before it: in a program without PyTorch, waits have names of what they do, not of PyTorch's methods. */
void question_use_plain_names(struct site_builder *b);
/* After all questions: advice names the framework's own functions in a program without PyTorch. */
void question_use_frameworks_words(struct site_builder *b);
