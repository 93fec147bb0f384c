/* Verdicts about an OOM's cause, with the numbers that support them, and advice. */
#include "analyzer/oom/oom_graph.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/oom/oom_sight.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/oom/oom_square.h"

#include "analyzer/site/native_source.h"
#include "analyzer/site/owner.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_input.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/run/settings.h"
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"

typedef struct oom_facts facts;

static void advise_replayed(struct oom_words *w, int effort, int64_t frees, const char *name,
                            const struct oom_replayed *r, const char *text)
{
    oom_add_measure(w->b, w->v,
                    (struct result_measure){.text = text,
                                            .frees_bytes = frees,
                                            .enough = -1,
                                            .effort = (uint8_t)effort,
                                            .first = true,
                                            .replayed = r->known ? name : NULL,
                                            .fits = r->fits,
                                            .spare_bytes = r->spare_bytes,
                                            .certainty = frees == RUN_UNKNOWN ? RESULT_CERTAINTY_GUESSED
                                                                              : RESULT_CERTAINTY_INFERRED});
}

/* `frees`: RUN_UNKNOWN if the advice has no amount. */
static void advise_in_words(struct oom_words *w, int effort, int64_t frees, const char *text)
{
    advise_replayed(w, effort, frees, NULL, &(struct oom_replayed){0}, text);
}

/* Replays the request as if other processes held nothing on the GPU. */
static struct oom_replayed replay_without_others(const struct oom_words *w)
{
    const int64_t free_bytes = run_is_known(w->f->free) ? w->f->free : 0;
    return oom_layout_replay(w->b, w->f, NULL, arena_add_capped(free_bytes, oom_other_bytes(w->f)));
}

void oom_explain_pinned(struct oom_words *w)
{
    w->v->verdict = w->f->live > 0
                        ? TEXT(w, "pinned host memory ran out, not GPU memory: %s are pinned", SIZE(w, w->f->live))
                        : "pinned host memory was refused, not GPU memory; none was pinned before";
    advise_in_words(w, OOM_EFFORT_ARGUMENT, RUN_UNKNOWN,
                    "pin fewer buffers (num_workers × prefetch_factor batches are pinned at once), or raise "
                    "the limit (ulimit -l, the container's memory)");
}

/* The function of the request multiplies matrices and computes a softmax. */
static bool computes_attention(const struct oom_words *w)
{
    static const char *const products[] = {" @ ", "matmul(", "bmm(", "einsum("};
    const uint32_t stack = w->f->stack;
    bool multiplies = false;
    if (stack == RUN_NONE || !oom_is_in_pass(w->b->run, stack)) return false;
    for (size_t i = 0; i < COUNT_OF(products); i++)
        multiplies = multiplies || site_function_has(w->b, stack, products[i]);
    return multiplies && site_function_has(w->b, stack, "softmax(");
}

/* x[index], index_select(): not an embedding, whose rows a model needs. */
static bool copies_rows(const struct run *run, uint32_t stack)
{
    return !run_stack_enters(run, stack, "embedding") &&
           (run_stack_enters(run, stack, "structured_index_Tensor") || run_stack_enters(run, stack, "index_select"));
}

/* Most of the live memory is blocks of one line that are all live; without PyTorch, a few that a statement stores.
 * NULL: no such line is known. */
static const char *describe_stored_blocks(struct oom_words *w)
{
    enum { STORED = 128 };
    const struct oom_facts *f = w->f;
    const struct result_growth *g = NULL;
    EACH_IN (x, w->b->report->growth)
        if (!g && f->layer == RUN_SERIES_DEVICE && x->process == f->row->process && x->device == f->row->device &&
            x->layer == f->layer && x->holders_n && x->bytes > f->live / 2)
            g = x;
    const bool many = f->growing_count >= STORED && f->growing > f->live / 2;
    if (!many && !g) return NULL;
    const bool native = many && f->growing_native;
    const struct result_site site = native ? site_of_call(w->b, f->growing_stack) : (struct result_site){0};
    const char *keeper = native ? site_native_keeper(w->b, &site) : NULL;
    return TEXT(w,
                "%s: all %llu blocks of this line are live%s%s%s: %s that the program no longer reads; otherwise "
                "process the data in smaller pieces, or use a larger GPU",
                oom_place_text(w, many ? f->growing_stack : g->stack.number),
                (unsigned long long)(many ? f->growing_count : g->count),
                keeper ? "; "
                : many ? ""
                       : ", kept by `",
                keeper ? keeper
                : many ? ""
                       : g->holders[0].text,
                many ? "" : "` (guess)", native ? "free those" : "drop the references to those");
}

