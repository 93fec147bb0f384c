/* What the questions share. A question that looks at the events is three functions: _start (its
 * state and its observer), the observer's callbacks, _finish (state → report; frees the state).
 * report.c runs all of them in one replay. */
#ifndef GPUSPY_QUESTION_H
#define GPUSPY_QUESTION_H

#include "analyzer/base/arena.h"
#include "analyzer/question/report.h"
#include "analyzer/question/site.h"
#include "analyzer/step/step.h"

struct gs_builder {
    struct gs_run *run;
    struct gs_report *report;
    struct gs_arena *arena; /* the report's */
    size_t top;             /* entries a list may have */
    const struct gs_options *options;
    struct gs_map helpers; /* functions, see gs_site_helpers */
    /* sites, each (site, caller) once */
    struct gs_site *sites;
    size_t sites_n, sites_cap;
    struct gs_map site_of_key;
    uint32_t *site_of_stack;
    size_t site_of_stack_cap;
    struct gs_owners *owners; /* see owner.h */
    struct gs_allocators *allocators; /* see allocator.h */
    /* by location: its growth verdict, from growth.c, for oom.c and the leaks */
    uint8_t *growing;
    size_t growing_n;
    struct gs_step_finder *steps; /* ask gs_steps_of, step.h */
    struct gs_budgets *budgets;
};

/* Number of the stack's site in b->sites. GS_NONE as stack is a site too: the unknown one. */
uint32_t gs_site_number(struct gs_builder *b, uint32_t stack);
struct gs_trace gs_trace_of(struct gs_builder *b, uint32_t stack);
/* "a.py:3 in f, called at b.py:7" in the arena. */
const char *gs_site_path(struct gs_builder *b, const struct gs_site *site);
/* The short form: "a.py:3 (from b.py:7)", the caller only where it is in another file. */
const char *gs_site_line(struct gs_builder *b, const struct gs_site *site);
/* "1.50 GiB" in the arena. */
const char *gs_bytes_text(struct gs_builder *b, double bytes);

static inline double gs_seconds(int64_t ns)
{
    return ns == GS_UNKNOWN || ns == GS_NEVER ? __builtin_nan("") : (double)ns / 1e9;
}

/* What was live, by location, to be listed by stack and by site. */
struct gs_share {
    uint32_t stack;
    int64_t bytes;
    uint64_t count;
};
/* Both sort `shares`, heaviest first, drop empty ones, and cut to b->top; *total is the uncut
 * number. */
struct gs_by_stack *gs_list_by_stack(struct gs_builder *b, struct gs_share *shares, size_t n,
                                     size_t *listed, size_t *total);
struct gs_by_site *gs_list_by_site(struct gs_builder *b, const struct gs_share *shares, size_t n,
                                   size_t *listed, size_t *total);
struct gs_by_site *gs_list_by_line(struct gs_builder *b, const struct gs_share *shares, size_t n,
                                   size_t *listed, size_t *total);

/* A list of the report from a work list: sorted, cut to the top, copied into the arena. */
void *gs_list(struct gs_builder *b, void *work, size_t n, size_t size,
              int (*order)(const void *, const void *), size_t *listed, size_t *total);

/* lines.c: how rows of a list become rows of lines. */
struct gs_line_form {
    size_t size, site, paths;              /* of a row; where its gs_site and its gs_paths are */
    uint64_t (*kind)(const void *row);     /* rows of different kinds are not added up; NULL: one kind */
    void (*add)(void *into, const void *from);
    struct gs_line_path (*path)(const void *row);
    int (*order)(const void *, const void *);
};
/* `work` is sorted, heaviest first, and each row has its site: of a line's paths the first names what all share. */
void *gs_lines_of(struct gs_builder *b, const void *work, size_t n, const struct gs_line_form *form,
                  size_t *listed, size_t *total);
/* Of a line: the calls of both. */
void gs_pace_add(struct gs_pace *into, const struct gs_pace *from);

