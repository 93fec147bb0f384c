/* The acts of cuda_api.def: what a call does to memory or time. An act is a function before_<act>, one
 * after_<act>, or both, which a row's wrapper (door_plt.c) calls around the real call. Which of a row's
 * expressions its functions take: act_signatures.h. */
#pragma once

#include <string.h>
#include "interpose/allocator_state.h"
#include "interpose/cuda_abi.h"
#include "interpose/device.h"
#include "interpose/graph.h"
#include "interpose/limit.h"
#include "interpose/recorder.h"
#include "interpose/shape.h"

#define GS_OOM 2         /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */
#define GS_NOT_READY 600 /* cudaErrorNotReady, CUDA_ERROR_NOT_READY */

/* A call on its way through a wrapper. */
struct gs_hooked {
    struct gs_thread *t;     /* NULL: nothing is recorded */
    uint64_t default_stream; /* what stream 0 means in this row */
    bool at_driver;          /* the row is one of the driver's */
    bool withheld;           /* set before: the real call is not made, "out of memory" is returned */
    int result;              /* set after */
};

/* Where a call stores a size, of 4 or 8 bytes. */
struct gs_out {
    void *at; /* may be NULL */
    size_t bytes;
};

static inline uint64_t read_out(struct gs_out out)
{
    uint64_t value = 0;
    if (out.at) memcpy(&value, out.at, out.bytes);
    return value;
}

static inline void write_out(struct gs_out out, uint64_t value)
{
    if (out.at) memcpy(out.at, &value, out.bytes);
}

static inline void start_clock(struct gs_hooked *call)
{
    if (call->t) call->t->call.start_ns = gs_now();
}

/* --- GPUSPY_LIMIT ---------------------------------------------------------------------------- */

/* Only driver rows check the cap, because the runtime allocates through them. The size of an array is not known yet: 0
 * bytes. */
static inline void begin_cap(struct gs_hooked *call, struct gs_limit_call *cap, enum gs_limit_kind kind, int device,
                             uint64_t bytes, uint64_t pool, uint64_t stream)
{
    if (call->at_driver && gs_limited()) call->withheld = gs_limit_refuses(cap, kind, device, bytes, pool, stream);
}

/* Whether what the call allocated exceeded the cap and has been freed: for the program, the call has failed. */
static inline bool end_cap(struct gs_hooked *call, struct gs_limit_call *cap, uint64_t address)
{
    if (!call->at_driver || !cap->capped) return false;
    const bool made = call->result == 0;
    call->result = gs_limit_end(cap, call->result, address);
    return made && call->result != 0;
}

static inline void cap_total(struct gs_out total, int device)
{
    if (!total.at || !gs_limited()) return;
    uint64_t bytes = read_out(total);
    gs_limit_view(device, NULL, &bytes);
    write_out(total, bytes);
}

/* --- allocations ----------------------------------------------------------------------------- */

static inline void record_alloc(struct gs_hooked *call, uint8_t space, uint64_t address, uint64_t bytes,
                                uint64_t stream, uint8_t flags)
{
    gs_record_alloc(call->t, address, bytes, GS_LAYER_DEVICE, space, GS_DEVICE_CURRENT, stream, flags);
}

static inline void before_alloc(struct gs_hooked *call, struct gs_limit_call *cap, uint8_t space, uint64_t bytes)
{
    if (space == GS_SPACE_DEVICE) begin_cap(call, cap, GS_LIMIT_LINEAR, GS_DEVICE_CURRENT, bytes, 0, 0);
}

/* Pinned host memory belongs to no device, but it is freed with the context in which it was allocated. */
static inline void after_alloc(struct gs_hooked *call, uint8_t space, uint64_t address, uint64_t bytes, uint64_t stream)
{
    if (call->result == 0)
        record_alloc(call, space, address, bytes, stream, 0);
    else if (call->result == GS_OOM)
        gs_record_cuda_oom(call->t, bytes, space);
}

static inline void after_alloc_pitched(struct gs_hooked *call, uint64_t address, uint64_t bytes, uint64_t requested)
{
    if (call->result == 0)
        record_alloc(call, GS_SPACE_DEVICE, address, bytes, call->default_stream, 0);
    else if (call->result == GS_OOM)
        gs_record_cuda_oom(call->t, requested, GS_SPACE_DEVICE);
}