static const char *oversized_verdict(struct oom_words *w)
{
    const struct oom_facts *f = w->f;
    const bool holds = f->device_live > 0;
    if (!run_is_known(f->total))
        return TEXT(w, "one request is larger than all the memory that it could get: %s free%s%s%s", SIZE(w, f->free),
                    holds ? " and " : "", holds ? SIZE(w, f->device_live) : "",
                    holds ? " that this process had reserved" : "");
    if (f->requested <= f->total - oom_context_bytes(f))
        return TEXT(w, "one request is for most of the GPU's %s%s%s%s", SIZE(w, f->total),
                    holds ? ", and for at least twice the " : "", holds ? SIZE(w, f->device_live) : "",
                    holds ? " that this process holds" : "");
    if (f->requested > f->total)
        return TEXT(w, "one request is larger than the GPU, which has %s in total", SIZE(w, f->total));
    return TEXT(
        w, "one request does not fit even on the empty GPU, which has %s in total, about %s of it for the CUDA context",
        SIZE(w, f->total), SIZE(w, oom_context_bytes(f)));
}

void oom_explain_oversized(struct oom_words *w)
{
    w->v->verdict = oversized_verdict(w);
    if (computes_attention(w)) {
        advise_in_words(w, OOM_EFFORT_LINE, RUN_UNKNOWN,
                        TEXT(w,
                             "if these are attention scores (length × length), use "
                             "torch.nn.functional.scaled_dot_product_attention at %s, which does not store them",
                             oom_place_text(w, w->f->stack)));
    }
    const char *library = oom_library_advice(w->b, w->f->stack);
    if (library) {
        advise_in_words(w, OOM_EFFORT_SETTING, RUN_UNKNOWN, library);
        return;
    }
    if (copies_rows(w->b->run, w->f->stack)) {
        advise_in_words(
            w, OOM_EFFORT_LINE, RUN_UNKNOWN,
            TEXT(w,
                 "%s copies a row for each index: process fewer indices at once (of a graph: `NeighborLoader`, "
                 "`ClusterLoader`), or sum rows by a product with a sparse matrix, without copies",
                 oom_place_text(w, w->f->stack)));
        return;
    }
    const bool known = w->f->stack != RUN_NONE, tensors = w->f->layer == RUN_SERIES_TENSOR;
    const bool native = !tensors && known && !site_runs_python(w->b->run, w->v->process);
    advise_in_words(w, OOM_EFFORT_LINE, RUN_UNKNOWN,
                    TEXT(w, "check the %s%s%s: %s causes such sizes", native ? "size" : "shape", known ? " at " : "",
                         known ? oom_place_text(w, w->f->stack) : "",
                         native ? "a wrong dimension, or one that is multiplied twice,"
                                : "an accidental broadcast or outer product"));
    const char *shape = oom_shape_advice(w, w->f->stack, w->f->requested);
    advise_in_words(w, OOM_EFFORT_TRAINING, RUN_UNKNOWN,
                    shape ? TEXT(w, "if the size is right: %s", shape)
                    : oom_is_in_pass(w->b->run, w->f->stack)
                        ? "if the size is right: smaller batches, chunks, or several GPUs"
                        : "if the size is right: compute it in chunks, or on several GPUs");
}

void oom_explain_driver_fragmentation(struct oom_words *w)
{
    w->v->verdict =
        TEXT(w, "fragmentation, or a limit: the driver refused the request although %s were free", SIZE(w, w->f->free));
    advise_in_words(w, OOM_EFFORT_LINE, RUN_UNKNOWN,
                    "allocate the large, long-lived buffers first, or from a pool (cudaMallocAsync)");
    advise_in_words(w, OOM_EFFORT_SETTING, RUN_UNKNOWN,
                    "check for a limit: MIG, MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), a container's GPU quota, "
                    "GPUSPY_LIMIT");
}

/* Is this a request that PyTorch refused at once, although it would fail without that setting, too? */
bool oom_stays_refused(const struct oom_facts *f)
{
    const struct oom_replayed r = oom_layout_replay(NULL, f, NULL, f->free);
    if (r.known) return !r.fits;
    return !run_is_known(f->free) || !run_is_known(f->tensor_reserved) || !run_is_known(f->tensor_allocated) ||
           arena_add_capped(f->free, f->tensor_reserved - f->tensor_allocated) < f->requested;
}

