/* The rows of cuda_api.def as numbers and tables. */
#ifndef GPUSPY_API_H
#define GPUSPY_API_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "interpose/cuda_abi.h"

enum gs_library { GS_LIBRARY_RT, GS_LIBRARY_DRV, GS_LIBRARY_TORCH };

/* PyTorch's own reporting functions (door_torch.c) make events too and so have numbers. */
#define GS_TORCH_APIS(X)                                                                           \
    X(TORCH_USAGE, "c10::reportMemoryUsageToProfiler")                                             \
    X(TORCH_OOM, "c10::reportOutOfMemoryToProfiler")

enum gs_api_number {
    GS_API_NONE = 0,
#define GS_ROW(layer, name, stream, params, args, act) GS_API_##name,
#include "interpose/cuda_api.def"
    GS_API_CUDA_END, /* the CUDA rows are 1 … GS_API_CUDA_END - 1 */
#define GS_TORCH_NUMBER(symbol, name) GS_API_##symbol,
    GS_TORCH_APIS(GS_TORCH_NUMBER)
#undef GS_TORCH_NUMBER
    GS_API_COUNT
};

struct gs_api {
    const char *name; /* NULL for GS_API_NONE */
    uint8_t library; /* enum gs_library */
    bool memory;     /* its act gives, takes or maps memory (GS_MEMORY_<act>) */
};
extern const struct gs_api gs_apis[GS_API_COUNT];

/* The wrapper of each CUDA row (door_plt.c). */
extern void *const gs_wrappers[GS_API_CUDA_END];

/* The real function of each CUDA row, NULL until found; through gs_real (resolve.h). */
extern _Atomic(void *) gs_reals[GS_API_CUDA_END];

/* The row with exactly this name, GS_API_NONE if there is none. Safe in any thread, in a signal
 * handler and before the library's constructor; no malloc, no lock. */
uint16_t gs_api_find(const char *name);

#endif
