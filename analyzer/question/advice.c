/* One list of advice, by impact: first for an OOM, then by the share of the peak or of the wall time that each
 * concerns. */
#include "analyzer/allocator/allocator.h"
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"
#include "analyzer/question/question.h"
#include "analyzer/base/units.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/native_source.h"
#include "analyzer/site/owner.h"
#include "analyzer/whatif/whatif.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct advices {
    struct site_builder *b;
    struct result_advice *list;
    size_t n, cap;
};

static void add_advice(struct advices *a, const char *topic, double impact, const char *text)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->list[i].text, text) == 0) return;
    *ARENA_PUSH(a->list, a->n, a->cap) = (struct result_advice){.impact = impact, .topic = topic, .text = text};
}

static const char *advice_at_site(struct advices *a, const struct result_site *site, const char *text)
{
    return arena_printf(a->b->arena, "%s: %s", site_short_text(a->b, site), text);
}

static bool same_line(const struct result_site *a, const struct result_site *b)
{
    return a->known && b->known && a->line == b->line && a->file && b->file && strcmp(a->file, b->file) == 0 &&
           (a->line || site_key(a) == site_key(b));
}

/* An allocator that tries again fails again for the same reason. */
static bool is_repeated_failure(const struct result_report *r, size_t at)
{
    return ANY_OF(o, r->ooms, at, o->cause == r->ooms[at].cause && same_line(&o->blame, &r->ooms[at].blame));
}

static void of_ooms(struct advices *a)
{
    const struct result_report *r = a->b->report;
    for (size_t i = 0; i < r->ooms_n && i < 3; i++) {
        if (is_repeated_failure(r, i)) continue;
        for (size_t j = 0; j < r->ooms[i].advice_n; j++) {
            double impact = (r->ooms[i].fatal ? 20.0 : 2.0) - (double)i - 0.1 * (double)j;
            add_advice(a, "oom", impact, r->ooms[i].advice[j]);
        }
    }
}

/* For CPU tensors the highest of the process: a few bytes per step matter little beside the memory of its GPUs. */
static int64_t peak_of_growth(const struct result_report *r, const struct result_growth *g)
{
    int64_t most = 0;
    EACH_IN (p, r->peaks) {
        const bool counts = g->layer == RUN_SERIES_HOST || (p->device == g->device && p->layer == g->layer);
        if (p->process == g->process && counts && p->bytes > most) most = p->bytes;
    }
    return most;
}

/* The OOM's verdict already has it, for that line, for the line that keeps its graph, or for everything that earlier
 * trials or a kept exception hold: then it names no line that grows. */
static bool is_covered_by_oom(const struct result_report *r, const struct result_growth *g)
{
    for (size_t i = 0; i < r->ooms_n; i++) {
        const struct result_site *blamed = &r->ooms[i].growing;
        const bool here = r->ooms[i].process == g->process && r->ooms[i].device == g->device;
        if (r->ooms[i].cause == RESULT_CAUSE_LEAK &&
            ((!blamed->known && here) || same_line(blamed, &g->stack.site) ||
             same_line(&r->ooms[i].blame, &g->stack.site) || (g->graph && same_line(blamed, &g->newest))))
            return true;
    }
    return false;
}

/* There is a fatal OOM that is not a leak: the program needed the memory that grew until then, or the verdict would
 * have named it. */
static bool died_of_something_else(const struct result_report *r, const struct result_growth *g)
{
    EACH_IN (o, r->ooms)
        if (o->fatal && o->process == g->process && o->device == g->device) return o->cause != RESULT_CAUSE_LEAK;
    return false;
}

/* A pointer of ctypes or cuda.bindings: no object frees its memory. Those of cuda.core do. */
static bool is_bare_pointer(struct site_builder *b, uint32_t stack)
{
    const struct run_frame *frame;
    const uint32_t owner = site_owner_of(b, stack);
    if (site_owner_kind(b, owner) != RESULT_OWNER_USER && strcmp(site_owner_word(b, owner), "cuda") != 0) return false;
    for (; (frame = run_stack_frame(b->run, stack)) != NULL; stack = run_stack_parent(b->run, stack))
        if (frame->module && strstr(frame->module, "/cuda/core/")) return false;
    return true;
}

const char *question_instead_of_blocks(struct site_builder *b, uint32_t stack, bool held)
{
    if (!is_bare_pointer(b, stack)) return "drop the reference after each step, or store a copy on the host";
    return held ? "drop the reference after each step (free the block, if no object does), or store a copy on the host"
                : "free each block after its last use";
}

