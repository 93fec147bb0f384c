/* What PyTorch's caching allocator does beside its reports: which stream is current, and the events by
 * which it keeps a freed block from being used again. */
#ifndef GPUSPY_ALLOCATOR_H
#define GPUSPY_ALLOCATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "schema/event.h"

/* Events that the allocator's module has recorded in this thread since the thread's last tensor: what is
 * recorded right before a free is what that free waits for. */
struct gs_marked {
    uint32_t count, stack; /* stack: from where, as a number of the thread's */
    uint64_t events[GS_PENDING_EVENTS];
};

/* The code of the module that reports tensors (libc10_cuda.so). */
extern _Atomic uintptr_t gs_allocator_lo, gs_allocator_hi;
/* `caller`: of a report. Looked up once. */
void gs_allocator_seen(const void *caller);
static inline bool gs_allocator_calls(const void *caller)
{
    const uintptr_t lo = atomic_load_explicit(&gs_allocator_lo, memory_order_acquire);
    return (uintptr_t)caller - lo < atomic_load_explicit(&gs_allocator_hi, memory_order_relaxed) - lo;
}

/* The path of that module; NULL: no report was seen yet. */
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

/* The stream that PyTorch has made current on the device, as CUDA names it: what is allocated now
 * belongs to it. GS_STREAM_UNKNOWN where PyTorch cannot be asked. */
uint64_t gs_torch_stream(int device);

#endif
