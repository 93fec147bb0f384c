/* Everything that is answered about a plan, for the views: the lines, the GPUs it is held against, what would
 * help, what was solved for. */
#ifndef GPUSPY_ANSWER_H
#define GPUSPY_ANSWER_H

#include "analyzer/estimate/changes.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/fit.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/estimate/server.h"
#include "analyzer/estimate/solve.h"
#include "analyzer/estimate/wires.h"

/* What stands where activations are not known. */
#define ESTIMATE_ON_TOP "Activations and temporary buffers come on top"

/* A memory it is held against. */
struct estimate_target {
    const struct estimate_gpu *gpu; /* NULL: --memory alone */
    double memory;
    /* on that GPU: its context and workspaces are its own */
    struct estimate_interval peak, part[ESTIMATE_PARTS_N];
    struct estimate_fit fit;
    struct estimate_server server; /* with --serve; `request` 0: it has no cache */
};

/* With more GPUs than that, the lines are those of no certain one. */
enum { ANSWER_FEW = 3 };

struct estimate_answer {
    struct plan plan; /* with what was assumed; its GPU is the first that was named, if they are few */
    struct plan_assumed assumed;
    struct estimate_result result;   /* of `plan` */
    struct estimate floor;           /* weights, gradients and states on one device that holds all of them */
    struct estimate_target *targets; /* owned */
    size_t targets_n;
    struct estimate_wires wires; /* what a step moves; no rows: nothing */
    struct estimate_changes changes;
    size_t helped; /* the target that changes are for: the first that it does not surely fit, else the first */
    bool solved;
    struct estimate_solution solution; /* where it was asked for */
    int argc;
    char **argv;       /* what was typed behind the command, for what to type next */
    char beside[1024]; /* options of gpuspy report that set this beside a recording */
};

/* What is asked besides the plan. */
struct estimate_answer_request {
    const struct estimate_gpu *const *gpus; /* to hold it against: NULL and 0 where there are none */
    size_t gpus_n;
    double network; /* bytes/s of a GPU to other machines; 0: not given */
    int solve;      /* enum estimate_solve_what; -1: nothing */
    int argc;
    char **argv;       /* outlives the answer */
    const char *model; /* as it was named, quoted for a shell; NULL: it was counted or described */
};

/* `plan` with its model outlives the answer. False after one line on stderr. estimate_answer_free()
 * in any case. */
bool estimate_answer_build(const char *command, const struct plan *plan, const struct estimate_answer_request *wish,
                           struct estimate_answer *a);
void estimate_answer_free(struct estimate_answer *a);
/* No GPU and no memory was named, or it likely fits into one that was. */
bool estimate_answer_fits(const struct estimate_answer *a);

/* Weights, gradients, states, adapters and averages: what is there whatever the batch. Bytes on the fullest
 * GPU, each part at its most. */
double estimate_answer_state_bytes(const struct estimate_answer *a);
/* A part at its most in any phase; the phases it is there in. 0: none. */
struct estimate_interval estimate_answer_part(const struct estimate_result *r, enum estimate_part part,
                                              unsigned *phases);
/* Activations are not known, and what is said is without them. */
bool estimate_answer_lacks_activations(const struct estimate_answer *a);
/* In the host's memory. */
double estimate_answer_host_bytes(const struct estimate_result *r);

/* What was typed, with `options` instead of those of the same names and without those that say how the answer is
 * shown, to be pasted into a shell.
 * Returns out. */
char *estimate_answer_command(const struct estimate_answer *a, const char *options, char *out, size_t size);
/* "--optimizer adamw8bit --checkpointing full": all that the cheapest way changes. Returns out. */
char *estimate_answer_way(const struct estimate_answer *a, char *out, size_t size);

extern const char *const estimate_part_key[], *const estimate_part_title[];
extern const char *const estimate_phase_key[], *const estimate_phase_title[];

#endif
