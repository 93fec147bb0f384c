/* The acts of cuda_api.def: what a call does to memory or time. An act is a pair of macros,
 * GS_BEFORE_<act> and GS_AFTER_<act>, which door_plt.c puts around the real call; in scope are
 * t (may be NULL), result (after), default_stream and the row's parameters. GS_MEMORY_<act> says
 * whether it gives, takes or maps memory. */
#ifndef GPUSPY_ACTS_H
#define GPUSPY_ACTS_H

#include "interpose/cuda_abi.h"
#include "interpose/recorder.h"

/* In acts: pointers, handles and integers as numbers; stream 0 means the row's default stream. */
#define NUMBER(x) ((uint64_t)(uintptr_t)(x))
#define STREAM(s) (NUMBER(s) ? NUMBER(s) : default_stream)
#define KIND(k) direction_of(k)

static inline uint8_t direction_of(enum cudaMemcpyKind kind)
{
    static const uint8_t direction[] = {
        [cudaMemcpyHostToHost] = GS_DIR_H2H,      [cudaMemcpyHostToDevice] = GS_DIR_H2D,
        [cudaMemcpyDeviceToHost] = GS_DIR_D2H,    [cudaMemcpyDeviceToDevice] = GS_DIR_D2D,
        [cudaMemcpyDefault] = GS_DIR_UNKNOWN,
    };
    return (unsigned)kind < sizeof direction ? direction[kind] : GS_DIR_UNKNOWN;
}

static inline void before(struct gs_thread *t)
{
    if (t) t->call.start_ns = gs_now();
}

#define GS_OOM 2 /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */

#define GS_MEMORY_ALLOC(...) 1
#define GS_BEFORE_ALLOC(space, address, bytes, stream)
#define GS_AFTER_ALLOC(space, address, bytes, stream)                                              \
    if (result == 0)                                                                               \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_##space,              \
                        GS_DEVICE_OF_##space, STREAM(stream), 0);                                  \
    else if (result == GS_OOM)                                                                     \
        gs_record_cuda_oom(t, bytes, GS_SPACE_##space);
/* Pinned host memory belongs to no device, but goes with the context in which it was asked for. */
#define GS_DEVICE_OF_DEVICE GS_DEVICE_CURRENT
#define GS_DEVICE_OF_MANAGED GS_DEVICE_CURRENT
#define GS_DEVICE_OF_POOL GS_DEVICE_CURRENT
#define GS_DEVICE_OF_PINNED GS_DEVICE_CURRENT

#define GS_MEMORY_ALLOC_PITCHED(...) 1
#define GS_BEFORE_ALLOC_PITCHED(address, bytes, asked)
#define GS_AFTER_ALLOC_PITCHED(address, bytes, asked)                                              \
    if (result == 0)                                                                               \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_DEVICE,               \
                        GS_DEVICE_CURRENT, default_stream, 0);                                     \
    else if (result == GS_OOM)                                                                     \
        gs_record_cuda_oom(t, asked, GS_SPACE_DEVICE);

/* The free comes first: once the real call has begun, another thread may be given the address. */
#define GS_MEMORY_FREE(...) 1
#define GS_BEFORE_FREE(space, address, stream)                                                     \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_##space, GS_DEVICE_OF_##space,    \
                   STREAM(stream), 0);
#define GS_AFTER_FREE(space, address, stream)                                                      \
    if (result != 0) gs_record_free_failed(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_##space); \
    gs_record_implicit_sync(t);

#define GS_MEMORY_PIN(...) 1
#define GS_BEFORE_PIN(address, bytes)
#define GS_AFTER_PIN(address, bytes)                                                               \
    if (result == 0)                                                                               \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_PINNED,               \
                        GS_DEVICE_CURRENT, 0, GS_FLAG_PINNED_REGISTERED);                          \
    else if (result == GS_OOM)                                                                     \
        gs_record_cuda_oom(t, bytes, GS_SPACE_PINNED);
#define GS_MEMORY_UNPIN(...) 1
#define GS_BEFORE_UNPIN(address)                                                                   \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_PINNED, GS_DEVICE_NONE, 0,        \
                   GS_FLAG_PINNED_REGISTERED);
#define GS_AFTER_UNPIN(address) GS_AFTER_FREE(PINNED, address, 0)

#define GS_MEMORY_COPY(...) 0
#define GS_BEFORE_COPY(direction, dst, src, bytes) before(t);
#define GS_AFTER_COPY(direction, dst, src, bytes)                                                  \
    if (result == 0)                                                                               \
        gs_record_copy(t, NUMBER(dst), NUMBER(src), bytes, default_stream, direction, false);
#define GS_MEMORY_COPY_ASYNC(...) 0
#define GS_BEFORE_COPY_ASYNC(direction, dst, src, bytes, stream) before(t);
#define GS_AFTER_COPY_ASYNC(direction, dst, src, bytes, stream)                                    \
    if (result == 0)                                                                               \
        gs_record_copy(t, NUMBER(dst), NUMBER(src), bytes, STREAM(stream), direction, true);

