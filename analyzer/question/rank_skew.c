/* The ranks of a job compared: which are missing, which were started again, how far apart they are, and which rank the
 * others wait for. */
#include "analyzer/question/rank_parts.h"
#include "analyzer/base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/units.h"

static const double apart = 0.05; /* of the time: how much more others must wait to be reported */
static const double fewer = 0.5;  /* the rank that others wait for itself waits at most this share of their time … */
static const double as_often = 0.5; /* … although it waits about as often as they do */
enum { RANKS = 1 << 16, NAMED = 8 };

static const struct run_process *process_of_rank(const struct site_builder *b, const struct result_rank *k)
{
    return &b->report->processes[k->process];
}

static bool is_child(const struct site_builder *b, const struct result_rank *k, const struct result_rank *other)
{
    const struct run_process *p = process_of_rank(b, k), *q = process_of_rank(b, other);
    return p->ppid == (int64_t)q->pid && p->host == q->host;
}

/* Of two processes of one rank the one that started later is the last, unless it is the other's child. */
static void mark_again(struct site_builder *b)
{
    struct result_report *report = b->report;
    for (size_t i = 0; i + 1 < report->ranks_n; i++) {
        for (size_t j = i + 1; j < report->ranks_n && report->ranks[j].rank == report->ranks[i].rank; j++) {
            struct result_rank *x = &report->ranks[i], *y = &report->ranks[j];
            if (x->rank < 0) continue;
            if (is_child(b, y, x))
                y->child = true;
            else if (is_child(b, x, y))
                x->child = true;
            else if (!x->child && !y->child)
                (x->start_s < y->start_s ? x : y)->again = true;
        }
    }
}

static void report_restart(struct question_ranks *r, struct site_builder *b)
{
    struct result_report *report = b->report;
    size_t n = 0, at_once = 0, first = SIZE_MAX;
    bool *marked = arena_realloc(NULL, report->ranks_n, sizeof *marked);
    for (size_t i = 0; i < report->ranks_n; i++) {
        const struct result_rank *k = &report->ranks[i];
        marked[i] = k->again && (i == 0 || report->ranks[i - 1].rank != k->rank || !report->ranks[i - 1].again);
        n += marked[i];
        first = marked[i] && first == SIZE_MAX ? i : first;
        for (size_t j = 0; j < report->ranks_n && marked[i] && report->ranks_n <= 1024; j++) {
            const struct result_rank *o = &report->ranks[j];
            at_once += o->rank == k->rank && !o->again && !o->child &&
                       question_rank_overlaps(process_of_rank(b, o), process_of_rank(b, k));
        }
    }
    if (n) {
        const struct result_rank *k = &report->ranks[first];
        struct result_rank_finding *f = question_rank_add_finding(r, RESULT_RANK_AGAIN, k, k->device, 0, RUN_NONE);
        f->ranks = n;
        f->text = arena_printf(b->arena, "%s %s: ranks are compared by their last process",
                               question_rank_labels(b, report->ranks, marked, report->ranks_n),
                               at_once ? "are shared by several processes that ran at the same time"
                               : n > 1 ? "were started more than once"
                                       : "was started more than once");
        f->advice = at_once ? "if these are recordings of several jobs, put each into its own folder" : NULL;
    }
    free(marked);
}

/* The number of ranks of the job, as its processes know it; else one more than the highest rank. */
static size_t world_of(const struct site_builder *b, bool *declared)
{
    static const char *const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"};
    const struct result_report *report = b->report;
    long world = 0, highest = -1;
    for (size_t i = 0; i < report->processes_n && i < RANKS; i++) {
        highest = report->processes[i].rank > highest ? (long)report->processes[i].rank : highest;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            const char *value = run_setting_value(b->run, (uint32_t)i, names[k]);
            long own = value ? strtol(value, NULL, 10) : 0;
            world = own > world ? own : world;
        }
    }
    *declared = world > highest;
    world = *declared ? world : highest + 1;
    return world > 0 && world <= RANKS ? (size_t)world : 0;
}

