/* What would save memory: single changes of a plan, each computed anew by estimate_make, and the cheapest of them, or
 * of their combinations, that makes it fit. */
#pragma once

#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/fit.h"

/* COST(id, word in JSON, weight): a larger weight is a higher cost. Weights add up in combinations. */
#define CHANGE_COSTS(COST)          \
    COST(NOTHING, "nothing", 1)     \
    COST(LITTLE, "little_time", 2)  \
    COST(TIME, "time", 4)           \
    COST(ROUNDING, "rounding", 5)   \
    COST(MUCH_TIME, "much_time", 9) \
    COST(QUALITY, "quality", 10)    \
    COST(RESULT, "result", 12)      \
    COST(HARDWARE, "hardware", 16)

#define COST(id, word, weight) CHANGE_COST_##id,
enum estimate_change_cost { CHANGE_COSTS(COST) CHANGE_COSTS_N };
#undef COST

extern const char *const estimate_change_cost_word[];

struct estimate_change {
    const char *id;     /* "checkpointing_full": for JSON, static */
    char what[192];     /* "gradient checkpointing: model.gradient_checkpointing_enable()" */
    char option[80];    /* "--checkpointing full": what to add to the command */
    char cost[224];     /* "forward is computed twice: about a third more compute" */
    const char *source; /* source of the number in `cost`; static, NULL: none */
    enum estimate_change_cost cost_class;
    struct estimate_interval saved; /* of the peak; low ≤ likely ≤ high */
    struct estimate_interval peak;  /* after the change */
    struct estimate_fit fit;        /* after the change; only if the plan has memory */
};

enum { CHANGES_MAX = 48, CHANGES_WAY_MAX = 4 };

struct estimate_changes {
    struct estimate_change rows[CHANGES_MAX]; /* by likely bytes saved, most first; without changes that save nothing,
                                                 and without GPUs with which it still does not fit */
    size_t n;
    /* The cheapest way, of one change or several, with which even the high end fits (if there is none: with which the
     * expected need fits). Only if the plan has memory and its high end does not fit. way_n 0: no change is needed, or
     * none is enough. A part may save nothing by itself and have no row. */
    struct estimate_change way[CHANGES_WAY_MAX]; /* each with saved and peak after the changes before it */
    size_t way_n;
    bool needed; /* the plan has memory, and its high end does not fit */
};

/* `now` is the plan's own result. */
void estimate_find_changes(const struct plan *p, const struct estimate_result *now, struct estimate_changes *out);
