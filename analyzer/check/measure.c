/* The measurement of each gate in one process, and the lines that make up a reading. */
#include "analyzer/check/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/step/cadence.h"
#include "analyzer/step/step.h"
#include "analyzer/base/each.h"
#include "analyzer/base/units.h"
#include "analyzer/allocator/heap_map.h"
#include "analyzer/site/holder.h"
#include "analyzer/profile/profile.h"

enum {
    STEPS_LEAST = 10, /* with fewer, absence of growth cannot be established */
    ROOM = 512
};

static void emit_measure(struct checking *c, int device, double value, const char *why)
{
    c->read(c, &(struct check_result){.device = device, .value = value, .limit = NAN, .why = why});
}

static bool emit_unknown_fact(struct checking *c, enum run_fact what)
{
    const char *why = run_why_unknown(c->run, what);
    if (why) emit_measure(c, -1, NAN, why);
    return why;
}

static const struct step_list *measured_steps_of(const struct checking *c)
{
    return c->report->steps_n ? c->report->steps[0] : NULL;
}

static const char *no_steps(struct checking *c)
{
    return arena_printf(c->arena,
                        "no steps were found in the program, so figures per step are unknown; mark steps with "
                        "NVTX ranges (gpuspy.scope), or measure the whole run");
}

static const char *over_steps(struct checking *c)
{
    const struct step_list *s = measured_steps_of(c);
    size_t end = step_steady_end(s), n = end > s->steady ? end - s->steady : 0;
    return arena_printf(c->arena, "over %zu usual step%s", n, n == 1 ? "" : "s");
}

/* Without a fatal OOM, which itself explains why the program ended. */
static bool has_crashed(struct checking *c, char *failure, size_t size)
{
    return !ANY_IN(o, c->report->ooms, o->fatal && &c->report->processes[o->process] == c->process) &&
           run_process_failure(c->process, failure, size) != NULL;
}

static void measure_complete(struct checking *c)
{
    char failure[RUN_FAILURE_TEXT];
    const struct run_process *p = c->process;
    const char *why =
        p->recording ? "the program is still running"
        : p->torn    ? "its last events are missing"
        : has_crashed(c, failure, sizeof failure)
            ? arena_printf(c->arena, "the program did not end normally (%s), so its later needs are unknown", failure)
        : !p->complete && !p->kernel ? "the program was killed, crashed or called _exit, so its later needs are unknown"
                                     : NULL;
    const char *also = p->damaged ? "invalid records in it were left out" : NULL;
    emit_measure(c, -1, why || also ? 1 : 0, why ? why : also);
}

static void measure_lost(struct checking *c)
{
    emit_measure(c, -1, (double)c->process->lost_events, NULL);
}

static void explain_none(struct checking *c, struct check_result *r)
{
}

static void measure_oom(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_FAILURES) || emit_unknown_fact(c, RUN_FACT_MEMORY) ||
        emit_unknown_fact(c, RUN_FACT_HISTORY) || emit_unknown_fact(c, RUN_FACT_OUTCOME))
        return;
    double fatal = 0;
    for (size_t i = 0; i < c->report->ooms_n; i++) fatal += c->report->ooms[i].fatal;
    emit_measure(c, -1, fatal, NULL);
}

static void explain_oom(struct checking *c, struct check_result *r)
{
    size_t cap = 0;
    EACH_IN (v, c->report->ooms) {
        if (v->fatal) {
            check_line_add(c, r, &cap, v->stack.site.known || !v->blame.known ? &v->stack.site : &v->blame, NAN,
                           v->verdict);
        }
    }
}

static const struct result_peak *measured_peak_of(const struct result_report *r, enum run_series_layer layer,
                                                  int device)
{
    return FIND_IN(p, r->peaks, p->layer == layer && (device < 0 || p->device == device));
}

static const struct result_device_memory *measured_memory_of(const struct result_report *r, int device)
{
    return FIND_IN(m, r->memory, m->device == device);
}

/* "1.50 GiB in tensors, 200 MiB cached": if the device's peak is PyTorch's. */
static const char *list_peak_parts(struct checking *c, int device)
{
    const struct result_device_memory *m = measured_memory_of(c->report, device);
    if (!m || m->tensor_bytes < 0 || m->cached_bytes < 0) return NULL;
    return arena_printf(c->arena, "at that moment %s in tensors, %s cached by PyTorch",
                        UNITS_BYTES((uint64_t)m->tensor_bytes), UNITS_BYTES((uint64_t)m->cached_bytes));
}

