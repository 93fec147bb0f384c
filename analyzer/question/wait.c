#include "analyzer/question/wait.h"

#include <stdlib.h>
#include "schema/event.h"

enum { ITEM_BYTES = 16 };

struct readback {    /* by thread: the copy that its next call may wait for */
    bool open, late; /* late: one was left to be waited for later, on that stream */
    uint64_t late_stream;
    struct run_copy copy;
};

struct question_waits {
    struct question_signer *signer;
    question_wait_fn each;
    void *self;
    struct map threads;
    struct readback *readbacks;
    size_t readbacks_n, readbacks_cap;
};

/* Does the copy itself keep the host? */
static bool holds(const struct run_copy *c)
{
    bool in = c->direction == GS_DIR_H2D, out = c->direction == GS_DIR_D2H;
    bool staged = in && c->bytes <= QUESTION_WAIT_STAGED_BYTES;
    return (in || out) && !staged && (!c->async || c->host_memory == GS_HOSTMEM_PAGEABLE);
}

static void report_copy(struct question_waits *w, const struct run_copy *c)
{
    bool in = c->direction == GS_DIR_H2D;
    if (holds(c)) {
        w->each(w->self,
                &(struct question_wait){.process = c->process,
                                        .thread = c->thread,
                                        .stack = c->stack,
                                        .api = c->api,
                                        .device = c->device,
                                        .kind = GS_SYNC_IMPLICIT,
                                        .shape = c->async ? (in ? QUESTION_SHAPE_LATE_IN : QUESTION_SHAPE_LATE_OUT)
                                                 : in     ? QUESTION_SHAPE_BLOCKING_IN
                                                          : QUESTION_SHAPE_BLOCKING_OUT,
                                        .start_ns = c->start_ns,
                                        .blocked_ns = c->blocked_ns,
                                        .bytes = c->bytes});
    }
}

static struct readback *readback_of(struct question_waits *w, uint32_t process, uint32_t thread)
{
    uint32_t *at = map_at(&w->threads, (uint64_t)process << 32 | thread);
    if (*at == MAP_NEW) {
        *at = (uint32_t)w->readbacks_n;
        *ARENA_PUSH(w->readbacks, w->readbacks_n, w->readbacks_cap) = (struct readback){0};
    }
    return &w->readbacks[*at];
}

static void settle(struct question_waits *w, struct readback *r)
{
    if (r->open) {
        report_copy(w, &r->copy);
        r->open = false;
        if (r->copy.direction == GS_DIR_D2H && !holds(&r->copy)) {
            r->late = true;
            r->late_stream = r->copy.stream;
        }
    }
}

/* Does this wait for a copy that was left to be waited for? */
static bool waits_for_late(struct readback *r, const struct run_sync *sync)
{
    bool same = sync->kind != GS_SYNC_STREAM || sync->handle == r->late_stream;
    bool waits = r->late && sync->kind < GS_SYNC_IMPLICIT && same;
    r->late = r->late && !waits;
    return waits;
}

/* One operation: both calls come from one line of Python, or neither from any. */
static bool one_operation(struct question_waits *w, const struct run_copy *c, const struct run_sync *sync)
{
    uint32_t line = question_sign_line(w->signer, c->stack);
    return sync->kind == GS_SYNC_STREAM && sync->handle == c->stream &&
           line == question_sign_line(w->signer, sync->stack) && (c->direction == GS_DIR_D2H || line != RUN_NONE);
}

static enum question_shape shape_of(const struct run_copy *c)
{
    if (c->direction == GS_DIR_D2H) {
        return c->bytes <= ITEM_BYTES ? QUESTION_SHAPE_SCALAR : QUESTION_SHAPE_READ;
    }
    return c->host_memory == GS_HOSTMEM_PINNED ? QUESTION_SHAPE_UP_PINNED : QUESTION_SHAPE_UP_PAGEABLE;
}

static void waits_on_sync(struct question_waits *w, const struct run_sync *sync)
{
    struct readback *r = readback_of(w, sync->process, sync->thread);
    unsigned kind = sync->kind <= GS_SYNC_IMPLICIT ? sync->kind : GS_SYNC_IMPLICIT;
    struct question_wait wait = {.process = sync->process,
                                 .thread = sync->thread,
                                 .stack = sync->stack,
                                 .api = sync->api,
                                 .device = sync->device,
                                 .kind = kind,
                                 .shape = (enum question_shape)kind,
                                 .start_ns = sync->start_ns,
                                 .blocked_ns = sync->blocked_ns};
    if (r->open && one_operation(w, &r->copy, sync)) {
        bool held = r->copy.direction == GS_DIR_D2H || holds(&r->copy);
        r->open = false;
        wait.shape = shape_of(&r->copy);
        wait.bytes = r->copy.bytes;
        wait.blocked_ns = arena_add_capped(wait.blocked_ns, held ? r->copy.blocked_ns : 0);
    } else {
        settle(w, r);
    }
    wait.shape = waits_for_late(r, sync) && wait.shape == (enum question_shape)kind ? QUESTION_SHAPE_LATER : wait.shape;
    w->each(w->self, &wait);
}

void question_waits_add(struct question_waits *w, const struct run_copy *copy, const struct run_sync *sync)
{
    if (sync) {
        waits_on_sync(w, sync);
        return;
    }
    struct readback *r = readback_of(w, copy->process, copy->thread);
    settle(w, r);
    if (copy->async && (copy->direction == GS_DIR_D2H || copy->direction == GS_DIR_H2D)) {
        r->copy = *copy;
        r->open = true;
    } else {
        report_copy(w, copy);
    }
}

struct question_waits *question_waits_new(struct question_signer *signer, question_wait_fn each, void *self)
{
    struct question_waits *w = arena_realloc(NULL, 1, sizeof *w);
    *w = (struct question_waits){.signer = signer, .each = each, .self = self};
    return w;
}

void question_waits_free(struct question_waits *w)
{
    for (size_t i = 0; i < w->readbacks_n; i++) {
        settle(w, &w->readbacks[i]);
    }
    map_free(&w->threads);
    free(w->readbacks);
    free(w);
}
