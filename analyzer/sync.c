/* Where the host waited for the GPU, by line, and what the wait looks like.
 *
 * Waits are rows of the sync table, and copies that held the host: blocking ones, and asynchronous
 * ones whose host side is pageable. A copy back to the host that the same thread's next call waits
 * for, on the same stream, is one wait: what .item(), .cpu() and .tolist() look like from below.
 */
#include "analyzer/question.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double matters_share = 0.02, matters_s = 0.001;
enum { ITEM_BYTES = 8, STAGED_BYTES = 64 << 10 };

enum pattern { PLAIN, ITEM, READBACK, COPY_IN, COPY_OUT, COPY_PAGEABLE, PATTERNS };

static const struct {
    const char *name, *advice;
} patterns[PATTERNS] = {
    [PLAIN] = {NULL, NULL},
    [ITEM] = {".item()", "keep sums on the GPU and read them back every N steps"},
    [READBACK] = {".cpu()",
                  "collect results on the GPU and copy once (.cpu(), .tolist(), .numpy(), "
                  "nonzero, boolean masks and print all wait)"},
    [COPY_IN] = {"blocking copy to the GPU",
                 "DataLoader(pin_memory=True) and .to(device, non_blocking=True)"},
    [COPY_OUT] = {"blocking copy from the GPU",
                  "copy less often, or into a pinned buffer and wait just before reading it"},
    [COPY_PAGEABLE] = {"asynchronous copy of pageable memory",
                       "pageable memory makes it wait: keep one pinned buffer for it"},
};

static const char *const kind_advice[] = {
    [GS_SYNC_STREAM] = "wait for a stream only where the host needs its result",
    [GS_SYNC_DEVICE] = "waiting for the whole GPU is for timing: wait for one stream or event",
    [GS_SYNC_CONTEXT] = "wait for one stream or event instead of the context",
    [GS_SYNC_EVENT] = "let a stream wait (cudaStreamWaitEvent) where the host needs no result",
    [GS_SYNC_IMPLICIT] = "allocate once and reuse, or cudaMallocAsync: each such call waits",
};

struct wait {
    uint32_t stack; /* after folding: the site */
    uint8_t kind, pattern;
    uint64_t count;
    int64_t blocked_ns;
    int64_t api_ns; /* blocked in `api` at most by one entry, for the choice when folding */
    const char *api;
};

struct waits {
    struct wait *list;
    size_t n, cap;
    struct gs_map index;
};

struct readback { /* by thread: the copy that its next call may wait for */
    bool open;
    struct gs_copy copy;
};

struct gs_syncs {
    struct gs_builder *b;
    struct waits by_stack;
    struct gs_map threads;
    struct readback *readbacks;
    size_t readbacks_n, readbacks_cap;
};

static struct wait *wait_at(struct waits *w, uint32_t stack, unsigned kind, enum pattern pattern)
{
    uint32_t *at = gs_map_at(&w->index, (uint64_t)stack << 16 | kind << 8 | pattern);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)w->n;
        *GS_PUSH(w->list, w->n, w->cap) = (struct wait){
            .stack = stack, .kind = (uint8_t)kind, .pattern = (uint8_t)pattern, .api_ns = -1};
    }
    return &w->list[*at];
}

static void add(struct gs_syncs *s, uint32_t process, uint32_t stack, unsigned kind,
                enum pattern pattern, uint32_t api, int64_t blocked_ns)
{
    struct wait *w = wait_at(&s->by_stack, stack, kind, pattern);
    w->count++;
    w->blocked_ns = gs_add(w->blocked_ns, blocked_ns);
    if (!w->api) {
        w->api = gs_run_api(s->b->run, process, api);
    }
}

static void add_copy(struct gs_syncs *s, const struct gs_copy *c)
{
    bool in = c->direction == GS_DIR_H2D, out = c->direction == GS_DIR_D2H;
    bool staged = in && c->bytes <= STAGED_BYTES; /* the driver takes a copy and returns */
    if ((!in && !out) || staged || (c->async && c->host_memory != GS_HOSTMEM_PAGEABLE)) {
        return;
    }
    add(s, c->process, c->stack, GS_SYNC_IMPLICIT,
        c->async ? COPY_PAGEABLE
        : in     ? COPY_IN
                 : COPY_OUT,
        c->api, c->blocked_ns);
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
    }
}