static void measure_peak(struct checking *c)
{
    check_measure_scopes(c, RUN_SERIES_DEVICE);
    if (emit_unknown_fact(c, RUN_FACT_MEMORY)) return;
    bool any = false, tensors = false;
    EACH_IN (p, c->report->peaks) {
        tensors = tensors || (p->layer == RUN_SERIES_TENSOR && p->device >= 0);
        if (p->layer == RUN_SERIES_DEVICE) {
            emit_measure(c, p->device, (double)p->bytes, list_peak_parts(c, p->device));
            any = true;
        }
    }
    if (!any) {
        emit_measure(c, -1, tensors ? NAN : 0,
                     tensors ? "tensors were recorded, but not the CUDA allocations that contain them" : NULL);
    }
}

static void measure_tensor_peak(struct checking *c)
{
    check_measure_scopes(c, RUN_SERIES_TENSOR);
    if (emit_unknown_fact(c, RUN_FACT_TENSORS)) return;
    bool any = false, memory = false;
    EACH_IN (p, c->report->peaks) {
        memory = memory || (p->layer == RUN_SERIES_DEVICE && p->bytes > 0);
        if (p->layer == RUN_SERIES_TENSOR && p->device >= 0) {
            emit_measure(c, p->device, (double)p->bytes, NULL);
            any = true;
        }
    }
    if (!any) {
        emit_measure(c, -1, memory ? NAN : 0,
                     memory ? "PyTorch reported no tensors, although GPU memory was allocated" : NULL);
    }
}

static void measure_pinned(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_MEMORY) || emit_unknown_fact(c, RUN_FACT_PINNED)) return;
    const struct result_peak *p = measured_peak_of(c->report, RUN_SERIES_PINNED, -1);
    emit_measure(c, -1, p ? (double)p->bytes : 0, NULL);
}

/* "12 allocations"; "" for one. */
static const char *format_count_of(struct checking *c, uint64_t n, const char *things)
{
    char count[UNITS_TEXT];
    return n > 1 ? arena_printf(c->arena, "%s %s", units_format_count(count, n), things) : NULL;
}

static void sites_of(struct checking *c, struct check_result *r, const struct result_peak *p)
{
    size_t cap = 0;
    for (size_t i = 0; p && i < p->by_site_n; i++) {
        const struct result_by_site *s = &p->by_site[i];
        check_line_add(c, r, &cap, &s->site, (double)s->bytes, format_count_of(c, s->count, "allocations"));
    }
}

static void explain_pinned(struct checking *c, struct check_result *r)
{
    sites_of(c, r, measured_peak_of(c->report, RUN_SERIES_PINNED, -1));
}

/* Bytes and number by call path. */
struct stacks {
    struct map index;
    struct result_by_stack *list;
    size_t n, cap;
};

static void add_stack(struct stacks *s, uint32_t stack, int64_t bytes)
{
    const struct result_by_stack new = {.stack.number = stack};
    struct result_by_stack *by = MAP_ROW(&s->index, stack, s->list, s->n, s->cap, new);
    by->bytes = arena_add_capped(by->bytes, bytes);
    by->count++;
}

static void free_stacks(struct stacks *s)
{
    map_free(&s->index);
    free(s->list);
}

/* The memory that was live on the device at its peak: tensors if there are any, because PyTorch's segments do not show
 * which code needs them. */
struct live_at {
    struct checking *c;
    int device;
    enum run_series_layer layer;
    struct stacks stacks;
};

static void measure_on_live(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack)
{
    struct live_at *l = self;
    const struct run_series *s = run_series(l->c->run, life->series);
    if (s->device == l->device && s->layer == l->layer) add_stack(&l->stacks, life->stack, life->bytes);
}

