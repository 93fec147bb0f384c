/* Why an allocation failed. A table of causes, each a rule over the facts, tried in order; the
 * first that holds is the verdict, `capacity` is what remains. Each rule's sentence carries the
 * numbers it rests on.
 */
#include "analyzer/question.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct gs_oom_facts facts;

static const double leak_share = 0.5, foreign_share = 0.2, preallocated_share = 0.6,
                    outside_share = 0.5;
enum { GRAIN = 2 << 20 }; /* CUDA hands out device memory in these */
static const int64_t context_most = (int64_t)1
                                    << 30; /* a context with its kernels seldom costs more */

static bool known(int64_t value)
{
    return value != GS_UNKNOWN;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What a process pays for being on the device at all, as far as it can be told from the others'
 * use: at most a GiB, and at most a quarter of a small device. */
static int64_t context_of(const facts *f)
{
    int64_t most = known(f->total) ? least(context_most, f->total / 4) : context_most;
    return known(f->outside_first) ? least(f->outside_first, most) : most;
}

/* NVML's word where there is one; else what is in use beyond our own calls and a context's cost. */
static int64_t foreign_of(const facts *f)
{
    if (f->said && known(f->said->other_bytes)) {
        return f->said->other_bytes;
    }
    return known(f->outside) && f->outside > context_of(f) ? f->outside - context_of(f) : 0;
}

static int64_t cached_of(const facts *f)
{
    return known(f->tensor_reserved) && known(f->tensor_allocated) &&
                   f->tensor_reserved > f->tensor_allocated
               ? f->tensor_reserved - f->tensor_allocated
               : 0;
}

/* --- the rules -----------------------------------------------------------------------------------
 */

static bool is_pinned(const facts *f)
{
    return f->row->layer == GS_LAYER_DEVICE && f->row->space == GS_SPACE_PINNED;
}

static bool is_oversized(const facts *f)
{
    return known(f->total) && f->requested > f->total - context_of(f);
}

/* The driver had enough and refused: no range of it was large enough, or something forbids it. */
static bool is_driver_fragmentation(const facts *f)
{
    return f->device_failed && known(f->free) && f->free >= f->requested + GRAIN;
}

/* PyTorch refused by itself, without asking CUDA, while the device had room. */
static bool is_cap(const facts *f)
{
    return !f->device_failed && f->row->layer == GS_LAYER_TENSOR && known(f->free) &&
           f->free >= f->requested;
}

static bool is_leak(const facts *f)
{
    return f->live > 0 && (double)f->growing >= leak_share * (double)f->live &&
           f->growing >= foreign_of(f);
}

static bool is_other_process(const facts *f)
{
    return known(f->total) && known(f->free) && foreign_of(f) >= f->requested - f->free &&
           (double)foreign_of(f) >= foreign_share * (double)f->total &&
           foreign_of(f) > f->device_live / 4;
}

static bool is_cache_fragmentation(const facts *f)
{
    return f->layer == GS_SERIES_TENSOR && cached_of(f) >= f->requested;
}

static bool is_preallocation(const facts *f)
{
    return f->layer == GS_SERIES_DEVICE && f->largest_framework && known(f->total) &&
           (double)f->largest >= preallocated_share * (double)f->total;
}

static bool is_outside_allocator(const facts *f)
{
    if (f->layer != GS_SERIES_TENSOR || !known(f->total) || !known(f->tensor_reserved)) {
        return false;
    }
    int64_t direct = f->device_live > f->tensor_reserved ? f->device_live - f->tensor_reserved : 0;
    int64_t outside = known(f->outside) ? least(f->outside, context_of(f)) : 0;
    return (double)(direct + outside) >= outside_share * (double)f->total;
}

/* --- what to say ---------------------------------------------------------------------------------
 */

struct words {
    struct gs_builder *b;
    const facts *f;
    struct gs_oom_verdict *v;
};

#define TEXT(w, ...) gs_arena_printf((w)->b->arena, __VA_ARGS__)
#define SIZE(w, n) gs_bytes_text((w)->b, (double)(n))

static const char *place(struct words *w, uint32_t stack)
{
    uint32_t number = gs_site_number(w->b, stack); /* first: it may move b->sites */
    return gs_site_path(w->b, &w->b->sites[number]);
}

static void advise(struct words *w, const char *text)
{
    enum { MOST = 4 };
    if (!w->v->advice) {
        w->v->advice = gs_arena_alloc(w->b->arena, MOST * sizeof *w->v->advice);
    }
    if (w->v->advice_n < MOST) {
        w->v->advice[w->v->advice_n++] = text;
    }
}

/* Each says the cause in a few words, then the numbers it rests on; what was asked and what was
 * free stands before it already. */
static void say_pinned(struct words *w)
{
    w->v->verdict = TEXT(w, "page-locked host memory ran out, not the GPU's: %s are pinned",
                         SIZE(w, w->f->live));
    advise(w,
           "pin fewer buffers (num_workers × prefetch_factor batches are pinned at once), or raise "
           "the limit (ulimit -l, the container's memory)");
}

static void say_oversized(struct words *w)
{
    w->v->verdict = TEXT(
        w, "one request is larger than the GPU: it has %s in all, about %s for the CUDA context",
        SIZE(w, w->f->total), SIZE(w, context_of(w->f)));
    advise(w,
           TEXT(w, "check the shape%s%s: an accidental broadcast or outer product makes such sizes",
                w->f->stack != GS_NONE ? " at " : "",
                w->f->stack != GS_NONE ? place(w, w->f->stack) : ""));
    advise(w, "if the size is right: smaller batches, chunks, or several GPUs");
}

static void say_driver_fragmentation(struct words *w)
{
    w->v->verdict = TEXT(w, "fragmentation, or a limit: the driver refused although %s were free",
                         SIZE(w, w->f->free));
    advise(w, "allocate the large, long-lived buffers first, or from a pool (cudaMallocAsync)");
    advise(
        w,
        "look for a limit: MIG, MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), a container's GPU quota, "
        "GPUSPY_LIMIT");
}

static void say_cap(struct words *w)
{
    w->v->verdict =
        TEXT(w, "a limit on PyTorch: it refused by itself although %s of the GPU were free",
             SIZE(w, w->f->free));
    advise(w, "raise or drop torch.cuda.set_per_process_memory_fraction, or max_split_size_mb in "
              "PYTORCH_CUDA_ALLOC_CONF");
}

static void say_leak(struct words *w)
{
    const facts *f = w->f;
    uint32_t number = gs_site_number(w->b, f->growing_stack);
    w->v->growing = w->b->sites[number];
    double each = f->growing_count ? (double)f->growing_heaviest / (double)f->growing_count : 0;
    const char *others =
        f->growing_sites > 1
            ? TEXT(w, "; %u more call path%s grow, %s with it", f->growing_sites - 1,
                   f->growing_sites > 2 ? "s" : "", SIZE(w, f->growing))
            : "";
    w->v->verdict =
        TEXT(w, "a leak: %s keeps %s each time, %llu times so far: %s of the %s live (%.0f %%)%s",
             place(w, f->growing_stack), SIZE(w, each), (unsigned long long)f->growing_count,
             SIZE(w, f->growing_heaviest), SIZE(w, f->live),
             100 * (double)f->growing_heaviest / (double)f->live, others);
    advise(w,
           TEXT(w,
                "%s: keep a number or a copy on the host (.item(), .detach().cpu()), or drop the "
                "reference each step",
                gs_site_line(w->b, &w->v->growing)));
    if (f->turnover < 0.05) {
        advise(
            w,
            "not sure: hardly anything was freed before, so no step was seen to end; if all of it "
            "is needed at once, use smaller batches");
    }
}

static void say_other_process(struct words *w)
{
    const struct gs_device_sample *said = w->f->said;
    const char *theirs = SIZE(w, foreign_of(w->f)), *ours = SIZE(w, w->f->device_live);
    if (said && known(said->other_bytes) && said->other_pid) {
        w->v->verdict = TEXT(w, "others hold %s of the GPU, foremost process %u%s%s%s; this one %s",
                             theirs, said->other_pid, said->other_name ? " (" : "",
                             said->other_name ? said->other_name : "", said->other_name ? ")" : "",
                             ours);
        advise(w, TEXT(w, "end process %u, or choose another GPU with CUDA_VISIBLE_DEVICES",
                       said->other_pid));
    } else {
        w->v->verdict = TEXT(w, "another process holds %s of the GPU; this one %s", theirs, ours);
        advise(w, "find it with nvidia-smi and end it, or choose another GPU with "
                  "CUDA_VISIBLE_DEVICES");
    }
    advise(w,
           "if it is a rank of this job: each must call torch.cuda.set_device(local_rank) first");
}

static void say_cache_fragmentation(struct words *w)
{
    const facts *f = w->f;
    w->v->verdict = TEXT(w, "fragmentation: PyTorch holds %s that no tensor uses, in pieces%s%s",
                         SIZE(w, cached_of(f)), f->map.segments ? " of at most " : " too small",
                         f->map.segments ? SIZE(w, f->map.largest_free_bytes) : "");
    advise(w, "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless it is set already");
    advise(w, "varying sizes cause it: pad sequences to a few lengths, keep the last batch full "
              "(drop_last=True)");
}

static void say_preallocation(struct words *w)
{
    w->v->verdict = TEXT(w, "one allocation holds %s of %s: a framework took the GPU in advance",
                         SIZE(w, w->f->largest), SIZE(w, w->f->total));
    advise(
        w,
        "JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false or XLA_PYTHON_CLIENT_MEM_FRACTION; TensorFlow: "
        "set_memory_growth");
}

static void say_outside(struct words *w)
{
    w->v->verdict =
        TEXT(w, "most of the GPU is used past PyTorch's allocator, which holds %s of %s",
             SIZE(w, w->f->tensor_reserved), SIZE(w, w->f->total));
    advise(w, "NCCL buffers, cuBLAS workspaces and contexts count here: fewer communicators, "
              "CUBLAS_WORKSPACE_CONFIG, one process a GPU");
}

static void say_capacity(struct words *w)
{
    const facts *f = w->f;
    w->v->verdict = f->holder > 0
                        ? TEXT(w, "what is live does not fit: %s, the most of it (%s) from %s",
                               SIZE(w, f->live), SIZE(w, f->holder), place(w, f->holder_stack))
                        : TEXT(w, "what is live does not fit: %s", SIZE(w, f->live));
    advise(
        w,
        "halve the batch and accumulate gradients over two, checkpoint activations, or use bf16; "
        "'gpuspy estimate' says what weights and optimizer need at least");
    if (known(f->outside) && f->outside > context_of(f) + f->requested) {
        advise(w,
               TEXT(w, "%s of the GPU are in use outside the recorded allocations: see nvidia-smi",
                    SIZE(w, f->outside)));
    }
}

static const struct {
    enum gs_cause cause;
    const char *word;
    bool (*holds)(const facts *f);
    void (*say)(struct words *w);
} causes[] = {
    {GS_CAUSE_PINNED_HOST, "pinned_host", is_pinned, say_pinned},
    {GS_CAUSE_OVERSIZED_REQUEST, "oversized_request", is_oversized, say_oversized},
    {GS_CAUSE_ALLOCATOR_CAP, "allocator_cap", is_cap, say_cap},
    {GS_CAUSE_FRAGMENTATION, "fragmentation", is_driver_fragmentation, say_driver_fragmentation},
    {GS_CAUSE_LEAK, "leak", is_leak, say_leak},
    {GS_CAUSE_OTHER_PROCESS, "other_process", is_other_process, say_other_process},
    {GS_CAUSE_FRAGMENTATION, "fragmentation", is_cache_fragmentation, say_cache_fragmentation},
    {GS_CAUSE_PREALLOCATION, "preallocation", is_preallocation, say_preallocation},
    {GS_CAUSE_OUTSIDE_ALLOCATOR, "outside_allocator", is_outside_allocator, say_outside},
    {GS_CAUSE_CAPACITY, "capacity", NULL, say_capacity},
};
enum { RULES = sizeof causes / sizeof *causes };

const char *gs_cause_word(enum gs_cause cause)
{
    for (size_t i = 0; i < RULES; i++) {
        if (causes[i].cause == cause) {
            return causes[i].word;
        }
    }
    return "capacity";
}

/* --- evidence ------------------------------------------------------------------------------------
 */

enum { EVIDENCE_MAX = 32 };

static void evidence(struct words *w, const char *key, const char *what, double value)
{
    if (w->v->evidence_n < EVIDENCE_MAX) {
        w->v->evidence[w->v->evidence_n++] =
            (struct gs_evidence){.key = key, .what = what, .value = value};
    }
}

static void evidence_bytes(struct words *w, const char *key, const char *what, int64_t value)
{
    if (known(value)) {
        evidence(w, key, what, (double)value);
    }
}

static void evidence_text(struct words *w, const char *key, const char *what, const char *text)
{
    evidence(w, key, what, NAN);
    w->v->evidence[w->v->evidence_n - 1].is_text = true;
    w->v->evidence[w->v->evidence_n - 1].text = text;
}

/* What NVML said, about then. */
static void collect_said(struct words *w, const struct gs_device_sample *said)
{
    evidence_bytes(w, "other_bytes", "held by other processes, says NVML", said->other_bytes);
    if (said->other_pid) {
        evidence(w, "other_pid", "the largest of them", said->other_pid);
    }
    if (said->other_name) {
        evidence_text(w, "other_name", "which is", said->other_name);
    }
    evidence_bytes(w, "own_bytes", "held by this process, says NVML", said->own_bytes);
    evidence(w, "said_s", "when it said so", gs_seconds(said->time_ns));
}

static void collect(struct words *w)
{
    const facts *f = w->f;
    w->v->evidence = gs_arena_alloc(w->b->arena, EVIDENCE_MAX * sizeof *w->v->evidence);
    evidence_bytes(w, "live_bytes", "live at that moment", f->live);
    if (f->growing_sites) {
        evidence_bytes(w, "growing_bytes", "of it from call paths that grow steadily", f->growing);
        evidence(w, "growing_share", "share of the live bytes",
                 (double)f->growing / (double)f->live);
        evidence(w, "growing_sites", "growing call paths", f->growing_sites);
        evidence_text(w, "growing_site", "foremost", place(w, f->growing_stack));
        evidence(w, "bytes_per_step", "bytes kept each time there",
                 (double)f->growing_heaviest / (double)(f->growing_count ? f->growing_count : 1));
        evidence(w, "steps", "times", (double)f->growing_count);
        evidence_text(w, "confidence", "confidence in the leak",
                      f->turnover < 0.05 ? "low: hardly anything was ever freed"
                                         : "high: other memory came and went");
    }
    evidence(w, "turnover", "share of the bytes allocated there that had been freed", f->turnover);
    if (f->holder > 0) {
        evidence_bytes(w, "largest_holder_bytes", "held by one call path at most", f->holder);
        evidence_text(w, "largest_holder_site", "which is", place(w, f->holder_stack));
    }
    evidence_bytes(w, "device_live_bytes", "in CUDA allocations of this process", f->device_live);
    if (f->graphs) {
        evidence_bytes(w, "graph_reserved_bytes", "held by the GPU for graphs", f->graphs);
    }
    if (f->said) {
        collect_said(w, f->said);
    }
    evidence_bytes(w, "outside_bytes", "in use outside the recorded allocations", f->outside);
    evidence_bytes(w, "outside_first_bytes", "the same when the device was first seen",
                   f->outside_first);
    evidence_bytes(w, "tensor_allocated_bytes", "in PyTorch's tensors", f->tensor_allocated);
    evidence_bytes(w, "tensor_reserved_bytes", "reserved by PyTorch", f->tensor_reserved);
    if (f->map.segments) {
        evidence_bytes(w, "largest_free_bytes", "the largest hole in its segments",
                       f->map.largest_free_bytes);
    }
    if (f->largest > 0) {
        evidence_bytes(w, "largest_allocation_bytes", "the largest single allocation", f->largest);
    }
}

void gs_oom_cause(struct gs_builder *b, const struct gs_oom_facts *f, struct gs_oom_verdict *v)
{
    struct words w = {b, f, v};
    collect(&w);
    for (size_t i = 0; i < RULES; i++) {
        if (!causes[i].holds || causes[i].holds(f)) {
            v->cause = causes[i].cause;
            causes[i].say(&w);
            return;
        }
    }
}