/* Not a fraction of the GPU was the limit, but all of it: cached memory counts, too. */
static bool exceeds_device(const struct oom_facts *f)
{
    return f->row->rejected && run_is_known(f->total) && run_is_known(f->tensor_reserved) &&
           run_is_known(f->tensor_allocated) && arena_add_capped(f->tensor_reserved, f->requested) > f->total;
}

static void explain_rejected(struct oom_words *w, const struct oom_replayed *r)
{
    w->v->verdict = TEXT(w,
                         "a limit of PyTorch: throw_on_cudamalloc_oom refused the request before PyTorch freed its "
                         "cache (%s reserved, %s in tensors)",
                         SIZE(w, w->f->tensor_reserved), SIZE(w, w->f->tensor_allocated));
    advise_replayed(w, OOM_EFFORT_SETTING, w->f->tensor_reserved - w->f->tensor_allocated,
                    "with throw_on_cudamalloc_oom:False", r, "drop throw_on_cudamalloc_oom");
}

void oom_explain_cap(struct oom_words *w)
{
    struct run_torch_settings set = run_torch_settings(w->b->run, w->f->row->process);
    const struct oom_replayed r = oom_layout_replay(w->b, w->f, NULL, w->f->free);
    if (exceeds_device(w->f)) {
        explain_rejected(w, &r);
        return;
    }
    w->v->verdict =
        TEXT(w, "a limit of PyTorch: it refused the request although %s of the GPU were free", SIZE(w, w->f->free));
    if (r.known && !r.fits) return;
    const char *variable = set.variable ? set.variable : "PYTORCH_CUDA_ALLOC_CONF", *value;
    size_t length;
    const bool in_variable = set.text && run_conf_value(set.text, "per_process_memory_fraction", &value, &length);
    const char *fraction = in_variable ? TEXT(w, "per_process_memory_fraction in %s", variable)
                                       : "torch.cuda.set_per_process_memory_fraction";
    const char *split = set.max_split_bytes ? TEXT(w, ", or max_split_size_mb in %s", variable) : "";
    advise_replayed(w, OOM_EFFORT_SETTING, w->f->free, "without the limit", &r,
                    TEXT(w, "raise or drop %s%s", fraction, split));
}

/* The process of this run, on the same machine, that has this pid; NULL: none. */
static const struct run_process *rank_of_process(struct oom_words *w, uint32_t pid)
{
    size_t n;
    const struct run_process *p = run_processes(w->b->run, &n), *own = &p[w->v->process];
    return FIND_OF(x, p, n, x != own && x->pid == pid && x->host && own->host && strcmp(x->host, own->host) == 0);
}

static void explain_other_rank(struct oom_words *w, const struct run_process *other)
{
    const char *name = run_is_known(other->rank) ? TEXT(w, "rank %lld", (long long)other->rank) : "another";
    w->v->verdict = TEXT(w,
                         "another process of this run is on the same GPU: %s (process %u) and others hold "
                         "%s of it; this one %s",
                         name, other->pid, SIZE(w, oom_other_bytes(w->f)), SIZE(w, w->f->device_live));
    const struct oom_replayed alone = replay_without_others(w);
    advise_replayed(
        w, OOM_EFFORT_LINE, oom_other_bytes(w->f), "without other processes", &alone,
        "give each process its own GPU: call `torch.cuda.set_device(local_rank)` before the first CUDA call, "
        "or give each process its own CUDA_VISIBLE_DEVICES");
}

