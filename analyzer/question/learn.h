/* What a recording says about the costs that an estimate cannot know: see analyzer/estimate/calibration.h. */
#ifndef GPUSPY_LEARN_H
#define GPUSPY_LEARN_H

#include "analyzer/estimate/calibration.h"
#include "analyzer/result/result.h"

/* What can be learned. LEARN(id, JSON key, words) */
/* clang-format off */
#define LEARNS(LEARN)                                                 \
    LEARN(CONTEXT, "context", "CUDA context, kernels, libraries")     \
    LEARN(WORKSPACE, "workspace", "workspaces")                       \
    LEARN(FRAGMENTATION, "fragmentation", "fragmentation")          \
    LEARN(ACTIVATIONS, "activations", "activations")
/* clang-format on */
enum learn {
#define LEARN(id, key, words) LEARN_##id,
    LEARNS(LEARN)
#undef LEARN
        LEARNS_N
};

/* Of one device of one process. */
struct learned_row {
    struct calibration_row row;
    char recording[256]; /* the file */
    uint32_t pid;
    int device;
    bool any;                  /* something was learned */
    const char *why[LEARNS_N]; /* why it was not; NULL: it was, or there was nothing to learn */
};

struct learned {
    const struct plan *plan; /* what was trained; NULL: not told, and no activations are learned */
    struct learned_row *rows;
    size_t n, cap;
};

/* `result`: the plan's own estimate, which the report was built with; NULL where there is no plan. */
void learn_from(const struct gs_report *r, const char *path, const struct estimate_result *result, struct learned *out);
bool learned_any(const struct learned *l);
void learned_free(struct learned *l);

/* budget_plan.c: is there an estimate of activations; and of them, logits and temporaries together, as backward
 * begins. */
bool gs_plan_has_activations(const struct estimate_result *e);
struct interval gs_plan_pass(const struct estimate_result *e);
/* Of a category, the most of all phases (phase -1). */
struct interval gs_plan_category(const struct estimate_result *e, enum gs_category c, int phase);

#endif