static const char *advice_of_growth(struct site_builder *b, const struct result_growth *g)
{
    const bool native =
        g->layer != RUN_SERIES_TENSOR && g->layer != RUN_SERIES_HOST && g->stack.site.kind == GS_FRAME_NATIVE;
    if (native) return site_native_growth_advice(b, &g->stack.site);
    if (g->creates != RUN_NONE)
        return "backward(create_graph=True) makes gradients and their leaves keep each other "
               "alive: " QUESTION_CREATE_GRAPH_ADVICE;
    if (g->layer == RUN_SERIES_HOST)
        return g->graph
                   ? "tensors of a forward pass stay referenced, perhaps with their autograd graph: store `.detach()`"
                   : "drop the reference after each step, or write the results to a file";
    if (g->layer == RUN_SERIES_TENSOR && g->holders_n && g->holders[0].instead) return g->holders[0].instead;
    if (g->graph && question_is_number(g->newest_bytes))
        return "tensors of a forward pass stay referenced, perhaps with their autograd graph: "
               "store " QUESTION_STORE_NUMBERS
               ", or `.detach()` if backward() does not need them; or use `torch.no_grad()` if no backward() follows";
    if (g->graph)
        return "tensors of a forward pass stay referenced, perhaps with their autograd graph: store `.detach().cpu()`; "
               "or use `torch.no_grad()` if no backward() follows";
    if (g->layer == RUN_SERIES_PINNED) return "drop the reference, or store a copy in memory that is not pinned";
    if (g->layer == RUN_SERIES_DEVICE && g->holders_n && g->holders[0].instead) return g->holders[0].instead;
    if (g->layer == RUN_SERIES_DEVICE) return question_instead_of_blocks(b, g->stack.number, g->holders_n > 0);
    const char *text = question_is_number(g->bytes / (int64_t)g->count)
                           ? "drop the reference, or store " QUESTION_STORE_NUMBERS
                           : "drop the reference, or store `.detach().cpu()`";
    const char *keeper = g->stack.site.kind == GS_FRAME_NATIVE ? site_native_keeper(b, &g->stack.site) : NULL;
    return keeper ? arena_printf(b->arena, "%s: %s", keeper, text) : text;
}

static bool grows_by_steps(const struct result_growth *g)
{
    return g->by_steps && !g->jumps && g->layer != RUN_SERIES_HOST && g->layer != RUN_SERIES_PINNED;
}

/* What all lines that grow on the device of this one add to it per step. */
static double device_growth_per_step(const struct result_report *r, const struct result_growth *of)
{
    double bytes = 0;
    EACH_IN (g, r->growth)
        if (grows_by_steps(g) && g->process == of->process && g->device == of->device) bytes += g->bytes_per_step;
    return bytes;
}

/* ", GPU 0 full after about 33 more steps"; "" if that is not known, or far away. What is free is known for the peak:
 * one before the growth, such as that of loading a model, shows nothing about the end. */
static const char *steps_to_full(struct advices *a, const struct result_growth *g, const struct run_process *p)
{
    enum { FAR = 1000000 };
    const struct result_report *r = a->b->report;
    const double end_s = site_seconds(p->last_alloc_ns), grown_s = end_s - g->first_s;

    if (!grows_by_steps(g) || end_s - g->last_s > 0.1 * grown_s) return "";
    EACH_IN (m, r->memory) {
        if (m->process != g->process || m->device != g->device || m->total_bytes <= 0 || m->time_s < g->first_s)
            continue;
        const int64_t outside = (m->context_bytes == RUN_UNKNOWN ? 0 : m->context_bytes) +
                                (m->other_bytes == RUN_UNKNOWN ? 0 : m->other_bytes);
        const int64_t left = m->free_bytes == RUN_UNKNOWN ? m->total_bytes - m->live_bytes - outside : m->free_bytes;
        const double since = grown_s > 0 ? (double)g->steps * fmax(0, end_s - m->time_s) / grown_s : 0,
                     steps = (double)left / device_growth_per_step(r, g) - since;
        if (steps >= 1.5 && steps < FAR)
            return arena_printf(a->b->arena, ", GPU %d full after about %s more steps", g->device,
                                UNITS_COUNT((uint64_t)(steps + 0.5)));
    }
    return "";
}