void oom_explain_other_process(struct oom_words *w)
{
    const struct run_device_sample *nvml = w->f->nvml;
    const struct run_process *rank = nvml && nvml->other_pid ? rank_of_process(w, nvml->other_pid) : NULL;
    if (rank) {
        explain_other_rank(w, rank);
        return;
    }
    const struct oom_replayed alone = replay_without_others(w);
    const char *theirs = SIZE(w, oom_other_bytes(w->f)), *ours = SIZE(w, w->f->device_live);
    if (nvml && run_is_known(nvml->other_bytes) && nvml->other_pid) {
        w->v->verdict = TEXT(w, "other processes hold %s of the GPU, most of it process %u%s%s%s; this one holds %s",
                             theirs, nvml->other_pid, nvml->other_name ? " (" : "",
                             nvml->other_name ? nvml->other_name : "", nvml->other_name ? ")" : "", ours);
        advise_replayed(w, OOM_EFFORT_SETTING, oom_other_bytes(w->f), "without other processes", &alone,
                        TEXT(w, "end process %u%s%s%s, or choose another GPU with CUDA_VISIBLE_DEVICES",
                             nvml->other_pid, nvml->other_name ? " (" : "", nvml->other_name ? nvml->other_name : "",
                             nvml->other_name ? ")" : ""));
    } else {
        w->v->verdict = TEXT(w,
                             "probably another process: %s of the GPU are in use besides this process's memory and a "
                             "context; this process holds %s",
                             theirs, ours);
        advise_replayed(w, OOM_EFFORT_SETTING, oom_other_bytes(w->f), "without other processes", &alone,
                        "find it with nvidia-smi and end it, or choose another GPU with "
                        "CUDA_VISIBLE_DEVICES");
    }
    advise_in_words(w, OOM_EFFORT_LINE, RUN_UNKNOWN,
                    "if it is a rank of this job: each must call `torch.cuda.set_device(local_rank)` first");
}

/* True if most of the idle memory is in private pools. */
static bool explain_private_pools(struct oom_words *w)
{
    static const char graph[] = "if a CUDA graph that is replayed later uses this memory";
    const int64_t free = run_is_known(w->f->free) ? w->f->free : 0;
    if (w->f->row->space == GS_SPACE_POOL || w->f->private_idle <= oom_cached_bytes(w->f) / 2) return false;
    w->v->verdict = TEXT(w,
                         "fragmentation: private pools, which only CUDA graphs or a torch.cuda.MemPool can use, hold "
                         "%s that no tensor uses",
                         SIZE(w, w->f->private_idle));
    w->v->certainty = RESULT_CERTAINTY_INFERRED;
    w->v->refuted_by = graph;
    const bool compiled = run_stack_is_in(w->b->run, w->f->stack, "/torch/_inductor/cudagraph_trees.py", NULL);
    const bool captured = w->f->stack != RUN_NONE && site_is_captured(w->b, w->f->stack);
    const bool enough = arena_add_capped(w->f->private_idle, free) >= oom_segment_bytes(w->f->requested, false);
    oom_add_measure(w->b, w->v,
                    (struct result_measure){
                        .frees_bytes = w->f->private_idle,
                        .effort = OOM_EFFORT_LINE,
                        .enough = !w->f->private_whole || captured ? OOM_MEASURE_AT_MOST
                                  : enough                         ? OOM_MEASURE_FITS
                                                                   : OOM_MEASURE_FITS_NOT,
                        .certainty = RESULT_CERTAINTY_INFERRED,
                        .refuted_by = graph,
                        .first = true,
                        .text = compiled ? "compile without mode=\"reduce-overhead\" or \"max-autotune\", which "
                                           "records a CUDA graph for each shape, or pad inputs to a few shapes"
                                : captured
                                    ? "capture CUDA graphs of a few sizes only, pad the inputs to them, and pass "
                                      "all graphs the same pool (`torch.cuda.graph(g, pool=…)`)"
                                    : "delete unused private pools before this request "
                                      "(graph.reset(), del pool), or let graphs share one "
                                      "(torch.cuda.graph(graph, pool=first.pool()))"});
    return true;
}

static const char *advise_on_flushes(struct oom_words *w)
{
    const size_t n = w->b->report->retries_total;
    return n > 1 ? TEXT(w,
                        "let sizes vary less, or use a smaller batch: this happened %zu times, and each time PyTorch "
                        "waited for the GPU",
                        n)
                 : "nothing, if it happens only once, as here; if a longer run repeats it, let sizes vary less, or "
                   "use a smaller batch";
}

