/* Segments that PyTorch gave back to CUDA, and why: because somebody called empty_cache, because an
 * allocation had failed (a retry, which costs time and tells nobody), or because a share of the memory
 * was used up (garbage_collection_threshold). */
#include "analyzer/allocator/allocator_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/step/step.h"

static const int64_t group_ns = 10000000000; /* as in oom.c: rows further apart are different failures */

struct retry {
    uint32_t process, thread;
    int device;
    bool vmm, open;
    int64_t requested, first_ns, last_ns, blocked_ns; /* first: of the failure that is still open */
    int64_t freed_bytes;
    uint64_t freed;
};

struct line { /* flushes of one kind from one line */
    struct gs_cache_flush flush;
    int64_t first_ns, last_ns, blocked_ns;
    uint64_t blocks_made; /* by then */
    int64_t *times;
    size_t times_n, times_cap;
    uint32_t stack; /* of its first flush */
};

struct gs_flushes {
    struct gs_allocators *a;
    struct gs_builder *b;
    struct retry *retries;
    size_t retries_n, retries_cap;
    struct gs_map of_thread; /* → the latest retry of the thread of this process */
    size_t open;
    struct line *lines;
    size_t lines_n, lines_cap;
    struct gs_map of_line; /* process, device, site and kind */
    uint8_t *named;        /* by stack: 0 not looked at, 1 by Python's frames no, 2 calls empty_cache, 3 no */
    size_t named_cap;
    size_t owing; /* the line whose segments are being taken anew, SIZE_MAX none */
    int64_t owed;
    struct { /* freed by nobody's name: a collection, if an allocation of the same statement follows */
        uint32_t stack, process;
        int device;
        int64_t bytes, ns;
        uint64_t segments, blocks_made;
    } unnamed;
};

enum { TIMES = 1 << 16 };

/* --- who gave it back -------------------------------------------------------------------------- */

static bool python_says(const struct gs_frame *f)
{
    return f->function && f->file && strcmp(f->function, "empty_cache") == 0 && strstr(f->file, "torch");
}

/* C++ programs, and torch._C._cuda_emptyCache. */
static bool native_says(struct gs_flushes *f, uint32_t stack)
{
    return gs_frame_calling(gs_frame_named(f->b->run, stack), NULL, "emptyCache");
}

static bool frames_say(struct gs_flushes *f, uint32_t stack, bool python)
{
    const struct gs_frame *frame;
    for (; (frame = gs_stack_frame(f->b->run, stack)) != NULL; stack = gs_stack_parent(f->b->run, stack)) {
        if ((frame->kind == GS_FRAME_PYTHON) == python && (python ? python_says(frame) : native_says(f, stack))) {
            return true;
        }
    }
    return false;
}

/* A stack that was looked at without symbols is looked at again where they count. */
static bool by_name(struct gs_flushes *f, uint32_t stack, bool symbols)
{
    if (stack == GS_NONE) {
        return false;
    }
    uint8_t *named = GS_REACH(f->named, stack, f->named_cap);
    if (*named == 2 || *named == 3 || (*named == 1 && !symbols)) {
        return *named == 2;
    }
    /* Python's frames first: the names of native ones have to be looked up */
    const bool says = frames_say(f, stack, true) || (symbols && frames_say(f, stack, false));
    *named = says ? 2 : symbols ? 3 : 1;
    return says;
}

static uint32_t python_of(const struct gs_run *run, uint32_t stack)
{
    while (stack != GS_NONE && gs_stack_frame(run, stack)->kind != GS_FRAME_PYTHON) {
        stack = gs_stack_parent(run, stack);
    }
    return stack;
}

/* --- lines --------------------------------------------------------------------------------------- */

static size_t line_of(struct gs_flushes *f, uint32_t process, int device, uint32_t stack, enum gs_flush_kind kind)
{
    uint32_t site = gs_site_number(f->b, stack);
    uint64_t key =
        (uint64_t)site << 32 | (uint64_t)(process & 0xffffff) << 8 | (uint64_t)(device & 127) << 1 | (uint64_t)kind;
    uint32_t *at = gs_map_at(&f->of_line, key);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)f->lines_n;
        *GS_PUSH(f->lines, f->lines_n, f->lines_cap) =
            (struct line){.flush = {.process = process, .device = device, .kind = kind, .site = f->b->sites[site]},
                          .stack = stack,
                          .blocks_made = UINT64_MAX};
    }
    return *at;
}

