/* Learns from a recording the costs that an estimate cannot compute: see analyzer/estimate/calibration.h. */
#pragma once

#include "analyzer/estimate/calibration.h"
#include "analyzer/result/result.h"

/* What can be learned. LEARN(id, JSON key, words) */
#define LEARNS(LEARN)                                             \
    LEARN(CONTEXT, "context", "CUDA context, kernels, libraries") \
    LEARN(WORKSPACE, "workspace", "workspaces")                   \
    LEARN(FRAGMENTATION, "fragmentation", "fragmentation")        \
    LEARN(ACTIVATIONS, "activations", "activations")
#define LEARN(id, key, words) LEARN_##id,
enum question_learn { LEARNS(LEARN) LEARNS_N };
#undef LEARN

/* Of one device of one process. */
struct question_learned_row {
    struct estimate_calibration_row row;
    char recording[256]; /* the file */
    uint32_t pid;
    int device;
    bool any;                  /* something was learned */
    const char *why[LEARNS_N]; /* why it was not; NULL: it was, or there was nothing to learn */
};

struct question_learned {
    const struct plan *plan; /* the training that was recorded; NULL: unknown, so no activations are learned */
    struct question_learned_row *rows;
    size_t n, cap;
};

/* `result`: the plan's own estimate, with which the report was built; NULL if there is no plan. */
void question_learn(const struct result_report *r, const char *path, const struct estimate_result *result,
                    struct question_learned *out);
bool question_learned_any(const struct question_learned *l);
void question_learned_free(struct question_learned *l);

/* budget_plan.c: does the estimate have activations? And its activations, logits and temporaries together, as backward
 * begins. */
bool question_plan_has_activations(const struct estimate_result *e);
struct estimate_interval question_plan_pass(const struct estimate_result *e);
/* The maximum of a category over all phases (phase -1). */
struct estimate_interval question_plan_category(const struct estimate_result *e, enum result_category c, int phase);
