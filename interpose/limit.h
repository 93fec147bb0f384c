/* GPUSPY_LIMIT: a device behaves as one with less memory, to see what a job would do there.
 *
 * Only with this variable a call of the application's is withheld, and only one that allocates device
 * memory at the driver: what would not fit under the cap returns CUDA_ERROR_OUT_OF_MEMORY. Every runtime
 * allocates through the driver, so its own error state follows by itself.
 *
 * What counts is what the device itself says is in use, contexts, modules, rounding and all, less what NVML
 * says that other processes hold: each process has the cap to itself. What a call will really take is known
 * beforehand for all but a few (arrays, pitched memory, pools, small pieces that may share a page):
 * those, near the cap, are made, measured and undone. No lock: threads reserve before they call. */
#ifndef GPUSPY_LIMIT_H
#define GPUSPY_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "schema/event.h"

#define GS_LIMIT_DEVICES 64 /* of more, the others have no cap */

/* Whether any device is capped. */
extern _Atomic bool gs_limit_set;
static inline bool gs_limited(void)
{
    return __builtin_expect(atomic_load_explicit(&gs_limit_set, memory_order_relaxed), 0);
}

/* Reads the variable's value: `24GiB` for every device, `0:24GiB,1:40GiB` for some. False: it makes no
 * sense, and nothing is capped. */
bool gs_limit_read(const char *value);
/* A size alone, such as 5GiB. */
bool gs_size_read(const char *text, uint64_t *bytes);

/* The cap of a device, which may be more than it has; 0 none. */
uint64_t gs_limit_of(int device);

enum gs_limit_kind {
    GS_LIMIT_LINEAR,
    GS_LIMIT_PITCHED,
    GS_LIMIT_POOL,
    GS_LIMIT_VMM,
    GS_LIMIT_ARRAY,
    GS_LIMIT_MIPMAPPED
};

/* One allocation, from before its call until after it. */
struct gs_limit_call {
    bool capped;   /* it was asked for on a device that has a cap, and is to be ended */
    bool withheld; /* the real call was not made */
    bool measured; /* whether it fits is seen only afterwards */
    uint8_t kind;
    int device;
    uint64_t bytes, reserved, pool, stream;
    uint64_t pools; /* what all pools held before */
};

/* Before the real call: whether it is withheld. `device` as in gs_device_resolve. */
bool gs_limit_refuses(struct gs_limit_call *call, enum gs_limit_kind kind, int device, uint64_t bytes, uint64_t pool,
                      uint64_t stream);
/* After it, refused or not: the result that the application gets. `address`: what the call gave, of a
 * success. */
int gs_limit_end(struct gs_limit_call *call, int result, uint64_t address);

/* What a program is told of a device: these are changed if it is capped. GS_DEVICE_CURRENT: the current
 * context's. `free_bytes` may be NULL. */
void gs_limit_view(int device, uint64_t *free_bytes, uint64_t *total_bytes);

/* A pool that the program made, and its end. */
void gs_limit_pool(int kind, uint64_t pool, int device);
void gs_limit_pool_gone(int kind, uint64_t pool);

/* The real size of a capped device, as CUDA states it; 0: not capped, or not asked yet. */
void gs_limit_physical(int device, uint64_t bytes);
uint64_t gs_limit_physical_of(int device);

/* What NVML says that other processes hold (UINT64_MAX: it does not know). */
void gs_limit_others(int device, uint64_t bytes);
/* False: not asked yet. What NVML does not know counts as 0. */
bool gs_limit_others_known(int device, uint64_t *bytes);

/* A forked child, which starts anew. */
void gs_limit_forget(void);
void gs_limit_value_forget(void);

#endif
