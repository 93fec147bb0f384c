/* Why an allocation failed. A table of causes, each a rule over the facts, tried in order; the first that holds is the
 * verdict, `capacity` is the default. Each rule's sentence contains the numbers that support it. */
#include "analyzer/oom/oom_square.h"
#include "analyzer/oom/oom_failed.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/oom/waterfall.h"

#include <math.h>

typedef struct oom_facts facts;

static const double leak_share = 0.5, foreign_share = 0.2, preallocated_share = 0.6, outside_share = 0.5,
                    oversized_share = 2.0 / 3, hole_share = 0.2, hole_least = 0.1, leak_least = 0.02,
                    holder_share = 2.0 / 3;
enum { GRAIN = 2 << 20 }; /* the granularity of CUDA's device memory */
enum { CRUMBS = 32 };     /* holes of less than this part of the device (1/32) explain no failure */
enum { HOLES_FOR = 8 };   /* requests of this size that the holes would have served */

static bool is_pinned(const facts *f)
{
    return f->row->layer == GS_LAYER_DEVICE && f->row->space == GS_SPACE_PINNED;
}

/* More than the device has; or most of it, and twice all that is live: nothing that the program did before was of that
 * size. */
static bool is_oversized(const facts *f)
{
    if (!run_is_known(f->total)) return false;
    int64_t room = f->total - oom_context_bytes(f);
    return f->requested > room || (f->examined && (double)f->requested >= oversized_share * (double)room &&
                                   f->requested / 2 >= f->device_live);
}

/* A snapshot does not state the size of the GPU: more than is free and than this process can free. */
static bool is_beyond_own(const facts *f)
{
    enum { LEAST = 1 << 30 }; /* less is what other processes leave */
    if (!f->examined || run_is_known(f->total) || !run_is_known(f->free)) return false;
    const int64_t room = arena_add_capped(f->free, f->device_live);
    return room >= LEAST && f->requested > room && f->requested / 2 >= f->device_live;
}

/* The driver had enough memory and refused: no address range was large enough, or something forbids it. The request to
 * CUDA counts: PyTorch requests a segment of 20 MiB to serve one MiB. */
static bool is_driver_fragmentation(const facts *f)
{
    int64_t asked = f->device_requested > f->requested ? f->device_requested : f->requested;
    return f->device_failed && run_is_known(f->free) && f->free >= asked + GRAIN;
}

/* PyTorch itself refused, without a request to CUDA, while the device had room; or before it freed its cache, which
 * would have been enough. */
static bool is_cap(const facts *f)
{
    if (f->row->rejected) return !oom_stays_refused(f);
    return !f->device_failed && f->row->layer == GS_LAYER_TENSOR && run_is_known(f->free) && f->free >= f->requested;
}

/* As much as this was requested before, in an earlier step, and there was room for it. */
static bool is_known_demand(const facts *f, int64_t beside)
{
    double slack = 0.05 * (double)f->growing + (run_is_known(f->total) ? 0.01 * (double)f->total : 0);
    return run_is_known(f->earlier) && (double)(f->live - beside) + (double)f->requested <= (double)f->earlier + slack;
}

/* In PyTorch, every operation frees something, so a program that only allocated while the memory grew was loading,
 * unless many passes allocated the memory, or a few of which one block each remains: their graphs, or outputs of a
 * single layer; or a statement of a loop stores more blocks than a model has layers, which are neither parameters nor
 * data from the host, or puts blocks into a queue. A program without Python may free nothing until its end; it was
 * loading if it then freed most of this memory. */
static bool only_loads(const facts *f)
{
    static const double hardly = 0.05;
    enum { MANY = 8, LAYERS = 128 };
    const bool passes =
        f->growing_in_pass > f->growing / 2 && (f->growing_count >= MANY || f->growing_kept > f->growing / 2);
    const bool stores = f->growing_stored && f->growing_count >= (f->growing_queued ? MANY : LAYERS);
    if (f->layer != RUN_SERIES_TENSOR)
        return f->turnover < hardly && f->growing_native && f->growing_left < f->growing / 2;
    return (f->turnover < hardly || f->growing_turnover < hardly) && f->graph != OOM_GRAPH_INFERRED && !passes &&
           !stores;
}

/* Most of the live memory has grown; or less of it, but the step needs no more than earlier ones did, so that only the
 * growth is new. */
