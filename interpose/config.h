/* The settings of the recorder from the environment (GPUSPY_*), read once at load. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define GS_MIN_FREE_DEFAULT UINT64_MAX /* 1 GiB, or a twentieth of a smaller disk */

struct gs_config {
    bool disabled;         /* GPUSPY_DISABLE, or another recorder */
    bool quiet;            /* GPUSPY_QUIET: no line at exit (failures are still printed) */
    bool torch_cpu;        /* GPUSPY_TORCH_CPU: CPU tensors too */
    bool nvml;             /* GPUSPY_NVML: not 0 */
    bool args;             /* GPUSPY_ARGS: not 0; the command line is stored */
    bool source;           /* GPUSPY_SOURCE: not 0; the program's Python files are stored */
    bool keep_deepbind;    /* GPUSPY_DEEPBIND=keep */
    uint64_t min_free;     /* GPUSPY_MIN_FREE, bytes; GS_MIN_FREE_DEFAULT */
    uint64_t keep;         /* GPUSPY_KEEP, bytes; 0: the recording is not bounded */
    unsigned stacks;       /* GPUSPY_STACKS: of GS_STACK_PYTHON, GS_STACK_NATIVE */
    unsigned native_depth; /* GPUSPY_NATIVE_DEPTH, 0 the default */
    char db[PATH_MAX];     /* GPUSPY_DB as given, with its % placeholders */
    char cwd[PATH_MAX];    /* the working directory at load, to which a relative db refers even after chdir */
    char run_id[40];       /* GPUSPY_RUN_ID; if unset, created here and put into the environment */
    char complaint[256];   /* an invalid value, for one line at the session's start */
};
/* GPUSPY_LIMIT, which caps a device as a what-if, is read at the same time: limit.h. */

/* Replaces the environment: "NAME=VALUE" lines, at least one. */
void gs_config_given(const char *lines);

/* Reads the environment at the first call, which the library's constructor makes. */
const struct gs_config *gs_config(void);
