/* The recording options that `gpuspy run` and `gpuspy attach` share, and the variables that the recorder reads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "analyzer/base/options.h"
#include "schema/store.h"

struct launch_recording {
    const char *stacks;
    int native_depth; /* 0: the recorder's default */
    uint64_t keep;    /* bytes; 0: not given */
    bool torch_cpu;
};

/* The options' rows, for a type of settings that has a member `recording` of this struct. */
#define LAUNCH_RECORDING_ROWS(settings)                                                                           \
    {"stacks",                                                                                                    \
     0,                                                                                                           \
     OPTION_CHOICE,                                                                                               \
     offsetof(settings, recording.stacks),                                                                        \
     "WHICH",                                                                                                     \
     "python|native|both|none",                                                                                   \
     0,                                                                                                           \
     0,                                                                                                           \
     "call stacks to record; default both"},                                                                      \
        {"native-depth", 0, OPTION_NUMBER, offsetof(settings, recording.native_depth), "N",                       \
         NULL,           1, 4096,          "record at most N native frames per stack"},                           \
        {"torch-cpu", 0, OPTION_FLAG, offsetof(settings, recording.torch_cpu), NULL,                              \
         NULL,        0, 0,           "also record PyTorch's CPU tensors"},                                       \
    {                                                                                                             \
        "keep", 0, OPTION_BYTES, offsetof(settings, recording.keep), "SIZE", NULL, (double)GS_KEEP_MIN, 1e18,     \
            "bound each process's recording to SIZE (at least 32MiB), for jobs that run for days: it keeps the "  \
            "latest events in full; of earlier ones it keeps peaks, failures, live memory, totals and growth by " \
            "call path, and a coarse timeline"                                                                    \
    }

/* Calls `set` with the variable of each option that was given; the values stay valid until gpuspy exits. */
void launch_recording_set(const struct launch_recording *r, void (*set)(void *to, const char *name, const char *value),
                          void *to);
/* The id that all processes of a run share: that of the outer run if gpuspy itself runs under one. */
const char *launch_run_id(void);
