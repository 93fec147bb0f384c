/* The door of everybody who is linked to CUDA: one exported wrapper a row of cuda_api.def.
 *
 * The exported name is an alias of a static function, so that the addresses in gs_wrappers are the
 * wrappers themselves: by its exported name a function's address may be a PLT entry of a
 * non-PIE program. */
#include "interpose/recorder.h"
#include "interpose/resolve.h"

#define GS_RESULT_RT cudaError_t
#define GS_RESULT_DRV CUresult
#define GS_MISSING_RT cudaErrorSharedObjectInitFailed
#define GS_MISSING_DRV CUDA_ERROR_SHARED_OBJECT_INIT_FAILED

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
    if (t) t->start_ns = gs_now();
}

/* --- acts --------------------------------------------------------------------------------------
 * t may be NULL; `result` is the real call's. */

#define GS_OOM 2 /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */

#define GS_BEFORE_ALLOC(space, address, bytes, stream)
#define GS_AFTER_ALLOC(space, address, bytes, stream)                                              \
    if (result == 0)                                                                               \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_##space,              \
                        GS_DEVICE_OF_##space, STREAM(stream), 0);                                  \
    else if (result == GS_OOM)                                                                     \
        gs_record_cuda_oom(t, bytes, GS_SPACE_##space);
/* Pinned host memory belongs to no device, wherever it was asked for. */
#define GS_DEVICE_OF_DEVICE GS_DEVICE_CURRENT
#define GS_DEVICE_OF_MANAGED GS_DEVICE_CURRENT
#define GS_DEVICE_OF_POOL GS_DEVICE_CURRENT
#define GS_DEVICE_OF_PINNED GS_DEVICE_NONE

#define GS_BEFORE_ALLOC_PITCHED(address, bytes, asked)
#define GS_AFTER_ALLOC_PITCHED(address, bytes, asked)                                              \
    if (result == 0)                                                                               \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_DEVICE,               \
                        GS_DEVICE_CURRENT, default_stream, 0);                                     \
    else if (result == GS_OOM)                                                                     \
        gs_record_cuda_oom(t, asked, GS_SPACE_DEVICE);

/* The free comes first: once the real call has begun, another thread may be given the address. */
#define GS_BEFORE_FREE(space, address, stream)                                                     \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_##space, GS_DEVICE_OF_##space,    \
                   STREAM(stream), 0);
#define GS_AFTER_FREE(space, address, stream)                                                      \
    if (result != 0) gs_record_free_failed(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_##space); \
    gs_record_implicit_sync(t);

#define GS_BEFORE_PIN(address, bytes)
#define GS_AFTER_PIN(address, bytes)                                                               \
    if (result == 0)                                                                               \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_PINNED,               \
                        GS_DEVICE_NONE, 0, GS_FLAG_PINNED_REGISTERED);                             \
    else if (result == GS_OOM)                                                                     \
        gs_record_cuda_oom(t, bytes, GS_SPACE_PINNED);
#define GS_BEFORE_UNPIN(address)                                                                   \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_PINNED, GS_DEVICE_NONE, 0,        \
                   GS_FLAG_PINNED_REGISTERED);
#define GS_AFTER_UNPIN(address) GS_AFTER_FREE(PINNED, address, 0)

#define GS_BEFORE_COPY(direction, dst, src, bytes) before(t);
#define GS_AFTER_COPY(direction, dst, src, bytes)                                                  \
    if (result == 0)                                                                               \
        gs_record_copy(t, NUMBER(dst), NUMBER(src), bytes, default_stream, direction, false);
#define GS_BEFORE_COPY_ASYNC(direction, dst, src, bytes, stream) before(t);
#define GS_AFTER_COPY_ASYNC(direction, dst, src, bytes, stream)                                    \
    if (result == 0)                                                                               \
        gs_record_copy(t, NUMBER(dst), NUMBER(src), bytes, STREAM(stream), direction, true);

#define GS_BEFORE_SET(dst, bytes) before(t);
#define GS_AFTER_SET(dst, bytes)                                                                   \
    if (result == 0) gs_record_set(t, NUMBER(dst), bytes, default_stream, false);
#define GS_BEFORE_SET_ASYNC(dst, bytes, stream) before(t);
#define GS_AFTER_SET_ASYNC(dst, bytes, stream)                                                     \
    if (result == 0) gs_record_set(t, NUMBER(dst), bytes, STREAM(stream), true);

