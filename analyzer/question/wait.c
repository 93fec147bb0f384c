#include "analyzer/question/wait.h"

#include "schema/event.h"

enum { ITEM_BYTES = 16 };

struct readback {    /* by thread: the copy for which its next call may wait */
    bool open, late; /* late: a copy is pending on that stream, for a later wait */
    bool kept;       /* a call of this thread began when all rows were kept: no later one lost its copy */
    uint64_t late_stream;
    struct run_copy copy;
};

/* The form of a call path's waits, for those whose rows were removed. A removal may also separate a copy from its wait:
 * at its time or at a moment that stays complete. */
struct form {
    enum question_shape shape;
    uint32_t copy;   /* the copy that they wait for: its stack, RUN_NONE */
    bool taken;      /* its copies were looked for */
    uint64_t lone;   /* waits in `lone_waits` that were not passed yet */
    uint64_t copies; /* removed ones that are not yet part of a wait; their sums */
    int64_t bytes, ns;
    uint64_t ahead; /* copies that are part of removed waits beyond one for each */
};
enum { COPY_REMOVED = 1, WAIT_REMOVED = 2 };

struct question_waits {
    struct run *run;
    ARENA_ROWS(struct run_removed, removed); /* those of copies and waits; NULL: none */
    struct map form_of;                      /* process, stack of a wait → form, if any row was removed */
    ARENA_LIST(struct form, forms);
    struct map removed_at;                        /* process, line → COPY_REMOVED, WAIT_REMOVED */
    ARENA_LIST(struct question_wait, lone_waits); /* those whose copy may have been removed */
    ARENA_LIST(struct run_copy, lone_copies);     /* those whose wait may have been removed */
    struct question_signer *signer;
    question_wait_fn each;
    void *self;
    struct map threads;
    ARENA_LIST(struct readback, readbacks);
};

/* Does the copy itself block the host? */
static bool copy_holds_host(const struct run_copy *c)
{
    bool in = c->direction == GS_DIR_H2D, out = c->direction == GS_DIR_D2H;
    bool staged = in && c->bytes <= QUESTION_WAIT_STAGED_BYTES;
    return (in || out) && !staged && (!c->async || c->host_memory == GS_HOSTMEM_PAGEABLE);
}

static void report_copies(struct question_waits *w, const struct run_copy *c, uint64_t count, int64_t blocked_ns,
                          int64_t bytes)
{
    const bool in = c->direction == GS_DIR_H2D, pinned = c->host_memory == GS_HOSTMEM_PINNED;
    if (copy_holds_host(c)) {
        w->each(w->self,
                &(struct question_wait){.process = c->process,
                                        .thread = c->thread,
                                        .stack = c->stack,
                                        .api = c->api,
                                        .device = c->device,
                                        .kind = GS_SYNC_IMPLICIT,
                                        .shape = c->async ? (in ? QUESTION_SHAPE_LATE_IN : QUESTION_SHAPE_LATE_OUT)
                                                 : pinned ? (in ? QUESTION_SHAPE_PINNED_IN : QUESTION_SHAPE_PINNED_OUT)
                                                 : in     ? QUESTION_SHAPE_BLOCKING_IN
                                                          : QUESTION_SHAPE_BLOCKING_OUT,
                                        .start_ns = c->start_ns,
                                        .count = count,
                                        .blocked_ns = blocked_ns,
                                        .bytes = bytes});
    }
}

static void report_copy(struct question_waits *w, const struct run_copy *c)
{
    report_copies(w, c, 1, c->blocked_ns, c->bytes);
}

static struct readback *readback_of(struct question_waits *w, uint32_t process, uint32_t thread)
{
    return MAP_ROW_IN(&w->threads, (uint64_t)process << 32 | thread, w->readbacks, (struct readback){0});
}

/* Does the line have removed calls of that kind? */
static bool was_removed(struct question_waits *w, uint32_t process, uint32_t stack, uint32_t what)
{
    if (!w->removed_n) return false;
    const uint32_t at = map_get(&w->removed_at, (uint64_t)process << 32 | question_sign_line(w->signer, stack));
    return at != MAP_NEW && at & what;
}

