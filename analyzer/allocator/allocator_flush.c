/* Segments that PyTorch freed to CUDA, and why: because something called empty_cache, because an allocation had failed
 * (a retry, which costs time without notice), or because a share of the memory was used up
 * (garbage_collection_threshold). */
#include "analyzer/allocator/allocator_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/step/step.h"
#include "analyzer/base/sort.h"

struct retry {
    uint32_t process, thread;
    int device;
    bool vmm, open;
    int64_t requested, first_ns, last_ns, blocked_ns; /* first: of the failure that is still open */
    int64_t freed_bytes;
    uint64_t freed;
};

struct line { /* flushes of one kind from one line */
    struct allocator_cache_flush flush;
    int64_t first_ns, last_ns, blocked_ns;
    uint64_t blocks_made; /* by then */
    ARENA_LIST(int64_t, times);
    uint32_t stack; /* of its first flush */
};

struct allocator_flushes {
    struct allocator_replay *a;
    struct site_builder *b;
    ARENA_LIST(struct retry, retries);
    struct map of_thread; /* → the latest retry of the thread of this process */
    size_t open;
    ARENA_LIST(struct line, lines);
    struct map of_line; /* process, device, site and kind */
    uint8_t *named;     /* by stack: 0 not examined, 1 not by Python's frames, 2 calls empty_cache, 3 does not */
    size_t named_cap;
    size_t owing; /* the line whose segments are being allocated again, SIZE_MAX none */
    int64_t owed;
    struct { /* without a known cause: a collection, if an allocation of the same statement follows */
        uint32_t stack, process;
        int device;
        int64_t bytes, ns;
        uint64_t segments, blocks_made;
    } unnamed;
};

enum { TIMES = 1 << 16 };

static bool is_flush_python(const struct run_frame *f)
{
    return f->function && f->file && strcmp(f->function, "empty_cache") == 0 && strstr(f->file, "torch");
}

/* C++ programs, and torch._C._cuda_emptyCache. */
static bool is_flush_native(struct allocator_flushes *f, uint32_t stack)
{
    return run_frame_calling(run_frame_named(f->b->run, stack), NULL, "emptyCache");
}

static bool is_flush_stack(struct allocator_flushes *f, uint32_t stack, bool python)
{
    RUN_EACH_FRAME (frame, f->b->run, stack)
        if ((frame->kind == GS_FRAME_PYTHON) == python && (python ? is_flush_python(frame) : is_flush_native(f, stack)))
            return true;
    return false;
}

/* A stack that was examined without symbols is examined again if they matter. */
static bool is_flush_by_name(struct allocator_flushes *f, uint32_t stack, bool symbols)
{
    if (stack == RUN_NONE) return false;
    uint8_t *named = SITE_REACH(f->named, stack, f->named_cap);
    if (*named == 2 || *named == 3 || (*named == 1 && !symbols)) return *named == 2;
    /* Python's frames first: the names of native ones must be looked up */
    const bool is_flush = is_flush_stack(f, stack, true) || (symbols && is_flush_stack(f, stack, false));
    *named = is_flush ? 2 : symbols ? 3 : 1;
    return is_flush;
}

static size_t flush_line_of(struct allocator_flushes *f, uint32_t process, int device, uint32_t stack,
                            enum allocator_flush_kind kind)
{
    uint32_t site = site_index(f->b, stack);
    uint64_t key =
        (uint64_t)site << 32 | (uint64_t)(process & 0xffffff) << 8 | (uint64_t)(device & 127) << 1 | (uint64_t)kind;
    return MAP_INDEX_IN(
        &f->of_line, key, f->lines,
        (struct line){.flush = {.process = process, .device = device, .kind = kind, .site = site_of_call(f->b, stack)},
                      .stack = stack,
                      .blocks_made = UINT64_MAX});
}

/* One flush frees several segments; an allocation in between separates one flush from the next. */
static void add_flush(struct allocator_flushes *f, size_t at, int64_t ns, int64_t bytes, uint64_t segments,
                      uint64_t blocks_made)
{
    struct line *l = &f->lines[at];
    if (l->blocks_made != blocks_made) {
        l->first_ns = l->flush.count ? l->first_ns : ns;
        l->last_ns = ns;
        l->flush.count++;
        l->blocks_made = blocks_made;
        if (l->times_n < TIMES) *ARENA_ADD(l->times) = ns;
        f->owed = 0;
    }
    l->flush.segments += segments;
    l->flush.bytes = arena_add_capped(l->flush.bytes, bytes);
    f->owing = at;
    f->owed = arena_add_capped(f->owed, bytes);
}

static struct retry *open_on(struct allocator_flushes *f, int device)
{
    for (size_t i = f->retries_n; f->open && i-- > 0;)
        if (f->retries[i].open && f->retries[i].device == device) return &f->retries[i];
    return NULL;
}