static void merge_sites(struct checking *c, struct check_result *r, const struct stacks *s, double divisor,
                        const char *things)
{
    struct map index = {0}, helpers = {0};
    struct result_by_site *sites = NULL;
    size_t sites_n = 0, sites_cap = 0, cap = 0;
    site_helpers(c->run, &helpers);
    for (size_t i = 0; i < s->n; i++) {
        const struct result_by_site new = {.site = site_of(c->run, s->list[i].stack.number, &helpers)};
        struct result_by_site *by = MAP_ROW_IN(&index, site_key(&new.site), sites, new);
        by->bytes = arena_add_capped(by->bytes, s->list[i].bytes);
        by->count += s->list[i].count;
    }
    for (size_t i = 0; i < sites_n; i++) {
        check_line_add(c, r, &cap, &sites[i].site, (double)sites[i].bytes / divisor,
                       format_count_of(c, sites[i].count, things));
    }
    MAP_RELEASE(&index, &helpers);
    free(sites);
}

static void explain_moment(struct checking *c, struct check_result *r, enum run_series_layer layer, int64_t time_ns)
{
    if (!profile_has_rows(c->run, 0, time_ns)) return;
    struct live_at l = {.c = c, .device = r->device, .layer = layer};
    char error[ROOM];
    if (run_each_live_at(c->run, 0, &time_ns, 1, measure_on_live, &l, error, sizeof error))
        merge_sites(c, r, &l.stacks, 1, "allocations");
    free_stacks(&l.stacks);
}

static void explain_tensor_peak(struct checking *c, struct check_result *r)
{
    if (r->scope)
        explain_moment(c, r, RUN_SERIES_TENSOR, r->moment_ns);
    else
        sites_of(c, r, measured_peak_of(c->report, RUN_SERIES_TENSOR, r->device));
}

static void explain_peak(struct checking *c, struct check_result *r)
{
    const struct result_peak *p = measured_peak_of(c->report, RUN_SERIES_DEVICE, r->device);
    const struct result_device_memory *m = measured_memory_of(c->report, r->device);
    bool tensors = r->device >= 0 && measured_peak_of(c->report, RUN_SERIES_TENSOR, r->device);
    if (!p) return;
    const int64_t peak_ns = tensors && m && profile_has_rows(c->run, 0, m->tensor_ns) ? m->tensor_ns : p->time_ns;
    explain_moment(c, r, tensors ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE, r->scope ? r->moment_ns : peak_ns);
}

static bool on_gpu(enum run_series_layer layer, int device)
{
    return device >= 0 && (layer == RUN_SERIES_DEVICE || layer == RUN_SERIES_TENSOR);
}

static uint64_t total_allocations(const struct result_report *r)
{
    uint64_t n = 0;
    for (size_t i = 0; i < r->peaks_n; i++)
        n += on_gpu(r->peaks[i].layer, r->peaks[i].device) ? r->peaks[i].allocations : 0;
    return n;
}

/* Why absence of growth cannot be established; NULL: it can. */
static const char *too_short(struct checking *c)
{
    const struct step_list *s = measured_steps_of(c);
    if (total_allocations(c->report) == 0) return NULL;
    if (!s) {
        return arena_printf(
            c->arena,
            "no steps were found in the program, so gpuspy cannot judge whether memory keeps growing; let it "
            "run %d steps or more, mark them with NVTX ranges (gpuspy.scope), or use --max-leak",
            STEPS_LEAST);
    }
    if (s->n < STEPS_LEAST) {
        return arena_printf(c->arena, "%zu steps are too few to judge whether memory keeps growing; %d are enough",
                            s->n, STEPS_LEAST);
    }
    return NULL;
}

/* A buffer that grew too few times to be listed as growth, but filled the GPU. NULL: none ended the program. */
static const struct result_oom_verdict *failed_by_growth(const struct checking *c)
{
    EACH_IN (v, c->report->ooms)
        if (v->fatal && v->cause == RESULT_CAUSE_LEAK && on_gpu(v->live_layer, (int)v->device)) return v;
    return NULL;
}

static double grown_bytes(const struct result_oom_verdict *v)
{
    double bytes = 0;
    EACH_IN (l, v->live) bytes += site_key(&l->site) == site_key(&v->growing) ? (double)l->bytes : 0;
    return bytes > 0 ? bytes : (double)v->live_sum;
}

