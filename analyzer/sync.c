/* Where the host waited for the GPU, by line, and what the wait looks like.
 *
 * Waits are rows of the sync table, and copies that held the host: blocking ones, and asynchronous
 * ones whose host side is pageable. A copy from the GPU that the same thread's next call waits for,
 * on the same stream, is one wait: what .item(), .cpu() and .tolist() look like from below. So is a
 * copy to the GPU where one line of Python did both: .to(device) without non_blocking.
 *
 * What a wait is called comes from signature.def, how often it comes from cadence.h: only what is
 * in the program's steps is accused.
 */
#include "analyzer/cadence.h"
#include "analyzer/signature.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double matters_share = 0.02, matters_s = 0.001;
enum {
    ITEM_BYTES = 16,
    STAGED_BYTES = 64 << 10, /* the driver takes a copy of so much and returns */
    MANY = 5,                /* small reads or copies, one after another at one line in a step */
    MASS = 30,               /* small copies anyhow: more than the batches of a step */
    LOOP = 10                /* calls that are a loop where no steps are known */
};

struct wait {
    uint32_t site, signature;
    uint8_t kind;
    uint64_t count;
    int64_t blocked_ns, bytes;
    uint64_t api_votes; /* for the commonest entry point, in one pass */
    const char *api;
    struct gs_cadence cadence;
};

struct readback {    /* by thread: the copy that its next call may wait for */
    bool open, late; /* late: one was left to be waited for later, on that stream */
    uint64_t late_stream;
    struct gs_copy copy;
};

struct gs_syncs {
    struct gs_builder *b;
    struct gs_signer *signer;
    struct gs_clock clock;
    struct wait *waits;
    size_t waits_n, waits_cap;
    struct gs_map index;
    struct gs_map threads;
    struct readback *readbacks;
    size_t readbacks_n, readbacks_cap;
};

static struct wait *wait_at(struct gs_syncs *s, uint32_t stack, unsigned kind, enum gs_shape shape)
{
    uint32_t site = gs_site_number(s->b, stack), signature = gs_sign(s->signer, stack, shape);
    uint32_t *at = gs_map_at(&s->index, (uint64_t)site << 32 | signature << 3 | kind);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)s->waits_n;
        *GS_PUSH(s->waits, s->waits_n, s->waits_cap) =
            (struct wait){.site = site, .signature = signature, .kind = (uint8_t)kind};
    }
    return &s->waits[*at];
}

struct call { /* what one wait is made of */
    uint32_t process, stack, api;
    unsigned kind;
    enum gs_shape shape;
    int64_t start_ns, blocked_ns, bytes;
};

static void add(struct gs_syncs *s, const struct call *c)
{
    struct wait *w = wait_at(s, c->stack, c->kind, c->shape);
    const char *api = gs_run_api(s->b->run, c->process, c->api);
    w->count++;
    w->blocked_ns = gs_add(w->blocked_ns, c->blocked_ns);
    w->bytes = gs_add(w->bytes, c->bytes);
    if (w->api_votes == 0) {
        w->api = api;
    }
    w->api_votes += w->api == api ? 1 : -1;
    gs_cadence_add(s->b, &s->clock, &w->cadence, c->process, c->start_ns, c->blocked_ns);
}

/* Does the copy itself keep the host? */
static bool holds(const struct gs_copy *c)
{
    bool in = c->direction == GS_DIR_H2D, out = c->direction == GS_DIR_D2H;
    bool staged = in && c->bytes <= STAGED_BYTES;
    return (in || out) && !staged && (!c->async || c->host_memory == GS_HOSTMEM_PAGEABLE);
}