void allocator_flushes_free(struct allocator_flushes *f, const struct run_lifetime *life)
{
    struct retry *r = open_on(f, life->device);
    const uint32_t stack = run_free_stack(f->b->run, life);
    if (r) {
        r->freed++;
        r->freed_bytes = arena_add_capped(r->freed_bytes, life->bytes);
        return;
    }
    if (is_flush_by_name(f, stack, true)) {
        add_flush(f, flush_line_of(f, f->a->process, life->device, stack, ALLOCATOR_FLUSH_EMPTY_CACHE), life->free_ns,
                  life->bytes, 1, f->a->blocks_made);
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
    f->unnamed.bytes = arena_add_capped(f->unnamed.bytes, life->bytes);
}

/* A threshold that is known to be off collects nothing. */
static void count_collected_segment(struct allocator_flushes *f, const struct run_lifetime *life)
{
    const uint32_t here = run_stack_python(f->b->run, life->stack);
    if (!f->unnamed.segments || f->unnamed.device != life->device || f->unnamed.process != f->a->process ||
        f->unnamed.blocks_made != f->a->blocks_made || here == RUN_NONE ||
        here != run_stack_python(f->b->run, f->unnamed.stack))
        return;
    const struct run_torch_settings s = run_torch_settings(f->b->run, f->a->process);
    if (s.gc_threshold != 0) {
        add_flush(f, flush_line_of(f, f->a->process, life->device, f->unnamed.stack, ALLOCATOR_FLUSH_COLLECTION),
                  f->unnamed.ns, f->unnamed.bytes, f->unnamed.segments, f->a->blocks_made);
    }
}

static void note_request_served(struct allocator_flushes *f, const struct run_lifetime *life)
{
    uint32_t at = map_get(&f->of_thread, life->thread);
    struct retry *r = at == MAP_NEW ? NULL : &f->retries[at];
    if (r && r->open && life->bytes >= r->requested && r->vmm == (life->space == GS_SPACE_VMM)) {
        r->blocked_ns = arena_add_capped(r->blocked_ns, life->alloc_ns - r->first_ns);
        r->open = false;
        f->open--;
    }
}

void allocator_flushes_alloc(struct allocator_flushes *f, const struct run_lifetime *life, bool own)
{
    if (f->open) note_request_served(f, life);
    if (!own) return;
    if (f->unnamed.segments) {
        count_collected_segment(f, life);
        f->unnamed.segments = 0;
    }
    if (f->owing != SIZE_MAX && f->owed > 0 && f->lines[f->owing].flush.device == life->device) {
        const int64_t again = life->bytes < f->owed ? life->bytes : f->owed;
        f->lines[f->owing].flush.again = arena_add_capped(f->lines[f->owing].flush.again, again);
        f->owed -= again;
    }
}

void allocator_flushes_oom(struct allocator_flushes *f, const struct run_oom *oom)
{
    uint32_t *at = map_at(&f->of_thread, oom->thread);
    struct retry *r = *at == MAP_NEW ? NULL : &f->retries[*at];
    if (oom->layer != GS_LAYER_DEVICE) {
        if (r && r->open) {
            r->open = false;
            f->open--;
        }
        if (r) {
            r->requested = INT64_MAX; /* a later failure is another one */
        } else {
            *at = (uint32_t)f->retries_n;
            *ARENA_ADD(f->retries) = (struct retry){.device = -1, .requested = INT64_MAX};
        }
        return;
    }
    if (!r || r->requested != oom->requested_bytes || r->device != oom->device ||
        (!r->open && oom->time_ns - r->last_ns >= ALLOCATOR_SAME_FAILURE_NS)) {
        f->open -= r && r->open;
        if (r) r->open = false;
        *at = (uint32_t)f->retries_n;
        r = ARENA_ADD(f->retries);
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

/* The wait of a call that freed segments: its stack is the free's own; what it did before is determined by Python's
 * frame. */
void allocator_flushes_sync(struct allocator_flushes *f, const struct run_sync *sync)
{
    if (!f->lines_n || !is_flush_by_name(f, sync->stack, false)) return;
    size_t at = flush_line_of(f, sync->process, sync->device, sync->stack, ALLOCATOR_FLUSH_EMPTY_CACHE);
    f->lines[at].blocked_ns = arena_add_capped(f->lines[at].blocked_ns, sync->blocked_ns);
}

void allocator_flushes_process(struct allocator_flushes *f)
{
    map_free(&f->of_thread);
    f->of_thread = (struct map){0};
    for (size_t i = 0; i < f->retries_n; i++) f->retries[i].open = false;
    f->open = 0;
    f->owing = SIZE_MAX;
    f->owed = 0;
    f->unnamed.segments = 0;
}

struct allocator_flushes *allocator_flushes_new(struct allocator_replay *a)
{
    struct allocator_flushes *f = arena_zeroed(1, sizeof *f);
    f->a = a;
    f->b = a->b;
    f->owing = SIZE_MAX;
    return f;
}

/* Flushes in the steady steps; those between steps (an evaluation) do not count. */
static double flushes_per_step(const struct allocator_flushes *f, const struct line *l)
{
    const struct step_list *s = step_list_of(f->b, l->flush.process);
    size_t in = 0;
    if (!s || s->n <= s->steady) return NAN;
    for (size_t i = 0; i < l->times_n; i++) {
        size_t at = step_at(s, l->times[i]);
        in += at != SIZE_MAX && at >= s->steady;
    }
    return (double)in / (double)(s->n - s->steady) * ((double)l->flush.count / (double)l->times_n);
}

/* The caller determines what to change: the program, a library that it calls, or PyTorch's own code. cuDNN's benchmark
 * empties the cache to measure algorithms (ATen/native/cudnn, Conv_v7.cpp and Conv_v8.cpp). */
static const char *flush_remedy(struct allocator_flushes *f, const struct line *l)
{
    const struct run_frame *library = l->flush.site.inner;
    if (is_flush_stack(f, l->stack, true) || run_stack_calls(f->b->run, l->stack, "THCPModule_emptyCache")) {
        return library && library->function
                   ? arena_printf(f->b->arena, "%s calls `torch.cuda.empty_cache()` in each step: call it less often",
                                  library->function)
                   : "take torch.cuda.empty_cache() out of the loop";
    }
    if (run_stack_calls(f->b->run, l->stack, "cudnn")) {
        return "torch.backends.cudnn.benchmark tries all algorithms for each new shape and empties the cache each "
               "time: "
               "keep input shapes constant, or set it to False";
    }
    return "native code empties PyTorch's cache in each step";
}

/* A flush that happened once, or freed memory that was not needed again, was right; so is one that makes room for a
 * server that wakes. */
static void judge_flush_line(struct allocator_flushes *f, struct line *l)
{
    enum { OFTEN = 5 };
    struct allocator_cache_flush *x = &l->flush;
    x->per_step = flushes_per_step(f, l);
    const bool often = isnan(x->per_step) ? x->count >= OFTEN : x->per_step >= 0.5 && x->count >= 3;
    size_t n;
    const bool sleeps = run_processes(f->b->run, &n)[x->process].sleeps;
    x->matters = x->kind == ALLOCATOR_FLUSH_EMPTY_CACHE && often && !sleeps && x->again >= x->bytes / 2;
    if (x->matters) {
        x->advice = arena_printf(f->b->arena,
                                 "%s: %llu calls freed %s of CUDA memory, of which %s was allocated again; PyTorch "
                                 "reuses its cache by itself",
                                 flush_remedy(f, l), (unsigned long long)x->count,
                                 site_bytes_text(f->b, (double)x->bytes), site_bytes_text(f->b, (double)x->again));
    }
}

SORT_ORDER(order_flushes_by_bytes, struct allocator_cache_flush,
           SORT_DOWN(x->matters, y->matters) ?: SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->first_s, y->first_s))

static void give_times(struct allocator_flushes *f)
{
    struct result_report *report = f->b->report;
    EACH_IN (to, report->retries) {
        to->blocked_s = NAN;
        to->freed_bytes = RUN_UNKNOWN;
        EACH_IN (r, f->retries) {
            if (r->device == to->device && r->process == to->process && !r->open &&
                site_seconds(r->last_ns) == to->time_s) {
                to->blocked_s = site_seconds(r->blocked_ns);
                to->freed_bytes = r->freed_bytes;
            }
        }
    }
}

void allocator_flushes_build(struct allocator_flushes *f)
{
    struct result_report *report = f->b->report;
    struct allocator_cache_flush *work = arena_realloc(NULL, f->lines_n + 1, sizeof *work);
    size_t n = 0;
    EACH_IN (l, f->lines) {
        if (!l->flush.count) continue; /* it only waited: there was nothing to free */
        judge_flush_line(f, l);
        l->flush.blocked_s = site_seconds(l->blocked_ns);
        l->flush.first_s = site_seconds(l->first_ns);
        l->flush.last_s = site_seconds(l->last_ns);
        if (l->times_n) {
            int64_t *times = arena_alloc(f->b->arena, l->times_n * sizeof *times);
            l->flush.times_ns = memcpy(times, l->times, l->times_n * sizeof *times);
            l->flush.times_n = l->times_n;
        }
        work[n++] = l->flush;
    }
    report->flushes =
        site_list(f->b, work, n, sizeof *work, order_flushes_by_bytes, &report->flushes_n, &report->flushes_total);
    free(work);
    give_times(f);
}

void allocator_flushes_end(struct allocator_flushes *f)
{
    for (size_t i = 0; i < f->lines_n; i++) free(f->lines[i].times);
    ARENA_RELEASE(f->lines, f->retries, f->named);
    MAP_RELEASE(&f->of_thread, &f->of_line);
    free(f);
}
