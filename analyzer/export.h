/* What an export format is given: a run, what of it, and where to write. cmd_export.c fills it in. */
#ifndef GPUSPY_EXPORT_H
#define GPUSPY_EXPORT_H

#include <stdio.h>
#include "analyzer/run.h"

enum { GS_EXPORT_DEVICES = 128 };

/* What the process did on one device. */
struct gs_export_device {
    bool used, tensors;        /* tensors: PyTorch reported its own */
    int64_t peak_bytes[2], peak_ns[2]; /* of [0] CUDA's allocations, [1] tensors; the latest of equals */
    uint64_t rows;             /* allocations and frees of both */
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

/* False and a line in `error` where a database could not be read; write errors stay in e->out. */
typedef bool gs_export_fn(struct gs_export *e, char *error, size_t error_size);
#define EXPORT(word, function, suffix, summary) gs_export_fn function;
#include "analyzer/exports.def"
#undef EXPORT

/* To be called for each event: says on a terminal, now and then, how far it is. */
void gs_export_step(struct gs_export *e);

#endif
