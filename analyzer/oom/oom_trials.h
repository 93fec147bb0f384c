/* Models that earlier trials made and that are still live: a sweep, folds, a notebook cell that ran several times.
 *
 * A trial begins where a module is built or moved after a backward pass. The observer of oom.c passes each allocation
 * on.
 */
#pragma once

#include "analyzer/oom/oom.h"

struct oom_trials {    /* of the process that is replayed */
    int64_t *start_ns; /* ascending */
    size_t n, cap;
    bool trained;      /* a backward pass since the last module was built or moved */
    struct map stacks; /* stack → does it build or move a module? */
};

void oom_trials_start(struct oom_trials *t); /* a process begins */
void oom_trials_add_alloc(struct oom_trials *t, const struct run *run, const struct run_lifetime *life, bool backward);
void oom_trials_release(struct oom_trials *t);

/* The memory that earlier trials hold at this moment; for run_each_live. */
struct oom_held {
    struct oom_trials *trials;
    const struct run *run;
    int device;
    struct oom_trial {
        uint64_t count;
        uint32_t stack; /* of one of them */
        int64_t bytes;
    } * held;         /* by trial: live blocks of its modules */
    struct map paths; /* call path of a block → its trial, 0 if several trials hold blocks of it */
    struct oom_earlier earlier;
};
/* Of the current process and this device. */
struct oom_earlier oom_trials_held(struct oom_trials *t, const struct run *run, int device);
/* Reads what the program does with the models: methods of a module that store them make them part of a model, as
 * adapters and layers are, and models in a list that is called as a whole are an ensemble. */
void oom_trials_judge(struct site_builder *b, struct oom_earlier *e);
