/* The acts of cuda_api.def: what a call does to memory or time. An act is a pair of macros,
 * GS_BEFORE_<act> and GS_AFTER_<act>, which door_plt.c puts around the real call; in scope are
 * t (may be NULL), result (after), default_stream, at_driver (whether the row is one of the driver's),
 * withheld (before: set to have no real call made, and "out of memory" returned) and the row's parameters.
 * GS_MEMORY_<act> says whether it gives, takes or maps memory. */
#ifndef GPUSPY_ACTS_H
#define GPUSPY_ACTS_H

#include "interpose/cuda_abi.h"
#include "interpose/device.h"
#include "interpose/graph.h"
#include "interpose/limit.h"
#include "interpose/recorder.h"
#include "interpose/shape.h"

/* In acts: pointers, handles and integers as numbers; stream 0 means the row's default stream. */
#define NUMBER(x) ((uint64_t)(uintptr_t)(x))
#define STREAM(s) (NUMBER(s) ? NUMBER(s) : default_stream)
#define KIND(k) direction_of(k)

static inline uint8_t direction_of(enum cudaMemcpyKind kind)
{
    static const uint8_t direction[] = {
        [cudaMemcpyHostToHost] = GS_DIR_H2H,   [cudaMemcpyHostToDevice] = GS_DIR_H2D,
        [cudaMemcpyDeviceToHost] = GS_DIR_D2H, [cudaMemcpyDeviceToDevice] = GS_DIR_D2D,
        [cudaMemcpyDefault] = GS_DIR_UNKNOWN,
    };
    return (unsigned)kind < sizeof direction ? direction[kind] : GS_DIR_UNKNOWN;
}

/* To or from what is on the device for certain, while only the other side's address tells of itself. */
static inline uint8_t into_device(enum cudaMemcpyKind kind, uint64_t src)
{
    if (kind != cudaMemcpyDefault) return direction_of(kind);
    return gs_on_device(src) ? GS_DIR_D2D : GS_DIR_H2D;
}
static inline uint8_t from_device(enum cudaMemcpyKind kind, uint64_t dst)
{
    if (kind != cudaMemcpyDefault) return direction_of(kind);
    return gs_on_device(dst) ? GS_DIR_D2D : GS_DIR_D2H;
}
#define INTO_DEVICE(kind, src) into_device(kind, NUMBER(src))
#define FROM_DEVICE(kind, dst) from_device(kind, NUMBER(dst))

static inline void before(struct gs_thread *t)
{
    if (t) t->call.start_ns = gs_now();
}

#define GS_OOM 2 /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */

