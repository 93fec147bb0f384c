/* A thread's state from its first event until its end, and its records. */
#include <string.h>
#include "interpose/record_write.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/slots.h"

__thread struct gs_thread gs_self __attribute__((tls_model("initial-exec")));

uint64_t gs_now(void)
{
    return gs_record_now();
}

void gs_thread_end(void *thread)
{
    struct gs_thread *t = thread;
    struct gs_shield shield;
    gs_shield_begin(&shield);
    const bool live = t->session && t->session == atomic_load(&gs_session_live);
    if (live && !gs_slot_park(&t->writer, t->stacks, t->session)) {
        gs_stacks_close(t->stacks);
        gs_writer_close(&t->writer);
    }
    if (!live) gs_stacks_close(t->stacks);
    /* a later destructor of this thread may still call CUDA: it opens the thread again */
    const uint8_t ended = t->ended;
    memset(t, 0, sizeof *t);
    t->ended = (uint8_t)(ended + 1);
    gs_shield_end(&shield);
}

void gs_thread_forked(void)
{
    if (gs_self.stacks) gs_stacks_close(gs_self.stacks); /* private memory, copied from the parent */
    gs_slots_forget();
    memset(&gs_self, 0, sizeof gs_self);
}

void gs_record_capped(bool capped)
{
    gs_self.capped = capped;
}

void *gs_record_begin(struct gs_thread *t, uint16_t bytes, uint8_t type)
{
    return record_begin(t, bytes, type, 0);
}

void gs_record_end(struct gs_thread *t, const void *record)
{
    record_end(t, record);
}
