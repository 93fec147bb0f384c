/* The input of an export format: a run, the part of it to write, and where to write. cmd_export.c fills it in. Some
 * formats show one process at one moment (struct export), others the whole run (struct export_run). */
#pragma once

#include <stdio.h>
#include "analyzer/profile/profile.h"
#include "analyzer/run/run.h"

enum { EXPORT_DEVICES = 128 };

/* The memory of the process on one device. */
struct export_device {
    bool used, tensors;                /* tensors: PyTorch reported its tensors */
    int64_t peak_bytes[2], peak_ns[2]; /* [0] of CUDA allocations, [1] of tensors; the latest of equal peaks */
    uint64_t rows;                     /* allocations and frees of both */
};

struct export
{
    char moment[160]; /* what was chosen, for a line on stderr; may be empty */
    struct run *run;  /* opened with options.memory_map */
    uint32_t process;
    struct export_device devices[EXPORT_DEVICES]; /* used: export it */
    int64_t moment_ns;
    bool snapshot;       /* the run is an imported snapshot of PyTorch, which is exported as it was */
    uint64_t last;       /* export at most this many of a device's last events */
    bool python, native; /* the frames to write; a stack without Python has its native ones */
    bool categories;     /* what each block is for, see category.h */
    FILE *out;
    /* set by the format: number of events of traces that were left out */
    uint64_t left_out;
    struct export_progress {
        bool shown; /* stderr is a terminal */
        uint64_t done, total, next;
        int64_t noted_ns;
    } progress;
};

/* All processes, or the requested one: the run then has no others. */
struct export_run {
    struct run *run;        /* opened with options.memory_map and symbols */
    const char *name;       /* of the recording: "run.db" */
    enum profile_what what; /* PROFILE_KINDS_N: the format's default */
    int64_t at_ns;          /* of PROFILE_AT */
    int device;             /* -1: all */
    bool native;            /* frames: Python and native ones; false: only Python's, unless a stack has none */
    const char *tables;     /* "sites,waits"; NULL: all */
    FILE *out;              /* for a format that writes one file */
    const char *folder;     /* for a format that writes several files */
    bool nothing;           /* set by the format: there is nothing to write; `note` states why */
    char note[1024];        /* set by the format: what users should know about the result; "": nothing */
};

/* Returns false and a line in `error` if a database could not be read. Write errors stay in `out`. */
typedef bool export_fn(struct export *e, char *error, size_t error_size);
typedef bool export_run_fn(struct export_run *e, char *error, size_t error_size);
#define EXPORT(word, function, suffix, summary) export_fn function;
#define EXPORT_RUN(word, function, suffix, summary) export_run_fn function;
#define EXPORT_FOLDER EXPORT_RUN
#include "analyzer/export/exports.def"

/* Whether an entry belongs to the requested GPU, or to none. */
static inline bool export_includes_device(const struct export_run *e, int device)
{
    return e->device < 0 || device < 0 || device == e->device;
}

/* The requested profile, see profile.h. */
struct profile *export_profile(struct export_run *e, enum profile_what what, bool categories, char *error,
                               size_t error_size);

/* Converts a report's seconds to nanoseconds. */
int64_t export_ns(double seconds);

/* "sites|waits|…": the tables of csv and ndjson. */
const char *export_tables(void);
/* The first word of "sites,waits" that is not a table; NULL: all are. */
const char *export_unknown_table(const char *words);

/* Call it for each event: now and then it prints the progress on a terminal. */
void export_progress_show(struct export *e);
void export_progress_end(const struct export_progress *p);