static void measure_grown(struct checking *c, bool per_step)
{
    enum { DEVICES = 64 };
    double sum[DEVICES] = {0};
    bool grows[DEVICES] = {false}, any = false;
    EACH_IN (g, c->report->growth) {
        if (on_gpu(g->layer, g->device) && g->device < DEVICES) {
            sum[g->device] += per_step ? (g->by_steps ? g->bytes_per_step : (double)NAN) : (double)g->bytes;
            grows[g->device] = any = true;
        }
    }
    for (int d = 0; d < DEVICES; d++) {
        if (grows[d]) {
            emit_measure(c, d, sum[d],
                         isnan(sum[d]) ? "memory keeps growing, but not with the program's steps, or none were found"
                                       : NULL);
        }
    }
    const struct result_oom_verdict *v = any ? NULL : failed_by_growth(c);
    if (v) {
        emit_measure(c, (int)v->device, per_step ? (double)NAN : grown_bytes(v),
                     arena_printf(c->arena, "the program ran out of memory: %s", v->verdict));
        return;
    }
    if (!any) {
        const char *why = too_short(c);
        emit_measure(c, -1, why ? NAN : 0, why);
    }
}

static void measure_growth(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_MEMORY) || emit_unknown_fact(c, RUN_FACT_HISTORY)) return;
    measure_grown(c, true);
}

static void explain_growth(struct checking *c, struct check_result *r)
{
    bool per_step = check_gates[r->gate].unit == UNIT_BYTES_STEP;
    size_t cap = 0;
    EACH_IN (g, c->report->growth) {
        if (!on_gpu(g->layer, g->device) || g->device != r->device) continue;
        const char *kept = site_kept_text(c->arena, "", g->holders, g->holders_n);
        EACH_IN (l, g->lines) {
            double share = g->bytes > 0 ? (double)l->bytes / (double)g->bytes : 1;
            check_line_add(c, r, &cap, &l->site, per_step ? share * g->bytes_per_step : (double)l->bytes,
                           arena_printf(c->arena, "%llu allocation%s %s%s", (unsigned long long)l->count,
                                        l->count == 1 ? "" : "s", (l == g->lines ? kept : NULL) ?: "kept",
                                        g->graph ? ", with the results of one forward pass" : ""));
        }
    }
    for (size_t i = 0; i < c->report->leaks_n && !r->lines_n && r->device < 0; i++) {
        const struct result_leak *l = &c->report->leaks[i];
        if (on_gpu(l->layer, l->device)) check_line_add(c, r, &cap, &l->stack.site, (double)l->bytes, "never freed");
    }
}

static double never_freed(const struct result_report *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->leaks_n; i++)
        sum += on_gpu(r->leaks[i].layer, r->leaks[i].device) ? (double)r->leaks[i].bytes : 0;
    return sum;
}

/* A Python program frees in no meaningful order at its end, and its libraries keep memory; a program without Python
 * frees its allocations, as every leak checker expects. */
static void measure_leaks(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_MEMORY) || emit_unknown_fact(c, RUN_FACT_HISTORY)) return;
    const struct result_report *r = c->report;
    bool grows = false;
    for (size_t i = 0; i < r->growth_n; i++) grows = grows || on_gpu(r->growth[i].layer, r->growth[i].device);
    if (!c->process->python_version && !grows && r->leaks_at_end) {
        double bytes = never_freed(r);
        emit_measure(c, -1, bytes, bytes > 0 ? "never freed, although the program ended normally" : NULL);
        return;
    }
    measure_grown(c, false);
}

static void measure_leak(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_MEMORY) || emit_unknown_fact(c, RUN_FACT_HISTORY)) return;
    const struct result_report *r = c->report;
    const char *why = r->leaks_at_end ? NULL
                      : r->imported   ? "the program may free it after the end of the recording"
                      : c->process->complete
                          ? "the program ran out of memory: memory that the failure left behind is not a leak"
                          : "the program did not end normally: gpuspy does not know what it would have freed";
    emit_measure(c, -1, r->leaks_at_end ? never_freed(r) : NAN, why);
}

static void explain_leak(struct checking *c, struct check_result *r)
{
    size_t cap = 0;
    EACH_IN (l, c->report->leaks)
        if (on_gpu(l->layer, l->device))
            check_line_add(c, r, &cap, &l->stack.site, (double)l->bytes, format_count_of(c, l->count, "allocations"));
}

