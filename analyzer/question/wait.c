#include "analyzer/question/wait.h"

#include <stdlib.h>
#include "schema/event.h"

enum { ITEM_BYTES = 16 };

struct readback {    /* by thread: the copy that its next call may wait for */
    bool open, late; /* late: one was left to be waited for later, on that stream */
    uint64_t late_stream;
    struct gs_copy copy;
};

struct gs_waits {
    struct gs_signer *signer;
    gs_wait_fn each;
    void *self;
    struct gs_map threads;
    struct readback *readbacks;
    size_t readbacks_n, readbacks_cap;
};

/* Does the copy itself keep the host? */
static bool holds(const struct gs_copy *c)
{
    bool in = c->direction == GS_DIR_H2D, out = c->direction == GS_DIR_D2H;
    bool staged = in && c->bytes <= GS_WAIT_STAGED_BYTES;
    return (in || out) && !staged && (!c->async || c->host_memory == GS_HOSTMEM_PAGEABLE);
}

static void tell_copy(struct gs_waits *w, const struct gs_copy *c)
{
    bool in = c->direction == GS_DIR_H2D;
    if (holds(c)) {
        w->each(w->self, &(struct gs_wait){.process = c->process,
                                           .thread = c->thread,
                                           .stack = c->stack,
                                           .api = c->api,
                                           .device = c->device,
                                           .kind = GS_SYNC_IMPLICIT,
                                           .shape = c->async ? (in ? GS_SHAPE_LATE_IN : GS_SHAPE_LATE_OUT)
                                                    : in     ? GS_SHAPE_BLOCKING_IN
                                                             : GS_SHAPE_BLOCKING_OUT,
                                           .start_ns = c->start_ns,
                                           .blocked_ns = c->blocked_ns,
                                           .bytes = c->bytes});
    }
}

static struct readback *readback_of(struct gs_waits *w, uint32_t process, uint32_t thread)
{
    uint32_t *at = gs_map_at(&w->threads, (uint64_t)process << 32 | thread);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)w->readbacks_n;
        *GS_PUSH(w->readbacks, w->readbacks_n, w->readbacks_cap) = (struct readback){0};
    }
    return &w->readbacks[*at];
}

static void settle(struct gs_waits *w, struct readback *r)
{
    if (r->open) {
        tell_copy(w, &r->copy);
        r->open = false;
        if (r->copy.direction == GS_DIR_D2H && !holds(&r->copy)) {
            r->late = true;
            r->late_stream = r->copy.stream;
        }
    }
}

/* Does this wait for a copy that was left to be waited for? */
static bool waits_for_late(struct readback *r, const struct gs_sync *sync)
{
    bool same = sync->kind != GS_SYNC_STREAM || sync->handle == r->late_stream;
    bool waits = r->late && sync->kind < GS_SYNC_IMPLICIT && same;
    r->late = r->late && !waits;
    return waits;
}

/* One operation: both calls come from one line of Python, or neither from any. */
static bool one_operation(struct gs_waits *w, const struct gs_copy *c, const struct gs_sync *sync)
{
    uint32_t line = gs_sign_line(w->signer, c->stack);
    return sync->kind == GS_SYNC_STREAM && sync->handle == c->stream && line == gs_sign_line(w->signer, sync->stack) &&
           (c->direction == GS_DIR_D2H || line != GS_NONE);
}

static enum gs_shape shape_of(const struct gs_copy *c)
{
    if (c->direction == GS_DIR_D2H) {
        return c->bytes <= ITEM_BYTES ? GS_SHAPE_SCALAR : GS_SHAPE_READ;
    }
    return c->host_memory == GS_HOSTMEM_PINNED ? GS_SHAPE_UP_PINNED : GS_SHAPE_UP_PAGEABLE;
}

static void on_sync(struct gs_waits *w, const struct gs_sync *sync)
{
    struct readback *r = readback_of(w, sync->process, sync->thread);
    unsigned kind = sync->kind <= GS_SYNC_IMPLICIT ? sync->kind : GS_SYNC_IMPLICIT;
    struct gs_wait wait = {.process = sync->process,
                           .thread = sync->thread,
                           .stack = sync->stack,
                           .api = sync->api,
                           .device = sync->device,
                           .kind = kind,
                           .shape = (enum gs_shape)kind,
                           .start_ns = sync->start_ns,
                           .blocked_ns = sync->blocked_ns};
    if (r->open && one_operation(w, &r->copy, sync)) {
        bool held = r->copy.direction == GS_DIR_D2H || holds(&r->copy);
        r->open = false;
        wait.shape = shape_of(&r->copy);
        wait.bytes = r->copy.bytes;
        wait.blocked_ns = gs_add(wait.blocked_ns, held ? r->copy.blocked_ns : 0);
    } else {
        settle(w, r);
    }
    wait.shape = waits_for_late(r, sync) && wait.shape == (enum gs_shape)kind ? GS_SHAPE_LATER : wait.shape;
    w->each(w->self, &wait);
}

void gs_waits_call(struct gs_waits *w, const struct gs_copy *copy, const struct gs_sync *sync)
{
    if (sync) {
        on_sync(w, sync);
        return;
    }
    struct readback *r = readback_of(w, copy->process, copy->thread);
    settle(w, r);
    if (copy->async && (copy->direction == GS_DIR_D2H || copy->direction == GS_DIR_H2D)) {
        r->copy = *copy;
        r->open = true;
    } else {
        tell_copy(w, copy);
    }
}

struct gs_waits *gs_waits_new(struct gs_signer *signer, gs_wait_fn each, void *self)
{
    struct gs_waits *w = gs_realloc(NULL, 1, sizeof *w);
    *w = (struct gs_waits){.signer = signer, .each = each, .self = self};
    return w;
}

void gs_waits_free(struct gs_waits *w)
{
    for (size_t i = 0; i < w->readbacks_n; i++) {
        settle(w, &w->readbacks[i]);
    }
    gs_map_free(&w->threads);
    free(w->readbacks);
    free(w);
}