/* One flush gives several segments back; what was allocated in between tells one from the next. */
static void add(struct gs_flushes *f, size_t at, int64_t ns, int64_t bytes, uint64_t segments, uint64_t blocks_made)
{
    struct line *l = &f->lines[at];
    if (l->blocks_made != blocks_made) {
        l->first_ns = l->flush.count ? l->first_ns : ns;
        l->last_ns = ns;
        l->flush.count++;
        l->blocks_made = blocks_made;
        if (l->times_n < TIMES) {
            *GS_PUSH(l->times, l->times_n, l->times_cap) = ns;
        }
        f->owed = 0;
    }
    l->flush.segments += segments;
    l->flush.bytes = gs_add(l->flush.bytes, bytes);
    f->owing = at;
    f->owed = gs_add(f->owed, bytes);
}

/* --- the replay ------------------------------------------------------------------------------------ */

static struct retry *open_on(struct gs_flushes *f, int device)
{
    for (size_t i = f->retries_n; f->open && i-- > 0;) {
        if (f->retries[i].open && f->retries[i].device == device) {
            return &f->retries[i];
        }
    }
    return NULL;
}

void gs_flushes_free(struct gs_flushes *f, const struct gs_lifetime *life)
{
    struct retry *r = open_on(f, life->device);
    const uint32_t stack = gs_run_free_stack(f->b->run, life);
    if (r) {
        r->freed++;
        r->freed_bytes = gs_add(r->freed_bytes, life->bytes);
        return;
    }
    if (by_name(f, stack, true)) {
        add(f, line_of(f, f->a->process, life->device, stack, GS_FLUSH_EMPTY_CACHE), life->free_ns, life->bytes, 1,
            f->a->blocks_made);
        return;
    }
    if (f->unnamed.stack != stack || f->unnamed.device != life->device || f->unnamed.blocks_made != f->a->blocks_made) {
        f->unnamed.segments = 0;
        f->unnamed.bytes = 0;
    }
    f->unnamed.stack = stack;
    f->unnamed.process = f->a->process;
    f->unnamed.device = life->device;
    f->unnamed.blocks_made = f->a->blocks_made;
    f->unnamed.ns = life->free_ns;
    f->unnamed.segments++;
    f->unnamed.bytes = gs_add(f->unnamed.bytes, life->bytes);
}

/* A threshold that is known to be off collects nothing. */
static void collected(struct gs_flushes *f, const struct gs_lifetime *life)
{
    const uint32_t here = python_of(f->b->run, life->stack);
    if (!f->unnamed.segments || f->unnamed.device != life->device || f->unnamed.process != f->a->process ||
        f->unnamed.blocks_made != f->a->blocks_made || here == GS_NONE ||
        here != python_of(f->b->run, f->unnamed.stack)) {
        return;
    }
    const struct gs_torch_settings s = gs_torch_settings(f->b->run, f->a->process);
    if (s.gc_threshold != 0) {
        add(f, line_of(f, f->a->process, life->device, f->unnamed.stack, GS_FLUSH_COLLECTION), f->unnamed.ns,
            f->unnamed.bytes, f->unnamed.segments, f->a->blocks_made);
    }
}

static void served(struct gs_flushes *f, const struct gs_lifetime *life)
{
    uint32_t at = gs_map_get(&f->of_thread, life->thread);
    struct retry *r = at == GS_MAP_NEW ? NULL : &f->retries[at];
    if (r && r->open && life->bytes >= r->requested && r->vmm == (life->space == GS_SPACE_VMM)) {
        r->blocked_ns = gs_add(r->blocked_ns, life->alloc_ns - r->first_ns);
        r->open = false;
        f->open--;
    }
}

