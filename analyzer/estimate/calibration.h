/* What the user's own recorded runs cost: learned by `gpuspy calibrate`, used by the next estimate.
 *
 * Kept is what was observed of each run, one row a process and device, so that a run which is read again
 * replaces what was known of it, and one with other formulas can be told. Everything else is worked out
 * from the rows when they are asked for. */
#ifndef GPUSPY_CALIBRATION_H
#define GPUSPY_CALIBRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/estimate.h"

/* Goes up whenever an estimate of activations changes by more than a rounding: the factors learned with
 * other formulas are then not used. */
enum { CALIBRATION_FORMULAS = 6 };

enum { CALIBRATION_ROWS_MAX = 512 }; /* older ones go */

/* What was measured and predicted are of the same thing if they are that near. */
#define CALIBRATION_FACTOR_LEAST 0.2
#define CALIBRATION_FACTOR_MOST 5.0

struct estimate_calibration_row {
    char run[80];         /* which run, process and device */
    char gpu[96];         /* as the driver calls it */
    double context;       /* bytes of the CUDA context, kernels and libraries; NAN: not seen */
    double fragmentation; /* holes beside blocks at the peak, of what the blocks hold: 0.08 is 8 %; NAN */
    double workspace;     /* bytes of cuBLAS's and cuDNN's workspaces; NAN */
    /* activations, logits and the temporaries of passes, the most that they came to; activations_predicted NAN:
     * not learned */
    char family[16], precision[16], attention[16], checkpointing[16], more[32];
    double activations, activations_predicted; /* bytes at most; predicted: the likely ones */
    double batch, seq;
    double formulas;
};

struct estimate_calibration {
    char path[4096];
    struct estimate_calibration_row *rows; /* oldest first */
    size_t rows_n, rows_cap;
};

/* $GPUSPY_CALIBRATION, else $XDG_CONFIG_HOME/gpuspy/calibration.json, else ~/.config/…; false: neither
 * is there, and the path is "". */
bool estimate_calibration_path(char *path, size_t size);

/* Reads the file; none there is an empty calibration. False after one line on stderr, with the exit code
 * (3). estimate_calibration_free() in any case. */
bool estimate_calibration_load(const char *command, const char *path, struct estimate_calibration *c, int *exit_code);
void estimate_calibration_free(struct estimate_calibration *c);
/* So that of two that learn at once neither loses what the other learned: waits, and holds the folder until the
 * descriptor that is returned is closed. -1 where there is no such thing; then the last one wins. */
int estimate_calibration_lock(const struct estimate_calibration *c);
/* Replaces the row of the same run, or adds it. */
void estimate_calibration_add(struct estimate_calibration *c, const struct estimate_calibration_row *row);
/* Writes it: there complete, or as it was. False after one line on stderr. */
bool estimate_calibration_save(const char *command, const struct estimate_calibration *c);
/* The text of such a file, for tests and fuzzers: false with a reason. */
bool estimate_calibration_parse(const char *text, size_t n, struct estimate_calibration *c, char *why, size_t why_size);

/* What was seen of something. */
struct estimate_calibrated {
    size_t runs; /* 0: nothing, and the rest is 0 */
    double least, mean, most;
};

/* For the lines of an estimate: low and high are the least and the most seen, and a little more the fewer
 * runs there are (10 % of the value with one, 5 % with four). */
struct estimate_interval estimate_calibrated_interval(const struct estimate_calibrated *seen);

/* The words that activations are told apart by, as this plan has them. */
void estimate_calibration_key(struct estimate_calibration_row *row, const struct plan *p);

/* All take NULL for no calibration. `gpu` NULL: of all GPUs; else only what was seen on such a one. */
struct estimate_calibrated estimate_calibration_context(const struct estimate_calibration *c,
                                                        const struct estimate_gpu *gpu); /* bytes */
struct estimate_calibrated estimate_calibration_workspace(const struct estimate_calibration *c,
                                                          const struct estimate_gpu *gpu); /* bytes */
/* Holes between blocks at the peak, as a share of what the blocks hold: what the allocator reserves on top and
 * cannot give back. */
struct estimate_calibrated estimate_calibration_fragmentation(const struct estimate_calibration *c);
/* Measured over predicted bytes of activations, logits and the temporaries of passes together. */
struct estimate_calibrated estimate_calibration_activations(const struct estimate_calibration *c, const struct plan *p);

/* All that is known, for people and programs. */
enum estimate_calibration_what {
    CALIBRATION_CONTEXT,
    CALIBRATION_WORKSPACE,
    CALIBRATION_FRAGMENTATION,
    CALIBRATION_ACTIVATIONS
};
struct estimate_calibration_known {
    enum estimate_calibration_what what;
    const struct estimate_calibration_row *of; /* any row of its kind: the GPU, or the words of activations */
    struct estimate_calibrated seen;
    bool stale; /* activations that were learned with other formulas: not used */
};
/* By what, in the order in which they were first seen. To be freed. */
struct estimate_calibration_known *estimate_calibration_list(const struct estimate_calibration *c, size_t *n);

/* Removes the file. False after one line on stderr: also where it is something else's. */
bool estimate_calibration_delete(const char *command, const char *path);

/* For estimate_make, behind the lines of activations: scales those of activations, logits and passing temporaries by
 * what was measured (so that whoever makes them need not look), and says in a note what of the calibration is used.
 * Contexts and fragmentation are looked up by fixed.c. */
void estimate_calibrate(const struct plan *p, struct estimate_result *r);
/* The user's own file, as `gpuspy estimate` uses it: NULL where there is none or nothing in it. Stays good
 * until the program ends. False after one line on stderr, with the exit code. */
bool estimate_calibration_load_own(const char *command, const struct estimate_calibration **c, int *exit_code);

#endif