/* While the stream is captured, this becomes a node of a graph. A pool of 0 is the device's current one. */
static inline void after_alloc_ordered(struct gs_hooked *call, uint64_t address, uint64_t bytes, uint64_t pool,
                                       uint64_t stream)
{
    if (call->result == 0) {
        record_alloc(call, GS_SPACE_POOL, address, bytes, stream, call->t ? gs_capture_flags(stream) : 0);
    } else if (call->result == GS_OOM) {
        gs_record_cuda_oom(call->t, bytes, GS_SPACE_POOL);
        gs_record_pool_now(call->t, pool);
    }
}

/* Memory that another process or another API owns, opened in this process. */
static inline void after_shared(struct gs_hooked *call, uint64_t address, uint64_t bytes)
{
    if (call->result == 0) record_alloc(call, GS_SPACE_SHARED, address, bytes, 0, 0);
}

static inline void after_pin(struct gs_hooked *call, uint64_t address, uint64_t bytes)
{
    if (call->result == 0)
        gs_record_alloc(call->t, address, bytes, GS_LAYER_DEVICE, GS_SPACE_PINNED, GS_DEVICE_CURRENT, 0,
                        GS_FLAG_PINNED_REGISTERED);
    else if (call->result == GS_OOM)
        gs_record_cuda_oom(call->t, bytes, GS_SPACE_PINNED);
}

/* --- frees: recorded before the real call, because during it another thread may get the address ---- */

static inline void before_free(struct gs_hooked *call, uint8_t space, uint64_t address, uint64_t stream)
{
    gs_record_free(call->t, address, GS_LAYER_DEVICE, space, GS_DEVICE_CURRENT, stream, 0);
}

static inline void after_free(struct gs_hooked *call, uint8_t space, uint64_t address)
{
    if (call->result != 0) gs_record_free_failed(call->t, address, GS_LAYER_DEVICE, space);
    gs_record_implicit_sync(call->t);
}

static inline void before_free_ordered(struct gs_hooked *call, uint64_t address, uint64_t stream)
{
    gs_record_free(call->t, address, GS_LAYER_DEVICE, GS_SPACE_DEVICE, GS_DEVICE_CURRENT, stream,
                   call->t ? gs_capture_flags(stream) : 0);
}

static inline void before_unpin(struct gs_hooked *call, uint64_t address)
{
    gs_record_free(call->t, address, GS_LAYER_DEVICE, GS_SPACE_PINNED, GS_DEVICE_NONE, 0, GS_FLAG_PINNED_REGISTERED);
}

/* --- physical memory and its mappings; unmapping and releasing are recorded before the call, as frees are
 * ------------ */

static inline void after_vmm_create(struct gs_hooked *call, uint64_t handle, uint64_t bytes, int device)
{
    if (call->result == 0)
        gs_record_vmm(call->t, GS_VMM_CREATE, handle, 0, bytes, 0, device, 0);
    else if (call->result == GS_OOM)
        gs_record_cuda_oom_on(call->t, bytes, GS_SPACE_VMM, device);
}

static inline void after_vmm_import(struct gs_hooked *call, uint64_t handle)
{
    if (call->result == 0) gs_record_vmm(call->t, GS_VMM_IMPORT, handle, 0, 0, 0, GS_DEVICE_CURRENT, 0);
}

static inline void after_vmm_retain(struct gs_hooked *call, uint64_t handle, uint64_t address)
{
    if (call->result == 0) gs_record_vmm(call->t, GS_VMM_RETAIN, handle, address, 0, 0, GS_DEVICE_CURRENT, 0);
}

static inline void after_vmm_map(struct gs_hooked *call, uint64_t handle, uint64_t address, uint64_t bytes,
                                 uint64_t offset)
{
    if (call->result == 0)
        gs_record_vmm(call->t, GS_VMM_MAP, handle, address, bytes, offset, GS_DEVICE_CURRENT, 0);
    else if (call->result == GS_OOM)
        gs_record_cuda_oom(call->t, bytes, GS_SPACE_VMM);
}