void gs_flushes_alloc(struct gs_flushes *f, const struct gs_lifetime *life, bool own)
{
    if (f->open) {
        served(f, life);
    }
    if (!own) {
        return;
    }
    if (f->unnamed.segments) {
        collected(f, life);
        f->unnamed.segments = 0;
    }
    if (f->owing != SIZE_MAX && f->owed > 0 && f->lines[f->owing].flush.device == life->device) {
        const int64_t again = life->bytes < f->owed ? life->bytes : f->owed;
        f->lines[f->owing].flush.again = gs_add(f->lines[f->owing].flush.again, again);
        f->owed -= again;
    }
}

void gs_flushes_oom(struct gs_flushes *f, const struct gs_oom *oom)
{
    uint32_t *at = gs_map_at(&f->of_thread, oom->thread);
    struct retry *r = *at == GS_MAP_NEW ? NULL : &f->retries[*at];
    if (oom->layer != GS_LAYER_DEVICE) {
        if (r && r->open) {
            r->open = false;
            f->open--;
        }
        if (r) {
            r->requested = INT64_MAX; /* a later failure is another one */
        } else {
            *at = (uint32_t)f->retries_n;
            *GS_PUSH(f->retries, f->retries_n, f->retries_cap) = (struct retry){.device = -1, .requested = INT64_MAX};
        }
        return;
    }
    if (!r || r->requested != oom->requested_bytes || r->device != oom->device ||
        oom->time_ns - r->last_ns >= group_ns) {
        f->open -= r && r->open;
        if (r) {
            r->open = false;
        }
        *at = (uint32_t)f->retries_n;
        r = GS_PUSH(f->retries, f->retries_n, f->retries_cap);
        *r = (struct retry){.process = oom->process,
                            .thread = oom->thread,
                            .device = oom->device,
                            .vmm = oom->space == GS_SPACE_VMM,
                            .requested = oom->requested_bytes};
    }
    if (!r->open) {
        r->open = true;
        r->first_ns = oom->time_ns;
        f->open++;
    }
    r->last_ns = oom->time_ns;
}

/* What a call that gave segments back waited: its stack is the free's own; what it did before is told by
 * Python's frame. */
void gs_flushes_sync(struct gs_flushes *f, const struct gs_sync *sync)
{
    if (!f->lines_n || !by_name(f, sync->stack, false)) {
        return;
    }
    size_t at = line_of(f, sync->process, sync->device, sync->stack, GS_FLUSH_EMPTY_CACHE);
    f->lines[at].blocked_ns = gs_add(f->lines[at].blocked_ns, sync->blocked_ns);
}

void gs_flushes_process(struct gs_flushes *f, uint32_t process)
{
    (void)process;
    gs_map_free(&f->of_thread);
    f->of_thread = (struct gs_map){0};
    for (size_t i = 0; i < f->retries_n; i++) {
        f->retries[i].open = false;
    }
    f->open = 0;
    f->owing = SIZE_MAX;
    f->owed = 0;
    f->unnamed.segments = 0;
}

struct gs_flushes *gs_flushes_new(struct gs_allocators *a)
{
    struct gs_flushes *f = gs_realloc(NULL, 1, sizeof *f);
    memset(f, 0, sizeof *f);
    f->a = a;
    f->b = a->b;
    f->owing = SIZE_MAX;
    return f;
}

/* --- answers ----------------------------------------------------------------------------------------- */

/* Flushes in the steady steps; those between steps (an evaluation) are nobody's fault. */
static double per_step(const struct gs_flushes *f, const struct line *l)
{
    const struct gs_steps *s = gs_steps_of(f->b, l->flush.process);
    size_t in = 0;
    if (!s || s->n <= s->steady) {
        return NAN;
    }
    for (size_t i = 0; i < l->times_n; i++) {
        size_t at = gs_step_at(s, l->times[i]);
        in += at != SIZE_MAX && at >= s->steady;
    }
    return (double)in / (double)(s->n - s->steady) * ((double)l->flush.count / (double)l->times_n);
}

/* Who called it decides what to change: the program, a library that it calls, or PyTorch's own code. cuDNN's benchmark
 * empties the cache to measure algorithms (ATen/native/cudnn, Conv_v7.cpp and Conv_v8.cpp). */
