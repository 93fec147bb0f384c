/* An OOM's cause in words, and the advice. Connects oom_cause.c, which decides, and oom_words_*.c, which write the
 * sentences; oom_facts.c has the derived facts that both need. */
#pragma once

#include "analyzer/oom/oom.h"

/* The size of a process's context on the device, as far as the other processes' use shows it: at most a GiB, and at
 * most a quarter of a small device. */
int64_t oom_context_bytes(const struct oom_facts *f);
/* Held by other processes: NVML's figure if there is one; else the memory in use beyond recorded calls and the size of
 * a context. */
int64_t oom_other_bytes(const struct oom_facts *f);
/* Used by this process outside of PyTorch's allocator, or outside of all recorded calls if there is none: direct
 * allocations, libraries, contexts other than the one that every process needs. */
int64_t oom_outside_bytes(const struct oom_facts *f);
/* Reserved by PyTorch and in no tensor. */
int64_t oom_cached_bytes(const struct oom_facts *f);
/* Of the failure's holes, for the report on fragmentation. */
void oom_measure_holes(struct result_report *report, const struct oom_facts *f);
/* The growing memory belongs to a graph that is kept through f->growth->newest. */
bool oom_keeps_graph(const struct oom_facts *f);
/* The owner of most of the memory outside PyTorch's allocator; NULL: none. */
const struct result_by_owner *oom_direct_owner(const struct result_oom_verdict *v);

struct oom_words {
    struct site_builder *b;
    const struct oom_facts *f;
    struct result_oom_verdict *v;
};

/* A text in the builder's arena; an amount of bytes as text. */
#define TEXT(w, ...) arena_printf((w)->b->arena, __VA_ARGS__)
#define SIZE(w, n) site_bytes_text((w)->b, (double)(n))
/* A call path as text: file:line function. */
const char *oom_place_text(struct oom_words *w, uint32_t stack);
/* The line that called the outermost module of a pass; NULL: none. */
const char *oom_pass_text(struct oom_words *w, uint32_t stack);

/* oom_after.c. `after` begins at the failure, receives the process's later allocations (line: run_stack_python of
 * theirs), and is judged when the replay is over; `served`: the recorder noted that the thread later got as much as it
 * had requested, or went on. */
void oom_after_begin(const struct run *run, const struct run_oom *row, struct oom_after *after);
void oom_after_add_alloc(struct oom_after *after, const struct run_lifetime *life, uint32_t line);
/* Did the later failure reach the same thread of the program? The main thread also gets those of autograd's threads. */
bool oom_after_same_thread(const struct run *run, const struct oom_after *a, const struct run_oom *next);
/* Did the convolution that failed continue by itself? PyTorch tries cuDNN's algorithms one after the other, and goes on
 * if one gets no workspace (30 such failures in one forward pass on an H200). The next allocation then comes from the
 * same call or from the line that made it. */
bool oom_convolution_went_on(const struct run *run, const struct oom_after *a, const struct run_oom *next);
enum result_oom_outcome oom_after_end(const struct site_builder *b, const struct run_oom *row, bool served,
                                      struct oom_after *after);
/* Did a recording of bounded size lose rows after the failure? Then counts of what followed it are lower bounds. */
bool oom_after_rows_are_missing(const struct oom_words *w);
/* The evidence for the outcome; NULL none. */
const char *oom_after_text(struct oom_words *w);

/* How much work a measure is. */
enum oom_effort {
    OOM_EFFORT_SETTING = 1, /* outside of the program: an environment variable, a process to end */
    OOM_EFFORT_LINE,        /* a line, or an argument that changes no result */
    OOM_EFFORT_ARGUMENT,    /* another batch, another length */
    OOM_EFFORT_TRAINING,    /* another way to train: the result is slightly different, or slower */
    OOM_EFFORT_DEVICE       /* another GPU, or another cap: no help in a rehearsal on a smaller one */
};

/* Values of `enough`, besides a comparison of the amount with the need. */
enum {
    OOM_MEASURE_FITS = 2,        /* examined: it is enough */
    OOM_MEASURE_FITS_NOT = 3,    /* … it is not */
    OOM_MEASURE_AT_MOST = 4,     /* the amount is an upper bound */
    OOM_MEASURE_MOST_BUT_NOT = 5 /* both */
};

/* The bytes that PyTorch requests from CUDA to serve `bytes`: a segment. */
int64_t oom_segment_bytes(int64_t bytes, bool grows);
/* The bytes that must be freed for the request to succeed, at least 1. */
int64_t oom_needed_bytes(const struct oom_facts *f);
/* Adds a measure; `frees` RUN_UNKNOWN if it has no amount, else the text gets it. `first`: the cause itself requires
 * it, so it comes before the others. */
