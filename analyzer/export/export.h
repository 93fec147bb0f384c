/* What export formats are given: a run, what of it, and where to write. cmd_export.c fills it in. Some
 * show one process at one moment (struct gs_export), others the whole run (struct gs_export_run). */
#ifndef GPUSPY_EXPORT_H
#define GPUSPY_EXPORT_H

#include <stdio.h>
#include "analyzer/profile/profile.h"
#include "analyzer/run/run.h"

enum { GS_EXPORT_DEVICES = 128 };

/* What the process did on one device. */
struct gs_export_device {
    bool used, tensors;                /* tensors: PyTorch reported its own */
    int64_t peak_bytes[2], peak_ns[2]; /* of [0] CUDA's allocations, [1] tensors; the latest of equals */
    uint64_t rows;                     /* allocations and frees of both */
};

struct gs_export {
    struct gs_run *run; /* opened with options.memory_map */
    uint32_t process;
    struct gs_export_device devices[GS_EXPORT_DEVICES]; /* used: to be exported */
    int64_t moment_ns;
    uint64_t last;       /* at most so many events of a device, its last ones */
    bool python, native; /* the frames to write; no Python in a stack: its native ones */
    bool categories;     /* what each block is for, see category.h */
    FILE *out;
    /* by the format: events of traces that were left out */
    uint64_t left_out;
    struct gs_export_progress {
        bool shown; /* stderr is a terminal */
        uint64_t done, total, next;
        int64_t said_ns;
    } progress;
};

/* All processes, or the one that was asked for: the run has no others then. */
struct gs_export_run {
    struct gs_run *run;        /* opened with options.memory_map and symbols */
    const char *name;          /* of the recording: "run.db" */
    enum gs_profile_what what; /* GS_PROFILES_N: what the format shows usually */
    int64_t at_ns;             /* of GS_PROFILE_AT */
    int device;                /* -1 all */
    bool native;               /* frames: Python's and native ones; else Python's alone where it has any */
    const char *tables;        /* "sites,waits"; NULL all */
    FILE *out;                 /* where the format writes one file */
    const char *folder;        /* where it writes several */
    bool nothing;              /* by the format: there is nothing to write; `said` is why */
    char said[1024];           /* by the format: what people should know of what it wrote, "" nothing */
};

/* False and a line in `error` where a database could not be read; write errors stay in out. */
typedef bool gs_export_fn(struct gs_export *e, char *error, size_t error_size);
typedef bool gs_export_run_fn(struct gs_export_run *e, char *error, size_t error_size);
#define EXPORT(word, function, suffix, summary) gs_export_fn function;
#define EXPORT_RUN(word, function, suffix, summary) gs_export_run_fn function;
#define EXPORT_FOLDER EXPORT_RUN
#include "analyzer/export/exports.def"
#undef EXPORT
#undef EXPORT_RUN
#undef EXPORT_FOLDER

/* Is it of the GPU that was asked for, or of none? */
static inline bool gs_export_device_wanted(const struct gs_export_run *e, int device)
{
    return e->device < 0 || device < 0 || device == e->device;
}

/* A profile of what was asked for, see profile.h. */
struct gs_profile *gs_export_profile(struct gs_export_run *e, enum gs_profile_what what, bool categories, char *error,
                                     size_t error_size);

/* Seconds of a report as nanoseconds. */
int64_t gs_export_ns(double seconds);

/* "sites|waits|…": the tables of csv and ndjson. */
const char *gs_export_tables(void);
/* The first of "sites,waits" that is no table; NULL: all are. */
const char *gs_export_table_unknown(const char *words);

/* To be called for each event: says on a terminal, now and then, how far it is. */
void gs_export_step(struct gs_export *e);
void gs_export_step_end(const struct gs_export_progress *p);

#endif