static void add_copy(struct gs_syncs *s, const struct gs_copy *c)
{
    bool in = c->direction == GS_DIR_H2D;
    if (holds(c)) {
        add(s, &(struct call){.process = c->process,
                              .stack = c->stack,
                              .api = c->api,
                              .kind = GS_SYNC_IMPLICIT,
                              .shape = c->async ? (in ? GS_SHAPE_LATE_IN : GS_SHAPE_LATE_OUT)
                                       : in     ? GS_SHAPE_BLOCKING_IN
                                                : GS_SHAPE_BLOCKING_OUT,
                              .start_ns = c->start_ns,
                              .blocked_ns = c->blocked_ns,
                              .bytes = c->bytes});
    }
}

static struct readback *readback_of(struct gs_syncs *s, uint32_t process, uint32_t thread)
{
    uint32_t *at = gs_map_at(&s->threads, (uint64_t)process << 32 | thread);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)s->readbacks_n;
        *GS_PUSH(s->readbacks, s->readbacks_n, s->readbacks_cap) = (struct readback){0};
    }
    return &s->readbacks[*at];
}

static void settle(struct gs_syncs *s, struct readback *r)
{
    if (r->open) {
        add_copy(s, &r->copy);
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
static bool one_operation(struct gs_syncs *s, const struct gs_copy *c, const struct gs_sync *w)
{
    uint32_t line = gs_sign_line(s->signer, c->stack);
    return w->kind == GS_SYNC_STREAM && w->handle == c->stream &&
           line == gs_sign_line(s->signer, w->stack) &&
           (c->direction == GS_DIR_D2H || line != GS_NONE);
}

static enum gs_shape shape_of(const struct gs_copy *c)
{
    if (c->direction == GS_DIR_D2H) {
        return c->bytes <= ITEM_BYTES ? GS_SHAPE_SCALAR : GS_SHAPE_READ;
    }
    return c->host_memory == GS_HOSTMEM_PINNED ? GS_SHAPE_UP_PINNED : GS_SHAPE_UP_PAGEABLE;
}

static void on_sync(struct gs_syncs *s, const struct gs_sync *sync)
{
    struct readback *r = readback_of(s, sync->process, sync->thread);
    unsigned kind = sync->kind <= GS_SYNC_IMPLICIT ? sync->kind : GS_SYNC_IMPLICIT;
    struct call call = {.process = sync->process,
                        .stack = sync->stack,
                        .api = sync->api,
                        .kind = kind,
                        .shape = (enum gs_shape)kind,
                        .start_ns = sync->start_ns,
                        .blocked_ns = sync->blocked_ns};
    if (r->open && one_operation(s, &r->copy, sync)) {
        bool held = r->copy.direction == GS_DIR_D2H || holds(&r->copy);
        r->open = false;
        call.shape = shape_of(&r->copy);
        call.bytes = r->copy.bytes;
        call.blocked_ns = gs_add(call.blocked_ns, held ? r->copy.blocked_ns : 0);
    } else {
        settle(s, r);
    }
    call.shape =
        waits_for_late(r, sync) && call.shape == (enum gs_shape)kind ? GS_SHAPE_LATER : call.shape;
    add(s, &call);
}

void gs_syncs_call(struct gs_syncs *s, const struct gs_copy *copy, const struct gs_sync *sync)
{
    if (sync) {
        on_sync(s, sync);
        return;
    }
    struct readback *r = readback_of(s, copy->process, copy->thread);
    settle(s, r);
    if (copy->async && (copy->direction == GS_DIR_D2H || copy->direction == GS_DIR_H2D)) {
        r->copy = *copy;
        r->open = true;
    } else {
        add_copy(s, copy);
    }
}

struct gs_syncs *gs_syncs_start(struct gs_builder *b)
{
    struct gs_syncs *s = gs_realloc(NULL, 1, sizeof *s);
    *s = (struct gs_syncs){.b = b, .signer = gs_signer_new(b->run, b->arena)};
    return s;
}

/* What matters first: of all others, how long they took says little. */
static int longer(const void *a, const void *b)
{
    const struct gs_sync_site *x = a, *y = b;
    if (x->matters != y->matters) {
        return x->matters ? -1 : 1;
    }
    if (x->blocked_s != y->blocked_s) {
        return x->blocked_s > y->blocked_s ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return x->site.line - y->site.line;
}

/* Where no steps are known. PyTorch sets up and loads with waits of its own, so that there one that
 * came by a few times, or only at the beginning, says nothing; on a simulated GPU time says
 * nothing. */
static bool long_enough(const struct gs_builder *b, const struct wait *w, double share)
{
    double blocked = (double)w->blocked_ns / 1e9, run = (double)gs_run_duration(b->run);
    bool loop =
        w->count >= LOOP && (double)(w->cadence.last_ns - w->cadence.first_ns) >= 0.25 * run;
    return share >= matters_share && blocked >= matters_s &&
           (!gs_has_tensors(b) || (loop && !b->report->simulated));
}

/* The same thing to do for each call may be one thing to do for all of a step. */
static const char *advise(const struct wait *w, const struct gs_pace *pace,
                          struct gs_signature signature)
{
    bool many = pace->calls_per_step >= MANY && pace->bunched;
    bool mass = many || pace->calls_per_step >= MASS;
    bool up = signature.up && w->bytes <= (int64_t)w->count * STAGED_BYTES;
    return many && signature.advice == gs_advice_one_item() ? gs_advice_many_items()
           : mass && up                                     ? gs_advice_small_copies()
                                                            : signature.advice;
}

static struct gs_sync_site describe(struct gs_syncs *s, const struct wait *w, double wall)
{
    const struct gs_builder *b = s->b;
    struct gs_signature signature = gs_signed(s->signer, w->signature);
    struct gs_sync_site site = {.kind = w->kind,
                                .count = w->count,
                                .blocked_s = (double)w->blocked_ns / 1e9,
                                .pattern = signature.name,
                                .api = w->api ? w->api : "",
                                .site = b->sites[w->site]};
    site.pace = gs_pace_of(&w->cadence, &site.site);
    site.share = site.blocked_s / wall;
    site.matters = gs_pace_costs(&site.pace, b->report->simulated, signature.by_count,
                                 long_enough(b, w, site.share));
    if (site.matters && !site.site.exit) { /* of a program that ends nothing is to be mended */
        site.advice = advise(w, &site.pace, signature);
    }
    return site;
}

/* A loop that copies to the GPU and reads nothing back, and of which no more is known, loads. */
static void spare_loading(struct gs_syncs *s, struct gs_sync_site *sites)
{
    bool reads = !gs_has_tensors(s->b); /* others than PyTorch do load in a loop of the whole run */
    for (size_t i = 0; i < s->waits_n; i++) {
        reads = reads || (sites[i].pace.phase == GS_PHASE_STEP &&
                          !gs_signed(s->signer, s->waits[i].signature).up);
    }
    for (size_t i = 0; i < s->waits_n && !reads; i++) {
        if (sites[i].pace.loop) {
            sites[i].matters = false;
            sites[i].advice = NULL;
        }
    }
}

void gs_syncs_finish(struct gs_syncs *s)
{
    struct gs_report *report = s->b->report;
    for (size_t i = 0; i < s->readbacks_n; i++) {
        settle(s, &s->readbacks[i]);
    }
    struct gs_sync_site *work = gs_realloc(NULL, s->waits_n, sizeof *work);
    double wall = gs_wall(s->b);
    for (size_t i = 0; i < s->waits_n; i++) {
        work[i] = describe(s, &s->waits[i], wall);
        report->sync_blocked_s += work[i].blocked_s;
    }
    report->sync_share = report->sync_blocked_s / wall;
    spare_loading(s, work);
    report->syncs = gs_list(s->b, work, s->waits_n, sizeof *work, longer, &report->syncs_n,
                            &report->syncs_total);
    free(work);
    free(s->waits);
    gs_map_free(&s->index);
    gs_map_free(&s->threads);
    free(s->readbacks);
    gs_signer_free(s->signer);
    free(s);
}