/* GPUSPY_LIMIT. The driver's rows alone: the runtime's come to them. */
#define GS_CAP(kind, device, bytes, pool, stream) \
    struct gs_limit_call cap;                     \
    cap.capped = false;                           \
    if (at_driver && gs_limited())                \
        withheld = gs_limit_refuses(&cap, GS_LIMIT_##kind, device, bytes, NUMBER(pool), stream);
#define GS_CAP_END(address)                                              \
    if (at_driver && cap.capped) {                                       \
        const bool made = result == 0;                                   \
        result = gs_limit_end(&cap, result, made ? NUMBER(address) : 0); \
        if (made && result != 0) (address) = 0;                          \
    }
/* By space of ALLOC: an array's size is not looked at before the driver has accepted its description. */
#define GS_CAP_DEVICE(address, bytes) GS_CAP(LINEAR, GS_DEVICE_CURRENT, bytes, 0, 0)
#define GS_CAP_END_DEVICE(address) GS_CAP_END(address)
#define GS_CAP_ARRAY(address, bytes) \
    struct gs_limit_call cap;        \
    cap.capped = false;              \
    if (at_driver && gs_limited()) gs_limit_refuses(&cap, GS_LIMIT_OF_ARRAY(address), GS_DEVICE_CURRENT, 0, 0, 0);
#define GS_LIMIT_OF_ARRAY(address) \
    __builtin_types_compatible_p(__typeof__(address), CUmipmappedArray) ? GS_LIMIT_MIPMAPPED : GS_LIMIT_ARRAY
#define GS_CAP_END_ARRAY(address) GS_CAP_END(address)
#define GS_CAP_MANAGED(address, bytes)
#define GS_CAP_END_MANAGED(address)
#define GS_CAP_PINNED(address, bytes)
#define GS_CAP_END_PINNED(address)

#define GS_MEMORY_ALLOC(...) 1
#define GS_BEFORE_ALLOC(space, address, bytes, stream) GS_CAP_##space(address, bytes)
#define GS_AFTER_ALLOC(space, address, bytes, stream)                                                           \
    GS_CAP_END_##space(address) if (result == 0) gs_record_alloc(                                               \
        t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_##space, GS_DEVICE_OF_##space, STREAM(stream), 0); \
    else if (result == GS_OOM) gs_record_cuda_oom(t, bytes, GS_SPACE_##space);
/* Pinned host memory belongs to no device, but goes with the context in which it was asked for. */
#define GS_DEVICE_OF_DEVICE GS_DEVICE_CURRENT
#define GS_DEVICE_OF_MANAGED GS_DEVICE_CURRENT
#define GS_DEVICE_OF_POOL GS_DEVICE_CURRENT
#define GS_DEVICE_OF_ARRAY GS_DEVICE_CURRENT
#define GS_DEVICE_OF_SHARED GS_DEVICE_CURRENT
#define GS_DEVICE_OF_PINNED GS_DEVICE_CURRENT

#define GS_MEMORY_ALLOC_PITCHED(...) 1
#define GS_BEFORE_ALLOC_PITCHED(address, bytes, asked) GS_CAP(PITCHED, GS_DEVICE_CURRENT, asked, 0, 0)
#define GS_AFTER_ALLOC_PITCHED(address, bytes, asked)                                                   \
    GS_CAP_END(address)                                                                                 \
    if (result == 0)                                                                                    \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_DEVICE, GS_DEVICE_CURRENT, \
                        default_stream, 0);                                                             \
    else if (result == GS_OOM)                                                                          \
        gs_record_cuda_oom(t, asked, GS_SPACE_DEVICE);

/* The free comes first: once the real call has begun, another thread may be given the address. */
#define GS_MEMORY_FREE(...) 1
#define GS_BEFORE_FREE(space, address, stream) \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_##space, GS_DEVICE_OF_##space, STREAM(stream), 0);
#define GS_AFTER_FREE(space, address, stream)                                                      \
    if (result != 0) gs_record_free_failed(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_##space); \
    gs_record_implicit_sync(t);

/* Stream-ordered memory: a node of a graph where the stream is being captured. A pool of 0 is the
 * device's current one. */
#define GS_MEMORY_ALLOC_ORDERED(...) 1
#define GS_BEFORE_ALLOC_ORDERED(address, bytes, pool, stream) \
    GS_CAP(POOL, GS_DEVICE_CURRENT, bytes, pool, STREAM(stream))
#define GS_AFTER_ALLOC_ORDERED(address, bytes, pool, stream)                                                          \
    GS_CAP_END(address)                                                                                               \
    if (result == 0)                                                                                                  \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_POOL, GS_DEVICE_CURRENT, STREAM(stream), \
                        t ? gs_capture_flags(STREAM(stream)) : 0);                                                    \
    else if (result == GS_OOM) {                                                                                      \
        gs_record_cuda_oom(t, bytes, GS_SPACE_POOL);                                                                  \
        gs_record_pool_now(t, NUMBER(pool));                                                                          \
    }
#define GS_MEMORY_FREE_ORDERED(...) 1
#define GS_BEFORE_FREE_ORDERED(address, stream)                                                             \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_DEVICE, GS_DEVICE_CURRENT, STREAM(stream), \
                   t ? gs_capture_flags(STREAM(stream)) : 0);
#define GS_AFTER_FREE_ORDERED(address, stream) GS_AFTER_FREE(DEVICE, address, stream)