/* Every call that began since then is recorded. */
static bool is_in_kept_time(const struct question_waits *w, uint32_t process, int64_t ns)
{
    return ns >= run_process_at(w->run, process)->kept_from_ns;
}

static void settle_readback(struct question_waits *w, struct readback *r)
{
    if (r->open) {
        r->open = false;
        if (!is_in_kept_time(w, r->copy.process, r->copy.start_ns) &&
            was_removed(w, r->copy.process, r->copy.stack, WAIT_REMOVED)) {
            *ARENA_ADD(w->lone_copies) = r->copy;
            return;
        }
        report_copy(w, &r->copy);
        if (r->copy.direction == GS_DIR_D2H && !copy_holds_host(&r->copy)) {
            r->late = true;
            r->late_stream = r->copy.stream;
        }
    }
}

/* Does this wait for a pending copy? */
static bool waits_for_late(struct readback *r, const struct run_sync *sync)
{
    bool same = sync->kind != GS_SYNC_STREAM || sync->handle == r->late_stream;
    bool waits = r->late && sync->kind < GS_SYNC_IMPLICIT && same;
    r->late = r->late && !waits;
    return waits;
}

/* One operation: both calls come from one line of Python, or both from none. If the wait's stream is unknown, both come
 * from one call path, which ends in PyTorch's operator. */
static bool one_operation(struct question_waits *w, const struct run_copy *c, const struct run_sync *sync)
{
    uint32_t line = question_sign_line(w->signer, c->stack);
    if (sync->kind != GS_SYNC_STREAM) return false;
    if (sync->handle == GS_STREAM_UNKNOWN) return c->stack != RUN_NONE && c->stack == sync->stack;
    return sync->handle == c->stream && line == question_sign_line(w->signer, sync->stack) &&
           (c->direction == GS_DIR_D2H || line != RUN_NONE);
}

static enum question_shape copy_shape_of(const struct run_copy *c)
{
    if (c->direction == GS_DIR_D2H) return c->bytes <= ITEM_BYTES ? QUESTION_SHAPE_SCALAR : QUESTION_SHAPE_READ;
    return c->host_memory == GS_HOSTMEM_PINNED ? QUESTION_SHAPE_UP_PINNED : QUESTION_SHAPE_UP_PAGEABLE;
}

static struct form *note_form(struct question_waits *w, uint32_t process, uint32_t stack, enum question_shape shape,
                              uint32_t copy)
{
    uint32_t *at = map_at(&w->form_of, (uint64_t)process << 32 | stack);
    const bool new = *at == MAP_NEW;
    if (new) {
        *at = (uint32_t)w->forms_n;
        *ARENA_ADD(w->forms) = (struct form){.copy = RUN_NONE};
    }
    struct form *form = &w->forms[*at];
    if (new || copy != RUN_NONE) form->shape = shape, form->copy = copy;
    return form;
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
                                 .count = 1,
                                 .blocked_ns = sync->blocked_ns};
    uint32_t copy = RUN_NONE;
    if (r->open && one_operation(w, &r->copy, sync)) {
        bool held = r->copy.direction == GS_DIR_D2H || copy_holds_host(&r->copy);
        r->open = false;
        wait.shape = copy_shape_of(&r->copy);
        wait.bytes = r->copy.bytes;
        wait.blocked_ns = arena_add_capped(wait.blocked_ns, held ? r->copy.blocked_ns : 0);
        copy = r->copy.stack;
    } else {
        settle_readback(w, r);
    }
    wait.shape = waits_for_late(r, sync) && wait.shape == (enum question_shape)kind ? QUESTION_SHAPE_LATER : wait.shape;
    struct form *form = w->removed_n ? note_form(w, wait.process, wait.stack, wait.shape, copy) : NULL;
    const bool lost = !r->kept && kind == GS_SYNC_STREAM && copy == RUN_NONE;
    r->kept = r->kept || is_in_kept_time(w, sync->process, sync->start_ns);
    if (lost && was_removed(w, wait.process, wait.stack, COPY_REMOVED)) {
        form->lone++;
        *ARENA_ADD(w->lone_waits) = wait;
    } else {
        w->each(w->self, &wait);
    }
}

