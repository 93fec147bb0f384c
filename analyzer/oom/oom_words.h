/* An OOM's cause in words, and what to do about it. Between oom_cause.c, which decides, and
 * oom_words.c, which speaks; what both ask of the facts is in oom_facts.c. */
#ifndef GPUSPY_OOM_WORDS_H
#define GPUSPY_OOM_WORDS_H

#include "analyzer/oom/oom.h"

/* What a process pays for being on the device at all, as far as it can be told from the others'
 * use: at most a GiB, and at most a quarter of a small device. */
int64_t gs_oom_context(const struct gs_oom_facts *f);
/* Held by other processes: NVML's word where there is one; else what is in use beyond our own calls
 * and a context's cost. */
int64_t gs_oom_foreign(const struct gs_oom_facts *f);
/* Reserved by PyTorch and in no tensor. */
int64_t gs_oom_cached(const struct gs_oom_facts *f);
/* What grows hangs on a graph that somebody keeps by f->growth->newest. */
bool gs_oom_graph(const struct gs_oom_facts *f);
/* Who took most of the memory that PyTorch's allocator does not have; NULL nobody. */
const struct gs_by_owner *gs_oom_direct(const struct gs_oom_verdict *v);

struct gs_oom_words {
    struct gs_builder *b;
    const struct gs_oom_facts *f;
    struct gs_oom_verdict *v;
};

/* A call path as people name it: file:line function. */
const char *gs_oom_place(struct gs_oom_words *w, uint32_t stack);

/* oom_after.c. `after` begins at the failure, is told the process's later allocations (line: gs_stack_python of
 * theirs), and judged once the replay is over, `served`: the recorder saw the thread get as much as it had asked for,
 * or went on. */
void gs_oom_after_begin(const struct gs_run *run, const struct gs_oom *row, struct gs_oom_after *after);
void gs_oom_after_alloc(struct gs_oom_after *after, const struct gs_lifetime *life, uint32_t line);
enum gs_oom_outcome gs_oom_after_end(const struct gs_builder *b, const struct gs_oom *row, bool served,
                                     struct gs_oom_after *after);
/* What the outcome rests on; NULL nothing to say. */
const char *gs_oom_after_text(struct gs_oom_words *w);

/* How much work a thing to do is. */
enum gs_effort {
    GS_EFFORT_SETTING = 1, /* outside of the program: an environment variable, a process to end */
    GS_EFFORT_LINE,        /* a line, an argument that changes no result */
    GS_EFFORT_ARGUMENT,    /* another batch, another length */
    GS_EFFORT_TRAINING     /* another way to train: what comes out is a little different, or slower */
};

/* For `enough`, beside what the amount against the need tells. */
enum {
    GS_MEASURE_FITS = 2,        /* looked into: it is enough */
    GS_MEASURE_FITS_NOT = 3,    /* … it is not */
    GS_MEASURE_AT_MOST = 4,     /* the amount is the most that it can be */
    GS_MEASURE_MOST_BUT_NOT = 5 /* both */
};

/* What PyTorch asks CUDA for to serve these bytes: a segment. */
int64_t gs_oom_segment(int64_t bytes, bool grows);
/* What must be freed for the request to succeed, at least 1. */
int64_t gs_oom_need(const struct gs_oom_facts *f);
/* Adds a thing to do; `frees` GS_UNKNOWN where it has no amount, else the text gets it. `first`:
 * the cause itself asks for it, so it stands before the others. */
void gs_oom_measure(struct gs_builder *b, struct gs_oom_verdict *v, struct gs_measure measure);
/* oom_measures.c. Adds to each verdict what else would help, and keeps the best few in order: its measures and
 * advice. */
void gs_oom_advise(struct gs_builder *b);

/* oom_patterns.c. A well-known holder of GPU memory, by the stack that allocated; NULL: none. */
struct gs_oom_holder {
    const char *what, *advice;
    double share; /* of what grew: the most that the advice frees */
};
const struct gs_oom_holder *gs_oom_holder_of(const struct gs_run *run, uint32_t stack);
/* Likewise of what is often needed for a moment only. */
const struct gs_oom_holder *gs_oom_copy_of(const struct gs_run *run, uint32_t stack);
/* A failure that a function which tries batch sizes until one fits expected and handled. */
bool gs_oom_found_batch(const struct gs_builder *b, const struct gs_oom_verdict *v);
/* oom_failed.c. Does an earlier pass that failed hold what the request needs? */
bool gs_oom_keeps_failed(const struct gs_oom_facts *f);
/* oom_trials.c. Do models of several earlier trials hold what the request needs? */
bool gs_oom_keeps_trials(const struct gs_oom_facts *f);

/* Each says its cause in a few words, then the numbers it rests on; what was asked and what was
 * free stands before it already. */
void gs_say_pinned(struct gs_oom_words *w);
void gs_say_oversized(struct gs_oom_words *w);
void gs_say_driver_fragmentation(struct gs_oom_words *w);
void gs_say_cap(struct gs_oom_words *w);
void gs_say_leak(struct gs_oom_words *w);
void gs_say_trials(struct gs_oom_words *w);
void gs_say_failed(struct gs_oom_words *w);
void gs_say_other_process(struct gs_oom_words *w);
void gs_say_cache_fragmentation(struct gs_oom_words *w);
void gs_say_preallocation(struct gs_oom_words *w);
void gs_say_outside(struct gs_oom_words *w);
void gs_say_capacity(struct gs_oom_words *w);
void gs_say_pending(struct gs_oom_words *w); /* of a capacity: f->pending */

/* How what grows came together: bytes each time, and how often. */
struct gs_oom_rhythm {
    double each;
    uint64_t times;
    bool steps; /* the program's own; else allocations of the heaviest call path */
};
struct gs_oom_rhythm gs_oom_rhythm(const struct gs_oom_facts *f);

#endif
