/* The caps of GPUSPY_LIMIT, and what limit.c needs to know of a capped device: its real size, and what other processes
 * hold. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

/* The real size of a capped device, as CUDA reports it; 0: not capped, or not queried yet. */
void gs_limit_physical(int device, uint64_t bytes);
uint64_t gs_limit_physical_of(int device);

/* What other processes hold according to NVML (UINT64_MAX: unknown). */
void gs_limit_others(int device, uint64_t bytes);
/* False: not queried yet. Bytes that NVML does not know count as 0. */
bool gs_limit_others_known(int device, uint64_t *bytes);

/* In a forked child, which starts anew. */
void gs_limit_value_forget(void);
