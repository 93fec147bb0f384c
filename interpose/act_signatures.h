/* The signature of each act: from a row of cuda_api.def, whose expressions are the parameters here, to
 *
 *   (whether it allocates, frees or maps memory, what to call before the real call, what to call after it)
 *
 * The functions are in acts.h. In scope are the wrapper's `call`, `cap` and `batch`. An expression that reads a
 * result of the call, or a structure of the program's, is evaluated only after the call has succeeded. */
#pragma once

#define GS_MEMORY(act) GS_PICK(GS_PICK_MEMORY, GS_ACT_##act)
#define GS_BEFORE(act) GS_PICK(GS_PICK_BEFORE, GS_ACT_##act)
#define GS_AFTER(act) GS_PICK(GS_PICK_AFTER, GS_ACT_##act)
#define GS_PICK(pick, signature) pick signature
#define GS_PICK_MEMORY(memory, before, after) memory
#define GS_PICK_BEFORE(memory, before, after) before
#define GS_PICK_AFTER(memory, before, after) after

/* Pointers, handles and integers as numbers; stream 0 means the row's default stream. */
#define NUMBER(x) ((uint64_t)(uintptr_t)(x))
#define STREAM(s) (NUMBER(s) ? NUMBER(s) : call->default_stream)
#define KIND(k) direction_of(k)
#define INTO_DEVICE(kind, src) into_device(kind, NUMBER(src))
#define FROM_DEVICE(kind, dst) from_device(kind, NUMBER(dst))
#define LOCATION(p) gs_location_device(&(p).location)

#define IF_DONE(x) (call->result == 0 ? (x) : 0)
#define IF_REQUESTED(x) (call->result == 0 || call->result == GS_OOM ? (x) : 0)
#define OUT(p) ((struct gs_out){p, sizeof *(p)})
/* If it exceeded GPUSPY_LIMIT it has been freed by now: the program gets no address. */
#define END_CAP(address) (end_cap(call, &cap, IF_DONE(NUMBER(address))) ? (void)((address) = 0) : (void)0)

