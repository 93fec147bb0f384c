/* What a door calls to make an event. A wrapper is always
 *
 *     struct gs_thread *t = gs_enter(GS_API_x, __builtin_return_address(0));   may be NULL
 *     [before: gs_record_free(t, …)]
 *     result = real(…);
 *     if (t) { gs_record_…(t, …); }
 *     gs_leave(t);
 *
 * and looks the same whether t is NULL or not: a NULL t records nothing. errno is kept by
 * gs_enter and gs_leave.
 */
#ifndef GPUSPY_RECORDER_H
#define GPUSPY_RECORDER_H

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack.h"
#include "schema/event.h"
#include "schema/spool.h"

struct gs_thread {
    struct gs_writer writer;
    struct gs_stacks *stacks;
    uint32_t session;   /* the session it belongs to; differs after fork: open it anew */
    uint16_t depth;     /* a wrapper is on this thread's stack: only the outermost makes an event */
    uint16_t api;       /* the outermost wrapper's entry point */
    bool inside;        /* gpuspy opens the thread or the session: a call now passes through */
    int device;         /* the thread's current CUDA device, GS_DEVICE_UNKNOWN to be asked */
    uint32_t stack;     /* number of the stack that this call captured last */
    const void *caller; /* the outermost wrapper's return address */
    const char *frame;  /* where the outermost wrapper stands on the stack … */
    void *const *slot;  /* … its return address there … */
    void *returns;      /* … and what that is, as long as the wrapper has not been left */
    uint64_t start_ns;  /* when its real call began */
};

/* NULL: nothing is recorded now (disabled, deactivated, nested in another wrapper, in our own code,
 * in a signal handler that interrupted it). Starts the session at the first call of the process. */
struct gs_thread *gs_enter(uint16_t api, const void *caller);
void gs_leave(struct gs_thread *t);

/* ns since the session's start. */
uint64_t gs_now(void);

/* Devices where a function takes one. */
enum { GS_DEVICE_NONE = -1, GS_DEVICE_UNKNOWN = -2, GS_DEVICE_CURRENT = -3 };

/* Each takes NULL for t, keeps errno, and must be called between gs_enter and gs_leave. */
void gs_record_alloc(struct gs_thread *t, uint64_t address, uint64_t bytes, uint8_t layer,
                     uint8_t space, int device, uint64_t stream, uint8_t flags);
/* Also notes the time as the beginning of the real call. An address of 0 frees nothing. */
void gs_record_free(struct gs_thread *t, uint64_t address, uint8_t layer, uint8_t space, int device,
                    uint64_t stream, uint8_t flags);
void gs_record_free_failed(struct gs_thread *t, uint64_t address, uint8_t layer, uint8_t space);
/* A free, reset or destruction that kept the host waiting, with the stack of the free. */
void gs_record_implicit_sync(struct gs_thread *t);
void gs_record_tensor(struct gs_thread *t, uint64_t address, int64_t bytes, uint64_t allocated,
                      uint64_t reserved, bool has_totals, uint8_t layer, int device);
/* These two and gs_record_sync: from t->start_ns until now is the time that the call blocked. */
void gs_record_copy(struct gs_thread *t, uint64_t dst, uint64_t src, uint64_t bytes,
                    uint64_t stream, uint8_t direction, bool async);
void gs_record_set(struct gs_thread *t, uint64_t dst, uint64_t bytes, uint64_t stream, bool async);
void gs_record_sync(struct gs_thread *t, uint8_t kind, uint64_t handle);
void gs_record_oom(struct gs_thread *t, uint64_t requested, uint64_t free_bytes,
                   uint64_t total_bytes, uint64_t tensor_allocated, uint64_t tensor_reserved,
                   uint8_t layer, uint8_t space, int device);
/* The same for a CUDA call that failed; asks the device for its free and total bytes. */
void gs_record_cuda_oom(struct gs_thread *t, uint64_t requested, uint8_t space);
void gs_record_sample(struct gs_thread *t, uint64_t free_bytes, uint64_t total_bytes, int device,
                      uint8_t source);
void gs_record_handle(struct gs_thread *t, uint8_t kind, uint64_t handle, int device,
                      bool destroyed);
/* A device's primary context: retained (recorded the first time only), perhaps released by the
 * last who held it, gone for certain. */
void gs_record_primary(struct gs_thread *t, uint64_t context, int device);
void gs_record_primary_released(struct gs_thread *t, int device);
void gs_record_primary_gone(struct gs_thread *t, int device);

/* What is now known of the thread's current device. */
void gs_device_set(struct gs_thread *t, int device);

/* Anything that goes wrong inside gpuspy ends here: one line on stderr (once per process), no
 * further recording, the application untouched. */
void gs_deactivate(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