void oom_explain_cache_fragmentation(struct oom_words *w)
{
    const facts *f = w->f;
    if (!w->v->fatal && !w->v->handled) { /* a retry, which succeeded */
        w->v->verdict = TEXT(
            w,
            "PyTorch's cache held %s that no tensor used; PyTorch freed its cached segments, and the request succeeded",
            SIZE(w, oom_cached_bytes(f)));
        oom_add_measure(w->b, w->v,
                        (struct result_measure){
                            .frees_bytes = RUN_UNKNOWN, .effort = OOM_EFFORT_ARGUMENT, .text = advise_on_flushes(w)});
        return;
    }
    if (explain_private_pools(w)) return;
    int64_t most = f->map.largest_free_bytes;
    bool pieces = f->map.segments && most < f->requested && most <= oom_cached_bytes(f);
    w->v->verdict =
        TEXT(w, "fragmentation: PyTorch holds %s that no tensor uses, %s%s", SIZE(w, oom_cached_bytes(f)),
             pieces ? "in pieces of at most " : "and none of it could serve this request", pieces ? SIZE(w, most) : "");
    const char *from = f->holder > 0 ? TEXT(w, " (most of them from %s)", oom_place_text(w, f->holder_stack)) : "";
    oom_add_measure(w->b, w->v,
                    (struct result_measure){
                        .frees_bytes = RUN_UNKNOWN,
                        .effort = OOM_EFFORT_ARGUMENT,
                        .text = TEXT(w,
                                     "live blocks%s separate the holes: allocate long-lived tensors first, and pad "
                                     "varying sizes to a few lengths (drop_last=True skips a smaller last batch)",
                                     from)});
}

void oom_explain_refused_preallocation(struct oom_words *w)
{
    const struct run_device_sample *nvml = w->f->nvml;
    const bool named = nvml && nvml->other_pid;
    w->v->verdict = TEXT(w, "%s preallocates %s, but other processes hold %s of the GPU%s", w->f->preallocates,
                         SIZE(w, w->f->requested), SIZE(w, oom_other_bytes(w->f)),
                         named ? TEXT(w, ", most of it process %u%s%s%s", nvml->other_pid, nvml->other_name ? " (" : "",
                                      nvml->other_name ? nvml->other_name : "", nvml->other_name ? ")" : "")
                               : "");
    advise_in_words(
        w, OOM_EFFORT_SETTING, RUN_UNKNOWN,
        TEXT(w, "in this process, and in the others if they use %s: %s", w->f->preallocates, w->f->preallocates_less));
    advise_in_words(w, OOM_EFFORT_SETTING, oom_other_bytes(w->f),
                    named ? TEXT(w, "end process %u, or choose another GPU with CUDA_VISIBLE_DEVICES", nvml->other_pid)
                          : "end the other process (nvidia-smi), or choose another GPU with CUDA_VISIBLE_DEVICES");
}

void oom_explain_preallocation(struct oom_words *w)
{
    w->v->verdict = w->f->preallocated->sentence;
    if (w->f->preallocated->advice)
        advise_in_words(w, OOM_EFFORT_SETTING, w->f->preallocated->bytes, w->f->preallocated->advice);
}

/* Code outside of PyTorch whose allocations grow: it never frees them. */
static const struct result_growth *growth_at(const struct oom_words *w, const struct result_site *site)
{
    const struct result_report *r = w->b->report;
    EACH_IN (g, r->growth)
        if (g->process == w->v->process && g->layer == RUN_SERIES_DEVICE && g->stack.site.line == site->line &&
            g->stack.site.file && site->file && strcmp(g->stack.site.file, site->file) == 0)
            return g;
    return NULL;
}

void oom_explain_outside(struct oom_words *w)
{
    const struct result_by_owner *direct = oom_direct_owner(w->v);
    const char *who = direct ? TEXT(w, "; %s allocated %s directly at %s", direct->owner, SIZE(w, direct->bytes),
                                    site_text_with_caller(w->b, &direct->site))
                             : "";
    if (w->f->layer != RUN_SERIES_TENSOR) {
        w->v->verdict = TEXT(
            w,
            "most of the GPU is in use outside the recorded calls: %s of %s, by this process's contexts and libraries",
            SIZE(w, w->f->outside - oom_other_bytes(w->f)), SIZE(w, w->f->total));
        advise_in_words(w, OOM_EFFORT_LINE, RUN_UNKNOWN,
                        "use one context per device for all threads (cuDevicePrimaryCtxRetain, the CUDA runtime): "
                        "library handles and modules take memory in each context");
        return;
    }
    w->v->verdict = TEXT(w, "%s of the GPU's %s is in use outside PyTorch's allocator, which holds %s%s",
                         SIZE(w, oom_outside_bytes(w->f)), SIZE(w, w->f->total), SIZE(w, w->f->tensor_reserved), who);
    const struct result_growth *grows = direct ? growth_at(w, &direct->site) : NULL;
    if (grows) {
        advise_in_words(w, OOM_EFFORT_LINE, grows->bytes,
                        TEXT(w, "%s: its CUDA allocations grow by %s %s: free each block after its last use",
                             site_short_text(w->b, &direct->site), SIZE(w, grows->bytes_per_step),
                             grows->by_steps ? "per step" : "each time"));
    } else if (direct) {
        advise_in_words(w, OOM_EFFORT_LINE, direct->bytes,
                        TEXT(w,
                             "%s: its cudaMalloc calls leave that much less for PyTorch: use a smaller pool or fewer "
                             "buffers there, or its own GPU",
                             site_short_text(w->b, &direct->site)));
    }
    if (direct && direct->bytes >= oom_outside_bytes(w->f) / 10 * 9) return;
    advise_in_words(
        w, OOM_EFFORT_ARGUMENT, RUN_UNKNOWN,
        "use fewer NCCL communicators, smaller cuBLAS workspaces (CUBLAS_WORKSPACE_CONFIG=:16:8), one process per GPU");
}

