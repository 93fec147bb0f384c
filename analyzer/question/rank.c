/* See rank.h. */
#include "analyzer/question/rank_parts.h"
#include "analyzer/base/sort.h"

#include <stdlib.h>
#include <string.h>

static const double more_share = 0.1;            /* a rank may hold this much more than the others */
static const int64_t more_bytes = 64 << 20;      /* a smaller difference is not reported */
enum { RANKS = 4096, ROWS = 4096, SITES = 256 }; /* more only in a forged file */

static void ranks_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_ranks *r = self;
    if (series->layer == RUN_SERIES_DEVICE && series->allocations == 1)
        *ARENA_ADD(r->firsts) = (struct question_rank_first){series->process, life->stack, series->device};
}

struct question_ranks *question_ranks_start(struct site_builder *b, struct run_observer *observer)
{
    struct question_ranks *r = ARENA_NEW(struct question_ranks, .b = b);
    *observer = (struct run_observer){.self = r, .alloc = ranks_on_alloc};
    return r;
}

static bool below_collective(struct question_ranks *r, uint32_t stack)
{
    if (stack == RUN_NONE) return false;
    uint8_t *known = SITE_REACH(r->collective, stack, r->collective_cap);
    if (!*known) *known = 1 + run_stack_is_in(r->b->run, stack, "/torch/distributed/", NULL);
    return *known == 2;
}

void question_ranks_add(struct question_ranks *r, const struct run_copy *copy, const struct run_sync *sync)
{
    uint32_t process = copy ? copy->process : sync->process;
    int64_t blocked = copy ? copy->blocked_ns : sync->blocked_ns;
    double seconds = blocked > 0 ? (double)blocked / 1e9 : 0;
    struct question_rank_calls *c = SITE_REACH(r->calls, process, r->calls_cap);
    c->blocked_s += seconds;
    if (copy) {
        c->copies++;
        c->copied_bytes = arena_add_capped(c->copied_bytes, copy->bytes > 0 ? copy->bytes : 0);
    } else {
        c->waits++;
        c->waited_s += seconds;
        c->collective_s += below_collective(r, sync->stack) ? seconds : 0;
    }
}

const char *question_gpu_word(const struct site_builder *b, uint32_t process, int device)
{
    const char *visible = run_setting_value(b->run, process, "CUDA_VISIBLE_DEVICES");
    for (int i = 0; visible && *visible && i < device; i++) {
        visible = strchr(visible, ',');
        visible = visible ? visible + 1 : NULL;
    }
    size_t length = visible ? strcspn(visible, ", ") : 0;
    return length && device >= 0 ? arena_printf(b->arena, "%.*s", (int)(length < 64 ? length : 64), visible)
                                 : arena_printf(b->arena, "%d", device);
}

static uint64_t peak_key(uint32_t process, int device, enum run_series_layer layer)
{
    return (uint64_t)process << 32 | (uint64_t)(uint16_t)device << 8 | layer;
}

static const struct result_peak *rank_peak_of(const struct question_ranks *r, uint32_t process, int device,
                                              enum run_series_layer layer)
{
    uint32_t at = map_get(&r->peaks, peak_key(process, device, layer));
    const struct result_peak *p = at != MAP_NEW ? &r->b->report->peaks[at] : NULL;
    return p && p->bytes > 0 ? p : NULL;
}

/* The device on which each process works: most of its tensors were allocated there, else most allocations. The device
 * with its peak may be another one: a checkpoint that was loaded to the wrong GPU. -1: none. */
