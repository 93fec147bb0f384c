/* From a hooked call to a record in the thread's part of the spool. */
#include "interpose/recorder.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include "interpose/clock.h"
#include "interpose/api.h"
#include "interpose/device.h"
#include "interpose/capture.h"
#include "interpose/mark.h"
#include "interpose/nvml.h"
#include "interpose/record_write.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/slots.h"

#define EVERYTHING (GS_STACK_PYTHON | GS_STACK_NATIVE)
/* A free that took longer than this waited for the device; a shorter one is the cost of the call: of 478 cudaFree calls
 * on an idle H200 half took at most 77 us, 95 % less than 250 us (tests/gpu/2026-11-26-h200.md). */
#define WAITED_NS 500000

/* --- threads --------------------------------------------------------------------------------- */

static void write_thread_definition(struct gs_thread *t)
{
    char name[16 + 1] = "";
    gs_system_call(SYS_prctl, PR_GET_NAME, name);
    const uint16_t len = (uint16_t)strlen(name);
    const uint16_t bytes = (uint16_t)((sizeof(struct gs_rec_thread) + len + 7) & ~7u);
    struct gs_rec_thread *r = gs_writer_reserve(&t->writer, bytes);
    if (!r) return;
    memset(r, 0, bytes);
    r->rec = (struct gs_rec){.size = bytes, .type = GS_REC_THREAD, .time_ns = gs_record_now()};
    r->tid = (uint32_t)t->writer.owner;
    r->name_len = len;
    memcpy(r + 1, name, len);
    gs_writer_commit(&t->writer, bytes);
}

static void open_thread(struct gs_thread *t, uint32_t session)
{
    const uint8_t ended = t->ended;
    gs_stacks_close(t->stacks); /* of a session that has been detached */
    memset(t, 0, sizeof *t);
    t->inside = true;
    gs_clock_check();
    t->ended = ended;
    t->device = GS_DEVICE_UNKNOWN;
    t->context = GS_CONTEXT_UNKNOWN;
    /* after the last round nothing would release a slot or memory */
    const bool last = ended >= PTHREAD_DESTRUCTOR_ITERATIONS;
    const bool adopted = !last && gs_slot_adopt(&t->writer, &t->stacks, session);
    if (!adopted) gs_writer_open(&t->writer, gs_session_spool());
    write_thread_definition(t);
    if (!adopted && !last) t->stacks = gs_stacks_open(&t->writer);
    if (!adopted) gs_stack_find_python();
    gs_session_watch_thread(t);
    t->session = session;
}

/* --- entering a wrapper ---------------------------------------------------------------------- */

static void stands_at(struct gs_thread *t, void *const *frame)
{
    t->frame = (const char *)frame;
    t->slot = (void *const *)*frame + 1;
    t->returns = *t->slot;
}

/* After the end, the driver's call inside a runtime call that was counted as lost is not a second loss. Its wrapper
 * leaves with NULL, as it entered; a wrapper that never returned was further down the stack. */
static bool inside_a_lost_one(struct gs_thread *t, const char *frame)
{
    if (frame >= t->lost_frame) t->lost_depth = 0;
    if (!t->lost_depth) return false;
    t->lost_depth++;
    return true;
}

static bool enter_slowly(struct gs_thread *t, uint16_t api, void *const *frame)
{
    if (t->inside) return false;
    if (inside_a_lost_one(t, (const char *)frame)) return false;
    if (gs_session_over(gs_apis[api].memory)) {
        t->lost_depth = 1;
        t->lost_frame = (const char *)frame;
        return false;
    }
    int saved = errno;
    struct gs_shield shield;
    gs_shield_begin(&shield);
    t->inside = true;
    bool recording = gs_session_begin();
    const uint32_t live = atomic_load(&gs_session_live);
    if (recording && live && t->session != live) {
        open_thread(t, live);
        gs_mark_early_write(t);
    }
    t->inside = false;
    gs_shield_end(&shield);
    errno = saved;
    return recording && live;
}