void question_waits_add(struct question_waits *w, const struct run_copy *copy, const struct run_sync *sync)
{
    if (sync) {
        waits_on_sync(w, sync);
        return;
    }
    struct readback *r = readback_of(w, copy->process, copy->thread);
    settle_readback(w, r);
    r->kept = r->kept || is_in_kept_time(w, copy->process, copy->start_ns);
    if (copy->async && (copy->direction == GS_DIR_D2H || copy->direction == GS_DIR_H2D)) {
        r->copy = *copy;
        r->open = true;
    } else {
        report_copy(w, copy);
    }
}

static void list_removed(struct question_waits *w)
{
    size_t n, cap = 0;
    const struct run_removed *all = run_removed(w->run, &n);
    for (size_t i = 0; i < n; i++) {
        if (all[i].what != GS_REMOVED_COPY && all[i].what != GS_REMOVED_SYNC) continue;
        *ARENA_PUSH(w->removed, w->removed_n, cap) = all[i];
        const uint32_t line = question_sign_line(w->signer, all[i].stack);
        uint32_t *at = map_at(&w->removed_at, (uint64_t)all[i].process << 32 | line);
        *at = (*at == MAP_NEW ? 0 : *at) | (all[i].what == GS_REMOVED_COPY ? COPY_REMOVED : WAIT_REMOVED);
    }
}

/* As a call of that size class. */
static struct run_copy copy_of(const struct run_removed *r)
{
    static const int64_t bytes[4] = {ITEM_BYTES, QUESTION_WAIT_STAGED_BYTES, QUESTION_WAIT_STAGED_BYTES + 1,
                                     QUESTION_WAIT_STAGED_BYTES + 1};
    return (struct run_copy){.process = r->process,
                             .stack = r->stack,
                             .device = (int16_t)r->device,
                             .direction = r->direction,
                             .host_memory = r->host_memory,
                             .async = r->async,
                             .api = r->api,
                             .bytes = bytes[r->size & 3],
                             .start_ns = RUN_UNKNOWN};
}

static uint64_t count_lone_copies(const struct question_waits *w, uint32_t process, uint32_t stack)
{
    uint64_t n = 0;
    EACH_IN (c, w->lone_copies) n += c->stack == stack && c->process == process;
    return n;
}

/* Which copy do the waits of this call path wait for? Without a recorded pair of theirs: for one of the same line that
 * occurs as often. `removed`: how many waits were removed. */
static void find_copy_of_form(struct question_waits *w, struct form *form, uint32_t process, uint32_t stack,
                              uint64_t removed)
{
    EACH_IN (r, w->removed) {
        if (form->copy != RUN_NONE) return;
        if (r->what != GS_REMOVED_COPY || !r->count || r->process != process || !r->async) continue;
        if (r->direction != GS_DIR_D2H && r->direction != GS_DIR_H2D) continue;
        const struct run_copy c = copy_of(r);
        const struct run_sync s = {.stack = stack, .kind = GS_SYNC_STREAM, .handle = c.stream};
        if (r->count + count_lone_copies(w, process, r->stack) == removed + form->lone && one_operation(w, &c, &s))
            form->copy = r->stack, form->shape = copy_shape_of(&c);
    }
}

static void add_copies_to_form(struct form *form, const struct run_copy *c, uint64_t count, int64_t bytes, int64_t ns)
{
    const bool held = c->direction == GS_DIR_D2H || copy_holds_host(c);
    form->copies += count;
    form->bytes = arena_add_capped(form->bytes, bytes);
    form->ns = arena_add_capped(form->ns, held ? ns : 0);
}

/* The removed copies for which waits of this form waited, and, for removed waits that lack theirs, recorded ones. */
static void take_copies(struct question_waits *w, struct form *form, uint32_t process, uint64_t waits)
{
    EACH_IN (r, w->removed) {
        if (form->copy == RUN_NONE || r->what != GS_REMOVED_COPY || r->process != process || !r->async) continue;
        if (r->stack != form->copy || !r->count) continue;
        const struct run_copy copy = copy_of(r);
        add_copies_to_form(form, &copy, r->count, r->bytes, r->ns);
        r->count = 0;
    }
    EACH_IN (c, w->lone_copies) {
        if (form->copies >= waits || c->stack != form->copy || c->process != process) continue;
        add_copies_to_form(form, c, 1, c->bytes, c->blocked_ns);
        c->stack = RUN_NONE;
        c->direction = GS_DIR_D2D; /* blocks nobody by itself */
    }
    form->taken = true;
}

