/* What the user's own recorded runs cost: `gpuspy calibrate` learns it, the next estimate uses it.
 *
 * The file keeps what was observed of each run, one row per process and device: a run that is read again replaces its
 * row, and rows learned with other formulas can be recognised. Everything else is computed from the rows on request. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/estimate.h"

/* Increase it whenever an estimate of activations changes by more than rounding: factors learned with other formulas
 * are then not used. */
enum { CALIBRATION_FORMULAS = 17 };

enum { CALIBRATION_ROWS_MAX = 512 }; /* the oldest are dropped */

/* Measured and predicted bytes are of the same thing if they differ by no more than these factors. */
#define CALIBRATION_FACTOR_LEAST 0.2
#define CALIBRATION_FACTOR_MOST 5.0

struct estimate_calibration_row {
    char run[80];         /* which run, process and device */
    char gpu[96];         /* as the driver calls it */
    double context;       /* bytes of the CUDA context, kernels and libraries; NAN: not seen */
    double fragmentation; /* holes between blocks at the peak, as a share of the blocks: 0.08 is 8 %; NAN: not seen */
    double workspace;     /* bytes of cuBLAS's and cuDNN's workspaces; NAN: not seen */
    /* activations, logits and the temporaries of passes together, at their maximum; activations_predicted NAN: not
     * learned */
    char family[16], precision[16], attention[16], checkpointing[16], more[32];
    double activations, activations_predicted; /* bytes: the measured maximum; the expected value of the estimate */
    double batch, seq;
    double formulas;
};

struct estimate_calibration {
    char path[4096];
    ARENA_LIST(struct estimate_calibration_row, rows); /* oldest first */
};

/* $GPUSPY_CALIBRATION, else $XDG_CONFIG_HOME/gpuspy/calibration.json, else ~/.config/…; false: none of them is set, or
 * the path is too long; the path is then "". */
bool estimate_calibration_path(char *path, size_t size);

/* Reads the file; a missing file is an empty calibration. False after one line on stderr, with the exit code (3). Call
 * estimate_calibration_free() in any case. */
bool estimate_calibration_load(const char *command, const char *path, struct estimate_calibration *c, int *exit_code);
void estimate_calibration_free(struct estimate_calibration *c);
/* Locks the folder, so that two concurrent runs of `gpuspy calibrate` do not overwrite each other's rows: waits for the
 * lock and holds it until the returned descriptor is closed. -1: no lock; the last writer then wins. */
int estimate_calibration_lock(const struct estimate_calibration *c);
/* Replaces the row of the same run, or adds it. */
void estimate_calibration_add(struct estimate_calibration *c, const struct estimate_calibration_row *row);
/* Writes the complete file, or leaves it as it was. False after one line on stderr. */
bool estimate_calibration_save(const char *command, const struct estimate_calibration *c);
/* Parses the text of such a file, for tests and fuzzers too: false with a reason. */
bool estimate_calibration_parse(const char *text, size_t n, struct estimate_calibration *c, char *why, size_t why_size);

/* What was observed of one quantity. */
struct estimate_calibrated {
    size_t runs; /* 0: nothing, and the rest is 0 */
    double least, mean, most;
};

/* For the lines of an estimate: low and high are the least and the most observed value, widened the more the fewer runs
 * there are (10 % of the value with one run, 5 % with four). */
struct estimate_interval estimate_calibrated_interval(const struct estimate_calibrated *seen);

/* Fills in the words by which activations are distinguished, for this plan. */
void estimate_calibration_key(struct estimate_calibration_row *row, const struct plan *p);

/* Each accepts NULL for no calibration. `gpu` NULL: what was observed on all GPUs; else only on this one. */
struct estimate_calibrated estimate_calibration_context(const struct estimate_calibration *c,
                                                        const struct estimate_gpu *gpu); /* bytes */
struct estimate_calibrated estimate_calibration_workspace(const struct estimate_calibration *c,
                                                          const struct estimate_gpu *gpu); /* bytes */
/* Holes between blocks at the peak, as a share of the blocks: memory that the allocator reserves in addition and cannot
 * free. */
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
/* By kind, in the order in which they were first observed. The caller frees the list. */
struct estimate_calibration_known *estimate_calibration_list(const struct estimate_calibration *c, size_t *n);

/* Removes the file. False after one line on stderr, also if it is not a calibration file. */
bool estimate_calibration_delete(const char *command, const char *path);

/* estimate_make calls it after the lines of activations: scales those of activations, logits and temporaries of passes
 * by the measured factor, so that the code that makes them does not need it, and adds a note that lists what of the
 * calibration is used. fixed.c looks up contexts, workspaces and fragmentation. */
void estimate_calibrate(const struct plan *p, struct estimate_result *r);
/* The user's own file, as `gpuspy estimate` uses it: NULL if there is none or it has no rows. Valid until the program
 * ends. False after one line on stderr, with the exit code. */
bool estimate_calibration_load_own(const char *command, const struct estimate_calibration **c, int *exit_code);