static void report_missing(struct question_ranks *r, struct site_builder *b)
{
    const struct result_report *report = b->report;
    bool declared;
    size_t world = world_of(b, &declared), missing = 0, here = 0;
    bool *present = arena_realloc(NULL, world, sizeof *present);
    memset(present, 0, world * sizeof *present);
    for (size_t i = 0; i < report->processes_n; i++) {
        int64_t rank = report->processes[i].rank;
        if (rank >= 0 && (uint64_t)rank < world) {
            here += !present[rank];
            present[rank] = true;
        }
    }
    missing = world - here;
    if (missing && here) {
        const char *list = "";
        size_t named = 0;
        for (size_t i = 0; i < world && named < NAMED; i++) {
            if (!present[i]) {
                list = arena_printf(b->arena, "%s%s%zu", list, named ? ", " : "", i);
                named++;
            }
        }
        if (missing > named) list = arena_printf(b->arena, "%s and %zu more", list, missing - named);
        struct result_rank_finding *f =
            question_rank_add_finding(r, RESULT_RANK_MISSING, &report->ranks[0], report->ranks[0].device, 0, RUN_NONE);
        f->ranks = missing;
        f->text = arena_printf(b->arena, "of %zu ranks%s %zu %s here; missing: %s", world,
                               declared ? " (WORLD_SIZE)" : " at least", here, here == 1 ? "is" : "are", list);
        f->advice = "copy the other hosts' recordings beside these; a process that never used CUDA has none";
    }
    free(present);
}

static double figure_of(const struct result_rank *k, enum result_rank_figure figure)
{
    switch (figure) {
    case RESULT_RANK_TENSOR_PEAK: return k->tensor_peak_bytes == RUN_UNKNOWN ? NAN : (double)k->tensor_peak_bytes;
    case RESULT_RANK_DEVICE_PEAK: return (double)k->device_peak_bytes;
    case RESULT_RANK_WAITED: return k->waited_s;
    case RESULT_RANK_WAITS: return (double)k->waits;
    case RESULT_RANK_COPIED: return (double)k->copied_bytes;
    case RESULT_RANK_COPIES: return (double)k->copies;
    case RESULT_RANK_ALLOCATIONS: return (double)k->allocations;
    case RESULT_RANK_STARTED: return k->start_s;
    default: return NAN;
    }
}

SORT_ORDER(order_ranks_by_value, double, SORT_UP(*x, *y))

static void measure_rank_spread(struct result_report *report, const struct result_rank *const *list, size_t n)
{
    double *values = arena_realloc(NULL, n, sizeof *values);
    for (int figure = 0; figure < RESULT_RANK_FIGURES_N; figure++) {
        struct result_rank_spread *s = &report->rank_spread[figure];
        *s = (struct result_rank_spread){.least = NAN, .median = NAN, .most = NAN};
        bool known = n > 0;
        for (size_t i = 0; i < n; i++) {
            values[i] = figure_of(list[i], (enum result_rank_figure)figure);
            known = known && isfinite(values[i]);
            if (i == 0 || values[i] < s->least) {
                s->least = values[i];
                s->least_at = (size_t)(list[i] - report->ranks);
            }
            if (i == 0 || values[i] > s->most) {
                s->most = values[i];
                s->most_at = (size_t)(list[i] - report->ranks);
            }
        }
        if (!known) {
            *s = (struct result_rank_spread){.least = NAN, .median = NAN, .most = NAN};
            continue;
        }
        qsort(values, n, sizeof *values, order_ranks_by_value);
        s->median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    }
    free(values);
}

static void count_hosts(struct result_report *report)
{
    size_t hosts = 0;
    for (size_t i = 0; i < report->ranks_n && report->ranks_n <= RANKS; i++) {
        const char *host = report->processes[report->ranks[i].process].host;
        bool seen = !host;
        for (size_t j = 0; j < i && !seen; j++) {
            const char *other = report->processes[report->ranks[j].process].host;
            seen = other == host || (other && strcmp(other, host) == 0);
        }
        hosts += !seen;
    }
    report->rank_hosts = hosts;
}

/* In a collective all ranks wait for the last one to come: the one that waits least while the others wait
 * is the one that comes last. */

struct waiting {
    const struct result_rank *rank;
    double share; /* the share of its time in which it waits for the GPU */
};

SORT_ORDER(by_share, struct waiting, SORT_UP(x->share, y->share) ?: SORT_UP(x->rank, y->rank))