/* Zeroed room for element `index` in an array that grows with what it is indexed by. */
void *gs_reach(void *p, size_t index, size_t *cap, size_t size);
#define GS_REACH(p, index, cap)    \
    ((index) < (cap) ? &(p)[index] \
                     : ((p) = gs_reach((p), (index), &(cap), sizeof *(p)), &(p)[index]))

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
void gs_growths_finish(
    struct gs_growths *g); /* growth, b->growing; after peaks, before leaks and ooms */

struct gs_churns;
struct gs_churns *gs_churns_start(struct gs_builder *b, struct gs_observer *observer);
void gs_churns_finish(struct gs_churns *c);

/* heap_map.c: the holes in an allocator's segments. */
struct gs_range {
    uint64_t address;
    int64_t bytes;
};
struct gs_heap_map {
    int64_t segment_bytes; /* of segments that hold a block, and empty ones as far as `reserved`
                              accounts */
    int64_t block_bytes, free_bytes, largest_free_bytes;
    uint64_t segments, blocks;
    uint64_t strays; /* blocks in no segment: the picture is incomplete */
    uint64_t holes;
    int64_t page_bytes; /* of the holes, about what segments that grow would have given back: these are
                           mapped by pages of 20 MiB */
};
/* Sorts both arrays. `reserved` is the allocator's own total, GS_UNKNOWN if it never said. */
struct gs_heap_map gs_heap_map_of(struct gs_range *segments, size_t segments_n,
                                  struct gs_range *blocks, size_t blocks_n, int64_t reserved);

struct gs_taken { /* what a call path took from CUDA, live */
    uint32_t location, stack;
    uint8_t space;
    int64_t bytes;
    uint64_t count;
};

/* oom_after.c: what a process did after a failure. */
struct gs_oom_after {
    uint64_t times, again; /* allocations of its thread or the main one; of them on earlier call paths */
    bool granted;          /* the line that failed was served, or asked for more once more */
    bool own_thread;       /* a thread of Python's beside the main one: the exception ends it alone */
    int exit_status;       /* of the process; -1 unknown */
    int64_t steps;         /* that ended later, the failed one included; GS_UNKNOWN */
    uint64_t allocations;  /* of the layer that counts, by all threads, and their bytes */
    int64_t bytes, live;   /* live: when it failed */
    uint32_t first_stack;  /* of the first allocation, GS_NONE */
    uint32_t failed, thread, main_thread;
    size_t known_paths;
};

/* oom.c finds what belongs to one failure and what was live then; oom_cause.c says why from these
 * facts. */
