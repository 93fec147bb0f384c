/* The answer to a plan, for the views: the lines, the GPUs that it is compared with, what would help, and the result of
 * --solve. */
#pragma once

#include "analyzer/estimate/changes.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/fit.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/estimate/server.h"
#include "analyzer/estimate/solve.h"
#include "analyzer/estimate/wires.h"

/* Shown if activations are unknown. */
#define ESTIMATE_ON_TOP "Activations and the temporary buffers of forward and backward are not included"

/* A memory size that the estimate is compared with. */
struct estimate_target {
    const struct estimate_gpu *gpu; /* NULL: only --memory was given */
    double memory;
    /* on that GPU, with its own context and workspaces */
    struct estimate_interval peak, part[ESTIMATE_PARTS_N];
    struct estimate_fit fit;
    struct estimate_server server; /* with --serve; `request` 0: no cache */
};

/* With more GPUs than this, the lines are for no particular GPU. */
enum { ANSWER_FEW = 3 };

struct estimate_answer {
    struct plan plan; /* with what was assumed; its GPU is the first named one, if there are few */
    struct plan_assumed assumed;
    struct estimate_result result; /* of `plan` */
    struct estimate floor;         /* weights, gradients and states on one device that holds all of them */
    ARENA_ROWS(struct estimate_target, targets); /* owned */
    struct estimate_wires wires;                 /* what a step moves; no rows: nothing */
    struct estimate_changes changes;
    size_t helped; /* the target that changes are for: the first whose verdict is not "fits", else the first */
    bool solved;
    struct estimate_solution solution; /* if --solve was given */
    int argc;
    char **argv;       /* the words typed after the command, for the command to type next */
    char beside[1024]; /* options of gpuspy report that compare this with a recording */
};

/* What the user requested besides the plan. */
struct estimate_answer_request {
    const struct estimate_gpu *const *gpus; /* GPUs to compare with; NULL and 0: none */
    size_t gpus_n;
    double network; /* bytes/s of a GPU to other machines; 0: not given */
    int solve;      /* enum estimate_solve_what; -1: nothing */
    bool lines;     /* no changes, and no notes on other settings: each needs estimates of its own */
    int argc;
    char **argv;       /* outlives the answer */
    const char *model; /* as it was named, quoted for a shell; NULL: given by --params or by its shape */
};

/* `plan` and its model must outlive the answer. False after one line on stderr. Call estimate_answer_free() in any
 * case. */
bool estimate_answer_build(const char *command, const struct plan *plan, const struct estimate_answer_request *wish,
                           struct estimate_answer *a);
void estimate_answer_free(struct estimate_answer *a);
/* True if no GPU and no memory was named, or if it likely fits into one of them. */
bool estimate_answer_fits(const struct estimate_answer *a);

/* Weights, gradients, states, adapters and averages: what does not depend on the batch. Bytes on the fullest GPU, each
 * part at its maximum. */
double estimate_answer_state_bytes(const struct estimate_answer *a);
/* The maximum of a part over all phases; in `phases`, the phases in which it exists, 0: none. */
struct estimate_interval estimate_answer_part(const struct estimate_result *r, enum estimate_part part,
                                              unsigned *phases);
/* True if activations are unknown, so that the figures do not include them. */
bool estimate_answer_lacks_activations(const struct estimate_answer *a);
double estimate_answer_host_bytes(const struct estimate_result *r);

/* The command as it was typed, with `options` in place of those of the same names and without those that only set how
 * the answer is shown, to be pasted into a shell. Returns out. */
char *estimate_answer_command(const struct estimate_answer *a, const char *options, char *out, size_t size);
/* "--optimizer adamw8bit --checkpointing full": all options that the cheapest way changes. Returns out. */
char *estimate_answer_way(const struct estimate_answer *a, char *out, size_t size);

extern const char *const estimate_part_key[], *const estimate_part_title[];
extern const char *const estimate_phase_key[], *const estimate_phase_title[];
