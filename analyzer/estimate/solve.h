/* The largest batch, sequence or model, or the fewest GPUs, that fit. */
#ifndef GPUSPY_SOLVE_H
#define GPUSPY_SOLVE_H

#include "analyzer/estimate/estimate.h"

/* SOLVE(id, word of --solve, what is found) */
/* clang-format off */
#define SOLVE_WHATS(SOLVE)                                                            \
    SOLVE(BATCH, "batch", "largest batch on one GPU")                                 \
    SOLVE(SEQ, "seq", "longest sequence")                                             \
    SOLVE(GPUS, "gpus", "fewest GPUs")                                                \
    SOLVE(LAYERS, "layers", "most layers")
/* clang-format on */

enum solve_what {
#define SOLVE(id, word, what) SOLVE_##id,
    SOLVE_WHATS(SOLVE)
#undef SOLVE
        SOLVE_WHATS_N
};

extern const char solve_words[]; /* "batch|seq|…" */
extern const char *const solve_word[], *const solve_words_of[];

struct solve_answer {
    bool any;     /* false: not even the smallest (GPUs: the largest number tried) fits */
    bool limited; /* it fits at `limit`, the largest that was tried or that the model takes */
    uint64_t value;
    struct interval peak; /* with it */
    struct interval next; /* with one more (GPUs: the next fewer); 0 where there is none */
    char option[96];      /* "--batch 12"; "--gpus 8 --tp 8" */
};

struct solution {
    enum solve_what what;
    double memory;                      /* plan.memory */
    struct solve_answer surely, likely; /* by the peak's high end; by its likely value */
    uint64_t limit;
    char note[224]; /* what was assumed, or why there is no answer; "" : nothing to say */
};

/* False after one line on stderr where it cannot be asked: no memory, or a model without what is varied. */
bool solve(const char *command, const struct plan *p, enum solve_what what, struct solution *s);

#endif