static inline void before_vmm_unmap(struct gs_hooked *call, uint64_t address, uint64_t bytes)
{
    gs_record_vmm(call->t, GS_VMM_UNMAP, 0, address, bytes, 0, GS_DEVICE_CURRENT, 0);
}

static inline void after_vmm_unmap(struct gs_hooked *call, uint64_t address, uint64_t bytes)
{
    gs_record_implicit_sync(call->t);
    if (call->result != 0)
        gs_record_vmm(call->t, GS_VMM_UNMAP, 0, address, bytes, 0, GS_DEVICE_CURRENT, GS_FLAG_FAILED);
}

static inline void before_vmm_release(struct gs_hooked *call, uint64_t handle)
{
    gs_record_vmm(call->t, GS_VMM_RELEASE, handle, 0, 0, 0, GS_DEVICE_CURRENT, 0);
}

static inline void after_vmm_release(struct gs_hooked *call, uint64_t handle)
{
    gs_record_implicit_sync(call->t);
    if (call->result != 0) gs_record_vmm(call->t, GS_VMM_RELEASE, handle, 0, 0, 0, GS_DEVICE_CURRENT, GS_FLAG_FAILED);
}

/* --- copies, fills and waits ------------------------------------------------------------------- */

static inline uint8_t direction_of(enum cudaMemcpyKind kind)
{
    static const uint8_t direction[] = {
        [cudaMemcpyHostToHost] = GS_DIR_H2H,   [cudaMemcpyHostToDevice] = GS_DIR_H2D,
        [cudaMemcpyDeviceToHost] = GS_DIR_D2H, [cudaMemcpyDeviceToDevice] = GS_DIR_D2D,
        [cudaMemcpyDefault] = GS_DIR_UNKNOWN,
    };
    return (unsigned)kind < sizeof direction ? direction[kind] : GS_DIR_UNKNOWN;
}

/* One side is certainly on the device; the driver knows where the other side's address is. */
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

static inline void after_copy(struct gs_hooked *call, uint8_t direction, uint64_t dst, uint64_t src, uint64_t bytes)
{
    if (call->result == 0) gs_record_copy(call->t, dst, src, bytes, call->default_stream, direction, false);
}

static inline void after_copy_async(struct gs_hooked *call, uint8_t direction, uint64_t dst, uint64_t src,
                                    uint64_t bytes, uint64_t stream)
{
    if (call->result == 0) gs_record_copy(call->t, dst, src, bytes, stream, direction, true);
}

/* The sizes, and perhaps the direction, are in a structure. */
static inline void after_copy_of(struct gs_hooked *call, struct gs_route route)
{
    after_copy(call, route.direction, route.dst, route.src, route.bytes);
}

static inline void after_copy_of_async(struct gs_hooked *call, struct gs_route route, uint64_t stream)
{
    after_copy_async(call, route.direction, route.dst, route.src, route.bytes, stream);
}

/* One row for each direction; the call's time is the first row's. */
static inline void after_copy_batch(struct gs_hooked *call, const struct gs_batch *batch, uint64_t stream)
{
    if (call->result != 0 || !call->t) return;
    for (int i = 0; i <= GS_DIR_H2H; i++) {
        if (!batch->way[i].bytes) continue;
        after_copy_of_async(call, batch->way[i], stream);
        start_clock(call);
    }
}

/* Managed memory migrates to a device or to the host. */
static inline void after_prefetch(struct gs_hooked *call, bool to_device, uint64_t address, uint64_t bytes,
                                  uint64_t stream)
{
    after_copy_async(call, to_device ? GS_DIR_H2D : GS_DIR_D2H, address, address, bytes, stream);
}

static inline void after_set(struct gs_hooked *call, uint64_t dst, uint64_t bytes)
{
    if (call->result == 0) gs_record_set(call->t, dst, bytes, call->default_stream, false);
}

static inline void after_set_async(struct gs_hooked *call, uint64_t dst, uint64_t bytes, uint64_t stream)
{
    if (call->result == 0) gs_record_set(call->t, dst, bytes, stream, true);
}

static inline void after_sync(struct gs_hooked *call, uint8_t kind, uint64_t handle)
{
    if (call->result == 0) gs_record_sync(call->t, kind, handle);
}