static bool all_overlap(const struct site_builder *b, const struct waiting *list, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (!question_rank_overlaps(process_of_rank(b, list[0].rank), process_of_rank(b, list[i].rank))) return false;
    return true;
}

/* As many waits as the others: one that requests results less often would wait less, too. */
static bool waits_alike(const struct waiting *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double most = (double)list[i].rank->waits, own = (double)list[0].rank->waits;
        if (own < as_often * most || own * as_often > most || own < 1) return false;
    }
    return true;
}

/* How many ranks at the beginning of the list are of one host that has no later ones: its ranks wait least. */
static size_t of_one_host(const struct site_builder *b, const struct waiting *list, size_t n)
{
    const char *host = process_of_rank(b, list[0].rank)->host;
    size_t k = 1;
    while (k < n && host && process_of_rank(b, list[k].rank)->host &&
           strcmp(process_of_rank(b, list[k].rank)->host, host) == 0)
        k++;
    for (size_t i = k; i < n; i++) {
        const char *other = process_of_rank(b, list[i].rank)->host;
        if (!host || !other || strcmp(other, host) == 0) return 1;
    }
    return k < n ? k : 1;
}

static const char *skew_share_text(struct site_builder *b, double share)
{
    return arena_printf(b->arena, "%s", UNITS_SHARE(share));
}

static void report_straggler(struct question_ranks *r, struct site_builder *b, const struct result_rank *const *all,
                             size_t n)
{
    struct waiting *list = arena_realloc(NULL, n, sizeof *list);
    double collective = 0;
    for (size_t i = 0; i < n; i++) {
        double time = site_seconds(process_of_rank(b, all[i])->end_ns);
        list[i] = (struct waiting){all[i], time > 0 ? all[i]->waited_s / time : 0};
        collective = fmax(collective, all[i]->collective_s);
    }
    qsort(list, n, sizeof *list, by_share);
    size_t late = of_one_host(b, list, n);
    double own = list[late - 1].share, others = list[late].share, most = list[n - 1].share;
    bool named = others - own >= apart && own <= fewer * others && waits_alike(list, n) && all_overlap(b, list, n);
    if (!named && late > 1) { /* not the host: only one of its ranks */
        late = 1;
        own = list[0].share;
        others = list[1].share;
        named = others - own >= apart && own <= fewer * others && waits_alike(list, n) && all_overlap(b, list, n);
    }
    if (named) {
        const struct result_rank *k = list[0].rank;
        const char *host = process_of_rank(b, k)->host;
        const char *who =
            late > 1 ? arena_printf(b->arena, "the ranks of host %.64s", host) : question_rank_label(b, k);
        const char *range =
            n - late > 1 && others != most
                ? arena_printf(b->arena, "%s to %s", skew_share_text(b, others), skew_share_text(b, most))
                : skew_share_text(b, most);
        struct result_rank_finding *f = question_rank_add_finding(r, RESULT_RANK_STRAGGLER, k, k->device, 0, RUN_NONE);
        f->ranks = late;
        f->text = arena_printf(b->arena,
                               "the others seem to wait for %s: %s for the GPU %s of the time, %s %s, with "
                               "about as many waits each%s. That is inferred: in a collective, all wait for the last",
                               who, late > 1 ? "they wait" : "it waits", skew_share_text(b, own),
                               n - late > 1 ? "the others" : "the other", range,
                               collective > 0 ? ", some of them in torch.distributed" : "");
        f->advice = late > 1 ? "compare that host with the others: its GPUs' clocks, its network, its disks"
                             : "check what that rank does between its waits: its share of the data, its loader, its "
                               "GPU's clock";
    }
    free(list);
}

void question_rank_skew(struct question_ranks *r, struct site_builder *b)
{
    struct result_report *report = b->report;
    size_t n;
    report->processes = run_processes(b->run, &report->processes_n);
    mark_again(b);
    report_missing(r, b);
    report_restart(r, b);
    count_hosts(report);
    const struct result_rank **list = question_rank_last(report, &n);
    measure_rank_spread(report, list, n);
    if (n > 1 && !report->simulated) report_straggler(r, b, list, n);
    free(list);
}