static const char *remedy(struct gs_flushes *f, const struct line *l)
{
    const struct gs_frame *library = l->flush.site.inner;
    if (frames_say(f, l->stack, true) || gs_stack_calls(f->b->run, l->stack, "THCPModule_emptyCache")) {
        return library && library->function
                   ? gs_arena_printf(
                         f->b->arena,
                         "%s, which calls torch.cuda.empty_cache(), does so in each step: call it less often",
                         library->function)
                   : "take torch.cuda.empty_cache() out of the loop";
    }
    if (gs_stack_calls(f->b->run, l->stack, "cudnn")) {
        return "torch.backends.cudnn.benchmark tries the algorithms for each new shape and empties the cache for that: "
               "keep input "
               "shapes constant, or set it to False";
    }
    return "native code empties PyTorch's cache in each step";
}

/* What was given back once, or needed no more, was right to be given back. */
static void judge(struct gs_flushes *f, struct line *l)
{
    enum { OFTEN = 5 };
    struct gs_cache_flush *x = &l->flush;
    x->per_step = per_step(f, l);
    const bool often = isnan(x->per_step) ? x->count >= OFTEN : x->per_step >= 0.5 && x->count >= 3;
    x->matters = x->kind == GS_FLUSH_EMPTY_CACHE && often && x->again >= x->bytes / 2;
    if (x->matters) {
        x->advice = gs_arena_printf(f->b->arena,
                                    "%s: %llu times it gave %s back to CUDA in all, "
                                    "and %s of it was taken anew; PyTorch uses its cache again by itself",
                                    remedy(f, l), (unsigned long long)x->count, gs_bytes_text(f->b, (double)x->bytes),
                                    gs_bytes_text(f->b, (double)x->again));
    }
}

static int larger(const void *a, const void *b)
{
    const struct gs_cache_flush *x = a, *y = b;
    if (x->matters != y->matters) {
        return x->matters ? -1 : 1;
    }
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1)
                                : (x->first_s > y->first_s) - (x->first_s < y->first_s);
}

static void give_times(struct gs_flushes *f)
{
    struct gs_report *report = f->b->report;
    for (size_t i = 0; i < report->retries_n; i++) {
        struct gs_retry *to = &report->retries[i];
        to->blocked_s = NAN;
        to->freed_bytes = GS_UNKNOWN;
        for (size_t j = 0; j < f->retries_n; j++) {
            const struct retry *r = &f->retries[j];
            if (r->device == to->device && r->process == to->process && !r->open &&
                gs_seconds(r->last_ns) == to->time_s) {
                to->blocked_s = gs_seconds(r->blocked_ns);
                to->freed_bytes = r->freed_bytes;
            }
        }
    }
}

void gs_flushes_build(struct gs_flushes *f)
{
    struct gs_report *report = f->b->report;
    struct gs_cache_flush *work = gs_realloc(NULL, f->lines_n + 1, sizeof *work);
    size_t n = 0;
    for (size_t i = 0; i < f->lines_n; i++) {
        struct line *l = &f->lines[i];
        if (!l->flush.count) {
            continue; /* only waited: there was nothing to give back */
        }
        judge(f, l);
        l->flush.blocked_s = gs_seconds(l->blocked_ns);
        l->flush.first_s = gs_seconds(l->first_ns);
        l->flush.last_s = gs_seconds(l->last_ns);
        if (l->times_n) {
            int64_t *times = gs_arena_alloc(f->b->arena, l->times_n * sizeof *times);
            l->flush.times_ns = memcpy(times, l->times, l->times_n * sizeof *times);
            l->flush.times_n = l->times_n;
        }
        work[n++] = l->flush;
    }
    report->flushes = gs_list(f->b, work, n, sizeof *work, larger, &report->flushes_n, &report->flushes_total);
    free(work);
    give_times(f);
}

void gs_flushes_end(struct gs_flushes *f)
{
    for (size_t i = 0; i < f->lines_n; i++) {
        free(f->lines[i].times);
    }
    free(f->lines);
    free(f->retries);
    free(f->named);
    gs_map_free(&f->of_thread);
    gs_map_free(&f->of_line);
    free(f);
}