/* --- devices and contexts ---------------------------------------------------------------------- */

/* Programs also call cuMemGetInfo(NULL, …). Inlined, so that the compiler knows the sizes. */
static inline __attribute__((always_inline)) void after_memory_info(struct gs_hooked *call, struct gs_out free,
                                                                    struct gs_out total)
{
    if (call->result != 0) return;
    if (gs_limited()) {
        uint64_t free_bytes = read_out(free), total_bytes = read_out(total);
        gs_limit_view(GS_DEVICE_CURRENT, &free_bytes, &total_bytes);
        write_out(free, free_bytes);
        write_out(total, total_bytes);
    }
    if (free.at && total.at)
        gs_record_sample(call->t, read_out(free), read_out(total), GS_DEVICE_CURRENT, GS_SAMPLE_MEMGETINFO);
}

static inline void after_device_is(struct gs_hooked *call, int device)
{
    gs_device_set(call->t, call->result == 0 ? device : GS_DEVICE_UNKNOWN);
}

static inline void after_context_switch(struct gs_hooked *call)
{
    gs_device_set(call->t, GS_DEVICE_UNKNOWN);
}

static inline void after_context_new(struct gs_hooked *call, uint64_t context, int device)
{
    if (call->result == 0) gs_record_context(call->t, context, device);
}

/* Destroying a context frees what it owned; the store derives that from this record. */
static inline void after_context_gone(struct gs_hooked *call, uint64_t context)
{
    if (call->result == 0) gs_record_context_gone(call->t, context);
    gs_record_implicit_sync(call->t);
}

/* The last detach destroys the context, which is then no longer current. */
static inline void after_context_detached(struct gs_hooked *call, uint64_t context)
{
    if (call->result == 0 && call->t && gs_context_popped(context)) gs_record_context_gone(call->t, context);
    gs_record_implicit_sync(call->t);
}

/* A green context is a share of a device's primary context: memory that was allocated while it was current survives it.
 * */
static inline void after_green_new(struct gs_hooked *call, uint64_t context, int device)
{
    if (call->result == 0) gs_record_green(call->t, context, device);
}

static inline void after_primary_new(struct gs_hooked *call, uint64_t context, int device)
{
    if (call->result == 0) gs_record_primary(call->t, context, device);
}

static inline void after_primary_released(struct gs_hooked *call, int device)
{
    if (call->result == 0) gs_record_primary_released(call->t, device);
    gs_device_set(call->t, GS_DEVICE_UNKNOWN);
    gs_record_implicit_sync(call->t);
}

static inline void after_primary_reset(struct gs_hooked *call, int device)
{
    if (call->result == 0) gs_record_primary_gone(call->t, device);
    gs_device_set(call->t, GS_DEVICE_UNKNOWN);
    gs_record_implicit_sync(call->t);
}

static inline void after_device_reset(struct gs_hooked *call)
{
    if (call->result == 0) gs_record_primary_gone(call->t, GS_DEVICE_CURRENT);
    gs_record_implicit_sync(call->t);
}

/* --- streams, pools and graphs ----------------------------------------------------------------- */

static inline void after_stream_new(struct gs_hooked *call, uint64_t stream)
{
    if (call->result == 0) gs_record_handle(call->t, GS_HANDLE_STREAM, stream, GS_DEVICE_CURRENT, false);
}

/* cuStreamDestroy does not wait, even if the stream has pending work (the driver's documentation). */
static inline void after_stream_gone(struct gs_hooked *call, uint64_t stream)
{
    if (call->result == 0) gs_record_handle(call->t, GS_HANDLE_STREAM, stream, GS_DEVICE_CURRENT, true);
}

static inline void after_handle_new(struct gs_hooked *call, uint8_t kind, uint64_t handle, int device)
{
    if (call->result != 0) return;
    if (call->at_driver && gs_limited()) gs_limit_pool(kind, handle, device);
    gs_record_handle(call->t, kind, handle, device, false);
}

static inline void before_handle_gone(struct gs_hooked *call, uint8_t kind, uint64_t handle)
{
    if (call->at_driver && gs_limited()) gs_limit_pool_gone(kind, handle);
    start_clock(call);
}