/* Is the outermost wrapper still on the stack? longjmp out of it (from a signal handler), an exception and a
 * cancellation leave it without notice. Then its frame is below the current stack pointer, or later calls have
 * overwritten its return address: the first call that its caller makes does so. A handler on an alternate stack may be
 * at any address. */
static __attribute__((noinline, no_sanitize("address"))) bool still_inside(const struct gs_thread *t, const char *frame)
{
    if (frame < t->frame) return *t->slot == t->returns;
    stack_t own;
    return !sigaltstack(NULL, &own) && own.ss_flags & SS_ONSTACK;
}

/* A signal handler's call in the middle of an event: a half-written event cannot be entered again. What that call calls
 * in turn (the driver's call of a runtime call) is not a second loss. */
static __attribute__((noinline, cold, no_sanitize("address"))) void lose_handlers(struct gs_thread *t,
                                                                                  void *const *frame)
{
    void *const *slot = (void *const *)*frame + 1;
    if (t->lost_slot && slot < t->lost_slot && *t->lost_slot == t->lost_returns) return;
    t->lost_slot = slot;
    t->lost_returns = *slot;
    gs_spool_lost(t->writer.spool, gs_record_now());
}

/* Inside another wrapper. Only a call about memory inside a call that is not about memory makes an event here. */
static __attribute__((noinline)) struct gs_thread *enter_nested(struct gs_thread *t, uint16_t api, const void *caller,
                                                                void *const *frame)
{
    if (t->writing) {
        lose_handlers(t, frame);
        return NULL;
    }
    if (t->depth > 1 || gs_apis[t->call.api].memory || !gs_apis[api].memory) return NULL;
    if (t->session != atomic_load_explicit(&gs_session_live, memory_order_acquire)) return NULL;
    t->outer = t->call;
    t->depth = 2;
    t->call = (struct gs_call){.api = api, .caller = caller};
    return t;
}

struct gs_thread *gs_enter(uint16_t api, const void *caller)
{
    struct gs_thread *t = &gs_self;
    void *const *frame = __builtin_frame_address(0); /* the wrapper's frame, gs_enter's return address */
    if (__builtin_expect(t->depth, 0) && still_inside(t, (const char *)frame))
        return enter_nested(t, api, caller, frame);
    const uint32_t live = atomic_load_explicit(&gs_session_live, memory_order_acquire);
    if (__builtin_expect(!live || t->session != live, 0) && !enter_slowly(t, api, frame)) return NULL;
    t->writing = false;
    t->depth = 1;
    t->call.api = api;
    t->call.caller = caller;
    t->call.stack = 0;
    t->call.noted = 0;
    stands_at(t, frame);
    return t;
}

void gs_leave(struct gs_thread *t)
{
    if (!t) {
        if (gs_self.lost_depth) gs_self.lost_depth--;
        return;
    }
    if (t->depth == 2) t->call = t->outer;
    if (t->depth) t->depth--; /* 0 in a child that was forked inside the call */
}

struct gs_thread *gs_enter_mark(void)
{
    struct gs_thread *t = &gs_self;
    void *const *frame = __builtin_frame_address(0);
    if (__builtin_expect(t->depth, 0) && still_inside(t, (const char *)frame)) {
        if (t->writing) gs_spool_lost(t->writer.spool, gs_record_now()); /* as in enter_nested */
        return NULL;
    }
    const uint32_t live = atomic_load_explicit(&gs_session_live, memory_order_acquire);
    if (__builtin_expect(!live, 0)) {
        gs_session_missed();
        return NULL;
    }
    if (__builtin_expect(t->session != live, 0) && !enter_slowly(t, GS_API_NONE, frame)) return NULL;
    t->writing = false;
    t->depth = 2; /* nothing is nested in it */
    t->call.stack = 0;
    stands_at(t, frame);
    return t;
}

void gs_leave_mark(struct gs_thread *t)
{
    if (t) t->depth = 0;
}