#define GS_BEFORE_SYNC(kind, handle) before(t);
#define GS_AFTER_SYNC(kind, handle)                                                                \
    if (result == 0) gs_record_sync(t, GS_SYNC_##kind, NUMBER(handle));

/* cuMemGetInfo(NULL, …) happens. */
#define GS_BEFORE_MEMORY_INFO(free, total)
#define GS_AFTER_MEMORY_INFO(free, total)                                                          \
    if (result == 0 && (free) && (total))                                                          \
        gs_record_sample(t, *(free), *(total), GS_DEVICE_CURRENT, GS_SAMPLE_MEMGETINFO);

#define GS_BEFORE_DEVICE_IS(device)
#define GS_AFTER_DEVICE_IS(device) gs_device_set(t, result == 0 ? (device) : GS_DEVICE_UNKNOWN);
#define GS_BEFORE_CONTEXT_SWITCH()
#define GS_AFTER_CONTEXT_SWITCH() gs_device_set(t, GS_DEVICE_UNKNOWN);

#define GS_BEFORE_CONTEXT_NEW(context, device)
#define GS_AFTER_CONTEXT_NEW(context, device)                                                      \
    if (result == 0) {                                                                             \
        gs_device_set(t, device);                                                                  \
        gs_record_handle(t, GS_HANDLE_CONTEXT, NUMBER(context), device, false);                    \
    }
/* What a context owned goes with it; the store sees that by this record. */
#define GS_BEFORE_CONTEXT_GONE(context) before(t);
#define GS_AFTER_CONTEXT_GONE(context)                                                             \
    if (result == 0)                                                                               \
        gs_record_handle(t, GS_HANDLE_CONTEXT, NUMBER(context), GS_DEVICE_NONE, true);             \
    gs_device_set(t, GS_DEVICE_UNKNOWN);                                                           \
    gs_record_implicit_sync(t);
#define GS_BEFORE_PRIMARY_NEW(context, device)
#define GS_AFTER_PRIMARY_NEW(context, device)                                                      \
    if (result == 0) gs_record_primary(t, NUMBER(context), device);
#define GS_BEFORE_PRIMARY_RELEASED(device) before(t);
#define GS_AFTER_PRIMARY_RELEASED(device)                                                          \
    if (result == 0) gs_record_primary_released(t, device);                                        \
    gs_device_set(t, GS_DEVICE_UNKNOWN);                                                           \
    gs_record_implicit_sync(t);
#define GS_BEFORE_PRIMARY_RESET(device) before(t);
#define GS_AFTER_PRIMARY_RESET(device)                                                             \
    if (result == 0) gs_record_primary_gone(t, device);                                            \
    gs_device_set(t, GS_DEVICE_UNKNOWN);                                                           \
    gs_record_implicit_sync(t);
#define GS_BEFORE_DEVICE_RESET() before(t);
#define GS_AFTER_DEVICE_RESET()                                                                    \
    if (result == 0) gs_record_primary_gone(t, GS_DEVICE_CURRENT);                                 \
    gs_record_implicit_sync(t);

#define GS_BEFORE_STREAM_NEW(stream)
#define GS_AFTER_STREAM_NEW(stream)                                                                \
    if (result == 0)                                                                               \
        gs_record_handle(t, GS_HANDLE_STREAM, NUMBER(stream), GS_DEVICE_CURRENT, false);
#define GS_BEFORE_STREAM_GONE(stream) before(t);
#define GS_AFTER_STREAM_GONE(stream)                                                               \
    if (result == 0)                                                                               \
        gs_record_handle(t, GS_HANDLE_STREAM, NUMBER(stream), GS_DEVICE_CURRENT, true);            \
    gs_record_implicit_sync(t);

/* --- wrappers -------------------------------------------------------------------------------- */

#define GS_ROW(layer, name, stream, params, args, act)                                             \
    static GS_RESULT_##layer gs_do_##name params                                                   \
    {                                                                                              \
        typedef GS_RESULT_##layer real_function params;                                            \
        real_function *real = (real_function *)gs_real(GS_API_##name);                             \
        if (__builtin_expect(!real, 0)) return (GS_RESULT_##layer)GS_MISSING_##layer;              \
        const uint64_t default_stream = stream;                                                    \
        (void)default_stream;                                                                      \
        struct gs_thread *t = gs_enter(GS_API_##name, __builtin_return_address(0));                \
        GS_BEFORE_##act GS_RESULT_##layer result = real args;                                      \
        GS_AFTER_##act gs_leave(t);                                                                \
        return result;                                                                             \
    }                                                                                              \
    extern GS_RESULT_##layer name params                                                           \
        __attribute__((alias("gs_do_" #name), visibility("default")));
#include "interpose/cuda_api.def"

void *const gs_wrappers[GS_API_CUDA_END] = {
#define GS_ROW(layer, name, stream, params, args, act) [GS_API_##name] = (void *)gs_do_##name,
#include "interpose/cuda_api.def"
};
