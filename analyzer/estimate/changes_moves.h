/* The single changes that changes.c tries. */
#pragma once

#include "analyzer/estimate/changes.h"

struct estimate_move_words {
    char what[192], option[80], cost[224];
};

struct estimate_move {
    const char *id;
    enum estimate_change_cost cost;
    unsigned groups; /* bits: two moves that share one are not combined */
    unsigned n;      /* in a series: rows of the same id, from small to large; 0: as far as possible */
    bool training, inference;
    const char *source; /* of the cost; NULL: none needed */
    /* Changes the plan and describes the change; false if it does not apply. */
    bool (*apply)(const struct estimate_move *move, struct plan *p, struct estimate_move_words *w);
};

extern const struct estimate_move estimate_moves[];
extern const size_t estimate_move_count;