/* An allocation of the driver's inside a wrapper about memory: the outer wrapper makes the event. */
static void note_freed(uint64_t address, uint64_t bytes)
{
    struct gs_thread *t = &gs_self;
    if (!t->depth || !gs_apis[t->call.api].memory) return;
    t->call.noted_address = address;
    t->call.noted_bytes = bytes;
    t->call.noted++;
}

/* --- writing --------------------------------------------------------------------------------- */

static void capture_stack(struct gs_thread *t, unsigned what)
{
    t->writing = true; /* until its event has been written */
    t->call.stack = t->stacks ? gs_stack_capture(t->stacks, what, t->call.caller) : 0;
}

/* --- memory ---------------------------------------------------------------------------------- */

void gs_record_alloc(struct gs_thread *t, uint64_t address, uint64_t bytes, uint8_t layer, uint8_t space, int device,
                     uint64_t stream, uint8_t flags)
{
    if (!t) note_freed(address, bytes);
    if (!t || !address) return;
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    t->grown = t->grown || layer == GS_LAYER_DEVICE;
    if (t->call.noted == 1 && t->call.noted_address == address) bytes = t->call.noted_bytes;
    capture_stack(t, EVERYTHING);
    struct gs_rec_alloc *r = BEGIN(t, gs_rec_alloc, GS_REC_ALLOC, flags);
    if (r) {
        r->address = address;
        r->bytes = bytes;
        r->stream = stream;
        r->api = t->call.api;
        r->device = (int16_t)on;
        r->layer = layer;
        r->space = space;
        r->context = gs_context_current(t);
        record_end(t, r);
    }
    errno = saved;
}

static uint64_t write_free_record(struct gs_thread *t, uint8_t type, uint64_t address, uint8_t layer, uint8_t space,
                                  int device, uint64_t stream, uint8_t flags)
{
    struct gs_rec_free *r = BEGIN(t, gs_rec_free, type, flags);
    if (!r) return gs_record_now();
    r->address = address;
    r->stream = stream;
    r->api = t->call.api;
    r->device = (int16_t)device;
    r->layer = layer;
    r->space = space;
    r->pad = 0;
    const uint64_t time = r->rec.time_ns;
    record_end(t, r);
    return time;
}

void gs_record_free(struct gs_thread *t, uint64_t address, uint8_t layer, uint8_t space, int device, uint64_t stream,
                    uint8_t flags)
{
    if (!t) return;
    if (!address) { /* many programs call cudaFree(0) to create a context: it frees nothing, but counts as a call */
        t->call.start_ns = 0;
        return;
    }
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    capture_stack(t, EVERYTHING);
    t->call.start_ns = write_free_record(t, GS_REC_FREE, address, layer, space, on, stream, flags);
    errno = saved;
}

void gs_record_free_failed(struct gs_thread *t, uint64_t address, uint8_t layer, uint8_t space)
{
    if (!t || !address) return;
    int saved = errno;
    write_free_record(t, GS_REC_FREE_FAILED, address, layer, space, GS_DEVICE_NONE, 0, 0);
    errno = saved;
}

void gs_record_event(struct gs_thread *t, uint64_t event)
{
    if (!t || !gs_allocator_calls(t->call.caller)) return;
    int saved = errno;
    struct gs_marked *m = &t->marked;
    capture_stack(t, EVERYTHING);
    t->writing = false;
    /* the events of one free have the same call site */
    if (m->count && (m->stack != t->call.stack || m->count == GS_PENDING_EVENTS)) m->count = 0;
    m->stack = t->call.stack;
    m->events[m->count++] = event;
    errno = saved;
}

void gs_record_event_done(struct gs_thread *t, uint64_t event)
{
    if (!t || !gs_allocator_waits() || !gs_allocator_calls(t->call.caller)) return;
    int saved = errno;
    struct gs_rec_event_done *r = BEGIN(t, gs_rec_event_done, GS_REC_EVENT_DONE, 0);
    if (r) {
        r->event = event;
        record_end(t, r);
    }
    errno = saved;
}