void oom_add_measure(struct site_builder *b, struct result_oom_verdict *v, struct result_measure measure);
/* What the cause requires of a line. */
static inline struct result_measure oom_line_measure(int64_t frees, int enough, enum result_certainty certainty,
                                                     const char *refuted_by, const char *text)
{
    return (struct result_measure){.text = text,
                                   .frees_bytes = frees,
                                   .enough = (int8_t)enough,
                                   .effort = OOM_EFFORT_LINE,
                                   .first = true,
                                   .certainty = certainty,
                                   .refuted_by = refuted_by};
}
/* oom_measures.c. Adds to each verdict the other measures that would help, and keeps the best few in order: its
 * measures and advice. */
void oom_add_advice(struct site_builder *b);

/* oom_patterns.c. A well-known holder of GPU memory, by the stack that allocated; NULL: none. */
struct oom_holder {
    const char *what, *advice;
    double share; /* the largest share of the growth that the advice frees */
};
const struct oom_holder *oom_holder_of(struct run *run, uint32_t stack);
/* A library that keeps what the program passes to it; NULL: none is known. */
const struct oom_holder *oom_keeper_of(const struct run *run, uint32_t stack);
/* How the user of a library makes it request less, if the library allocated by this stack; NULL: none is known. */
const char *oom_library_advice(struct site_builder *b, uint32_t stack);
/* Does the holder gather what functions of the program return, and is the statement in one that it calls? */
bool oom_is_gathered_inside(const struct run *run, uint32_t stack, const struct result_holder *statement);
/* Did the step() of an optimizer allocate that is the program's own? */
bool oom_is_own_optimizer(const struct run *run, uint32_t stack);
/* The same for memory that is often needed only briefly. */
const struct oom_holder *oom_copy_of(const struct run *run, uint32_t stack);
/* A failure that a function which tries batch sizes until one fits expected and handled. */
bool oom_found_batch(const struct site_builder *b, const struct result_oom_verdict *v);
/* oom_notebook.c. Do values that cells displayed hold the bytes that the request needs? */
bool oom_keeps_displayed(const struct oom_facts *f);
/* oom_rerun.c. Does memory of an earlier run of the cell hold the bytes that the request needs? */
void oom_find_rerun(struct site_builder *b, const struct oom_live *live, size_t n, struct oom_facts *f);
bool oom_keeps_rerun(const struct oom_facts *f);
/* oom_failed.c. Does an earlier pass that failed hold the bytes that the request needs? */
bool oom_keeps_failed(const struct oom_facts *f);
/* oom_trials.c. Do models of several earlier trials hold the bytes that the request needs? */
bool oom_keeps_trials(const struct oom_facts *f);
bool oom_keeps_ensemble(const struct oom_facts *f);
/* Do the states of several earlier optimizers hold them? */
bool oom_keeps_optimizers(const struct oom_facts *f);

/* Each states its cause in a few words, then the numbers that support it; the request and the free memory have been
 * printed before. */
void oom_explain_pinned(struct oom_words *w);
void oom_explain_oversized(struct oom_words *w);
void oom_explain_driver_fragmentation(struct oom_words *w);
bool oom_stays_refused(const struct oom_facts *f);
void oom_explain_cap(struct oom_words *w);
void oom_explain_leak(struct oom_words *w);
void oom_explain_driving(struct oom_words *w); /* a buffer that others are computed from: f->driven */
void oom_explain_trials(struct oom_words *w);
void oom_explain_optimizers(struct oom_words *w);
void oom_explain_displayed(struct oom_words *w);
void oom_explain_failed(struct oom_words *w);
void oom_explain_rerun(struct oom_words *w);
void oom_explain_other_process(struct oom_words *w);
void oom_explain_cache_fragmentation(struct oom_words *w);
void oom_explain_refused_preallocation(struct oom_words *w);
void oom_explain_preallocation(struct oom_words *w);
void oom_explain_outside(struct oom_words *w);
void oom_explain_capacity(struct oom_words *w);
void oom_explain_pending(struct oom_words *w); /* of a capacity: f->pending */
void oom_advise_growth(struct oom_words *w);   /* of a capacity, beside what grew over the steps */
void oom_advise_kept(struct oom_words *w);     /* … beside a container that the program empties or limits */

/* The rhythm of the growth: bytes each time, and how often. */
struct oom_rhythm {
    double each;
    uint64_t times;
    bool steps; /* the program's own; else allocations of the largest call path */
};
struct oom_rhythm oom_rhythm(const struct oom_facts *f);
