/* The rows of cuda_api.def as numbers and tables. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "interpose/cuda_abi.h"

enum gs_library { GS_LIBRARY_RT, GS_LIBRARY_DRV, GS_LIBRARY_TORCH };

/* PyTorch's own reporting functions (door_torch.c) also produce events and therefore have numbers. */
#define GS_TORCH_APIS(X)                               \
    X(TORCH_USAGE, "c10::reportMemoryUsageToProfiler") \
    X(TORCH_OOM, "c10::reportOutOfMemoryToProfiler")

enum gs_api_number {
    GS_API_NONE = 0,
#define GS_ROW(layer, symbol, name, versions, stream, params, args, act) GS_API_##symbol,
#include "interpose/cuda_api.def"
    GS_API_CUDA_END, /* the CUDA rows are 1 … GS_API_CUDA_END - 1 */
#define GS_TORCH_NUMBER(symbol, name) GS_API_##symbol,
    GS_TORCH_APIS(GS_TORCH_NUMBER)
#undef GS_TORCH_NUMBER
        GS_API_COUNT
};

/* The runtimes that may be loaded side by side in one process. A row has a wrapper and a real function for each of its
 * versions; a driver row has one, GS_VERSION_DRIVER. */
enum gs_version { GS_VERSION_11, GS_VERSION_12, GS_VERSION_13, GS_VERSIONS };
#define GS_VERSION_DRIVER 0
#define GS_VERSION_NONE GS_VERSIONS

/* versions of cuda_api.def as sets of these. */
enum {
    GS_IN_11 = 1 << GS_VERSION_11,
    GS_IN_12 = 1 << GS_VERSION_12,
    GS_IN_13 = 1 << GS_VERSION_13,
    GS_IN_11_12 = GS_IN_11 | GS_IN_12,
    GS_IN_12_13 = GS_IN_12 | GS_IN_13,
    GS_IN_ALL = GS_IN_11 | GS_IN_12 | GS_IN_13,
};

/* The version node of each runtime's symbols, by which a runtime is also recognised. */
extern const char *const gs_version_nodes[GS_VERSIONS];

struct gs_api {
    const char *name; /* NULL for GS_API_NONE */
    uint8_t library;  /* enum gs_library */
    uint8_t versions; /* GS_IN_… */
    bool memory;      /* its act allocates, frees or maps memory (true in act_signatures.h) */
};
extern const struct gs_api gs_apis[GS_API_COUNT];

/* The wrappers of each CUDA row (door_plt.c); NULL for versions that lack the row. */
extern void *const gs_wrappers[GS_API_CUDA_END][GS_VERSIONS];

/* The real functions of each CUDA row, NULL until found. Read them through gs_real (resolve.h). */
extern _Atomic(void *) gs_reals[GS_API_CUDA_END][GS_VERSIONS];

/* The row with exactly this name in this version, or GS_API_NONE. Safe in any thread, in a signal handler and before
 * the library's constructor; no malloc, no lock. The version of a driver's name is ignored. */
uint16_t gs_api_find(const char *name, enum gs_version version);
/* Whether there is such a row in any version. */
bool gs_api_known(const char *name);