/* Memory that another process, or another API, owns: opened here. */
#define GS_MEMORY_SHARED(...) 1
#define GS_BEFORE_SHARED(address, bytes)
#define GS_AFTER_SHARED(address, bytes) \
    if (result == 0)                    \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_SHARED, GS_DEVICE_CURRENT, 0, 0);

/* Physical memory and its mappings. What takes away comes first, as a free does. */
#define GS_MEMORY_VMM_CREATE(...) 1
#define GS_BEFORE_VMM_CREATE(handle, bytes, device) GS_CAP(VMM, prop ? (device) : GS_DEVICE_NONE, bytes, 0, 0)
#define GS_AFTER_VMM_CREATE(handle, bytes, device)                       \
    GS_CAP_END(handle)                                                   \
    if (result == 0)                                                     \
        gs_record_vmm(t, GS_VMM_CREATE, handle, 0, bytes, 0, device, 0); \
    else if (result == GS_OOM)                                           \
        gs_record_cuda_oom_on(t, bytes, GS_SPACE_VMM, device);
#define GS_MEMORY_VMM_IMPORT(...) 1
#define GS_BEFORE_VMM_IMPORT(handle)
#define GS_AFTER_VMM_IMPORT(handle) \
    if (result == 0) gs_record_vmm(t, GS_VMM_IMPORT, handle, 0, 0, 0, GS_DEVICE_CURRENT, 0);
#define GS_MEMORY_VMM_RETAIN(...) 1
#define GS_BEFORE_VMM_RETAIN(handle, address)
#define GS_AFTER_VMM_RETAIN(handle, address) \
    if (result == 0) gs_record_vmm(t, GS_VMM_RETAIN, handle, NUMBER(address), 0, 0, GS_DEVICE_CURRENT, 0);
#define GS_MEMORY_VMM_MAP(...) 1
#define GS_BEFORE_VMM_MAP(handle, address, bytes, offset)
#define GS_AFTER_VMM_MAP(handle, address, bytes, offset)                                    \
    if (result == 0)                                                                        \
        gs_record_vmm(t, GS_VMM_MAP, handle, address, bytes, offset, GS_DEVICE_CURRENT, 0); \
    else if (result == GS_OOM)                                                              \
        gs_record_cuda_oom(t, bytes, GS_SPACE_VMM);
#define GS_MEMORY_VMM_UNMAP(...) 1
#define GS_BEFORE_VMM_UNMAP(address, bytes) gs_record_vmm(t, GS_VMM_UNMAP, 0, address, bytes, 0, GS_DEVICE_CURRENT, 0);
#define GS_AFTER_VMM_UNMAP(address, bytes) \
    gs_record_implicit_sync(t);            \
    if (result != 0) gs_record_vmm(t, GS_VMM_UNMAP, 0, address, bytes, 0, GS_DEVICE_CURRENT, GS_FLAG_FAILED);
#define GS_MEMORY_VMM_RELEASE(...) 1
#define GS_BEFORE_VMM_RELEASE(handle) gs_record_vmm(t, GS_VMM_RELEASE, handle, 0, 0, 0, GS_DEVICE_CURRENT, 0);
#define GS_AFTER_VMM_RELEASE(handle) \
    gs_record_implicit_sync(t);      \
    if (result != 0) gs_record_vmm(t, GS_VMM_RELEASE, handle, 0, 0, 0, GS_DEVICE_CURRENT, GS_FLAG_FAILED);

#define GS_MEMORY_PIN(...) 1
#define GS_BEFORE_PIN(address, bytes)
#define GS_AFTER_PIN(address, bytes)                                                                       \
    if (result == 0)                                                                                       \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_PINNED, GS_DEVICE_CURRENT, 0, \
                        GS_FLAG_PINNED_REGISTERED);                                                        \
    else if (result == GS_OOM)                                                                             \
        gs_record_cuda_oom(t, bytes, GS_SPACE_PINNED);