static void of_growth(struct advices *a)
{
    size_t n;
    const struct result_report *r = a->b->report;
    const struct run_process *processes = run_processes(a->b->run, &n);
    for (size_t i = 0; i < r->growth_n && i < 5; i++) {
        const struct result_growth *g = &r->growth[i];
        int64_t peak = peak_of_growth(r, g);
        double share = peak > 0 ? (double)g->bytes / (double)peak : 0;
        if (share < 0.01 || is_covered_by_oom(r, g) || died_of_something_else(r, g)) continue;
        const char *kept = g->creates == RUN_NONE ? site_kept_text(a->b->arena, "", g->holders, g->holders_n) : NULL;
        const struct run_process *p = &processes[g->process];
        const char *least = p->kept_from_ns && !p->lows_are_known ? "at least " : "";
        add_advice(a, "leak", r->simulated ? 1 + share : share, /* above waits, whose times have no meaning */
                   advice_at_site(a, &g->stack.site,
                                  arena_printf(a->b->arena, "%s more %s%s, %s%s in total%s: %s%s%s",
                                               site_bytes_text(a->b, g->bytes_per_step),
                                               g->layer == RUN_SERIES_HOST ? "in CPU tensors " : "",
                                               g->by_steps ? "per step" : "each time this line allocates", least,
                                               site_bytes_text(a->b, (double)g->bytes), steps_to_full(a, g, p),
                                               kept ?: "", kept ? "; " : "",
                                               site_cpp_words(a->b, g->process, advice_of_growth(a->b, g)))));
    }
}

static void of_syncs(struct advices *a)
{
    const struct result_report *r = a->b->report;
    bool done[QUESTION_ADVICE_SYNCS] = {false};
    for (size_t i = 0; i < r->syncs_n && i < QUESTION_ADVICE_SYNCS; i++) {
        if (r->syncs[i].advice && !done[i]) {
            struct result_advice advice = question_advice_of_waits(a->b, i, done);
            add_advice(a, advice.topic, advice.impact, advice.text);
        }
    }
}

/* Advice on a blocking copy is given as advice on a wait. */
static bool has_wait_at(const struct result_report *r, const struct result_site *site)
{
    for (size_t i = 0; i < r->syncs_n && i < QUESTION_ADVICE_SYNCS; i++)
        if (r->syncs[i].advice && site_key(&r->syncs[i].site) == site_key(site)) return true;
    return false;
}

static bool frees_wait(const struct result_report *r)
{
    for (size_t i = 0; i < r->syncs_n && i < QUESTION_ADVICE_SYNCS; i++)
        if (r->syncs[i].advice && r->syncs[i].kind == GS_SYNC_IMPLICIT && !r->syncs[i].pattern) return true;
    return false;
}

static bool is_advised(const struct result_report *r, const char *text)
{
    for (size_t i = 0; i < r->syncs_n && i < QUESTION_ADVICE_SYNCS; i++)
        if (r->syncs[i].advice == text) return true;
    return false;
}

enum { CHURNS = 3 }; /* of which advice is given */

static bool is_earlier_churn(const struct result_report *r, size_t at)
{
    return ANY_OF(c, r->churn, at, c->advice == r->churn[at].advice);
}

/* "a.py:3, b.py:7": each line of the program with the advice of the first, once. */
static const char *churn_lines(struct advices *a, size_t first)
{
    const struct result_report *r = a->b->report;
    const char *seen[CHURNS], *text = "";
    size_t n = 0;
    for (size_t i = first; i < r->churn_n && i < CHURNS; i++) {
        const struct result_churn *c = &r->churn[i];
        if (c->advice != r->churn[first].advice || (i > first && c->pattern)) continue;
        const char *one = site_short_text(a->b, c->freed.known && c->freed.line ? &c->freed : &c->stack.site);
        bool again = false;
        for (size_t k = 0; k < n; k++) again = again || strcmp(seen[k], one) == 0;
        if (again) continue;
        seen[n++] = one;
        text = arena_printf(a->b->arena, "%s%s%s", text, n > 1 ? ", " : "", one);
    }
    return text;
}