#define GS_ACT_ALLOC(space, address, bytes, stream)                     \
    (true, before_alloc(call, &cap, GS_SPACE_##space, bytes),           \
     (GS_SPACE_##space == GS_SPACE_DEVICE ? END_CAP(address) : (void)0, \
      after_alloc(call, GS_SPACE_##space, IF_DONE(NUMBER(address)), bytes, STREAM(stream))))
#define GS_ACT_ALLOC_ARRAY(kind, address, bytes)                               \
    (true, begin_cap(call, &cap, GS_LIMIT_##kind, GS_DEVICE_CURRENT, 0, 0, 0), \
     (END_CAP(address),                                                        \
      after_alloc(call, GS_SPACE_ARRAY, IF_DONE(NUMBER(address)), IF_REQUESTED(bytes), call->default_stream)))
#define GS_ACT_ALLOC_PITCHED(address, bytes, requested)                                 \
    (true, begin_cap(call, &cap, GS_LIMIT_PITCHED, GS_DEVICE_CURRENT, requested, 0, 0), \
     (END_CAP(address), after_alloc_pitched(call, IF_DONE(NUMBER(address)), IF_DONE(bytes), requested)))
#define GS_ACT_ALLOC_ORDERED(address, bytes, pool, stream)                                               \
    (true, begin_cap(call, &cap, GS_LIMIT_POOL, GS_DEVICE_CURRENT, bytes, NUMBER(pool), STREAM(stream)), \
     (END_CAP(address), after_alloc_ordered(call, IF_DONE(NUMBER(address)), bytes, NUMBER(pool), STREAM(stream))))
#define GS_ACT_SHARED(address, bytes) (true, , after_shared(call, IF_DONE(NUMBER(address)), IF_DONE(bytes)))
#define GS_ACT_PIN(address, bytes) (true, , after_pin(call, NUMBER(address), bytes))
#define GS_ACT_FREE(space, address, stream)                                      \
    (true, before_free(call, GS_SPACE_##space, NUMBER(address), STREAM(stream)), \
     after_free(call, GS_SPACE_##space, NUMBER(address)))
#define GS_ACT_FREE_ORDERED(address, stream)                           \
    (true, before_free_ordered(call, NUMBER(address), STREAM(stream)), \
     after_free(call, GS_SPACE_DEVICE, NUMBER(address)))
#define GS_ACT_UNPIN(address) \
    (true, before_unpin(call, NUMBER(address)), after_free(call, GS_SPACE_PINNED, NUMBER(address)))
#define GS_ACT_VMM_CREATE(handle, bytes, device)                                                       \
    (true, begin_cap(call, &cap, GS_LIMIT_VMM, gs_limited() ? (device) : GS_DEVICE_NONE, bytes, 0, 0), \
     (END_CAP(handle), after_vmm_create(call, IF_DONE(NUMBER(handle)), bytes, IF_REQUESTED(device))))
#define GS_ACT_VMM_IMPORT(handle) (true, , after_vmm_import(call, IF_DONE(NUMBER(handle))))
#define GS_ACT_VMM_RETAIN(handle, address) (true, , after_vmm_retain(call, IF_DONE(NUMBER(handle)), NUMBER(address)))
#define GS_ACT_VMM_MAP(handle, address, bytes, offset) (true, , after_vmm_map(call, handle, address, bytes, offset))
#define GS_ACT_VMM_UNMAP(address, bytes) \
    (true, before_vmm_unmap(call, address, bytes), after_vmm_unmap(call, address, bytes))
#define GS_ACT_VMM_RELEASE(handle) (true, before_vmm_release(call, handle), after_vmm_release(call, handle))
#define GS_ACT_GRAPH_ALLOC(address, bytes, device) \
    (true, , after_graph_alloc(call, IF_DONE(NUMBER(address)), IF_DONE(bytes), IF_DONE(device)))
#define GS_ACT_GRAPH_FREE(address) \
    (true, before_graph_free(call, NUMBER(address)), after_graph_free(call, NUMBER(address)))
#define GS_ACT_GRAPH_NODE(node) (true, before_graph_node(call, node), after_graph_node(call, node))

#define GS_ACT_COPY(direction, dst, src, bytes) \
    (false, start_clock(call), after_copy(call, IF_DONE(direction), NUMBER(dst), NUMBER(src), bytes))
#define GS_ACT_COPY_ASYNC(direction, dst, src, bytes, stream) \
    (false, start_clock(call),                                \
     after_copy_async(call, IF_DONE(direction), NUMBER(dst), NUMBER(src), bytes, STREAM(stream)))
#define GS_ACT_COPY_OF(route) (false, start_clock(call), if (call->result == 0 && call->t) after_copy_of(call, route))
#define GS_ACT_COPY_OF_ASYNC(route, stream) \
    (false, start_clock(call), if (call->result == 0 && call->t) after_copy_of_async(call, route, STREAM(stream)))
#define GS_ACT_COPY_BATCH(copies, stream)                                      \
    (false, (call->t ? (void)(batch = (copies)) : (void)0, start_clock(call)), \
     after_copy_batch(call, &batch, STREAM(stream)))
#define GS_ACT_PREFETCH(to_device, address, bytes, stream) \
    (false, start_clock(call), after_prefetch(call, to_device, NUMBER(address), bytes, STREAM(stream)))
#define GS_ACT_SET(dst, bytes) (false, start_clock(call), after_set(call, NUMBER(dst), bytes))
#define GS_ACT_SET_ASYNC(dst, bytes, stream) \
    (false, start_clock(call), after_set_async(call, NUMBER(dst), bytes, STREAM(stream)))
#define GS_ACT_SYNC(kind, handle) (false, start_clock(call), after_sync(call, GS_SYNC_##kind, NUMBER(handle)))

#define GS_ACT_MEMORY_INFO(free, total) (false, , after_memory_info(call, OUT(free), OUT(total)))
#define GS_ACT_DEVICE_IS(device) (false, , after_device_is(call, device))
#define GS_ACT_CONTEXT_SWITCH() (false, , after_context_switch(call))
#define GS_ACT_CONTEXT_NEW(context, device) (false, , after_context_new(call, IF_DONE(NUMBER(context)), device))
#define GS_ACT_CONTEXT_GONE(context) (false, start_clock(call), after_context_gone(call, NUMBER(context)))
#define GS_ACT_CONTEXT_DETACHED(context) (false, start_clock(call), after_context_detached(call, NUMBER(context)))
#define GS_ACT_GREEN_NEW(context, device) (false, , after_green_new(call, IF_DONE(NUMBER(context)), device))
#define GS_ACT_GREEN_GONE(context) (false, start_clock(call), after_context_gone(call, NUMBER(context)))
#define GS_ACT_PRIMARY_NEW(context, device) (false, , after_primary_new(call, IF_DONE(NUMBER(context)), device))
#define GS_ACT_PRIMARY_RELEASED(device) (false, start_clock(call), after_primary_released(call, device))
#define GS_ACT_PRIMARY_RESET(device) (false, start_clock(call), after_primary_reset(call, device))
#define GS_ACT_DEVICE_RESET() (false, start_clock(call), after_device_reset(call))

#define GS_ACT_STREAM_NEW(stream) (false, , after_stream_new(call, IF_DONE(NUMBER(stream))))
#define GS_ACT_STREAM_GONE(stream) (false, , after_stream_gone(call, NUMBER(stream)))
#define GS_ACT_HANDLE_NEW(kind, handle, device) \
    (false, , after_handle_new(call, GS_HANDLE_##kind, IF_DONE(NUMBER(handle)), IF_DONE(device)))
#define GS_ACT_HANDLE_GONE(kind, handle)                                \
    (false, before_handle_gone(call, GS_HANDLE_##kind, NUMBER(handle)), \
     after_handle_gone(call, GS_HANDLE_##kind, NUMBER(handle)))
#define GS_ACT_POOL_TRIM(pool) (false, start_clock(call), after_pool_trim(call, NUMBER(pool)))
#define GS_ACT_GRAPH_LAUNCH(stream) (false, , after_graph_launch(call, STREAM(stream)))
#define GS_ACT_GRAPH_TRIM(device) (false, start_clock(call), after_graph_trim(call, device))
#define GS_ACT_CAPTURE_BEGIN(stream, graph) (false, , after_capture_begin(call, STREAM(stream), NUMBER(graph)))
#define GS_ACT_CAPTURE_END(graph) (false, , after_capture_end(call, IF_DONE(NUMBER(graph))))

#define GS_ACT_MARK(kind) (false, , after_mark(call, GS_MARK_##kind))
#define GS_ACT_COUNT(stream) (false, , after_count(call, IF_DONE(STREAM(stream))))
#define GS_ACT_QUERY(stream) (false, , after_query(call, STREAM(stream)))
#define GS_ACT_EVENT_RECORD(event, stream) (false, , after_event_record(call, NUMBER(event), STREAM(stream)))
#define GS_ACT_EVENT_QUERY(event) (false, , after_event_query(call, NUMBER(event)))

#define GS_ACT_FIND(name, pointer) (false, , gs_hand_out(gs_wrappers, name, pointer))
#define GS_ACT_TELL(total, device) (false, , cap_total(OUT(total), device))
