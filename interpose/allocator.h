/* What PyTorch's caching allocator does besides its reports: which stream is current, and the events that keep a freed
 * block from being reused too early. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "schema/event.h"

/* Events that the allocator's module has recorded in this thread since the thread's last tensor: a free waits for the
 * events recorded right before it. */
struct gs_marked {
    uint32_t count, stack; /* stack: the call site, as a number of this thread */
    uint64_t events[GS_PENDING_EVENTS];
};

/* The code of the module that reports tensors (libc10_cuda.so). */
extern _Atomic uintptr_t gs_allocator_lo, gs_allocator_hi;
/* `caller`: the caller of a report. The module is looked up once. */
void gs_allocator_seen(const void *caller);
static inline bool gs_allocator_calls(const void *caller)
{
    const uintptr_t lo = atomic_load_explicit(&gs_allocator_lo, memory_order_acquire);
    return lo && (uintptr_t)caller - lo < atomic_load_explicit(&gs_allocator_hi, memory_order_relaxed) - lo;
}

/* The path of that module; NULL before the first report. */
const char *gs_allocator_module(void);

/* Whether a free has ever waited for an event. */
extern _Atomic bool gs_allocator_waiting;
static inline bool gs_allocator_waits(void)
{
    return atomic_load_explicit(&gs_allocator_waiting, memory_order_relaxed);
}
static inline void gs_allocator_waits_now(void)
{
    atomic_store_explicit(&gs_allocator_waiting, true, memory_order_relaxed);
}

/* The stream that PyTorch has made current on the device, as CUDA names it; what is allocated now belongs to it.
 * GS_STREAM_UNKNOWN if PyTorch cannot be queried. */
uint64_t gs_torch_stream(int device);