static bool is_leak(const facts *f)
{
    if (f->growing <= 0 || f->pending || f->of_step || f->growing_keyed || f->growing < oom_other_bytes(f) ||
        only_loads(f))
        return false;
    if (f->live - f->before_growth < f->growing / 2)
        return false; /* as much was freed as was allocated: a replacement */
    int64_t missing = run_is_known(f->free) && f->requested > f->free ? f->requested - f->free : 0;
    if (f->growing < missing) return false; /* the request would fail without it, too */
    if (f->outcome == RESULT_OUTCOME_RETRIED && f->growing < oom_cached_bytes(f))
        return false; /* without the cache, the request succeeded */
    if (f->growing < f->private_idle)
        return false; /* graphs that are recorded again and again keep their inputs, too */
    return (double)f->growing >= leak_share * (double)f->live ||
           (run_is_known(f->total) && (double)f->growing >= leak_least * (double)f->total &&
            is_known_demand(f, f->growing));
}

/* A buffer that is appended to without bound, and most of the live memory is computed from it. */
static bool drives_growth(const facts *f)
{
    enum { PART = 32 }; /* of the live memory: the ids of the tokens of a long sequence are less */
    return f->replaced && f->appended && !f->pending && f->widened == RUN_NONE && f->growing >= f->live / PART &&
           f->driven > f->growing && f->driven + f->growing >= f->live / 2 && f->outcome != RESULT_OUTCOME_RETRIED;
}

static bool is_other_process(const facts *f)
{
    return run_is_known(f->total) && run_is_known(f->free) && oom_other_bytes(f) >= f->requested - f->free &&
           (double)oom_other_bytes(f) >= foreign_share * (double)f->total && oom_other_bytes(f) > f->device_live / 4;
}

/* The holes would have served the request if they were contiguous. If they are small and the program has never needed
 * so much, the next request would have failed: that does not count as fragmentation. Smaller holes suffice if they are
 * in many pieces and the request is small in comparison. Free memory of the device is added if the program has needed
 * as much before, or if the holes are in many pieces. */
static bool is_cache_fragmentation(const facts *f)
{
    int64_t room = run_is_known(f->free) ? f->free : 0, holes = oom_cached_bytes(f);
    if (f->layer != RUN_SERIES_TENSOR || holes <= 0 || (run_is_known(f->total) && holes < f->total / CRUMBS))
        return false;
    if (f->private_whole && f->private_idle >= holes / 2 && arena_add_capped(f->private_idle, room) >= f->requested)
        return true;
    if (f->pending && f->growing >= f->live / 2) return false; /* more passes would fill the holes, too */
    bool pieces = f->map.segments && f->map.largest_free_bytes < holes / 2;
    bool many = (double)holes >= hole_share * (double)f->tensor_reserved;
    bool outgrown = run_is_known(f->earlier) && f->live - f->earlier > holes / 2; /* the holes would soon be filled */
    bool small = (double)holes >= hole_least * (double)f->tensor_reserved && holes / HOLES_FOR >= f->requested;
    return (many && !outgrown &&
            (holes >= f->requested || (pieces && arena_add_capped(holes, room) >= f->requested))) ||
           (small && pieces && !outgrown) || (arena_add_capped(holes, room) >= f->requested && is_known_demand(f, 0));
}

/* A framework's preallocation, which another process leaves no room for. */
static bool is_refused_preallocation(const facts *f)
{
    return f->preallocates && f->requested <= f->total - oom_context_bytes(f) && is_other_process(f);
}

static bool is_preallocation(const facts *f)
{
    return f->preallocated && run_is_known(f->total) &&
           (double)f->preallocated->bytes >= preallocated_share * (double)f->total;
}

/* All of it was in use when the device was first seen, as a context is, which can take most of a small GPU. */
static bool is_only_first(const struct oom_facts *f)
{
    return run_is_known(f->outside_first) && run_is_known(f->outside) &&
           f->outside <= f->outside_first + f->outside_first / 8 && f->device_live <= f->tensor_reserved;
}

/* Half of the device; or a fifth of it, if that is what the request lacks and more than PyTorch holds. */
static bool is_outside_allocator(const facts *f)
{
    if (!run_is_known(f->total) || (f->layer == RUN_SERIES_TENSOR && !run_is_known(f->tensor_reserved)) || f->attached)
        return false;
    bool tensors = f->layer == RUN_SERIES_TENSOR;
    if (tensors && is_only_first(f)) return false;
    const int64_t all = oom_outside_bytes(f), free = run_is_known(f->free) ? f->free : 0;
    const bool most = all >= f->requested - free && (double)all >= foreign_share * (double)f->total && tensors &&
                      all > f->tensor_reserved;
    return most || (double)all >= outside_share * (double)(f->total - oom_context_bytes(f));
}