#define GS_MEMORY_SET(...) 0
#define GS_BEFORE_SET(dst, bytes) before(t);
#define GS_AFTER_SET(dst, bytes)                                                                   \
    if (result == 0) gs_record_set(t, NUMBER(dst), bytes, default_stream, false);
#define GS_MEMORY_SET_ASYNC(...) 0
#define GS_BEFORE_SET_ASYNC(dst, bytes, stream) before(t);
#define GS_AFTER_SET_ASYNC(dst, bytes, stream)                                                     \
    if (result == 0) gs_record_set(t, NUMBER(dst), bytes, STREAM(stream), true);

#define GS_MEMORY_SYNC(...) 0
#define GS_BEFORE_SYNC(kind, handle) before(t);
#define GS_AFTER_SYNC(kind, handle)                                                                \
    if (result == 0) gs_record_sync(t, GS_SYNC_##kind, NUMBER(handle));

/* cuMemGetInfo(NULL, …) happens. */
#define GS_MEMORY_MEMORY_INFO(...) 0
#define GS_BEFORE_MEMORY_INFO(free, total)
#define GS_AFTER_MEMORY_INFO(free, total)                                                          \
    if (result == 0 && (free) && (total))                                                          \
        gs_record_sample(t, *(free), *(total), GS_DEVICE_CURRENT, GS_SAMPLE_MEMGETINFO);

#define GS_MEMORY_DEVICE_IS(...) 0
#define GS_BEFORE_DEVICE_IS(device)
#define GS_AFTER_DEVICE_IS(device) gs_device_set(t, result == 0 ? (device) : GS_DEVICE_UNKNOWN);
#define GS_MEMORY_CONTEXT_SWITCH(...) 0
#define GS_BEFORE_CONTEXT_SWITCH()
#define GS_AFTER_CONTEXT_SWITCH() gs_device_set(t, GS_DEVICE_UNKNOWN);

#define GS_MEMORY_CONTEXT_NEW(...) 0
#define GS_BEFORE_CONTEXT_NEW(context, device)
#define GS_AFTER_CONTEXT_NEW(context, device)                                                      \
    if (result == 0) gs_record_context(t, NUMBER(context), device);
/* What a context owned goes with it; the store sees that by this record. */
#define GS_MEMORY_CONTEXT_GONE(...) 0
#define GS_BEFORE_CONTEXT_GONE(context) before(t);
#define GS_AFTER_CONTEXT_GONE(context)                                                             \
    if (result == 0) gs_record_context_gone(t, NUMBER(context));                                   \
    gs_record_implicit_sync(t);
#define GS_MEMORY_PRIMARY_NEW(...) 0
#define GS_BEFORE_PRIMARY_NEW(context, device)
#define GS_AFTER_PRIMARY_NEW(context, device)                                                      \
    if (result == 0) gs_record_primary(t, NUMBER(context), device);
#define GS_MEMORY_PRIMARY_RELEASED(...) 0
#define GS_BEFORE_PRIMARY_RELEASED(device) before(t);
#define GS_AFTER_PRIMARY_RELEASED(device)                                                          \
    if (result == 0) gs_record_primary_released(t, device);                                        \
    gs_device_set(t, GS_DEVICE_UNKNOWN);                                                           \
    gs_record_implicit_sync(t);
#define GS_MEMORY_PRIMARY_RESET(...) 0
#define GS_BEFORE_PRIMARY_RESET(device) before(t);
#define GS_AFTER_PRIMARY_RESET(device)                                                             \
    if (result == 0) gs_record_primary_gone(t, device);                                            \
    gs_device_set(t, GS_DEVICE_UNKNOWN);                                                           \
    gs_record_implicit_sync(t);
#define GS_MEMORY_DEVICE_RESET(...) 0
#define GS_BEFORE_DEVICE_RESET() before(t);
#define GS_AFTER_DEVICE_RESET()                                                                    \
    if (result == 0) gs_record_primary_gone(t, GS_DEVICE_CURRENT);                                 \
    gs_record_implicit_sync(t);

#define GS_MEMORY_STREAM_NEW(...) 0
#define GS_BEFORE_STREAM_NEW(stream)
#define GS_AFTER_STREAM_NEW(stream)                                                                \
    if (result == 0)                                                                               \
        gs_record_handle(t, GS_HANDLE_STREAM, NUMBER(stream), GS_DEVICE_CURRENT, false);
#define GS_MEMORY_STREAM_GONE(...) 0
#define GS_BEFORE_STREAM_GONE(stream) before(t);
#define GS_AFTER_STREAM_GONE(stream)                                                               \
    if (result == 0)                                                                               \
        gs_record_handle(t, GS_HANDLE_STREAM, NUMBER(stream), GS_DEVICE_CURRENT, true);            \
    gs_record_implicit_sync(t);

#endif
