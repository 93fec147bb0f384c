/* What export formats are given: a run, what of it, and where to write. cmd_export.c fills it in. Some
 * show one process at one moment (struct export), others the whole run (struct export_run). */
#ifndef GPUSPY_EXPORT_H
#define GPUSPY_EXPORT_H

#include <stdio.h>
#include "analyzer/profile/profile.h"
#include "analyzer/run/run.h"

enum { EXPORT_DEVICES = 128 };

/* What the process did on one device. */
struct export_device {
    bool used, tensors;                /* tensors: PyTorch reported its own */
    int64_t peak_bytes[2], peak_ns[2]; /* of [0] CUDA's allocations, [1] tensors; the latest of equals */
    uint64_t rows;                     /* allocations and frees of both */
};

struct export
{
    struct run *run; /* opened with options.memory_map */
    uint32_t process;
    struct export_device devices[EXPORT_DEVICES]; /* used: to be exported */
    int64_t moment_ns;
    uint64_t last;       /* at most so many events of a device, its last ones */
    bool python, native; /* the frames to write; no Python in a stack: its native ones */
    bool categories;     /* what each block is for, see category.h */
    FILE *out;
    /* by the format: events of traces that were left out */
    uint64_t left_out;
    struct export_progress {
        bool shown; /* stderr is a terminal */
        uint64_t done, total, next;
        int64_t noted_ns;
    } progress;
};

/* All processes, or the one that was asked for: the run has no others then. */
struct export_run {
    struct run *run;        /* opened with options.memory_map and symbols */
    const char *name;       /* of the recording: "run.db" */
    enum profile_what what; /* PROFILE_KINDS_N: what the format shows usually */
    int64_t at_ns;          /* of PROFILE_AT */
    int device;             /* -1 all */
    bool native;            /* frames: Python's and native ones; else Python's alone where it has any */
    const char *tables;     /* "sites,waits"; NULL all */
    FILE *out;              /* where the format writes one file */
    const char *folder;     /* where it writes several */
    bool nothing;           /* by the format: there is nothing to write; `note` says why */
    char note[1024];        /* by the format: what people should know of what it wrote, "" nothing */
};

/* False and a line in `error` where a database could not be read; write errors stay in out. */
typedef bool export_fn(struct export *e, char *error, size_t error_size);
typedef bool export_run_fn(struct export_run *e, char *error, size_t error_size);
#define EXPORT(word, function, suffix, summary) export_fn function;
#define EXPORT_RUN(word, function, suffix, summary) export_run_fn function;
#define EXPORT_FOLDER EXPORT_RUN
#include "analyzer/export/exports.def"
#undef EXPORT
#undef EXPORT_RUN
#undef EXPORT_FOLDER

/* Is it of the GPU that was asked for, or of none? */
static inline bool export_includes_device(const struct export_run *e, int device)
{
    return e->device < 0 || device < 0 || device == e->device;
}

/* A profile of what was asked for, see profile.h. */
struct profile *export_profile(struct export_run *e, enum profile_what what, bool categories, char *error,
                               size_t error_size);

/* Seconds of a report as nanoseconds. */
int64_t export_ns(double seconds);

/* "sites|waits|…": the tables of csv and ndjson. */
const char *export_tables(void);
/* The first of "sites,waits" that is no table; NULL: all are. */
const char *export_unknown_table(const char *words);

/* To be called for each event: says on a terminal, now and then, how far it is. */
void export_progress_show(struct export *e);
void export_progress_end(const struct export_progress *p);

#endif
