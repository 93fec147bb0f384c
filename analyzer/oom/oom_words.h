/* An OOM's cause in words, and what to do about it. Between oom_cause.c, which decides, and
 * oom_words.c, which speaks; what both ask of the facts is in oom_facts.c. */
#ifndef GPUSPY_OOM_WORDS_H
#define GPUSPY_OOM_WORDS_H

#include "analyzer/oom/oom.h"

/* What a process pays for being on the device at all, as far as it can be told from the others'
 * use: at most a GiB, and at most a quarter of a small device. */
int64_t oom_context_bytes(const struct oom_facts *f);
/* Held by other processes: NVML's word where there is one; else what is in use beyond our own calls
 * and a context's cost. */
int64_t oom_other_bytes(const struct oom_facts *f);
/* Reserved by PyTorch and in no tensor. */
int64_t oom_cached_bytes(const struct oom_facts *f);
/* What grows hangs on a graph that somebody keeps by f->growth->newest. */
bool oom_keeps_graph(const struct oom_facts *f);
/* Who took most of the memory that PyTorch's allocator does not have; NULL nobody. */
const struct result_by_owner *oom_direct_owner(const struct result_oom_verdict *v);

struct oom_words {
    struct site_builder *b;
    const struct oom_facts *f;
    struct result_oom_verdict *v;
};

/* A call path as people name it: file:line function. */
const char *oom_place_text(struct oom_words *w, uint32_t stack);

/* oom_after.c. `after` begins at the failure, is told the process's later allocations (line: run_stack_python of
 * theirs), and judged once the replay is over, `served`: the recorder saw the thread get as much as it had asked for,
 * or went on. */
void oom_after_begin(const struct run *run, const struct run_oom *row, struct oom_after *after);
void oom_after_add_alloc(struct oom_after *after, const struct run_lifetime *life, uint32_t line);
/* Whether the convolution that failed went on by itself: PyTorch tries cuDNN's algorithms one after the other, and goes
 * on if one gets no workspace (30 such failures in one forward pass on an H200). What comes next comes then from the
 * same call or from the line that made it. */
bool oom_convolution_went_on(const struct run *run, const struct oom_after *a, const struct run_oom *next);
enum result_oom_outcome oom_after_end(const struct site_builder *b, const struct run_oom *row, bool served,
                                      struct oom_after *after);
/* What the outcome rests on; NULL nothing to say. */
const char *oom_after_text(struct oom_words *w);

/* How much work a thing to do is. */
enum oom_effort {
    OOM_EFFORT_SETTING = 1, /* outside of the program: an environment variable, a process to end */
    OOM_EFFORT_LINE,        /* a line, an argument that changes no result */
    OOM_EFFORT_ARGUMENT,    /* another batch, another length */
    OOM_EFFORT_TRAINING,    /* another way to train: what comes out is a little different, or slower */
    OOM_EFFORT_DEVICE       /* another GPU, or another cap: what a rehearsal on a smaller one does not want */
};

/* For `enough`, beside what the amount against the need tells. */
enum {
    OOM_MEASURE_FITS = 2,        /* looked into: it is enough */
    OOM_MEASURE_FITS_NOT = 3,    /* … it is not */
    OOM_MEASURE_AT_MOST = 4,     /* the amount is the most that it can be */
    OOM_MEASURE_MOST_BUT_NOT = 5 /* both */
};

/* What PyTorch asks CUDA for to serve these bytes: a segment. */
int64_t oom_segment_bytes(int64_t bytes, bool grows);
/* What must be freed for the request to succeed, at least 1. */
int64_t oom_needed_bytes(const struct oom_facts *f);
/* Adds a thing to do; `frees` RUN_UNKNOWN where it has no amount, else the text gets it. `first`:
 * the cause itself asks for it, so it stands before the others. */
void oom_add_measure(struct site_builder *b, struct result_oom_verdict *v, struct result_measure measure);
/* oom_measures.c. Adds to each verdict what else would help, and keeps the best few in order: its measures and
 * advice. */
void oom_add_advice(struct site_builder *b);

/* oom_patterns.c. A well-known holder of GPU memory, by the stack that allocated; NULL: none. */
struct oom_holder {
    const char *what, *advice;
    double share; /* of what grew: the most that the advice frees */
};
const struct oom_holder *oom_holder_of(const struct run *run, uint32_t stack);
/* Likewise of what is often needed for a moment only. */
const struct oom_holder *oom_copy_of(const struct run *run, uint32_t stack);
/* A failure that a function which tries batch sizes until one fits expected and handled. */
bool oom_found_batch(const struct site_builder *b, const struct result_oom_verdict *v);
/* oom_failed.c. Does an earlier pass that failed hold what the request needs? */
bool oom_keeps_failed(const struct oom_facts *f);
/* oom_trials.c. Do models of several earlier trials hold what the request needs? */
bool oom_keeps_trials(const struct oom_facts *f);

/* Each says its cause in a few words, then the numbers it rests on; what was asked and what was
 * free stands before it already. */
void oom_explain_pinned(struct oom_words *w);
void oom_explain_oversized(struct oom_words *w);
void oom_explain_driver_fragmentation(struct oom_words *w);
void oom_explain_cap(struct oom_words *w);
void oom_explain_leak(struct oom_words *w);
void oom_explain_trials(struct oom_words *w);
void oom_explain_failed(struct oom_words *w);
void oom_explain_other_process(struct oom_words *w);
void oom_explain_cache_fragmentation(struct oom_words *w);
void oom_explain_preallocation(struct oom_words *w);
void oom_explain_outside(struct oom_words *w);
void oom_explain_capacity(struct oom_words *w);
void oom_explain_pending(struct oom_words *w); /* of a capacity: f->pending */

/* How what grows came together: bytes each time, and how often. */
struct oom_rhythm {
    double each;
    uint64_t times;
    bool steps; /* the program's own; else allocations of the heaviest call path */
};
struct oom_rhythm oom_rhythm(const struct oom_facts *f);

#endif