void gs_record_pending(struct gs_thread *t, uint64_t address)
{
    struct gs_marked *m = t ? &t->marked : NULL;
    if (!m || !m->count) return;
    int saved = errno;
    const uint16_t bytes = (uint16_t)(sizeof(struct gs_rec_pending) + m->count * sizeof *m->events);
    capture_stack(t, EVERYTHING);
    struct gs_rec_pending *r = record_begin(t, bytes, GS_REC_PENDING, 0);
    if (r) {
        gs_allocator_waits_now();
        r->address = address;
        /* equal numbers: the cache has given the event's number to this stack */
        r->event_stack = m->stack != t->call.stack ? m->stack : 0;
        r->count = m->count;
        memcpy(r->events, m->events, m->count * sizeof *m->events);
        record_end(t, r);
    }
    m->count = 0;
    errno = saved;
}

void gs_record_tensor(struct gs_thread *t, uint64_t address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                      bool has_totals, uint8_t layer, int device, uint64_t stream, uint32_t extra, uint8_t flags)
{
    if (!t) return;
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    /* A tensor is freed wherever its last reference disappears. Python's line shows in which statement; the native
     * frames show only the reference counting, and are the larger part of an event's cost. So a free captures none. */
    capture_stack(t, bytes < 0 ? GS_STACK_PYTHON : EVERYTHING);
    struct gs_rec_tensor *r = BEGIN(t, gs_rec_tensor, GS_REC_TENSOR, flags);
    if (r) {
        r->stream = stream;
        r->address = address;
        r->bytes = bytes;
        r->total_allocated = allocated;
        r->total_reserved = reserved;
        r->extra = extra;
        r->api = t->call.api;
        r->device = (int8_t)on;
        r->layer = layer & 3;
        r->has_totals = has_totals;
        record_end(t, r);
    }
    errno = saved;
}

/* --- copies, fills and waiting --------------------------------------------------------------- */

/* The time at which the real call returned. The record that is sorted by it is written only after the stack has been
 * captured, so the reader is held up from here on. */
static uint64_t returned_at(struct gs_thread *t)
{
    gs_writer_busy(&t->writer);
    return gs_record_now();
}

static void write_copy(struct gs_thread *t, uint8_t type, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream,
                       uint8_t direction, bool async)
{
    if (async && gs_captured(stream)) { /* a node of a graph: nothing is copied until the graph runs */
        gs_count(t, stream, false);
        return;
    }
    int saved = errno;
    const uint64_t now = returned_at(t);
    const int on = gs_device_resolve(t, GS_DEVICE_CURRENT);
    capture_stack(t, EVERYTHING);
    struct gs_rec_copy *r = BEGIN(t, gs_rec_copy, type, async ? GS_FLAG_ASYNC : 0);
    if (r) {
        r->rec.time_ns = t->call.start_ns;
        r->dst = dst;
        r->src = src;
        r->bytes = bytes;
        r->stream = stream;
        r->blocked_ns = now - t->call.start_ns;
        r->api = t->call.api;
        r->device = (int16_t)on;
        r->direction = direction;
        r->host_memory = 0;
        memset(r->pad, 0, sizeof r->pad);
        record_end(t, r);
    }
    errno = saved;
}

void gs_record_copy(struct gs_thread *t, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream, uint8_t direction,
                    bool async)
{
    if (t) write_copy(t, GS_REC_COPY, dst, src, bytes, stream, direction, async);
}

void gs_record_set(struct gs_thread *t, uint64_t dst, uint64_t bytes, uint64_t stream, bool async)
{
    if (t) write_copy(t, GS_REC_SET, dst, 0, bytes, stream, GS_DIR_UNKNOWN, async);
}