static void of_time(struct advices *a)
{
    const struct result_report *r = a->b->report;
    double wall = site_wall_seconds(a->b);
    of_syncs(a);
    for (size_t i = 0; i < r->transfers_n && i < 10; i++) {
        const struct result_transfer *t = &r->transfers[i];
        double share = t->blocked_s / wall;
        bool counted = r->simulated && t->pace.phase;
        if (t->advice && (counted || share >= 0.01) && !has_wait_at(r, &t->site))
            add_advice(a, "transfer", counted ? 0.02 : share, advice_at_site(a, &t->site, t->advice));
    }
    /* If the waits are caused by frees, the advice is the same. */
    for (size_t i = 0; i < r->churn_n && i < CHURNS && !frees_wait(r); i++) {
        const struct result_churn *c = &r->churn[i];
        const bool retried = ANY_IN(x, r->retries, same_line(&x->stack.site, &c->stack.site)); /* a full pool frees */
        if (c->advice && !retried && !is_advised(r, c->advice) && !is_earlier_churn(r, i))
            add_advice(a, "churn", 0.02, arena_printf(a->b->arena, "%s: %s", churn_lines(a, i), c->advice));
    }
}

/* A loop that asks the GPU whether it is done keeps a core busy. Such calls are only counted, so the line is unknown.
 * */
static void of_polling(struct advices *a)
{
    enum { OFTEN = 5000 }; /* per second */
    const struct result_report *r = a->b->report;
    EACH_IN (c, r->calls) {
        double again = r->duration_s > 0 ? (double)c->not_ready / r->duration_s : 0;
        if (again >= OFTEN) {
            add_advice(a, "sync", 0.02,
                       arena_printf(a->b->arena,
                                    "%s returned not ready %s times per second (only counted, so the line is unknown): "
                                    "wait with cudaEventSynchronize on an event created with cudaEventBlockingSync",
                                    c->api, UNITS_COUNT(units_whole(again))));
        }
    }
}

/* The same line may already be among the waits, or among the lines that free repeatedly. */
static bool emptying_advised(const struct result_report *r, const struct result_site *site)
{
    bool freed = false;
    for (size_t i = 0; i < r->churn_n && i < CHURNS; i++) {
        const struct result_churn *c = &r->churn[i];
        freed = freed || (c->advice && c->freed.known && site_key(&c->freed) == site_key(site));
    }
    return freed || has_wait_at(r, site);
}

static void of_flushes(struct advices *a)
{
    const struct result_report *r = a->b->report;
    for (size_t i = 0; i < r->flushes_n && r->flushes[i].matters; i++) {
        const struct allocator_cache_flush *f = &r->flushes[i];
        if (emptying_advised(r, &f->site)) continue;
        double share = f->blocked_s / site_wall_seconds(a->b);
        add_advice(a, "churn", share > 0.02 ? share : 0.02, advice_at_site(a, &f->site, f->advice));
    }
}

/* The exception that ended the process names memory that the framework's own pool lacked: no CUDA call shows it. */
static void of_pools(struct advices *a)
{
    const struct result_report *r = a->b->report;
    EACH_IN (p, r->processes) {
        const char *at = p->exception_place ? strrchr(p->exception_place, '/') : NULL;
        if (!result_names_arena_limit(p->exception)) continue;
        add_advice(a, "oom", 10,
                   arena_printf(a->b->arena,
                                "%s: ONNX Runtime's arena reached its provider option gpu_mem_limit: raise it, or use "
                                "smaller batches or inputs",
                                at ? at + 1 : "the exception"));
    }
    EACH_IN (pool, r->preallocations) {
        const struct run_process *p = &r->processes[pool->process];
        if (!pool->in_advance || pool->within || !result_names_pool(p->exception)) continue;
        const char *at = p->exception_place ? strrchr(p->exception_place, '/') : NULL;
        add_advice(a, "oom", 10,
                   arena_printf(a->b->arena,
                                "%s: %s's pool of %s ran out; use smaller batches or arrays there, or a larger GPU. "
                                "gpuspy run --inside-pools records which lines hold the pool's memory",
                                at ? at + 1 : "the exception", pool->owner,
                                site_bytes_text(a->b, (double)pool->bytes)));
    }
}

/* Nothing else shows that an allocation succeeded only after PyTorch had freed its cache. */
static void of_retries(struct advices *a)
{
    enum { OFTEN = 3 };
    const struct result_report *r = a->b->report;
    double blocked = 0;
    const struct result_retry *worst = NULL;
    EACH_IN (x, r->retries) {
        blocked += x->blocked_s > 0 ? x->blocked_s : 0;
        worst = !worst || x->blocked_s > worst->blocked_s ? x : worst;
    }
    double share = blocked / site_wall_seconds(a->b);
    if (!worst || r->retries_total < OFTEN || (!r->simulated && share < 0.02)) return;
    const struct run_torch_settings s = run_torch_settings(a->b->run, worst->process);
    add_advice(a, "fragmentation", r->simulated ? 0.02 : share,
               advice_at_site(
                   a, &worst->stack.site,
                   arena_printf(
                       a->b->arena,
                       "%zu allocations failed first and succeeded after PyTorch had freed its cached segments (%s in "
                       "total): the GPU is almost full%s",
                       r->retries_total, UNITS_SECONDS(blocked),
                       s.expandable == RUN_NO && s.backend == RUN_BACKEND_NATIVE
                           ? "; expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF leaves less of it unused"
                           : "")));
}