/* Calls that occur rarely, such as logging at every tenth step, an evaluation or a checkpoint, are not calls of the
 * steps. They are left out and named. The number of steps from the first of them on is accidental: one more is allowed.
 * */
static bool is_pace_rare(const struct result_pace *p)
{
    enum { SELDOM = 10 };
    bool often = p->phase == RESULT_PHASE_LOGGING && p->every && p->every < SELDOM;
    /* even if the few steps that wait are close together: two waits do not make a rhythm */
    bool tenth = p->steps_seen && p->steps_with * SELDOM < p->steps_seen + SELDOM;
    return p->phase != RESULT_PHASE_STEP && (tenth || (!often && p->calls_per_step < 0.5));
}

struct rate { /* calls per step */
    double sum, rare;
};

static void add_rate(struct rate *r, const struct result_pace *p)
{
    *(is_pace_rare(p) ? &r->rare : &r->sum) += p->calls_per_step; /* NAN without steps */
}

static void emit_rate(struct checking *c, const struct rate *r)
{
    bool some = r->rare >= 0.005;
    emit_measure(c, -1, r->sum,
                 isnan(r->sum) ? no_steps(c)
                 : some        ? arena_printf(c->arena, "%s; %.2f more per step occur now and then and are not counted",
                                              over_steps(c), r->rare)
                 : measured_steps_of(c) ? over_steps(c)
                                        : NULL);
}

static void measure_syncs(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_WAITS)) return;
    struct rate r = {0};
    for (size_t i = 0; i < c->report->syncs_n; i++) add_rate(&r, &c->report->syncs[i].pace);
    emit_rate(c, &r);
}

static void measure_blocked(struct checking *c)
{
    double sum = 0;
    if (emit_unknown_fact(c, RUN_FACT_WAITS)) return;
    if (c->report->simulated) {
        emit_measure(c, -1, NAN, "times on a simulated GPU have no meaning");
        return;
    }
    for (size_t i = 0; i < c->report->syncs_n; i++) sum += c->report->syncs[i].pace.steady_share;
    bool whole = !measured_steps_of(c);
    emit_measure(c, -1, whole ? c->report->sync_share : sum,
                 whole ? "of the whole run: no steps were found" : over_steps(c));
}

static void explain_syncs(struct checking *c, struct check_result *r)
{
    size_t cap = 0;
    bool share = check_gates[r->gate].unit == UNIT_SHARE;
    EACH_IN (s, c->report->syncs) {
        double amount = !share ? s->pace.calls_per_step : !measured_steps_of(c) ? s->share : s->pace.steady_share;
        if (amount > 0 && (share || !is_pace_rare(&s->pace)))
            check_line_add(c, r, &cap, &s->site, amount, s->pattern ? s->pattern : *s->api ? s->api : NULL);
    }
}

static bool with_host(const struct result_transfer *t)
{
    return t->direction == GS_DIR_H2D || t->direction == GS_DIR_D2H;
}

static void measure_copies(struct checking *c)
{
    struct rate r = {0};
    if (emit_unknown_fact(c, RUN_FACT_COPIES)) return;
    for (size_t i = 0; i < c->report->transfers_n; i++)
        if (with_host(&c->report->transfers[i])) add_rate(&r, &c->report->transfers[i].pace);
    emit_rate(c, &r);
}

static void explain_copies(struct checking *c, struct check_result *r)
{
    static const char *const words[] = {[GS_DIR_H2D] = "to the GPU", [GS_DIR_D2H] = "from the GPU"};
    size_t cap = 0;
    EACH_IN (t, c->report->transfers)
        if (with_host(t) && t->pace.calls_per_step > 0 && !is_pace_rare(&t->pace))
            check_line_add(c, r, &cap, &t->site, t->pace.calls_per_step, words[t->direction]);
}

/* Bytes of one line differ from call to call, so they are added up in one more pass. */
struct copied {
    struct checking *c;
    const struct step_list *steps;
    size_t end;
    struct stacks stacks;
    int64_t bytes;
    bool any; /* at any time */
};

static void measure_on_copy(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct copied *k = self;
    if (!copy || copy->direction != GS_DIR_H2D || copy->bytes <= 0) return;
    k->any = true;
    size_t step = k->steps ? step_at(k->steps, copy->start_ns) : SIZE_MAX;
    if (step == SIZE_MAX || step < k->steps->steady || step >= k->end) return;
    add_stack(&k->stacks, copy->stack, copy->bytes);
    k->bytes = arena_add_capped(k->bytes, copy->bytes);
}

