/* What a door calls to make an event. A wrapper is always
 *
 *     struct gs_thread *t = gs_enter(GS_API_x, __builtin_return_address(0));   may be NULL
 *     [before: gs_record_free(t, …)]
 *     result = real(…);
 *     if (t) { gs_record_…(t, …); }
 *     gs_leave(t);
 *
 * The code is the same whether t is NULL or not: a NULL t records nothing. gs_enter and gs_leave keep errno.
 *
 * One event for one act. A runtime call and the driver call inside it both enter; the outermost makes the event, under
 * the name that the user called. If both are about memory (gs_apis[].memory), the driver's call only stores the size
 * that it allocated, which goes into the event. A driver's call about memory inside another kind of call is a separate
 * act and makes its own event. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/stack.h"
#include "interpose/allocator.h"
#include "interpose/message.h"
#include "schema/event.h"
#include "schema/spool.h"

/* A wrapper that is on this thread's stack. */
struct gs_call {
    uint16_t api;
    uint32_t stack;                      /* number of the stack that was captured last */
    const void *caller;                  /* its return address */
    uint64_t start_ns;                   /* when its real call began */
    uint64_t noted_address, noted_bytes; /* what the driver's allocation inside it returned */
    uint32_t noted;                      /* number of such allocations */
};

struct gs_thread {
    struct gs_writer writer;
    struct gs_stacks *stacks;
    uint32_t session;        /* the session it belongs to; differs after fork: open it again */
    uint16_t depth;          /* wrappers on this thread's stack that make events: 0, 1, or 2 */
    volatile bool writing;   /* an event is being made: any call now comes from a signal handler */
    uint16_t lost_depth;     /* after the end: wrappers on the stack, of which the outermost was … */
    const char *lost_frame;  /* … counted as lost, and its position on the stack */
    bool inside;             /* gpuspy is opening the thread or the session: calls pass through */
    uint8_t ended;           /* rounds of thread-specific destructors so far */
    int device;              /* the thread's current CUDA device; GS_DEVICE_UNKNOWN: query it */
    int context;             /* number of its current context; GS_CONTEXT_UNKNOWN: query it */
    struct gs_call call;     /* the innermost of those wrappers … */
    struct gs_call outer;    /* … and the one around it, at depth 2 */
    struct gs_marked marked; /* see allocator.h */
    const char *frame;       /* position of the outermost wrapper on the stack … */
    void *const *slot;       /* … its return address there … */
    void *returns;           /* … and the value there, as long as the wrapper has not returned */
    void *const *lost_slot;  /* the same for a signal handler's call that was counted as lost */
    void *lost_returns;
    bool grown;  /* it has obtained memory from CUDA since its last tensor */
    bool capped; /* the last device allocation that failed was refused by GPUSPY_LIMIT */
};

/* NULL: nothing is recorded now (disabled, deactivated, nested in another wrapper, in gpuspy's own code, in a signal
 * handler that interrupted it). Starts the session at the first call of the process. */
struct gs_thread *gs_enter(uint16_t api, const void *caller);
void gs_leave(struct gs_thread *t);

/* ns since the session's start. */
uint64_t gs_now(void);

/* Special values for functions that take a device. */
enum { GS_DEVICE_NONE = -1, GS_DEVICE_UNKNOWN = -2, GS_DEVICE_CURRENT = -3 };
#define GS_CONTEXT_UNKNOWN (-1)

/* Each takes NULL for t, keeps errno, and must be called between gs_enter and gs_leave. */
void gs_record_alloc(struct gs_thread *t, uint64_t address, uint64_t bytes, uint8_t layer, uint8_t space, int device,
                     uint64_t stream, uint8_t flags);
/* Also notes the time as the beginning of the real call. An address of 0 frees nothing. */
void gs_record_free(struct gs_thread *t, uint64_t address, uint8_t layer, uint8_t space, int device, uint64_t stream,
                    uint8_t flags);