#define GS_MEMORY_UNPIN(...) 1
#define GS_BEFORE_UNPIN(address) \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_PINNED, GS_DEVICE_NONE, 0, GS_FLAG_PINNED_REGISTERED);
#define GS_AFTER_UNPIN(address) GS_AFTER_FREE(PINNED, address, 0)

#define GS_MEMORY_FIND(...) 0 /* of a finder: door_procaddress.c */
#define GS_MEMORY_TELL(...) 0 /* of a teller: limit.c */

#define GS_MEMORY_COPY(...) 0
#define GS_BEFORE_COPY(direction, dst, src, bytes) before(t);
#define GS_AFTER_COPY(direction, dst, src, bytes) \
    if (result == 0) gs_record_copy(t, NUMBER(dst), NUMBER(src), bytes, default_stream, direction, false);
#define GS_MEMORY_COPY_ASYNC(...) 0
#define GS_BEFORE_COPY_ASYNC(direction, dst, src, bytes, stream) before(t);
#define GS_AFTER_COPY_ASYNC(direction, dst, src, bytes, stream) \
    if (result == 0) gs_record_copy(t, NUMBER(dst), NUMBER(src), bytes, STREAM(stream), direction, true);

/* Where the sizes, and perhaps the direction, lie in a structure. */
#define GS_MEMORY_COPY_OF(...) 0
#define GS_BEFORE_COPY_OF(route) before(t);
#define GS_AFTER_COPY_OF(route)                                                       \
    if (result == 0 && t) {                                                           \
        const struct gs_route r = route;                                              \
        gs_record_copy(t, r.dst, r.src, r.bytes, default_stream, r.direction, false); \
    }
#define GS_MEMORY_COPY_OF_ASYNC(...) 0
#define GS_BEFORE_COPY_OF_ASYNC(route, stream) before(t);
#define GS_AFTER_COPY_OF_ASYNC(route, stream)                                        \
    if (result == 0 && t) {                                                          \
        const struct gs_route r = route;                                             \
        gs_record_copy(t, r.dst, r.src, r.bytes, STREAM(stream), r.direction, true); \
    }
/* One row for each direction. */
static inline void record_batch(struct gs_thread *t, const struct gs_batch *b, uint64_t stream)
{
    for (int i = 0; t && i <= GS_DIR_H2H; i++) {
        const struct gs_route *r = &b->way[i];
        if (!r->bytes) continue;
        gs_record_copy(t, r->dst, r->src, r->bytes, stream, r->direction, true);
        before(t); /* the call's time is the first row's */
    }
}
#define GS_MEMORY_COPY_BATCH(...) 0
#define GS_BEFORE_COPY_BATCH(batch, stream) \
    struct gs_batch moved = {0};            \
    if (t) moved = batch;                   \
    before(t);
#define GS_AFTER_COPY_BATCH(batch, stream) \
    if (result == 0) record_batch(t, &moved, STREAM(stream));
/* Managed memory goes to a device or, not `there`, to the host. */
#define GS_MEMORY_PREFETCH(...) 0
#define GS_BEFORE_PREFETCH(there, address, bytes, stream) before(t);
#define GS_AFTER_PREFETCH(there, address, bytes, stream) \
    GS_AFTER_COPY_ASYNC((there) ? GS_DIR_H2D : GS_DIR_D2H, address, address, bytes, stream)

#define GS_MEMORY_SET(...) 0
#define GS_BEFORE_SET(dst, bytes) before(t);
#define GS_AFTER_SET(dst, bytes) \
    if (result == 0) gs_record_set(t, NUMBER(dst), bytes, default_stream, false);
#define GS_MEMORY_SET_ASYNC(...) 0
#define GS_BEFORE_SET_ASYNC(dst, bytes, stream) before(t);
#define GS_AFTER_SET_ASYNC(dst, bytes, stream) \
    if (result == 0) gs_record_set(t, NUMBER(dst), bytes, STREAM(stream), true);

