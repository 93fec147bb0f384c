/* PyTorch's allocator for a terminal: unusual states, and cache flushes. */
#include <math.h>
#include <stdio.h>
#include "analyzer/allocator/allocator.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

#define STREAMS 4

/* The relevant moment: the failure that ended the run, else the peak. */
static const struct allocator_state *allocator_state_of(const struct result_report *r, uint32_t process, int device)
{
    const struct allocator_state *best = NULL;
    bool fatal = false;
    for (size_t i = 0; i < r->ooms_n; i++)
        fatal = fatal || (r->ooms[i].fatal && r->ooms[i].process == process && r->ooms[i].device == device);
    EACH_IN (s, r->allocator)
        if (s->process == process && s->device == device &&
            s->moment == (fatal ? ALLOCATOR_MOMENT_OOM : ALLOCATOR_MOMENT_PEAK))
            best = s; /* of failures the last one */
    return best;
}

/* One stream's cached memory cannot be used by any other. */
static void print_streams(const struct draw_text *v, const struct allocator_state *s)
{
    char line[512], bytes[UNITS_TEXT];
    int64_t others = 0;
    size_t at = 0, n = s->by_stream_n;

    for (size_t i = 0; i < n; i++)
        others += s->by_stream[i].stream_known && s->by_stream[i].stream ? s->by_stream[i].reserved : 0;
    if (n < 2 || s->reserved <= 0 || others < s->reserved / 20) return;
    for (size_t i = 0; i < n && i < STREAMS && at < sizeof line; i++) {
        const struct allocator_pool_share *h = &s->by_stream[i];
        char name[32] = "the default one";
        if (!h->stream_known)
            snprintf(name, sizeof name, "streams unknown");
        else if (h->stream)
            snprintf(name, sizeof name, "0x%llx", (unsigned long long)h->stream);
        at += (size_t)snprintf(line + at, sizeof line - at, "%s%s by %s", i ? ", " : "", draw_bytes(bytes, h->reserved),
                               name);
    }
    if (at < sizeof line && n > STREAMS)
        at += (size_t)snprintf(line + at, sizeof line - at, ", the rest by %zu more", n - STREAMS);
    if (at < sizeof line) snprintf(line + at, sizeof line - at, "; a stream cannot use another stream's cache");
    draw_wrap(v, INDENT, "by stream   ", "%s", line);
}

static void private_pools(const struct draw_text *v, const struct allocator_state *s)
{
    int64_t reserved = 0, allocated = 0;

    EACH_IN (h, s->by_pool) {
        if (h->pool == ALLOCATOR_POOL_PRIVATE_SMALL || h->pool == ALLOCATOR_POOL_PRIVATE_LARGE) {
            reserved += h->reserved;
            allocated += h->allocated;
        }
    }
    if (!reserved) return;
    draw_wrap(v, INDENT, "pools       ",
              "%s reserved in private pools, %s of it in tensors; only their CUDA graphs or torch.cuda.MemPool can "
              "use the rest",
              DRAW_BYTES(reserved), DRAW_BYTES(allocated));
}

void view_text_allocator(const struct draw_text *v, uint32_t process, int device)
{
    const struct allocator_state *s = allocator_state_of(v->report, process, device);

    if (!s) return;
    if (s->pending != RUN_UNKNOWN && s->pending > 0)
        draw_wrap(v, INDENT, "pending     ",
                  "%s freed by the program, but another stream may still use it (record_stream)",
                  DRAW_BYTES(s->pending));
    print_streams(v, s);
    private_pools(v, s);
    if (s->backend == RUN_BACKEND_ASYNC)
        draw_wrap(v, INDENT, "allocator   ", "cudaMallocAsync: what CUDA's own pool caches is unknown");
    else if (s->expandable == RUN_YES)
        draw_wrap(v, INDENT, "allocator   ", "segments are expandable");
}

void view_text_flushes(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table t = {SITES(v), .head = {"times", "freed", "reserved again", "waited", "line"}};
    size_t shown = 0;

    for (size_t i = 0; i < r->flushes_n && shown < v->top; i++) {
        const struct allocator_cache_flush *f = &r->flushes[i];
        if (!f->matters && f->kind == ALLOCATOR_FLUSH_EMPTY_CACHE) continue; /* an occasional flush is right */
        char since[DRAW_SINCE];
        if (!shown++)
            draw_heading(v, TERMINAL_YELLOW, "Cached segments freed",
                         "%s: by empty_cache in a loop, or by the allocator's garbage collection",
                         draw_since(v, since));
        const char *cells[] = {UNITS_COUNT(f->count), DRAW_BYTES(f->bytes), DRAW_BYTES(f->again),
                               f->blocked_s > 0 ? UNITS_SECONDS(f->blocked_s) : ""};
        text_table_add(&t, cells, &f->site);
    }
    if (shown) text_table_print(&t, &v->term, INDENT, v->out);
}
