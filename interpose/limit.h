/* GPUSPY_LIMIT: a device behaves as one with less memory, to see what a job would do there. Only with this variable
 * does gpuspy withhold a call of the application, and only one that allocates device memory at the driver: what would
 * not fit under the cap returns CUDA_ERROR_OUT_OF_MEMORY. Every runtime allocates through the driver, so its own error
 * state follows by itself. What counts is what the device reports as in use (contexts, modules and rounding included),
 * minus what NVML reports for other processes: each process has the cap to itself. The size of most calls is known
 * beforehand. The others (arrays, pitched memory, pools, small allocations that may share a page) are made near the
 * cap, measured and undone. No lock: threads reserve before they call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "interpose/limit_value.h"
#include "schema/event.h"

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
    uint64_t pools;       /* what all pools held before */
    uint32_t let_through; /* calls so far that did not wait for the end of others */
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

/* In a forked child, which starts anew. */
void gs_limit_forget(void);