#define GS_MEMORY_SYNC(...) 0
#define GS_BEFORE_SYNC(kind, handle) before(t);
#define GS_AFTER_SYNC(kind, handle) \
    if (result == 0) gs_record_sync(t, GS_SYNC_##kind, NUMBER(handle));

/* cuMemGetInfo(NULL, …) happens. */
#define GS_MEMORY_MEMORY_INFO(...) 0
#define GS_BEFORE_MEMORY_INFO(free, total)
#define GS_AFTER_MEMORY_INFO(free, total)                                               \
    if (result == 0 && gs_limited()) {                                                  \
        uint64_t seen_free = (free) ? *(free) : 0, seen_total = (total) ? *(total) : 0; \
        gs_limit_view(GS_DEVICE_CURRENT, &seen_free, &seen_total);                      \
        if (free) *(free) = (__typeof__(*(free)))seen_free;                             \
        if (total) *(total) = (__typeof__(*(total)))seen_total;                         \
    }                                                                                   \
    if (result == 0 && (free) && (total))                                               \
        gs_record_sample(t, *(free), *(total), GS_DEVICE_CURRENT, GS_SAMPLE_MEMGETINFO);

#define GS_MEMORY_DEVICE_IS(...) 0
#define GS_BEFORE_DEVICE_IS(device)
#define GS_AFTER_DEVICE_IS(device) gs_device_set(t, result == 0 ? (device) : GS_DEVICE_UNKNOWN);
#define GS_MEMORY_CONTEXT_SWITCH(...) 0
#define GS_BEFORE_CONTEXT_SWITCH()
#define GS_AFTER_CONTEXT_SWITCH() gs_device_set(t, GS_DEVICE_UNKNOWN);

#define GS_MEMORY_CONTEXT_NEW(...) 0
#define GS_BEFORE_CONTEXT_NEW(context, device)
#define GS_AFTER_CONTEXT_NEW(context, device) \
    if (result == 0) gs_record_context(t, NUMBER(context), device);
/* What a context owned goes with it; the store sees that by this record. */
#define GS_MEMORY_CONTEXT_GONE(...) 0
#define GS_BEFORE_CONTEXT_GONE(context) before(t);
#define GS_AFTER_CONTEXT_GONE(context)                           \
    if (result == 0) gs_record_context_gone(t, NUMBER(context)); \
    gs_record_implicit_sync(t);
#define GS_MEMORY_PRIMARY_NEW(...) 0
#define GS_BEFORE_PRIMARY_NEW(context, device)
#define GS_AFTER_PRIMARY_NEW(context, device) \
    if (result == 0) gs_record_primary(t, NUMBER(context), device);
#define GS_MEMORY_PRIMARY_RELEASED(...) 0
#define GS_BEFORE_PRIMARY_RELEASED(device) before(t);
#define GS_AFTER_PRIMARY_RELEASED(device)                   \
    if (result == 0) gs_record_primary_released(t, device); \
    gs_device_set(t, GS_DEVICE_UNKNOWN);                    \
    gs_record_implicit_sync(t);
#define GS_MEMORY_PRIMARY_RESET(...) 0
#define GS_BEFORE_PRIMARY_RESET(device) before(t);
#define GS_AFTER_PRIMARY_RESET(device)                  \
    if (result == 0) gs_record_primary_gone(t, device); \
    gs_device_set(t, GS_DEVICE_UNKNOWN);                \
    gs_record_implicit_sync(t);
#define GS_MEMORY_DEVICE_RESET(...) 0
#define GS_BEFORE_DEVICE_RESET() before(t);
#define GS_AFTER_DEVICE_RESET()                                    \
    if (result == 0) gs_record_primary_gone(t, GS_DEVICE_CURRENT); \
    gs_record_implicit_sync(t);

/* A green context is a share of a device's primary one: what is allocated while it is current stays
 * when it goes. */
#define GS_MEMORY_GREEN_NEW(...) 0
#define GS_BEFORE_GREEN_NEW(context, device)
#define GS_AFTER_GREEN_NEW(context, device) \
    if (result == 0) gs_record_green(t, NUMBER(context), device);
#define GS_MEMORY_GREEN_GONE(...) 0
#define GS_BEFORE_GREEN_GONE(context) before(t);
#define GS_AFTER_GREEN_GONE(context)                             \
    if (result == 0) gs_record_context_gone(t, NUMBER(context)); \
    gs_record_implicit_sync(t);
/* The last who detaches destroys it, and it is current no more. */
#define GS_MEMORY_CONTEXT_DETACHED(...) 0
#define GS_BEFORE_CONTEXT_DETACHED(context) before(t);
#define GS_AFTER_CONTEXT_DETACHED(context)                                                                  \
    if (result == 0 && t && gs_context_popped(NUMBER(context))) gs_record_context_gone(t, NUMBER(context)); \
    gs_record_implicit_sync(t);

#define GS_MEMORY_STREAM_NEW(...) 0
#define GS_BEFORE_STREAM_NEW(stream)
#define GS_AFTER_STREAM_NEW(stream) \
    if (result == 0) gs_record_handle(t, GS_HANDLE_STREAM, NUMBER(stream), GS_DEVICE_CURRENT, false);
#define GS_MEMORY_STREAM_GONE(...) 0
#define GS_BEFORE_STREAM_GONE(stream) before(t);
#define GS_AFTER_STREAM_GONE(stream)                                                                 \
    if (result == 0) gs_record_handle(t, GS_HANDLE_STREAM, NUMBER(stream), GS_DEVICE_CURRENT, true); \
    gs_record_implicit_sync(t);

/* Other handles: POOL, GRAPH, GRAPH_EXEC. */
#define GS_MEMORY_HANDLE_NEW(...) 0
#define GS_BEFORE_HANDLE_NEW(kind, handle, device)
#define GS_AFTER_HANDLE_NEW(kind, handle, device)                                               \
    if (result == 0) {                                                                          \
        if (at_driver && gs_limited()) gs_limit_pool(GS_HANDLE_##kind, NUMBER(handle), device); \
        gs_record_handle(t, GS_HANDLE_##kind, NUMBER(handle), device, false);                   \
    }
#define GS_MEMORY_HANDLE_GONE(...) 0
#define GS_BEFORE_HANDLE_GONE(kind, handle)                                              \
    if (at_driver && gs_limited()) gs_limit_pool_gone(GS_HANDLE_##kind, NUMBER(handle)); \
    before(t);
#define GS_AFTER_HANDLE_GONE(kind, handle)                                                        \
    if (result == 0) gs_record_handle(t, GS_HANDLE_##kind, NUMBER(handle), GS_DEVICE_NONE, true); \
    gs_record_implicit_sync(t);

#define GS_MEMORY_POOL_TRIM(...) 0
#define GS_BEFORE_POOL_TRIM(pool) before(t);
#define GS_AFTER_POOL_TRIM(pool)                          \
    if (result == 0) gs_record_pool_now(t, NUMBER(pool)); \
    gs_record_implicit_sync(t);

/* Nodes that allocate and free. Nothing is allocated before the graph runs, but the address is
 * given. */
#define GS_MEMORY_GRAPH_ALLOC(...) 1
#define GS_BEFORE_GRAPH_ALLOC(address, bytes, device)
#define GS_AFTER_GRAPH_ALLOC(address, bytes, device)                                                          \
    if (result == 0) {                                                                                        \
        gs_graph_allocates();                                                                                 \
        gs_record_alloc(t, NUMBER(address), bytes, GS_LAYER_DEVICE, GS_SPACE_POOL, device, 0, GS_FLAG_GRAPH); \
    }
#define GS_MEMORY_GRAPH_FREE(...) 1
#define GS_BEFORE_GRAPH_FREE(address) \
    gs_record_free(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_DEVICE, GS_DEVICE_CURRENT, 0, GS_FLAG_GRAPH);
#define GS_AFTER_GRAPH_FREE(address) \
    if (result != 0) gs_record_free_failed(t, NUMBER(address), GS_LAYER_DEVICE, GS_SPACE_DEVICE);
/* A node of any type. */
#define GS_MEMORY_GRAPH_NODE(...) 1
#define GS_BEFORE_GRAPH_NODE(params)                               \
    const bool frees = params && params->type == GS_NODE_MEM_FREE; \
    if (frees) {                                                   \
        GS_BEFORE_GRAPH_FREE(params->free.dptr)                    \
    }
#define GS_AFTER_GRAPH_NODE(params)                                                                         \
    if (frees) {                                                                                            \
        GS_AFTER_GRAPH_FREE(params->free.dptr)                                                              \
    } else if (result == 0 && params->type == GS_NODE_MEM_ALLOC) {                                          \
        GS_AFTER_GRAPH_ALLOC(params->alloc.dptr, params->alloc.bytesize, LOCATION(params->alloc.poolProps)) \
    }
#define LOCATION(p) gs_location_device(&(p).location)

#define GS_MEMORY_GRAPH_LAUNCH(...) 0
#define GS_BEFORE_GRAPH_LAUNCH(stream)
#define GS_AFTER_GRAPH_LAUNCH(stream)                 \
    if (result == 0) {                                \
        gs_count(t, STREAM(stream), false);           \
        gs_record_graph_memory(t, GS_DEVICE_CURRENT); \
    }
#define GS_MEMORY_GRAPH_TRIM(...) 0
#define GS_BEFORE_GRAPH_TRIM(device) before(t);
#define GS_AFTER_GRAPH_TRIM(device)                     \
    if (result == 0) gs_record_graph_memory(t, device); \
    gs_record_implicit_sync(t);

#define GS_MEMORY_CAPTURE_BEGIN(...) 0
#define GS_BEFORE_CAPTURE_BEGIN(stream, graph)
#define GS_AFTER_CAPTURE_BEGIN(stream, graph) \
    if (result == 0 && t) {                   \
        gs_capture_begun(NUMBER(graph));      \
        gs_count(t, STREAM(stream), false);   \
    }
#define GS_MEMORY_CAPTURE_END(...) 0
#define GS_BEFORE_CAPTURE_END(graph)
#define GS_AFTER_CAPTURE_END(graph)                         \
    if (result == 0 && t && gs_capture_made(NUMBER(graph))) \
        gs_record_handle(t, GS_HANDLE_GRAPH, NUMBER(graph), GS_DEVICE_NONE, false);

#define GS_MEMORY_MARK(...) 0
#define GS_BEFORE_MARK(kind)
#define GS_AFTER_MARK(kind) \
    if (result == 0) gs_record_mark(t, GS_MARK_##kind, 0, NULL, NULL, 0);

/* Too frequent, or too little, for a row each. */
#define GS_MEMORY_COUNT(...) 0
#define GS_BEFORE_COUNT(stream)
#define GS_AFTER_COUNT(stream) \
    if (result == 0) gs_count(t, STREAM(stream), false);
#define GS_MEMORY_EVENT_RECORD(...) 0
#define GS_BEFORE_EVENT_RECORD(event, stream)
#define GS_AFTER_EVENT_RECORD(event, stream) \
    if (result == 0) {                       \
        gs_count(t, STREAM(stream), false);  \
        gs_record_event(t, NUMBER(event));   \
    }
#define GS_MEMORY_EVENT_QUERY(...) 0
#define GS_BEFORE_EVENT_QUERY(event)
#define GS_AFTER_EVENT_QUERY(event) \
    GS_AFTER_QUERY(0)               \
    if (result == 0) gs_record_event_done(t, NUMBER(event));
#define GS_NOT_READY 600 /* cudaErrorNotReady, CUDA_ERROR_NOT_READY */
#define GS_MEMORY_QUERY(...) 0
#define GS_BEFORE_QUERY(stream)
#define GS_AFTER_QUERY(stream) \
    if (result == 0 || result == GS_NOT_READY) gs_count(t, STREAM(stream), result != 0);

#endif