/* Describes a part of the device's memory besides the live memory; NULL: the part is live memory. */
static const char *bytes_beside(const facts *f, enum result_held what)
{
    static const char *const words[RESULT_HELD_N] = {
        [RESULT_HELD_CACHED] = "that PyTorch caches",
        [RESULT_HELD_POOLS] = "in allocations from CUDA's pools",
        [RESULT_HELD_IDLE] = "that CUDA's pools keep",
        [RESULT_HELD_DIRECT] = "in CUDA allocations of other code",
        [RESULT_HELD_GRAPHS] = "held for CUDA graphs",
        [RESULT_HELD_CONTEXT] = "for the CUDA context and libraries",
        [RESULT_HELD_FIRST] = "in use from the beginning (contexts, other processes)",
        [RESULT_HELD_OTHERS] = "held by other processes",
        [RESULT_HELD_UNACCOUNTED] = "in use outside the recording (libraries, other processes)"};
    if (f->attached && (what == RESULT_HELD_CONTEXT || what == RESULT_HELD_FIRST))
        return "for the CUDA context and what the process allocated before gpuspy attached";
    bool own = f->layer != RUN_SERIES_TENSOR && (what == RESULT_HELD_POOLS || what == RESULT_HELD_DIRECT);
    return own ? NULL : words[what];
}

static int64_t asked_of_device(const facts *f)
{
    return f->device_requested > f->requested ? f->device_requested : f->requested;
}

SORT_ORDER_OF_POINTERS(compare_held_parts, struct result_held_part,
                       SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->what, y->what))

/* If the live memory would fit by itself: names other parts of the device's memory, the largest first, until the sum
 * exceeds the device. NULL: the recorded parts do not explain the failure. */
static const char *explain_beside(struct oom_words *w, const char *from)
{
    const facts *f = w->f;
    const struct result_held_part *parts[RESULT_HELD_N];
    size_t n = 0, named = 0;
    int64_t live = run_is_known(f->free) ? f->total - f->free : 0;
    EACH_IN (part, w->v->waterfall) {
        if (bytes_beside(f, part->what) && n < RESULT_HELD_N) {
            parts[n++] = part;
            live -= part->bytes;
        }
    }
    int64_t sum = arena_add_capped(live, asked_of_device(f));
    SORT(parts, n, compare_held_parts);
    while (named < n && sum <= f->total) sum = arena_add_capped(sum, parts[named++]->bytes);
    if (!named || sum <= f->total || live < 0) return NULL;
    const char *text = live ? TEXT(w, "the live memory, %s%s, does not fit beside", SIZE(w, live), from)
                            : "the request does not fit beside";
    for (size_t i = 0; i < named; i++) {
        text = TEXT(w, "%s%s %s %s", text,
                    i == 0           ? ""
                    : i + 1 == named ? ", and"
                                     : ",",
                    SIZE(w, parts[i]->bytes), bytes_beside(f, parts[i]->what));
    }
    return text;
}

