/* The largest batch, sequence or model, or the fewest GPUs, that fit. */
#pragma once

#include "analyzer/estimate/estimate.h"

/* SOLVE(id, word of --solve, what is found) */
#define SOLVE_WHATS(SOLVE)                            \
    SOLVE(BATCH, "batch", "largest batch on one GPU") \
    SOLVE(SEQ, "seq", "longest sequence")             \
    SOLVE(GPUS, "gpus", "fewest GPUs")                \
    SOLVE(LAYERS, "layers", "most layers")

#define SOLVE(id, word, what) SOLVE_##id,
enum estimate_solve_what { SOLVE_WHATS(SOLVE) SOLVE_WHATS_N };
#undef SOLVE

extern const char estimate_solve_words[]; /* "batch|seq|…" */
extern const char *const estimate_solve_word[], *const estimate_solve_words_of[];

struct estimate_solve_answer {
    bool any;     /* false: not even the smallest (GPUs: the largest number tried) fits */
    bool limited; /* it fits at `limit`, the largest value that was tried or that the model accepts */
    uint64_t value;
    struct estimate_interval peak; /* with `value` */
    struct estimate_interval next; /* with one more (GPUs: with the next fewer); 0: none */
    char option[96];               /* "--batch 12"; "--gpus 8 --tp 8" */
};

struct estimate_solution {
    enum estimate_solve_what what;
    double memory;                               /* plan.memory */
    struct estimate_solve_answer surely, likely; /* by the peak's high end; by its likely value */
    uint64_t limit;
    char note[224]; /* what was assumed, or why there is no answer; "": nothing to report */
};

/* Prints one line to stderr and returns false if memory is short, or if the model has no such setting. */
bool estimate_solve(const char *command, const struct plan *p, enum estimate_solve_what what,
                    struct estimate_solution *s);
