/* Models that earlier trials made and that are still live: a sweep, folds, a notebook cell that ran several times.
 *
 * A trial begins where a module is built or moved after a backward pass; in a program without any, after a forward
 * pass. The observer of oom.c passes each allocation on.
 */
#pragma once

#include "analyzer/oom/oom.h"

/* What begins a trial: a module, or the states of an optimizer. */
enum oom_trial_of { OOM_TRIAL_OF_MODULES, OOM_TRIAL_OF_OPTIMIZERS };

struct oom_trials { /* of the process that is replayed */
    enum oom_trial_of of;
    int64_t *start_ns; /* ascending */
    size_t n, cap;
    bool trained; /* a backward pass since the last module was built or moved; a forward pass if there never was one */
    bool trains;  /* there was a backward pass */
    uint64_t pass_blocks,
        most_pass_blocks; /* allocated in forward passes: since the last model; between two, at most */
    struct map stacks;    /* stack → does it build or move a module, or run one? */
};

void oom_trials_start(struct oom_trials *t, enum oom_trial_of of); /* a process begins */
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
    } * held;                     /* by trial: live blocks of its modules */
    const struct run_frame *cell; /* that built a module again; NULL none */
    struct map paths;             /* call path of a block → its trial, 0 if several trials hold blocks of it */
    struct oom_earlier earlier;
};
/* Of the current process and this device. */
struct oom_earlier oom_trials_held(struct oom_trials *t, const struct run *run, int device);
/* The live bytes of modules on this device. */
int64_t oom_trials_models(struct oom_trials *t, const struct run *run, int device);
/* The states of earlier optimizers: of each as many blocks and bytes as of the current one, and together more than one
 * optimizer has for the parameters (`modules`: the live blocks of modules). */
struct oom_earlier oom_optimizers_held(struct oom_trials *t, const struct run *run, int device, int64_t modules);
/* Reads what the program does with the models: methods of a module that store them make them part of a model, as
 * adapters and layers are, and models in a list that is called as a whole are an ensemble. */
void oom_trials_judge(struct site_builder *b, struct oom_earlier *e);
