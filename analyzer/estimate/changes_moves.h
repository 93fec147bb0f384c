/* The single changes that are tried, for changes.c alone. */
#ifndef GPUSPY_CHANGES_MOVES_H
#define GPUSPY_CHANGES_MOVES_H

#include "analyzer/estimate/changes.h"

struct estimate_move_words {
    char what[192], option[80], cost[224];
};

struct estimate_move {
    const char *id;
    enum estimate_change_cost cost;
    unsigned groups; /* bits: two moves that share one do not go together */
    unsigned n;      /* of a series: rows of the same id, from small to large; 0: as far as it goes */
    bool training, inference;
    const char *source; /* of the cost; NULL: none needed */
    /* Changes the plan and says how; false where it does not apply to it. */
    bool (*apply)(const struct estimate_move *move, struct plan *p, struct estimate_move_words *w);
};

extern const struct estimate_move estimate_moves[];
extern const size_t estimate_move_count;

#endif