static inline void after_handle_gone(struct gs_hooked *call, uint8_t kind, uint64_t handle)
{
    if (call->result == 0) gs_record_handle(call->t, kind, handle, GS_DEVICE_NONE, true);
    if (kind == GS_HANDLE_GRAPH || kind == GS_HANDLE_GRAPH_EXEC) gs_allocator_read_unused(call->t);
    gs_record_implicit_sync(call->t);
}

static inline void after_pool_trim(struct gs_hooked *call, uint64_t pool)
{
    if (call->result == 0) gs_record_pool_now(call->t, pool);
    gs_record_implicit_sync(call->t);
}

/* Nothing is allocated before the graph runs, but the address is known. */
static inline void after_graph_alloc(struct gs_hooked *call, uint64_t address, uint64_t bytes, int device)
{
    if (call->result != 0) return;
    gs_graph_allocates();
    gs_record_alloc(call->t, address, bytes, GS_LAYER_DEVICE, GS_SPACE_POOL, device, 0, GS_FLAG_GRAPH);
}

static inline void before_graph_free(struct gs_hooked *call, uint64_t address)
{
    gs_record_free(call->t, address, GS_LAYER_DEVICE, GS_SPACE_DEVICE, GS_DEVICE_CURRENT, 0, GS_FLAG_GRAPH);
}

static inline void after_graph_free(struct gs_hooked *call, uint64_t address)
{
    if (call->result != 0) gs_record_free_failed(call->t, address, GS_LAYER_DEVICE, GS_SPACE_DEVICE);
}

static inline bool is_free_node(const struct cudaGraphNodeParams *node)
{
    return node && node->type == GS_NODE_MEM_FREE;
}

static inline void before_graph_node(struct gs_hooked *call, const struct cudaGraphNodeParams *node)
{
    if (is_free_node(node)) before_graph_free(call, (uintptr_t)node->free.dptr);
}

static inline void after_graph_node(struct gs_hooked *call, const struct cudaGraphNodeParams *node)
{
    if (is_free_node(node))
        after_graph_free(call, (uintptr_t)node->free.dptr);
    else if (call->result == 0 && node->type == GS_NODE_MEM_ALLOC)
        after_graph_alloc(call, (uintptr_t)node->alloc.dptr, node->alloc.bytesize,
                          gs_location_device(&node->alloc.poolProps.location));
}

static inline void after_graph_launch(struct gs_hooked *call, uint64_t stream)
{
    if (call->result != 0) return;
    gs_count(call->t, stream, false);
    gs_record_graph_memory(call->t, GS_DEVICE_CURRENT);
}

static inline void after_graph_trim(struct gs_hooked *call, int device)
{
    if (call->result == 0) gs_record_graph_memory(call->t, device);
    gs_record_implicit_sync(call->t);
}

static inline void after_capture_begin(struct gs_hooked *call, uint64_t stream, uint64_t graph)
{
    if (call->result != 0 || !call->t) return;
    gs_capture_begun(graph);
    gs_count(call->t, stream, false);
}

static inline void after_capture_end(struct gs_hooked *call, uint64_t graph)
{
    if (call->result == 0 && call->t && gs_capture_made(graph))
        gs_record_handle(call->t, GS_HANDLE_GRAPH, graph, GS_DEVICE_NONE, false);
}

/* --- moments, and calls that are only counted -------------------------------------------------- */

static inline void after_mark(struct gs_hooked *call, uint8_t kind)
{
    if (call->result == 0) gs_record_mark(call->t, kind, 0, NULL, NULL, 0);
}

static inline void after_count(struct gs_hooked *call, uint64_t stream)
{
    if (call->result == 0) gs_count(call->t, stream, false);
}

static inline void after_query(struct gs_hooked *call, uint64_t stream)
{
    if (call->result == 0 || call->result == GS_NOT_READY) gs_count(call->t, stream, call->result != 0);
}

static inline void after_event_record(struct gs_hooked *call, uint64_t event, uint64_t stream)
{
    if (call->result != 0) return;
    gs_count(call->t, stream, false);
    gs_record_event(call->t, event);
}

static inline void after_event_query(struct gs_hooked *call, uint64_t event)
{
    after_query(call, call->default_stream);
    if (call->result == 0) gs_record_event_done(call->t, event);
}