/* A trace has no segments: PyTorch may have reserved them before it for a peak that the trace does not show. */
static bool is_wasted(const struct advices *a, const struct result_fragmentation *f)
{
    enum { WORTH = 256 << 20 };
    return !run_why_unknown(a->b->run, RUN_FACT_SEGMENTS) && !a->b->report->no_history && f->utilisation < 0.9 &&
           f->free_bytes != RUN_UNKNOWN && f->free_bytes >= WORTH &&
           run_torch_settings(a->b->run, f->process).expandable != RUN_YES;
}

/* The replay's outcomes with the recorded settings and with expandable segments, for the process and device that
 * reserved most; false: the replay does not reproduce the recording, or the program would go on otherwise. */
static bool replay_expandable(const struct advices *a, struct whatif_outcome *was, struct whatif_outcome *is)
{
    char error[256];
    const struct result_report *r = a->b->report;
    struct whatif_scenario grown = {.conf = "expandable_segments:True"};
    struct whatif *w = whatif_start(a->b->run, r->steps, r->steps_n, error, sizeof error);
    if (!w) return false;
    const struct whatif_proof *proof = whatif_proof(w);
    const bool same = !proof->parted_at_event && (!proof->reason || proof->unsure_sizes);
    const bool ok = same && whatif_run(w, &grown, 1, error, sizeof error) && !grown.error;
    *was = proof->recorded;
    *is = grown.outcome;
    whatif_free(w);
    return ok && !(is->doubts & WHATIF_HANDLED) && was->process == is->process && was->device == is->device;
}

static void of_fragmentation(struct advices *a)
{
    static const char setting[] = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
    const struct result_report *r = a->b->report;
    bool asked = false, replayed = false;
    struct whatif_outcome was = {0}, is = {0};
    EACH_IN (f, r->fragmentation) {
        if (!is_wasted(a, f)) continue;
        if (!asked) replayed = replay_expandable(a, &was, &is);
        asked = true;
        const bool about = replayed && was.process == f->process && was.device == f->device;
        const int64_t less = was.peak_reserved_bytes - is.peak_reserved_bytes;
        if (about && (!is.fits || less < was.peak_reserved_bytes / 20)) continue; /* the replay refutes it */
        add_advice(a, "fragmentation", 1 - f->utilisation,
                   about ? arena_printf(a->b->arena,
                                        "GPU %d: PyTorch used %.0f %% of what it reserved at its peaks. Set `%s`: "
                                        "replayed, it reserves at most %s instead of %s",
                                        f->device, 100 * f->utilisation, setting,
                                        UNITS_BYTES((double)is.peak_reserved_bytes),
                                        UNITS_BYTES((double)was.peak_reserved_bytes))
                         : arena_printf(a->b->arena,
                                        "GPU %d: PyTorch used %.0f %% of what it reserved at its peaks. Try `%s` "
                                        "(estimated, not replayed)",
                                        f->device, 100 * f->utilisation, setting));
    }
}

static void of_recording(struct advices *a)
{
    const struct result_report *r = a->b->report;
    if (r->lost_events) {
        add_advice(
            a, "recording", 30,
            arena_printf(a->b->arena,
                         "%s lost because there was no space: sums are too low from %s on; record on a faster or "
                         "emptier disk (GPUSPY_DB)",
                         UNITS_PLURAL(r->lost_events, "event was", "events were"), UNITS_SECONDS(r->lost_first_s)));
    }
}

SORT_ORDER(order_advice_by_impact, struct result_advice, SORT_DOWN(x->impact, y->impact) ?: strcmp(x->text, y->text))

void question_advice_build(struct site_builder *b)
{
    struct advices a = {.b = b};
    size_t total;
    of_recording(&a);
    of_ooms(&a);
    of_pools(&a);
    of_growth(&a);
    of_time(&a);
    of_polling(&a);
    of_flushes(&a);
    of_retries(&a);
    of_fragmentation(&a);
    b->report->advice = site_list(b, a.list, a.n, sizeof *a.list, order_advice_by_impact, &b->report->advice_n, &total);
    free(a.list);
}