/* `refuted_by`: the observation that would show that an inferred cause is wrong. */
static const struct {
    enum result_cause cause;
    enum result_certainty certainty;
    bool (*holds)(const facts *f);
    void (*explain)(struct oom_words *w);
    const char *refuted_by;
} causes[] = {
#define RECORDED(cause, holds, explain) {RESULT_CAUSE_##cause, RESULT_CERTAINTY_RECORDED, holds, explain, NULL},
#define INFERRED(cause, holds, explain, refuted_by) \
    {RESULT_CAUSE_##cause, RESULT_CERTAINTY_INFERRED, holds, explain, refuted_by},
    /* clang-format off */
    RECORDED(PINNED_HOST, is_pinned, oom_explain_pinned)
    INFERRED(OTHER_PROCESS, is_refused_preallocation, oom_explain_refused_preallocation,
             "if nvidia-smi shows no other process there")
    RECORDED(OVERSIZED_REQUEST, is_oversized, oom_explain_oversized)
    INFERRED(OVERSIZED_REQUEST, is_beyond_own, oom_explain_oversized,
             "if other processes held most of the GPU")
    INFERRED(LEAK, oom_keeps_displayed, oom_explain_displayed, "if variables hold this memory, too")
    INFERRED(LEAK, oom_keeps_failed, oom_explain_failed, "if the program keeps the tensors of that pass on purpose")
    INFERRED(LEAK, oom_keeps_trials, oom_explain_trials, "if the current trial uses the earlier models")
    INFERRED(CAPACITY, oom_keeps_ensemble, oom_explain_trials, "if the models are not used together")
    INFERRED(LEAK, oom_keeps_optimizers, oom_explain_optimizers, "if the program uses the earlier optimizers")
    INFERRED(LEAK, oom_keeps_rerun, oom_explain_rerun, "if other variables hold this memory, too")
    INFERRED(LEAK, is_leak, oom_explain_leak, "if a later step reads this memory again")
    INFERRED(LEAK, drives_growth, oom_explain_driving, "if the program limits the length of that buffer")
    RECORDED(ALLOCATOR_CAP, is_cap, oom_explain_cap)
    INFERRED(FRAGMENTATION, is_driver_fragmentation, oom_explain_driver_fragmentation,
             "if a quota (MIG, MPS, a container) refused it")
    INFERRED(OTHER_PROCESS, is_other_process, oom_explain_other_process,
             "if nvidia-smi shows no other process there")
    INFERRED(PREALLOCATION, is_preallocation, oom_explain_preallocation,
             "if the framework's own allocator was full, too")
    RECORDED(FRAGMENTATION, is_cache_fragmentation, oom_explain_cache_fragmentation)
    RECORDED(OUTSIDE_ALLOCATOR, is_outside_allocator, oom_explain_outside)
    INFERRED(CAPACITY, NULL, oom_explain_capacity, "if the program no longer needs some of what is live")
/* clang-format on */
#undef RECORDED
#undef INFERRED
};
enum { RULES = sizeof causes / sizeof *causes };

enum { EVIDENCE_MAX = 40 };

static void add_evidence(struct oom_words *w, const char *key, const char *what, double value)
{
    if (w->v->evidence_n < EVIDENCE_MAX)
        w->v->evidence[w->v->evidence_n++] = (struct result_evidence){.key = key, .what = what, .value = value};
}

static void evidence_bytes(struct oom_words *w, const char *key, const char *what, int64_t value)
{
    if (run_is_known(value)) add_evidence(w, key, what, (double)value);
}

static void evidence_text(struct oom_words *w, const char *key, const char *what, const char *text)
{
    add_evidence(w, key, what, NAN);
    w->v->evidence[w->v->evidence_n - 1].is_text = true;
    w->v->evidence[w->v->evidence_n - 1].text = text;
}

/* NVML's figures at about that time. */
static void collect_nvml(struct oom_words *w, const struct run_device_sample *nvml)
{
    evidence_bytes(w, "other_bytes", "held by other processes (NVML)", nvml->other_bytes);
    if (nvml->other_pid) add_evidence(w, "other_pid", "the largest other process", nvml->other_pid);
    if (nvml->other_name) evidence_text(w, "other_name", "its name", nvml->other_name);
    evidence_bytes(w, "own_bytes", "held by this process (NVML)", nvml->own_bytes);
    add_evidence(w, "said_s", "time of NVML's figures", site_seconds(nvml->time_ns));
}

static void collect_after(struct oom_words *w, const struct oom_after *a)
{
    w->v->outcome_why = oom_after_text(w);
    if (a->exit_status >= 0) add_evidence(w, "exit_status", "the exit status of the program", a->exit_status);
    if (oom_after_rows_are_missing(w)) evidence_text(w, "after_counts", "the counts of what followed", "at least");
    add_evidence(w, "allocations_after", "allocations that followed", (double)a->times);
    add_evidence(w, "again_after", "those on call paths that had allocated before", (double)a->again);
    if (run_is_known(a->steps)) add_evidence(w, "steps_after", "steps that ended later", (double)a->steps);
}

static void collect_growing(struct oom_words *w, const facts *f)
{
    const struct oom_rhythm r = oom_rhythm(f);
    evidence_bytes(w, "growing_bytes", "live, of lines that grow steadily", f->growing);
    add_evidence(w, "growing_share", "share of the live bytes", (double)f->growing / (double)f->live);
    add_evidence(w, "growing_sites", "growing lines", f->growing_sites);
    evidence_text(w, "growing_site", "the line that grows most", oom_place_text(w, f->growing_stack));
    if (f->graph == OOM_GRAPH_INFERRED)
        evidence_text(w, "graph_site", "the line whose tensors keep their graph",
                      site_text_with_caller(w->b, &f->growth->newest));
    evidence_bytes(w, "earlier_bytes", "the most that was live before, besides the growth", f->earlier);
    add_evidence(w, "bytes_per_step", r.steps ? "bytes kept per step" : "bytes kept each time", r.each);
    add_evidence(w, "steps", r.steps ? "steps" : "times", (double)r.times);
    if (isnan(f->turnover)) return;
    evidence_text(w, "confidence", "confidence in the leak",
                  f->turnover < 0.05 ? "low: hardly any memory was ever freed"
                                     : "high: other memory was allocated and freed");
}

static void collect_evidence(struct oom_words *w)
{
    const facts *f = w->f;
    w->v->evidence = arena_alloc(w->b->arena, EVIDENCE_MAX * sizeof *w->v->evidence);
    evidence_bytes(w, "live_bytes", "live at that moment", f->live);
    if (f->growing_sites) collect_growing(w, f);
    if (f->failed_pass.bytes) {
        evidence_bytes(w, "failed_pass_bytes", "allocated in passes that ran out of memory earlier, and still live",
                       f->failed_pass.bytes);
    }
    if (f->trials.trials) {
        add_evidence(w, "earlier_trials", "earlier trials whose modules are still live", (double)f->trials.trials);
        evidence_bytes(w, "earlier_trials_bytes", "allocated in them and still live", f->trials.bytes);
    }
    if (w->b->report->processes[w->v->process].collector_off)
        add_evidence(w, "python_gc", "whether Python's garbage collector was on", 0);
    if (!isnan(f->turnover))
        add_evidence(w, "turnover", "share of the bytes allocated there that had been freed", f->turnover);
    if (f->holder > 0) {
        evidence_bytes(w, "largest_holder_bytes", "the most that one call path holds", f->holder);
        evidence_text(w, "largest_holder_site", "that call path", oom_place_text(w, f->holder_stack));
    }
    evidence_bytes(w, "asked_bytes", "the request to CUDA",
                   f->device_requested > f->requested ? f->device_requested : f->requested);
    evidence_bytes(w, "context_bytes", "estimated size of a context on this GPU", oom_context_bytes(f));
    evidence_bytes(w, "device_live_bytes", "in CUDA allocations of this process", f->device_live);
    if (f->graphs) evidence_bytes(w, "graph_reserved_bytes", "held by the GPU for graphs", f->graphs);
    if (f->nvml) collect_nvml(w, f->nvml);
    evidence_bytes(w, "outside_bytes", "in use outside the recorded allocations", f->outside);
    evidence_bytes(w, "outside_first_bytes", "outside of them when the device was first seen", f->outside_first);
    evidence_bytes(w, "tensor_allocated_bytes", "in PyTorch's tensors", f->tensor_allocated);
    evidence_bytes(w, "tensor_reserved_bytes", "reserved by PyTorch", f->tensor_reserved);
    if (f->map.segments)
        evidence_bytes(w, "largest_free_bytes", "the largest hole in its segments", f->map.largest_free_bytes);
    const struct result_by_owner *direct = oom_direct_owner(w->v);
    if (direct && f->layer == RUN_SERIES_TENSOR) {
        evidence_bytes(w, "direct_bytes", "largest owner outside PyTorch's allocator", direct->bytes);
        evidence_text(w, "direct_owner", "that owner", direct->owner);
        evidence_text(w, "direct_site", "its line", site_text_with_caller(w->b, &direct->site));
    }
    if (f->examined && f->outcome != RESULT_OUTCOME_RETRIED) collect_after(w, &f->after);
    if (f->largest > 0) evidence_bytes(w, "largest_allocation_bytes", "the largest single allocation", f->largest);
}

static void blame_site(struct oom_words *w, uint32_t stack, const char *role)
{
    w->v->blame = site_of_call(w->b, stack);
    w->v->blame_role = role;
}

/* The line to name. A leak: the end of each graph, or the line that grows. Memory outside of PyTorch: its owner. Memory
 * that simply does not fit: the line that holds nearly all of it, if it is not the failing line. Otherwise: the line
 * that failed. */
static void blame_cause(struct oom_words *w)
{
    const facts *f = w->f;
    const struct result_oom_verdict *v = w->v;
    const struct result_by_site *holder = v->live_n ? &v->live[0] : NULL;
    const struct result_by_owner *direct = oom_direct_owner(v);
    if (v->cause == RESULT_CAUSE_LEAK && oom_keeps_displayed(f)) {
        blame_site(w, f->displayed.stack, "growing");
    } else if (v->cause == RESULT_CAUSE_LEAK && oom_keeps_failed(f)) {
        const uint32_t retry = oom_failed_retry(w->b, f);
        blame_site(w, retry == RUN_NONE ? f->failed_pass.stack : retry, retry == RUN_NONE ? "growing" : "retry");
    } else if (v->cause == RESULT_CAUSE_LEAK && oom_keeps_trials(f)) {
        blame_site(w, f->trials.stack, "growing");
    } else if (v->cause == RESULT_CAUSE_LEAK && oom_keeps_optimizers(f)) {
        blame_site(w, f->optimizers.stack, "growing");
    } else if (v->cause == RESULT_CAUSE_LEAK && oom_keeps_rerun(f)) {
        blame_site(w, f->rerun.stack, "growing");
    } else if (v->cause == RESULT_CAUSE_CAPACITY && oom_keeps_ensemble(f)) {
        blame_site(w, f->trials.stack, "holder");
    } else if (v->cause == RESULT_CAUSE_LEAK) {
        const struct result_growth *g = f->growth;
        blame_site(w, f->growing_stack, "growing");
        if (f->graph == OOM_GRAPH_INFERRED) {
            w->v->blame = g->newest;
            w->v->blame_role = "graph";
        } else if (g && g->lines_n && !f->adds_modules) {
            w->v->blame = g->lines[0].site;
        }
    } else if (v->cause == RESULT_CAUSE_CAPACITY && f->pending) {
        w->v->blame = f->growth->newest;
        w->v->blame_role = "graph";
    } else if (v->cause == RESULT_CAUSE_PREALLOCATION) {
        blame_site(w, f->largest_stack, "direct");
    } else if (v->cause == RESULT_CAUSE_OUTSIDE_ALLOCATOR && direct) {
        w->v->blame = direct->site;
        w->v->blame_role = "direct";
    } else if (v->cause == RESULT_CAUSE_CAPACITY && holder && holder->site.known &&
               (double)holder->bytes >= holder_share * (double)f->live && holder->bytes / 4 >= f->requested) {
        w->v->blame = holder->site;
        w->v->blame_role = "holder";
    } else {
        const uint32_t shape = v->cause == RESULT_CAUSE_CAPACITY ? oom_shape_behind_backward(w) : RUN_NONE;
        blame_site(w, shape == RUN_NONE ? f->stack : shape, shape == RUN_NONE ? "failing" : "holder");
    }
}

void oom_find_cause(struct site_builder *b, const struct oom_facts *f, struct result_oom_verdict *v)
{
    const struct oom_idle idle = oom_idle(b->report, v);
    struct oom_facts known = *f;
    known.private_idle = idle.private;
    known.private_whole = idle.private > 0 && !idle.shared;
    struct oom_words w = {b, &known, v};
    collect_evidence(&w);
    for (size_t i = 0; i < RULES; i++) {
        if (!causes[i].holds || causes[i].holds(&known)) {
            v->cause = causes[i].cause;
            v->certainty = causes[i].certainty;
            v->refuted_by = causes[i].refuted_by;
            blame_cause(&w);
            causes[i].explain(&w);
            return;
        }
    }
}