/* What earlier trials (oom_trials.h) still hold. */
struct gs_oom_earlier {
    size_t trials;       /* that hold a module's block */
    int64_t bytes;       /* allocated from the first trial's beginning to the current one's, and still live */
    uint64_t count;      /* blocks */
    int64_t model_bytes; /* of it, by building or moving modules */
    bool repeated;       /* a call path that builds or moves a module holds blocks of several trials */
    int64_t since_ns;    /* when the current trial began */
    uint32_t stack;      /* of the largest earlier block of a module; GS_NONE none */
    int64_t largest;
};
/* What earlier passes that ran out of memory still hold (oom_failed.c). */
struct gs_oom_failed_pass {
    int64_t bytes, largest;
    uint64_t count;   /* blocks */
    int64_t first_ns; /* the earliest of those failures */
    uint32_t stack;   /* of the largest block; GS_NONE none */
};
/* Does an autograd graph hold what grows inside passes? See oom_graph.c. */
enum gs_graph_evidence { GS_GRAPH_NONE, GS_GRAPH_UNKNOWN, GS_GRAPH_INFERRED };
struct gs_oom_facts {
    const struct gs_oom *row; /* the one to report */
    unsigned failures;
    bool fatal, device_failed; /* a CUDA call was among the failures */
    bool looked;               /* what was live then is known: so it is of the last failures */
    uint32_t stack;
    int64_t requested, free, total; /* GS_UNKNOWN */
    int64_t device_requested;       /* of CUDA: a whole segment; 0 it was not asked */
    enum gs_series_layer layer;     /* whose live bytes count: tensors where there are any */
    int64_t live, device_live;
    int64_t tensor_allocated, tensor_reserved; /* GS_UNKNOWN */
    int64_t outside, outside_first;            /* GS_UNKNOWN */
    int64_t graphs;                            /* held by the device for graphs */
    const struct gs_device_sample *said;       /* by NVML, about then; NULL nothing */
    double turnover; /* share of the bytes ever allocated in the layer that were freed */
    int64_t growing, growing_in_pass; /* live bytes of growing locations; of them in passes */
    unsigned growing_sites;
    uint32_t growing_stack; /* the heaviest of them */
    int64_t growing_heaviest;
    uint64_t growing_count; /* live allocations there */
    int64_t growing_kept;    /* of `growing`: outputs of forward passes, seen to remain while others were freed */
    bool growing_varies;     /* its blocks differ in size */
    uint64_t growing_passes; /* the fewest live allocations of a growing call path: once per pass */
    int64_t growing_first_ns, heaviest_first_ns; /* the first of them all; of the heaviest's */
    int64_t heaviest_begun_ns;                   /* the first allocation of the heaviest's call path, freed or not */
    const struct gs_growth *growth; /* the heaviest entry of it; NULL none */
    int64_t before_growth;          /* live in all when it began; 0 unknown */
    int64_t backward_ns;            /* of the last backward pass before the failure; GS_UNKNOWN: there was none */
    int64_t growing_freed;          /* of growing_in_pass: on call paths whose earlier blocks a backward pass freed */
    enum gs_graph_evidence graph;
    bool graph_freed; /* the evidence: those frees; else that the inputs of the passes are kept */
    struct gs_oom_earlier trials;
    struct gs_oom_failed_pass failed_pass;
    bool pending;     /* no backward pass since it began to grow, and one is to be expected */
    bool evaluates;   /* … and none is to be expected */
    bool replaced; /* what grows is made anew each time, larger: only the last ones are there */
    int64_t turned_ns;   /* when a line outside of all passes last came by again; GS_UNKNOWN */
    int64_t entered_ns;  /* when data last came to the device at a line outside of passes that did so three times; GS_UNKNOWN */
    int64_t once_ns;     /* when a line in a pass last came by for the first time; GS_UNKNOWN */
    int64_t earlier;     /* the most that was live before this step beside what grows; GS_UNKNOWN */
    int64_t largest;        /* the largest live allocation on the device */
    uint32_t largest_stack;
    const struct gs_preallocation *preallocated; /* a framework took the device in advance, in this
                                                    process; NULL none */
    uint32_t holder_stack;  /* what held most */
    int64_t holder;
    struct gs_heap_map map;
    const struct gs_taken *taken; /* of the device's layer */
    size_t taken_n;
    enum gs_oom_outcome outcome;
    struct gs_oom_after after; /* where `looked` */
};
struct gs_oom_live { /* what one location held at that moment */
    uint32_t location;
    int64_t bytes;
    uint64_t count;
    int64_t begun_ns;          /* its first allocation, freed or not */
    uint64_t times;            /* its allocations, freed or not */
    int64_t first_ns, last_ns; /* of its live blocks: the first and the last allocation */
    double first_rank, last_rank, mean_rank; /* likewise, as shares of the location's allocations that came before */
    int64_t least, most;       /* bytes of its smallest and its largest live block */
    bool freed_in_backward;    /* a backward pass freed earlier blocks of it */
};
/* oom_growth.c: the heaviest holder; what grows, and what it ends in. */
void gs_oom_growing(struct gs_builder *b, const struct gs_oom_live *live, size_t n,
                    struct gs_oom_facts *f);