static bool collect_copies(struct checking *c, struct copied *k)
{
    char error[ROOM];
    *k = (struct copied){.c = c, .steps = measured_steps_of(c)};
    k->end = k->steps ? step_steady_end(k->steps) : 0;
    return run_each_call(c->run, measure_on_copy, k, error, sizeof error);
}

static double usual_steps(const struct copied *k)
{
    return k->steps && k->end > k->steps->steady ? (double)(k->end - k->steps->steady) : 1;
}

static void measure_h2d(struct checking *c)
{
    struct copied k;
    if (emit_unknown_fact(c, RUN_FACT_COPIES)) return;
    if (!collect_copies(c, &k))
        emit_measure(c, -1, NAN, "the copies could not be read");
    else if (!k.steps)
        emit_measure(c, -1, k.any ? (double)NAN : 0.0, k.any ? no_steps(c) : NULL);
    else
        emit_measure(c, -1, (double)k.bytes / usual_steps(&k), over_steps(c));
    free_stacks(&k.stacks);
}

static void explain_h2d(struct checking *c, struct check_result *r)
{
    struct copied k;
    if (collect_copies(c, &k)) merge_sites(c, r, &k.stacks, usual_steps(&k), "copies");
    free_stacks(&k.stacks);
}

static void measure_retries(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_TENSORS) || emit_unknown_fact(c, RUN_FACT_MEMORY) ||
        emit_unknown_fact(c, RUN_FACT_SEGMENTS) || emit_unknown_fact(c, RUN_FACT_HISTORY))
        return;
    emit_measure(c, -1, (double)c->report->retries_total, NULL);
}

static void explain_retries(struct checking *c, struct check_result *r)
{
    size_t cap = 0;
    EACH_IN (t, c->report->retries) {
        check_line_add(c, r, &cap, &t->stack.site, NAN,
                       arena_printf(c->arena, "requested %s",
                                    UNITS_BYTES(t->requested_bytes > 0 ? (uint64_t)t->requested_bytes : 0)));
    }
}

/* The allocator's segments and the blocks in them, at one moment of one device. */
struct heap {
    struct checking *c;
    int device;
    struct allocator_range *segments, *blocks;
    size_t segments_n, segments_cap, blocks_n, blocks_cap;
};

static void measure_on_heap(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack)
{
    struct heap *h = self;
    const struct run_series *s = run_series(h->c->run, life->series);
    const struct allocator_range range = {life->address, life->bytes};
    if (s->device == h->device && s->layer == RUN_SERIES_DEVICE)
        *ARENA_ADD(h->segments) = range;
    else if (s->device == h->device && s->layer == RUN_SERIES_TENSOR)
        *ARENA_ADD(h->blocks) = range;
}

/* At the device's peak: bytes that are free in segments that contain a block, and can therefore neither be freed nor
 * serve a request that is larger than the hole. -1: the holes are unknown, as in segments that were mapped piece by
 * piece. */
static int64_t in_holes(struct checking *c, const struct result_fragmentation *f)
{
    const struct result_peak *p = measured_peak_of(c->report, RUN_SERIES_DEVICE, f->device);
    struct heap h = {.c = c, .device = f->device};
    char error[ROOM];
    int64_t holes = -1;
    if (p && run_each_live_at(c->run, 0, &p->time_ns, 1, measure_on_heap, &h, error, sizeof error)) {
        struct allocator_heap_map m = allocator_heap_map(h.segments, h.segments_n, h.blocks, h.blocks_n, RUN_UNKNOWN);
        holes = m.strays ? -1 : m.free_bytes;
    }
    ARENA_RELEASE(h.segments, h.blocks);
    return holes;
}