static void write_sync(struct gs_thread *t, uint8_t kind, uint64_t handle, uint64_t blocked_ns)
{
    const int on = gs_device_resolve(t, GS_DEVICE_CURRENT);
    if (!t->call.stack) capture_stack(t, EVERYTHING);
    struct gs_rec_sync *r = BEGIN(t, gs_rec_sync, GS_REC_SYNC, 0);
    if (!r) return;
    r->rec.time_ns = t->call.start_ns;
    r->handle = handle;
    r->blocked_ns = blocked_ns;
    r->api = t->call.api;
    r->device = (int16_t)on;
    r->kind = kind;
    memset(r->pad, 0, sizeof r->pad);
    record_end(t, r);
}

void gs_record_sync(struct gs_thread *t, uint8_t kind, uint64_t handle)
{
    if (!t) return;
    int saved = errno;
    write_sync(t, kind, handle, returned_at(t) - t->call.start_ns);
    errno = saved;
}

void gs_record_implicit_sync(struct gs_thread *t)
{
    if (!t || !t->call.start_ns) return;
    if (gs_record_now() - t->call.start_ns < WAITED_NS) return;
    int saved = errno;
    write_sync(t, GS_SYNC_IMPLICIT, 0, returned_at(t) - t->call.start_ns);
    errno = saved;
}

/* --- the device's state ---------------------------------------------------------------------- */

void gs_record_oom(struct gs_thread *t, uint64_t requested, uint64_t free_bytes, uint64_t total_bytes,
                   uint64_t tensor_allocated, uint64_t tensor_reserved, uint8_t layer, uint8_t space, int device)
{
    if (!t) return;
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    capture_stack(t, EVERYTHING);
    const bool capped = t->capped && space != GS_SPACE_PINNED && space != GS_SPACE_MANAGED;
    if (layer == GS_LAYER_TENSOR) t->capped = false; /* the next failure may be due to the allocator's own cap */
    struct gs_rec_oom *r = BEGIN(t, gs_rec_oom, GS_REC_OOM, capped ? GS_FLAG_CAPPED : 0);
    gs_nvml_due(); /* who else holds the memory */
    if (r) {
        r->requested_bytes = requested;
        r->free_bytes = free_bytes;
        r->total_bytes = total_bytes;
        r->tensor_allocated = tensor_allocated;
        r->tensor_reserved = tensor_reserved;
        r->api = t->call.api;
        r->device = (int16_t)on;
        r->layer = layer;
        r->space = space;
        r->pad = 0;
        record_end(t, r);
    }
    errno = saved;
}

void gs_record_cuda_oom_on(struct gs_thread *t, uint64_t requested, uint8_t space, int device)
{
    if (!t) return;
    int saved = errno;
    uint64_t free_bytes = UINT64_MAX, total_bytes = UINT64_MAX;
    if (device == GS_DEVICE_CURRENT || device == gs_device_resolve(t, GS_DEVICE_CURRENT))
        gs_device_memory(&free_bytes, &total_bytes); /* CUDA reports it for the current device */
    gs_record_oom(t, requested, free_bytes, total_bytes, UINT64_MAX, UINT64_MAX, GS_LAYER_DEVICE, space, device);
    errno = saved;
}

void gs_record_cuda_oom(struct gs_thread *t, uint64_t requested, uint8_t space)
{
    gs_record_cuda_oom_on(t, requested, space, GS_DEVICE_CURRENT);
}

void gs_record_sample(struct gs_thread *t, uint64_t free_bytes, uint64_t total_bytes, int device, uint8_t source)
{
    if (!t) return;
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    struct gs_rec_sample *r = BEGIN(t, gs_rec_sample, GS_REC_SAMPLE, 0);
    if (r) {
        r->free_bytes = free_bytes;
        r->total_bytes = total_bytes;
        r->device = (int16_t)on;
        r->source = source;
        memset(r->pad, 0, sizeof r->pad);
        record_end(t, r);
    }
    errno = saved;
}