/* So many of the form's copies become part of this wait. */
static void add_copies_to_wait(struct form *form, uint64_t n, struct question_wait *wait)
{
    const bool all = n >= form->copies;
    const int64_t bytes = all ? form->bytes : (int64_t)((double)form->bytes / (double)form->copies * (double)n);
    const int64_t ns = all ? form->ns : (int64_t)((double)form->ns / (double)form->copies * (double)n);
    wait->bytes = arena_add_capped(wait->bytes, bytes);
    wait->blocked_ns = arena_add_capped(wait->blocked_ns, ns);
    form->copies -= all ? form->copies : n;
    form->bytes -= bytes;
    form->ns -= ns;
}

static void pass_removed_sync(struct question_waits *w, const struct run_removed *sync)
{
    const unsigned kind = sync->kind <= GS_SYNC_IMPLICIT ? sync->kind : GS_SYNC_IMPLICIT;
    struct form *form = note_form(w, sync->process, sync->stack, (enum question_shape)kind, RUN_NONE);
    struct question_wait wait = {.process = sync->process,
                                 .stack = sync->stack,
                                 .api = sync->api,
                                 .device = sync->device,
                                 .kind = kind,
                                 .count = sync->count,
                                 .start_ns = RUN_UNKNOWN,
                                 .blocked_ns = sync->ns};
    if (kind == GS_SYNC_STREAM) find_copy_of_form(w, form, sync->process, sync->stack, sync->count);
    const uint64_t need = sync->count > form->ahead ? sync->count - form->ahead : 0;
    take_copies(w, form, sync->process, need);
    const uint64_t rest = form->copies > need ? form->copies - need : 0;
    const uint64_t n = form->copies - (rest < form->lone ? rest : form->lone); /* the others are of lone waits */
    add_copies_to_wait(form, n, &wait);
    form->ahead = form->ahead + n > sync->count ? form->ahead + n - sync->count : 0;
    wait.shape = form->shape;
    w->each(w->self, &wait);
}

static void pass_lone_wait(struct question_waits *w, struct question_wait *wait)
{
    struct form *form = note_form(w, wait->process, wait->stack, wait->shape, RUN_NONE);
    if (!form->taken) {
        find_copy_of_form(w, form, wait->process, wait->stack, 0);
        take_copies(w, form, wait->process, 0);
    }
    if (form->copies) {
        wait->shape = form->shape;
        add_copies_to_wait(form, (form->copies + form->lone - 1) / form->lone, wait);
    }
    form->lone--;
    w->each(w->self, wait);
}

static void pass_removed_calls(struct question_waits *w)
{
    EACH_IN (r, w->removed)
        if (r->what == GS_REMOVED_SYNC) pass_removed_sync(w, r);
    EACH_IN (wait, w->lone_waits) pass_lone_wait(w, wait);
    EACH_IN (c, w->lone_copies) report_copy(w, c);
    EACH_IN (r, w->removed) {
        if (r->what == GS_REMOVED_COPY && r->count) {
            struct run_copy copy = copy_of(r);
            report_copies(w, &copy, r->count, r->ns, r->bytes);
        }
    }
}

struct question_waits *question_waits_new(struct run *run, struct question_signer *signer, question_wait_fn each,
                                          void *self)
{
    struct question_waits *w =
        ARENA_NEW(struct question_waits, .run = run, .signer = signer, .each = each, .self = self);
    list_removed(w);
    return w;
}

void question_waits_free(struct question_waits *w)
{
    for (size_t i = 0; i < w->readbacks_n; i++) settle_readback(w, &w->readbacks[i]);
    pass_removed_calls(w);
    MAP_RELEASE(&w->threads, &w->form_of, &w->removed_at);
    ARENA_RELEASE(w->readbacks, w->forms, w->lone_waits, w->lone_copies, w->removed, w);
}