void gs_record_free_failed(struct gs_thread *t, uint64_t address, uint8_t layer, uint8_t space);
/* A free, reset or destruction that blocked the host, with the stack of the free. */
void gs_record_implicit_sync(struct gs_thread *t);
/* `stream`, `extra` and `flags` (GS_FLAG_CAPTURED) of an allocation. */
void gs_record_tensor(struct gs_thread *t, uint64_t address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                      bool has_totals, uint8_t layer, int device, uint64_t stream, uint32_t extra, uint8_t flags);
/* An event of PyTorch's allocator was recorded, or has passed; and what a free by the allocator waits for, if anything.
 * */
void gs_record_event(struct gs_thread *t, uint64_t event);
void gs_record_event_done(struct gs_thread *t, uint64_t event);
void gs_record_pending(struct gs_thread *t, uint64_t address);
/* For these two and gs_record_sync, the blocked time runs from t->call.start_ns until now. Work submitted to a stream
 * that is being captured is only counted. */
void gs_record_copy(struct gs_thread *t, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream, uint8_t direction,
                    bool async);
void gs_record_set(struct gs_thread *t, uint64_t dst, uint64_t bytes, uint64_t stream, bool async);
void gs_record_sync(struct gs_thread *t, uint8_t kind, uint64_t handle);
void gs_record_oom(struct gs_thread *t, uint64_t requested, uint64_t free_bytes, uint64_t total_bytes,
                   uint64_t tensor_allocated, uint64_t tensor_reserved, uint8_t layer, uint8_t space, int device);
/* limit.c: was this thread's last device allocation refused because of the cap? */
void gs_record_capped(bool capped);
/* The same for a CUDA call that failed; queries the device for its free and total bytes. */
void gs_record_cuda_oom(struct gs_thread *t, uint64_t requested, uint8_t space);
/* For a call that names its device: the current one may be another, or there may be none. */
void gs_record_cuda_oom_on(struct gs_thread *t, uint64_t requested, uint8_t space, int device);
void gs_record_sample(struct gs_thread *t, uint64_t free_bytes, uint64_t total_bytes, int device, uint8_t source);
void gs_record_handle(struct gs_thread *t, uint8_t kind, uint64_t handle, int device, bool destroyed);
/* A context that is not a device's primary one; it becomes the thread's current one. */
void gs_record_context(struct gs_thread *t, uint64_t context, int device);
/* A green context: it has its own number, which no memory ever has. */
void gs_record_green(struct gs_thread *t, uint64_t context, int device);
void gs_record_context_gone(struct gs_thread *t, uint64_t context);
/* A step in the life of physical memory (enum gs_vmm_op); also stores the time as the beginning of the real call, for
 * the two that are recorded before it. */
void gs_record_vmm(struct gs_thread *t, uint8_t op, uint64_t handle, uint64_t address, uint64_t bytes, uint64_t offset,
                   int device, uint8_t flags);
/* What a memory pool reports about itself; 0: the device's memory for graphs. */
void gs_record_pool(struct gs_thread *t, uint64_t pool, uint64_t used_bytes, uint64_t reserved_bytes, int device);
/* A call that is only counted: by entry point, device, stream and second. */
void gs_count(struct gs_thread *t, uint64_t stream, bool not_ready);
/* A device's primary context: retained (recorded only the first time), perhaps released by its last holder, or
 * certainly destroyed. */
void gs_record_primary(struct gs_thread *t, uint64_t context, int device);
void gs_record_primary_released(struct gs_thread *t, int device);
void gs_record_primary_gone(struct gs_thread *t, int device);

/* mark.c: a range or a moment (kind: enum gs_mark_kind; id: see gs_rec_mark). Strings are UTF-8; `domain` may be NULL,
 * and so may `text` of at most `len` bytes. */
void gs_record_mark(struct gs_thread *t, uint8_t kind, uint64_t id, const char *domain, const char *text, size_t len);
/* A record with contents of the caller's: returns room for it with its header filled in, NULL if there is none (which
 * is counted). Fill in the rest, then call _end. */
void *gs_record_begin(struct gs_thread *t, uint16_t bytes, uint8_t type);
void gs_record_end(struct gs_thread *t, const void *record);

/* The thread's current device is now known. */
void gs_device_set(struct gs_thread *t, int device);