static int *homes_of(struct question_ranks *r, size_t n)
{
    const struct result_report *report = r->b->report;
    uint64_t *most = arena_realloc(NULL, n, sizeof *most);
    int *homes = arena_realloc(NULL, n, sizeof *homes);
    for (size_t i = 0; i < n; i++) {
        homes[i] = -1;
        most[i] = 0;
    }
    for (size_t i = 0; i < report->peaks_n; i++) {
        const struct result_peak *p = &report->peaks[i];
        *map_at(&r->peaks, peak_key(p->process, p->device, p->layer)) = (uint32_t)i;
    }
    EACH_IN (p, report->peaks) {
        if (p->process < n && p->layer == RUN_SERIES_DEVICE && p->bytes > 0) {
            const struct result_peak *t = rank_peak_of(r, p->process, p->device, RUN_SERIES_TENSOR);
            uint64_t weight = p->allocations + (t ? t->allocations << 16 : 0);
            homes[p->process] = weight > most[p->process] ? p->device : homes[p->process];
            most[p->process] = weight > most[p->process] ? weight : most[p->process];
        }
    }
    free(most);
    return homes;
}

static int order_processes_by_rank(const void *a, const void *b)
{
    const struct result_rank *x = a, *y = b;
    if (x->rank != y->rank) return x->rank == RUN_UNKNOWN || (y->rank != RUN_UNKNOWN && x->rank > y->rank) ? 1 : -1;
    if (x->rank != RUN_UNKNOWN && (x->start_s < y->start_s || x->start_s > y->start_s))
        return x->start_s < y->start_s ? -1 : 1;
    return x->process < y->process ? -1 : x->process > y->process;
}

static int64_t earliest_start(const struct run_process *all, size_t n)
{
    int64_t earliest = RUN_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        int64_t start = all[i].start_real_ns;
        earliest = start != RUN_UNKNOWN && (earliest == RUN_UNKNOWN || start < earliest) ? start : earliest;
    }
    return earliest;
}

static void list_ranks(struct question_ranks *r)
{
    struct result_report *report = r->b->report;
    size_t n, kept = 0;
    const struct run_process *all = run_processes(r->b->run, &n);
    n = n < RANKS ? n : RANKS;
    struct result_rank *list = arena_alloc(r->b->arena, n * sizeof *list);
    int *homes = homes_of(r, n);
    int64_t earliest = earliest_start(all, n);
    for (uint32_t i = 0; i < n; i++) {
        int home = homes[i];
        if (home < 0) continue;
        const struct result_peak *t = rank_peak_of(r, i, home, RUN_SERIES_TENSOR),
                                 *d = rank_peak_of(r, i, home, RUN_SERIES_DEVICE);
        const struct question_rank_calls *c = SITE_REACH(r->calls, i, r->calls_cap);
        double start = site_seconds(all[i].start_real_ns) - site_seconds(earliest);
        list[kept++] = (struct result_rank){.process = i,
                                            .rank = all[i].rank,
                                            .device = home,
                                            .gpu = question_gpu_word(r->b, i, home),
                                            .tensor_peak_bytes = t ? t->bytes : RUN_UNKNOWN,
                                            .device_peak_bytes = d->bytes,
                                            .blocked_s = c->blocked_s,
                                            .start_s = start,
                                            .peak_s = start + (t ? t : d)->time_s,
                                            .waits = c->waits,
                                            .copies = c->copies,
                                            .allocations = (t ? t : d)->allocations,
                                            .waited_s = c->waited_s,
                                            .collective_s = c->collective_s,
                                            .copied_bytes = c->copied_bytes};
    }
    free(homes);
    if (kept < 2) return;
    qsort(list, kept, sizeof *list, order_processes_by_rank);
    report->ranks = list;
    report->ranks_n = kept;
}

static bool are_ranks_beside(const struct question_ranks *r, const struct result_rank *x, const struct result_rank *y)
{
    size_t n;
    const struct run_process *p = run_processes(r->b->run, &n);
    return x != y && question_rank_is_same_host(&p[x->process], &p[y->process]) &&
           question_rank_overlaps(&p[x->process], &p[y->process]);
}

/* The rank whose own GPU that is; NULL none. */
static const struct result_rank *at_home(const struct question_ranks *r, const struct result_rank *guest,
                                         const char *gpu)
{
    const struct result_report *report = r->b->report;
    return FIND_IN(rank, report->ranks, are_ranks_beside(r, rank, guest) && strcmp(rank->gpu, gpu) == 0);
}