static void write_handle(struct gs_thread *t, uint8_t kind, uint64_t handle, int device, uint16_t context,
                         bool destroyed)
{
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    capture_stack(t, EVERYTHING);
    struct gs_rec_handle *r = BEGIN(t, gs_rec_handle, GS_REC_HANDLE, destroyed ? GS_FLAG_DESTROYED : 0);
    if (r) {
        r->handle = handle;
        r->api = t->call.api;
        r->device = (int16_t)on;
        r->kind = kind;
        r->pad = 0;
        r->context = context;
        record_end(t, r);
    }
    errno = saved;
}

void gs_record_handle(struct gs_thread *t, uint8_t kind, uint64_t handle, int device, bool destroyed)
{
    if (t) write_handle(t, kind, handle, device, 0, destroyed);
}

void gs_record_context(struct gs_thread *t, uint64_t context, int device)
{
    if (!t) return;
    write_handle(t, GS_HANDLE_CONTEXT, context, device, gs_context_add(context), false);
    gs_device_set(t, device);
}

void gs_record_green(struct gs_thread *t, uint64_t context, int device)
{
    if (t) write_handle(t, GS_HANDLE_CONTEXT, context, device, gs_context_add(context), false);
}

void gs_record_context_gone(struct gs_thread *t, uint64_t context)
{
    if (!t) return;
    write_handle(t, GS_HANDLE_CONTEXT, context, GS_DEVICE_NONE, gs_context_remove(context), true);
    gs_device_set(t, GS_DEVICE_UNKNOWN);
}

void gs_record_vmm(struct gs_thread *t, uint8_t op, uint64_t handle, uint64_t address, uint64_t bytes, uint64_t offset,
                   int device, uint8_t flags)
{
    if (!t) return;
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    capture_stack(t, EVERYTHING);
    struct gs_rec_vmm *r = BEGIN(t, gs_rec_vmm, GS_REC_VMM, flags);
    if (r) {
        t->call.start_ns = r->rec.time_ns;
        r->handle = handle;
        r->address = address;
        r->bytes = bytes;
        r->offset = offset;
        r->api = t->call.api;
        r->device = (int16_t)on;
        r->op = op;
        memset(r->pad, 0, sizeof r->pad);
        t->grown = t->grown || op == GS_VMM_MAP;
        record_end(t, r);
    }
    errno = saved;
}

void gs_record_pool(struct gs_thread *t, uint64_t pool, uint64_t used_bytes, uint64_t reserved_bytes, int device)
{
    if (!t) return;
    int saved = errno;
    const int on = gs_device_resolve(t, device);
    struct gs_rec_pool *r = BEGIN(t, gs_rec_pool, GS_REC_POOL, 0);
    if (r) {
        r->pool = pool;
        r->used_bytes = used_bytes;
        r->reserved_bytes = reserved_bytes;
        r->api = t->call.api;
        r->device = (int16_t)on;
        r->pad = 0;
        record_end(t, r);
    }
    errno = saved;
}

void gs_count(struct gs_thread *t, uint64_t stream, bool not_ready)
{
    if (!t || !t->writer.spool) return;
    int saved = errno;
    const int on = gs_device_resolve(t, GS_DEVICE_CURRENT);
    if (!gs_spool_count(t->writer.spool, gs_counter_key(t->call.api, on, stream, not_ready))) record_lose(t);
    errno = saved;
}

void gs_record_primary(struct gs_thread *t, uint64_t context, int device)
{
    /* libraries retain it repeatedly; it is recorded once */
    if (t && gs_device_primary(device, context) != context)
        gs_record_handle(t, GS_HANDLE_CONTEXT, context, device, false);
}

void gs_record_primary_released(struct gs_thread *t, int device)
{
    int saved = errno;
    if (t && gs_device_primary_inactive(device)) gs_record_primary_gone(t, device);
    errno = saved;
}

void gs_record_primary_gone(struct gs_thread *t, int device)
{
    if (!t) return;
    const int on = gs_device_resolve(t, device);
    /* 0 if the runtime created it without a recorded call: the device states which it was */
    gs_record_handle(t, GS_HANDLE_CONTEXT, gs_device_primary(on, 0), on, true);
}
