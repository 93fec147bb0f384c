/* GPUSPY_LIMIT: a device behaves as one with less memory, to see what a job would do there. Only with this variable
 * does gpuspy withhold a call of the application, and only one that allocates device memory at the driver: what would
 * not fit under the cap returns CUDA_ERROR_OUT_OF_MEMORY. Every runtime allocates through the driver, so its own error
 * state follows by itself. What counts is what the device reports as in use (contexts, modules and rounding included),
 * minus what NVML reports for other processes: each process has the cap to itself. The size of most calls is known
 * beforehand. The others (arrays, pitched memory, pools, small allocations that may share a page) are made near the
 * cap, measured and undone. No lock: threads reserve before they call. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "schema/event.h"

#define GS_LIMIT_DEVICES 64 /* further devices have no cap */

/* Whether any device is capped. */
extern _Atomic bool gs_limit_set;
static inline bool gs_limited(void)
{
    return __builtin_expect(atomic_load_explicit(&gs_limit_set, memory_order_relaxed), 0);
}

/* Reads the variable's value: `24GiB` for every device, `0:24GiB,1:40GiB` for some. False: it is invalid, and nothing
 * is capped. */
bool gs_limit_read(const char *value);
/* A size without a device, such as 5GiB. */
bool gs_size_read(const char *text, uint64_t *bytes);

/* The cap of a device, which may exceed its memory; 0 none. */
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
    bool capped;   /* the device has a cap, so gs_limit_end must follow */
    bool withheld; /* the real call was not made */
    bool measured; /* whether it fits is known only afterwards */
    uint8_t kind;
    int device;
    uint64_t bytes, reserved, pool, stream;
    uint64_t pools; /* what all pools held before */
};

/* Before the real call: should it be withheld? `device` as in gs_device_resolve. */
bool gs_limit_refuses(struct gs_limit_call *call, enum gs_limit_kind kind, int device, uint64_t bytes, uint64_t pool,
                      uint64_t stream);
/* After the call, withheld or not: returns the result that the application gets. `address`: what a successful call
 * returned. */
int gs_limit_end(struct gs_limit_call *call, int result, uint64_t address);

/* Changes the sizes that a program gets for a device, if the device is capped. GS_DEVICE_CURRENT: the current
 * context's. `free_bytes` may be NULL. */
void gs_limit_view(int device, uint64_t *free_bytes, uint64_t *total_bytes);

/* The program created or destroyed a pool. */
void gs_limit_pool(int kind, uint64_t pool, int device);
void gs_limit_pool_gone(int kind, uint64_t pool);

/* The real size of a capped device, as CUDA reports it; 0: not capped, or not queried yet. */
void gs_limit_physical(int device, uint64_t bytes);
uint64_t gs_limit_physical_of(int device);

/* What other processes hold according to NVML (UINT64_MAX: unknown). */
void gs_limit_others(int device, uint64_t bytes);
/* False: not queried yet. Bytes that NVML does not know count as 0. */
bool gs_limit_others_known(int device, uint64_t *bytes);

/* In a forked child, which starts anew. */
void gs_limit_forget(void);
void gs_limit_value_forget(void);