/* The line that holds most of the live memory, else the largest lines; "": unknown. */
static const char *explain_lines(struct oom_words *w)
{
    enum { LINES = 3, SMALL = 10 };
    const struct result_oom_verdict *v = w->v;
    const int64_t live = w->f->live;
    size_t n = 0;
    while (n < v->live_lines_n && n < LINES && v->live_lines[n].site.known && v->live_lines[n].bytes >= live / SMALL)
        n++;
    if (n && v->live_lines[0].bytes > live / 2) {
        const char *where = site_text_with_caller(w->b, &v->live_lines[0].site);
        return v->live_lines[0].bytes >= live - live / 100
                   ? TEXT(w, ", nearly all of it from %s", where)
                   : TEXT(w, ", most of it (%s) from %s", SIZE(w, v->live_lines[0].bytes), where);
    }
    const char *text = n ? TEXT(w, ", the largest part%s of it from", n > 1 ? "s" : "") : "";
    for (size_t i = 0; i < n; i++) {
        text = TEXT(w, "%s%s %s (%s)", text,
                    i == 0       ? ""
                    : i + 1 == n ? " and"
                                 : ",",
                    site_text_with_caller(w->b, &v->live_lines[i].site), SIZE(w, v->live_lines[i].bytes));
    }
    return text;
}

/* Each sentence states only what the numbers prove: "the live memory does not fit" means that it would not fit even
 * if the process had the whole GPU except for its context. */
/* x = f(x): a compiled function of the program that is the whole value, and an argument that the statement binds
 * again. The operations of JAX itself donate nothing. */
static bool is_replacing_call(struct oom_words *w, const struct site_assignment *a)
{
    static const char *const own[] = {"jnp.", "jax.", "lax.", "np.", "numpy."};
    struct site_names names = {0};
    const size_t callee = site_name_length(a->value);
    if (a->augmented || !callee || a->value[callee] != '(' || !site_closes_at_end(a->value + callee) ||
        ANY_OF(module, own, COUNT_OF(own), strncmp(a->value, *module, strlen(*module)) == 0))
        return false;
    site_targets_of(w->b->arena, a->targets, &names, NULL);
    const char *p = a->value + callee + 1, *inside = arena_printf(w->b->arena, "%.*s", (int)strlen(p) - 1, p), *part;
    for (size_t i = 0; *(part = site_part_of(w->b->arena, inside, i)); i++) {
        part += strspn(part, " ");
        const size_t n = site_name_length(part);
        const char *value = part[n] == '=' ? part + n + 1 : part;
        if (site_name_length(value) && !value[site_name_length(value)] && site_names_has(&names, value)) return true;
    }
    return false;
}

/* Does the failing statement pass arrays to a compiled function and bind its results to their names? */
static bool replaces_arguments(struct oom_words *w)
{
    uint32_t stack = w->f->stack;
    const struct run_frame *frame;
    struct site_code code;
    struct site_assignment a;
    size_t at;
    for (; (frame = run_stack_frame(w->b->run, stack)) != NULL; stack = run_stack_parent(w->b->run, stack)) {
        if (frame->kind != GS_FRAME_PYTHON) continue;
        if (!site_is_library(frame)) break;
        if (!strstr(frame->file, "/jax/_src/") || strstr(frame->file, "/jax/_src/numpy/")) return false;
    }
    return frame && site_open_source(w->b, frame, &code, &at) &&
           site_assignment_of(w->b->arena, code.list[at].code, &a) &&
           !site_file_has(w->b, frame->file, frame->line, "donate") && is_replacing_call(w, &a);
}

/* A compiled function of JAX allocates its results beside its arguments, unless these are donated. */
static void advise_donation(struct oom_words *w)
{
    if (w->f->stack == RUN_NONE || strcmp(site_owner_word(w->b, site_owner_of(w->b, w->f->stack)), "JAX") != 0 ||
        !replaces_arguments(w))
        return;
    advise_in_words(w, OOM_EFFORT_LINE, RUN_UNKNOWN,
                    TEXT(w,
                         "%s replaces arrays that it passes to a call: if nothing else uses the earlier ones, donate "
                         "them (`jax.jit(…, donate_argnums=…)`), so that XLA reuses their memory",
                         oom_place_text(w, w->f->stack)));
}

/* CuPy frees the unused blocks of its pool before it fails; cupy.cuda.runtime.malloc does not. */
static bool is_request_of_pool(const struct oom_words *w, const struct result_preallocation *pool)
{
    return question_is_from_pool(w->b, pool, w->f->stack) &&
           (strcmp(pool->owner, "CuPy") != 0 ||
            RUN_ANY_FRAME(f, w->b->run, w->f->stack, f->module && strstr(f->module, "/cupy/cuda/memory.")));
}