/* Below a module's call, a function called forward, or a backward pass. */
bool gs_oom_in_pass(const struct gs_run *run, uint32_t stack);
/* A lazy module making its parameters when it is first called. */
bool gs_oom_lazy(const struct gs_run *run, uint32_t stack);
/* Copied to the device, or made there of nothing, by PyTorch's operators (native_functions.yaml); so is what no native frame
 * tells of. */
bool gs_oom_enters(struct gs_run *run, uint32_t stack);
/* What the program had needed before; after _growing, and after the timelines. */
void gs_oom_demand(const struct gs_builder *b, struct gs_oom_facts *f);
/* said.c: what NVML said of the device nearest to that time, NULL nothing. */
const struct gs_device_sample *gs_sample_near(const struct gs_builder *b, uint32_t process,
                                              int device, int64_t time_ns);
/* oom_step.c: the number of the step in which it failed, from 1 on; GS_UNKNOWN. */
int64_t gs_oom_step(const struct gs_builder *b, const struct gs_oom_verdict *v);
void gs_oom_cause(struct gs_builder *b, const struct gs_oom_facts *f, struct gs_oom_verdict *v);

struct gs_preallocations;
struct gs_preallocations *gs_preallocations_start(struct gs_builder *b, struct gs_observer *observer);
void gs_preallocations_finish(struct gs_preallocations *p); /* after peaks, before ooms */
/* What took the device in advance past PyTorch, NULL nothing. */
const struct gs_preallocation *gs_preallocated(const struct gs_report *r, uint32_t process, int device);
/* The device's total, as it or a failure there said; GS_UNKNOWN. */
int64_t gs_device_total(const struct gs_builder *b, uint32_t process, int device);

struct gs_ooms;
struct gs_ooms *gs_ooms_start(struct gs_builder *b, struct gs_observer *observer);
void gs_ooms_finish(struct gs_ooms *o); /* ooms, retries, fragmentation's holes */

struct gs_syncs;
struct gs_syncs *gs_syncs_start(struct gs_builder *b);
void gs_syncs_call(struct gs_syncs *s, const struct gs_copy *copy, const struct gs_sync *sync);
void gs_syncs_finish(struct gs_syncs *s);

struct gs_transfers;
struct gs_transfers *gs_transfers_start(struct gs_builder *b);
void gs_transfers_call(struct gs_transfers *t, const struct gs_copy *copy);
void gs_transfers_finish(struct gs_transfers *t);

/* The time that shares are of: the sum over the processes, never 0. */
double gs_wall(const struct gs_builder *b);
/* What was live at the peaks and at the failures, by category; after both. */
bool gs_categories_build(struct gs_builder *b, char *error, size_t error_size);
/* The same at moments of a process's own series: `by` gets its lines, which do not sum to `bytes` where
 * rows make no sense. After a replay with steps. */
struct gs_category_moment {
    int64_t time_ns;
    int device;
    enum gs_series_layer layer;
    int64_t bytes; /* all that was live there */
    struct gs_by_category by;
};
bool gs_categories_at(struct gs_builder *b, uint32_t process, struct gs_category_moment *moments,
                      size_t n, char *error, size_t error_size);
void gs_ooms_explain(struct gs_builder *b); /* cause and advice; after categories, allocators */
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
    bool later[GS_CATEGORIES_N]; /* its own peak came after the measured one */
    uint64_t blocks[GS_CATEGORIES_N]; /* at the peak */
    int64_t buckets, in_step; /* at the peak: DistributedDataParallel's; the optimizer's temporaries */
    uint64_t in_step_blocks;
    uint32_t process;
    size_t ranks;    /* processes that hold tensors */
    bool stepped;    /* an optimizer was seen to step */
    int8_t pass_inside; /* the level of that name; -1 not estimated */
    bool failed;     /* the process ran out of memory for good */
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