static void on_sync(struct gs_syncs *s, const struct gs_sync *sync)
{
    struct readback *r = readback_of(s, sync->process, sync->thread);
    unsigned kind = sync->kind <= GS_SYNC_IMPLICIT ? sync->kind : GS_SYNC_IMPLICIT;
    if (r->open && kind == GS_SYNC_STREAM && sync->handle == r->copy.stream) {
        r->open = false;
        add(s, sync->process, sync->stack, kind, r->copy.bytes <= ITEM_BYTES ? ITEM : READBACK,
            sync->api, gs_add(sync->blocked_ns, r->copy.blocked_ns));
        return;
    }
    settle(s, r);
    add(s, sync->process, sync->stack, kind, PLAIN, sync->api, sync->blocked_ns);
}

void gs_syncs_call(struct gs_syncs *s, const struct gs_copy *copy, const struct gs_sync *sync)
{
    if (sync) {
        on_sync(s, sync);
        return;
    }
    struct readback *r = readback_of(s, copy->process, copy->thread);
    settle(s, r);
    if (copy->async && copy->direction == GS_DIR_D2H) {
        r->copy = *copy;
        r->open = true;
    } else {
        add_copy(s, copy);
    }
}

struct gs_syncs *gs_syncs_start(struct gs_builder *b)
{
    struct gs_syncs *s = gs_realloc(NULL, 1, sizeof *s);
    *s = (struct gs_syncs){.b = b};
    return s;
}

static int longer(const void *a, const void *b)
{
    const struct gs_sync_site *x = a, *y = b;
    if (x->blocked_s != y->blocked_s) {
        return x->blocked_s > y->blocked_s ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return x->site.line - y->site.line;
}

static struct waits fold(struct gs_syncs *s)
{
    struct waits by_site = {0};
    for (size_t i = 0; i < s->by_stack.n; i++) {
        const struct wait *from = &s->by_stack.list[i];
        uint32_t site = gs_site_number(s->b, from->stack);
        struct wait *to = wait_at(&by_site, site, from->kind, from->pattern);
        to->count += from->count;
        to->blocked_ns = gs_add(to->blocked_ns, from->blocked_ns);
        if (from->blocked_ns > to->api_ns) {
            to->api_ns = from->blocked_ns;
            to->api = from->api;
        }
    }
    return by_site;
}

static struct gs_sync_site describe(const struct gs_builder *b, const struct wait *w, double wall)
{
    struct gs_sync_site site = {.kind = w->kind,
                                .count = w->count,
                                .blocked_s = (double)w->blocked_ns / 1e9,
                                .pattern = patterns[w->pattern].name,
                                .api = w->api ? w->api : "",
                                .site = b->sites[w->stack]};
    site.share = site.blocked_s / wall;
    site.matters = site.share >= matters_share && site.blocked_s >= matters_s;
    if (site.matters && !site.site.exit) { /* of a program that ends nothing is to be mended */
        site.advice = w->pattern == PLAIN ? kind_advice[w->kind] : patterns[w->pattern].advice;
    }
    return site;
}

void gs_syncs_finish(struct gs_syncs *s)
{
    struct gs_report *report = s->b->report;
    for (size_t i = 0; i < s->readbacks_n; i++) {
        settle(s, &s->readbacks[i]);
    }
    struct waits sites = fold(s);
    struct gs_sync_site *work = gs_realloc(NULL, sites.n, sizeof *work);
    double wall = gs_wall(s->b);
    for (size_t i = 0; i < sites.n; i++) {
        work[i] = describe(s->b, &sites.list[i], wall);
        report->sync_blocked_s += work[i].blocked_s;
    }
    report->sync_share = report->sync_blocked_s / wall;
    report->syncs =
        gs_list(s->b, work, sites.n, sizeof *work, longer, &report->syncs_n, &report->syncs_total);
    free(work);
    free(sites.list);
    gs_map_free(&sites.index);
    free(s->by_stack.list);
    gs_map_free(&s->by_stack.index);
    gs_map_free(&s->threads);
    free(s->readbacks);
    free(s);
}