/* What another library's pool keeps unused serves no request of this kind. */
static void advise_pools(struct oom_words *w)
{
    const struct result_report *r = w->b->report;
    EACH_IN (pool, r->preallocations) {
        if (pool->process != w->v->process || pool->device != w->f->row->device || pool->in_advance || !pool->advice ||
            pool->bytes < w->f->requested / 2 || is_request_of_pool(w, pool))
            continue;
        advise_in_words(w, OOM_EFFORT_SETTING, RUN_UNKNOWN, question_pool_advice(w->b, pool));
    }
}

void oom_explain_capacity(struct oom_words *w)
{
    const facts *f = w->f;
    if (oom_found_batch(w->b, w->v)) {
        w->v->verdict =
            "a function that searches for the largest batch tried one that does not fit; the program went on "
            "with a smaller one";
        w->v->certainty = RESULT_CERTAINTY_RECORDED;
        w->v->refuted_by = NULL;
        return;
    }
    if (f->pending) {
        oom_explain_pending(w);
        return;
    }
    int64_t needs = arena_add_capped(arena_add_capped(f->live, asked_of_device(f)), oom_context_bytes(f));
    bool too_much = run_is_known(f->total) && needs > f->total;
    const char *from = explain_lines(w);
    const char *rest = !too_much && f->examined && w->v->waterfall_n ? explain_beside(w, from) : NULL;
    if (rest) {
        w->v->verdict = rest;
    } else if (f->live > 0) {
        w->v->verdict = TEXT(
            w, too_much ? "the live memory does not fit: %s%s" : "the request did not fit beside the live memory: %s%s",
            SIZE(w, f->live), from);
    } else { /* only the first and the last of many failures are examined, or nothing was recorded there */
        w->v->verdict = "the request did not fit; the memory live at that moment is unknown";
    }
    bool others_known = f->nvml && run_is_known(f->nvml->other_bytes); /* whose it is */
    if (!others_known && run_is_known(f->outside) && f->outside > oom_context_bytes(f) + f->requested) {
        advise_in_words(
            w, OOM_EFFORT_SETTING, RUN_UNKNOWN,
            TEXT(w, "%s of the GPU are in use outside the recorded allocations: see nvidia-smi", SIZE(w, f->outside)));
    }
    advise_pools(w);
    advise_donation(w);
    oom_advise_growth(w);
    oom_advise_kept(w);
}

/* The advice if no measure helps. */
void oom_advise_otherwise(const struct oom_sight *s, bool training)
{
    const int64_t trained =
        arena_add_capped(s->of[RESULT_CATEGORY_GRADIENTS].bytes, s->of[RESULT_CATEGORY_OPTIMIZER_STATE].bytes);
    const int64_t weights = arena_add_capped(s->of[RESULT_CATEGORY_PARAMETERS].bytes, trained);
    const bool model = weights > 0 && run_is_known(s->v->total_bytes) && weights >= s->v->total_bytes / 4;
    const bool serves =
        model && (training ? !trained && s->phase == OOM_ELSEWHERE : oom_never_trains(s->b, s->f->stack));
    const bool pass = s->f->layer == RUN_SERIES_TENSOR && (s->phase == OOM_FORWARD || s->phase == OOM_BACKWARD) &&
                      !site_repeats_input(s->b, s->of[RESULT_CATEGORY_ACTIVATIONS].heaviest);
    const char *stored = describe_stored_blocks(&(struct oom_words){.b = s->b, .f = s->f, .v = s->v});
    const char *library = oom_library_advice(s->b, s->f->stack);
    bool halved = false;
    for (size_t i = 0; i < s->v->measures_n; i++) halved |= strncmp(s->v->measures[i].text, "halve ", 6) == 0;
    const char *text = serves    ? "load the weights in 16 bits or fewer (`dtype=torch.bfloat16`, a quantized "
                                   "checkpoint), keep unused models on the host, or use a larger GPU"
                       : model   ? "use a larger GPU, or several that share the model (FSDP): 'gpuspy "
                                   "estimate' computes the minimum for its weights and optimizer"
                       : library ? library
                       : halved  ? "use an even smaller batch, or a larger GPU"
                       : pass    ? "use a smaller batch, smaller or shorter samples, or a larger GPU"
                       : stored  ? stored
                                 : "process the data in smaller pieces, or use a larger GPU";
    oom_add_measure(s->b, s->v,
                    (struct result_measure){.text = text, .frees_bytes = RUN_UNKNOWN, .effort = OOM_EFFORT_TRAINING});
}