/* A rank's use of a GPU that is not its own: memory, or only a context. */
struct stray {
    const struct result_rank *rank;
    const struct result_rank *host;
    int device;
    const char *gpu;
    int64_t bytes;
    uint32_t stack;
    bool reported;
};

static uint32_t first_stack(const struct question_ranks *r, uint32_t process, int device)
{
    size_t n;
    const struct run_context *c = run_contexts(r->b->run, &n);
    for (size_t i = 0; i < n && i < ROWS; i++)
        if (c[i].process == process && c[i].device == device && c[i].stack != RUN_NONE) return c[i].stack;
    for (size_t i = 0; i < r->firsts_n && i < ROWS; i++)
        if (r->firsts[i].process == process && r->firsts[i].device == device) return r->firsts[i].stack;
    return RUN_NONE;
}

/* There was a context if one was created, or if free memory was queried: the device was the current one. */
static bool has_context(const struct run *run, const struct run_device *d)
{
    size_t n;
    const struct run_context *c = run_contexts(run, &n);
    for (size_t i = 0; i < n && i < ROWS; i++)
        if (c[i].process == d->process && c[i].device == d->device) return true;
    return d->free_bytes != RUN_UNKNOWN;
}

static size_t list_strays(const struct question_ranks *r, struct stray *list)
{
    const struct result_report *report = r->b->report;
    size_t n, kept = 0;
    const struct run_device *d = run_devices(r->b->run, &n);
    for (size_t i = 0; i < report->ranks_n && kept < RANKS; i++) {
        const struct result_rank *rank = &report->ranks[i];
        for (size_t j = 0; j < n && j < ROWS && kept < RANKS; j++) {
            if (d[j].process != rank->process || d[j].device == rank->device) continue;
            const char *gpu = question_gpu_word(r->b, rank->process, d[j].device);
            const struct result_peak *p = rank_peak_of(r, rank->process, d[j].device, RUN_SERIES_DEVICE);
            const struct result_rank *host = at_home(r, rank, gpu);
            if (host && (p || has_context(r->b->run, &d[j]))) {
                list[kept++] = (struct stray){
                    rank, host, d[j].device, gpu, p ? p->bytes : 0, first_stack(r, rank->process, d[j].device), false};
            }
        }
    }
    return kept;
}

static bool is_loading_stack(const struct run *run, uint32_t stack)
{
    return RUN_ANY_FRAME(f, run, stack,
                         f->kind == GS_FRAME_PYTHON && f->file && strstr(f->file, "/torch/serialization.py"));
}

/* The size of the context of a process there, if NVML reported it; else 0. */
static int64_t context_bytes(const struct question_ranks *r, uint32_t process, int device)
{
    const struct result_report *report = r->b->report;
    for (size_t i = 0; i < report->memory_n && i < ROWS; i++) {
        const struct result_device_memory *m = &report->memory[i];
        if (m->process == process && m->device == device) return m->context_bytes > 0 ? m->context_bytes : 0;
    }
    return 0;
}

/* "has up to 2.00 MiB and a context (512.00 MiB)" */
static const char *rank_holds_text(struct site_builder *b, int64_t bytes, int64_t contexts, size_t ranks)
{
    const char *has = ranks > 1 ? "have" : "has", *context = ranks > 1 ? "one context each" : "a context";
    if (contexts > 0) {
        context = arena_printf(b->arena, "%s (%s%s)", context, site_bytes_text(b, (double)contexts),
                               ranks > 1 ? " in total" : "");
    }
    return bytes > 0 ? arena_printf(b->arena, "%s up to %s%s and %s", has, site_bytes_text(b, (double)bytes),
                                    ranks > 1 ? " in total" : "", context)
                     : arena_printf(b->arena, "%s %s", has, context);
}

