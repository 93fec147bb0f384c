/* Which file this process records into. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/config.h"
#include "schema/spool.h"

#define GS_LEFT_MAX 256

struct gs_run_path {
    char db[PATH_MAX];    /* absolute */
    char spool[PATH_MAX]; /* db + ".spool" */
    char asked[PATH_MAX]; /* the requested name, if another run has taken it */
    char first[PATH_MAX]; /* the run's first file, which `gpuspy report` takes */
    /* recordings that this process left unfinished when it executed another program: see gs_run_path_left */
    short left[GS_LEFT_MAX];
    int left_count;
};

/* Takes the first free name and creates the spool under it: run.db → run.<pid>.db beside it if run.db belongs to this
 * run (another rank, a child), run.db → run-2.db, run-3.db … if it belongs to another. Nothing is ever overwritten. If
 * processes compete for a name, the spool's exclusive creation decides. On failure false and one line in `error`. */
bool gs_run_path_claim(struct gs_run_path *path, const struct gs_config *config, struct gs_spool *spool,
                       const char *command, uint64_t start_mono_ns, uint64_t start_real_ns, char *error,
                       size_t error_size);

/* The database of left[i]. */
bool gs_run_path_left(const struct gs_run_path *path, int i, char *db, size_t size);

/* A path as the user would type it: relative if it is in the folder of the start. */
const char *gs_run_path_shown(const char *path, const struct gs_config *config);
