/* Models that earlier trials made and that are still alive: a sweep, folds, a notebook cell that ran several times.
 *
 * A trial begins where a module is built or moved after a backward pass. The observer of oom.c passes each allocation
 * on. */
#ifndef GPUSPY_OOM_TRIALS_H
#define GPUSPY_OOM_TRIALS_H

#include "analyzer/oom/oom.h"

struct gs_oom_trials { /* of the process that is replayed */
    int64_t *start_ns; /* ascending */
    size_t n, cap;
    bool trained;         /* a backward pass since the last module was built or moved */
    struct gs_map stacks; /* stack → does it build or move a module? */
};

void gs_oom_trials_start(struct gs_oom_trials *t); /* a process begins */
void gs_oom_trials_alloc(struct gs_oom_trials *t, const struct gs_run *run, const struct gs_lifetime *life,
                         bool backward);
void gs_oom_trials_release(struct gs_oom_trials *t);

/* What earlier trials hold at this moment; for gs_run_live. */
struct gs_oom_held {
    struct gs_oom_trials *trials;
    const struct gs_run *run;
    int device;
    struct gs_oom_trial {
        uint64_t count;
        int64_t bytes;
    } * held;             /* by trial: live blocks of its modules */
    struct gs_map models; /* call path of a module's block → its first trial that holds one, plus 1; again: repeated */
    struct gs_oom_earlier earlier;
};
/* Of the current process and this device. */
struct gs_oom_earlier gs_oom_trials_held(struct gs_oom_trials *t, const struct gs_run *run, int device);

#endif