/* Ranks with memory from one line on one GPU are one finding. */
static void report_strays(struct question_ranks *r, struct stray *list, size_t n)
{
    const struct result_report *report = r->b->report;
    bool *marked = arena_realloc(NULL, report->ranks_n, sizeof *marked);
    for (size_t i = 0; i < n; i++) {
        int64_t bytes = 0, contexts = 0;
        size_t ranks = 0;
        if (list[i].reported) continue;
        memset(marked, 0, report->ranks_n * sizeof *marked);
        uint32_t site = site_index(r->b, list[i].stack);
        for (size_t j = i; j < n; j++) {
            if (strcmp(list[j].gpu, list[i].gpu) == 0 && site_index(r->b, list[j].stack) == site) {
                list[j].reported = true;
                marked[list[j].rank - report->ranks] = true;
                bytes = arena_add_capped(bytes, list[j].bytes);
                contexts = arena_add_capped(contexts, context_bytes(r, list[j].rank->process, list[j].device));
                ranks++;
            }
        }
        const char *where = list[i].stack != RUN_NONE ? arena_printf(r->b->arena, ", first at %s",
                                                                     site_text_with_caller(r->b, &r->b->sites[site]))
                                                      : "";
        struct result_rank_finding *f =
            question_rank_add_finding(r, RESULT_RANK_STRAY, list[i].rank, list[i].device, bytes, list[i].stack);
        f->ranks = ranks;
        f->text = arena_printf(r->b->arena, "%s also %s on GPU %s, where %s works%s",
                               question_rank_labels(r->b, report->ranks, marked, report->ranks_n),
                               rank_holds_text(r->b, bytes, contexts, ranks), list[i].gpu,
                               question_rank_label(r->b, list[i].host), where);
        f->advice = is_loading_stack(r->b->run, list[i].stack)
                        ? "torch.load(…, map_location=\"cpu\"): a checkpoint goes to the GPU from which it was saved"
                        : "call `torch.cuda.set_device(local_rank)` before anything else uses CUDA: \"cuda\" is "
                          "GPU 0 until then";
    }
    free(marked);
}

/* Two or more ranks that work on one GPU. Whether there are other GPUs is unknown; whether each rank has its own number
 * on this host is known. */
static void report_shared(struct question_ranks *r)
{
    const struct result_report *report = r->b->report;
    size_t n = report->ranks_n;
    bool *reported = arena_realloc(NULL, n, sizeof *reported), *marked = arena_realloc(NULL, n, sizeof *marked);
    memset(reported, 0, n * sizeof *reported);
    for (size_t i = 0; i < n; i++) {
        const struct result_rank *first = &report->ranks[i];
        size_t ranks = 1;
        int64_t bytes = first->device_peak_bytes;
        memset(marked, 0, n * sizeof *marked);
        marked[i] = true;
        for (size_t j = i + 1; j < n && !reported[i]; j++) {
            const struct result_rank *other = &report->ranks[j];
            if (other->rank >= 0 && first->rank >= 0 && !first->child && !other->child &&
                are_ranks_beside(r, first, other) && strcmp(first->gpu, other->gpu) == 0) {
                marked[j] = reported[j] = true;
                bytes = arena_add_capped(bytes, other->device_peak_bytes);
                ranks++;
            }
        }
        if (ranks < 2) continue;
        struct result_rank_finding *f = question_rank_add_finding(r, RESULT_RANK_SHARED, first, first->device, bytes,
                                                                  first_stack(r, first->process, first->device));
        f->ranks = ranks;
        f->text = arena_printf(r->b->arena, "%s %s on GPU %s: their peaks sum to %s",
                               question_rank_labels(r->b, report->ranks, marked, n),
                               ranks == 2 ? "both work" : "all work", first->gpu, site_bytes_text(r->b, (double)bytes));
        f->advice =
            "if this host has a GPU for each, call `torch.cuda.set_device(local_rank)` before anything else uses CUDA";
    }
    ARENA_RELEASE(reported, marked);
}

