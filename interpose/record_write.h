/* Writes an event into the thread's part of the spool. Inlined: every event passes here. */
#pragma once

#include "interpose/clock.h"
#include "interpose/recorder.h"
#include "interpose/state.h"

/* A preloaded library's thread-locals are in the static block: no call is needed to find them. */
extern __thread struct gs_thread gs_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline uint64_t gs_record_now(void)
{
    const struct timespec now = gs_clock(CLOCK_MONOTONIC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - gs_session_start_ns;
}

static inline void record_lose(struct gs_thread *t)
{
    struct gs_spool *spool = t->writer.spool;
    if (!spool) return; /* a forked child returns from its parent's call */
    /* the process was ending when this call returned: it is after the recording's end */
    if (atomic_load(&spool->header->closed)) return;
    gs_spool_lost(spool, gs_record_now());
}

/* Room for an event, with its header filled in; the time is taken after the room, which marks the writer as busy, so
 * that no reader passes this moment before the event is written. */
static inline void *record_begin(struct gs_thread *t, uint16_t bytes, uint8_t type, uint8_t flags)
{
    t->writing = true;
    struct gs_rec *r = gs_writer_reserve(&t->writer, bytes);
    if (!r) {
        t->writing = false;
        record_lose(t);
        return NULL;
    }
    *r = (struct gs_rec){
        .size = bytes, .type = type, .flags = flags, .stack = t->call.stack, .time_ns = gs_record_now()};
    return r;
}
#define BEGIN(t, type, kind, flags) ((struct type *)record_begin(t, sizeof(struct type), kind, flags))

static inline void record_end(struct gs_thread *t, const void *record)
{
    gs_writer_commit(&t->writer, ((const struct gs_rec *)record)->size);
    t->writing = false;
}