static void measure_fragmentation(struct checking *c)
{
    if (emit_unknown_fact(c, RUN_FACT_TENSORS) || emit_unknown_fact(c, RUN_FACT_MEMORY) ||
        emit_unknown_fact(c, RUN_FACT_SEGMENTS))
        return;
    const struct result_report *r = c->report;
    bool any = false;
    EACH_IN (f, r->fragmentation) {
        bool pytorch = f->device >= 0 && measured_peak_of(r, RUN_SERIES_TENSOR, f->device);
        if (!pytorch) /* the cache of other allocators is not recorded */
            continue;
        int64_t lost = f->reserved_bytes > 0 ? in_holes(c, f) : -1;
        any = true;
        emit_measure(c, f->device, lost >= 0 ? (double)lost / (double)f->reserved_bytes : (double)NAN,
                     lost >= 0 ? arena_printf(c->arena, "%s of %s", UNITS_BYTES((uint64_t)lost),
                                              UNITS_BYTES((uint64_t)f->reserved_bytes))
                               : "the holes of the allocator are unknown");
    }
    if (!any) {
        bool memory = total_allocations(r) > 0;
        emit_measure(c, -1, memory ? NAN : 0, memory ? "PyTorch's allocator was not recorded" : NULL);
    }
}

static void one_budget(struct checking *c, const char *what, double value, double estimate, const char *why)
{
    const struct check_limit *l = check_limits_find(c->limits, GATE_BUDGET, NULL, c->paths, -1);
    char text[GATE_VALUE];
    if (!l) return;
    double limit = estimate * (1 + l->budget.tolerance);
    const char *estimate_text =
        arena_printf(c->arena, "%s estimated", check_gate_value(&check_gates[GATE_BUDGET], estimate, text));
    c->read(c, &(struct check_result){.device = -1,
                                      .what = what,
                                      .value = value,
                                      .limit = limit,
                                      .why = value > limit && why ? arena_printf(c->arena, "%s; %s", estimate_text, why)
                                                                  : estimate_text});
}

static void measure_budget(struct checking *c)
{
    const struct result_budget *b = &c->report->budget;
    const struct check_limit *l = check_limits_find(c->limits, GATE_BUDGET, NULL, c->paths, -1);
    double most = 0, estimate = 0;
    bool tensors = b->present && b->measured_layer == RUN_SERIES_TENSOR && b->measured_bytes != RUN_UNKNOWN;
    if (l && emit_unknown_fact(c, RUN_FACT_TENSORS)) return;
    if (!l || (!tensors && total_allocations(c->report) == 0)) return; /* a helper without GPU memory */
    if (!tensors || !b->rows_n) {
        emit_measure(c, -1, NAN,
                     !tensors ? "PyTorch reported no tensors" : "the categories of the tensors are unknown");
        return;
    }
    EACH_IN (row, b->rows) {
        if (!isnan(row->estimate_bytes)) {
            double value = (double)(row->most_bytes > row->peak_bytes ? row->most_bytes : row->peak_bytes);
            one_budget(c, result_category_text(row->category), value, row->estimate_bytes, row->why);
            most += value;
            estimate += row->estimate_bytes;
        }
    }
    one_budget(c, "all three together", most, estimate, NULL);
    if (!isnan(l->budget.activations))
        one_budget(c, "peak of tensors", (double)b->measured_bytes, b->estimate.total + l->budget.activations, NULL);
}

static void explain_budget(struct checking *c, struct check_result *r)
{
    size_t cap = 0;
    const struct result_peak *p = NULL;
    EACH_IN (q, c->report->peaks) p = q->layer == RUN_SERIES_TENSOR && (!p || q->bytes > p->bytes) ? q : p;
    for (size_t i = 0; p && i < p->by_stack_n; i++) {
        const struct result_by_stack *s = &p->by_stack[i];
        const char *word = result_category_text(s->category);
        bool one = r->what && strcmp(word, r->what) == 0, all = r->what && strncmp(r->what, "tensors", 7) == 0;
        bool three = r->what && strncmp(r->what, "all", 3) == 0 && s->category < RESULT_CATEGORY_ACTIVATIONS;
        if (one || all || three) check_line_add(c, r, &cap, &s->stack.site, (double)s->bytes, one ? NULL : word);
    }
}

#define GATE(id, option, unit, argument, measure, explain, what, help) \
    [GATE_##id] = {option, UNIT_##unit, argument, what, help, measure_##measure, explain_##explain},
const struct check_gate check_gates[GATES_N] = {
#include "analyzer/check/gates.def"
};

const char *check_gate_name(enum check_gate_id id)
{
    return check_gates[id].option ? check_gates[id].option : "complete";
}