static int64_t rank_weight(const struct result_rank *r, bool tensors)
{
    return tensors ? r->tensor_peak_bytes : r->device_peak_bytes;
}

/* The call site at which `more` holds most beyond what `other` holds there; NULL none. */
static const struct result_by_site *rank_excess(const struct result_peak *more, const struct result_peak *other,
                                                int64_t *bytes)
{
    const struct result_by_site *best = NULL;
    for (size_t i = 0; i < more->by_site_n && i < SITES; i++) {
        int64_t beyond = more->by_site[i].bytes;
        for (size_t j = 0; j < other->by_site_n && j < SITES; j++)
            if (site_key(&more->by_site[i].site) == site_key(&other->by_site[j].site))
                beyond -= other->by_site[j].bytes;
        if (beyond > *bytes) {
            *bytes = beyond;
            best = &more->by_site[i];
        }
    }
    return best;
}

static void report_imbalance(struct question_ranks *r)
{
    const struct result_report *report = r->b->report;
    size_t n = 0;
    const struct result_rank *most = NULL, *middle = NULL;
    const struct result_rank **list = question_rank_last(report, &n);
    bool tensors = true;
    for (size_t i = 0; i < n; i++) tensors = tensors && list[i]->tensor_peak_bytes != RUN_UNKNOWN;
    if (n < 2) { /* not ranks of one job, as far as is known */
        free(list);
        return;
    }
    int64_t *sorted = arena_realloc(NULL, n, sizeof *sorted);
    for (size_t i = 0; i < n; i++) {
        sorted[i] = rank_weight(list[i], tensors);
        most = !most || sorted[i] > rank_weight(most, tensors) ? list[i] : most;
    }
    SORT(sorted, n, sort_int64_up);
    int64_t usual = sorted[(n - 1) / 2]; /* of two, the lesser */
    for (size_t i = 0; i < n && !middle; i++) middle = rank_weight(list[i], tensors) == usual ? list[i] : NULL;
    ARENA_RELEASE(sorted, list);
    int64_t more = rank_weight(most, tensors) - usual, beyond = 0;
    if (more < more_bytes || (double)more < more_share * (double)usual) return;
    enum run_series_layer layer = tensors ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE;
    const struct result_by_site *at = rank_excess(rank_peak_of(r, most->process, most->device, layer),
                                                  rank_peak_of(r, middle->process, middle->device, layer), &beyond);
    struct result_rank_finding *f =
        question_rank_add_finding(r, RESULT_RANK_IMBALANCE, most, most->device, more, RUN_NONE);
    f->ranks = 1;
    f->site = at ? at->site : f->site;
    f->text = arena_printf(r->b->arena, "%s holds %s (%.0f %%) more %sthan %s%s%s%s", question_rank_label(r->b, most),
                           site_bytes_text(r->b, (double)more), 100 * (double)more / (double)(usual > 0 ? usual : 1),
                           tensors ? "in tensors " : "", n > 2 ? "the median rank" : question_rank_label(r->b, middle),
                           at ? ", most of it " : "", at ? site_bytes_text(r->b, (double)beyond) : "",
                           at ? arena_printf(r->b->arena, " at %s", site_text_with_caller(r->b, &at->site)) : "");
}

void question_ranks_finish(struct question_ranks *r)
{
    struct result_report *report = r->b->report;
    list_ranks(r);
    if (report->ranks_n) {
        question_rank_skew(r, r->b);
        struct stray *strays = arena_realloc(NULL, RANKS, sizeof *strays);
        report_strays(r, strays, list_strays(r, strays));
        free(strays);
        report_shared(r);
        report_imbalance(r);
    }
    report->rank_findings = arena_alloc(r->b->arena, r->found_n * sizeof *r->found);
    report->rank_findings_n = r->found_n;
    for (size_t i = 0; i < r->found_n; i++) report->rank_findings[i] = r->found[i];
    map_free(&r->peaks);
    ARENA_RELEASE(r->firsts, r->calls, r->collective, r->found, r);
}
