/* The whole answer: one replay of the allocations, one pass over copies and waits, then the
 * conclusions. */
#include "analyzer/base/units.h"
#include "analyzer/allocator/allocator.h"
#include "analyzer/category/category_use.h"
#include "analyzer/step/cadence.h"
#include "analyzer/question/question.h"
#include "analyzer/question/rank.h"
#include "analyzer/category/categories.h"
#include "analyzer/site/owner.h"
#include "analyzer/oom/oom.h"
#include "analyzer/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 50 };

struct owner { /* the report comes first, so that a pointer to it is one to this */
    struct gs_report report;
    struct gs_arena arena;
};

static bool watch_memory(struct gs_builder *b, struct gs_ranks **ranks, char *error, size_t error_size)
{
    enum {
        STEPS, USES, OWNERS, ALLOCATORS, PEAKS, TIMELINES, MEMORY, GROWTH, CHURN, PREALLOCATIONS, OOMS,
        RANKS, WATCH, N
    };
    struct gs_observer observers[N] = {0};
    gs_owners_start(b, &observers[OWNERS]);
    gs_steps_start(b, &observers[STEPS]);
    gs_uses_start(b, &observers[USES]);
    gs_allocators_start(b, &observers[ALLOCATORS]);
    struct gs_peaks *peaks = gs_peaks_start(b, &observers[PEAKS]);
    struct gs_timelines *timelines = gs_timelines_start(b, &observers[TIMELINES]);
    struct gs_memory *memory = gs_memory_start(b, &observers[MEMORY]);
    struct gs_growths *growth = gs_growths_start(b, &observers[GROWTH]);
    struct gs_churns *churn = gs_churns_start(b, &observers[CHURN]);
    struct gs_preallocations *preallocations =
        gs_preallocations_start(b, &observers[PREALLOCATIONS]);
    struct gs_ooms *ooms = gs_ooms_start(b, &observers[OOMS]);
    *ranks = gs_ranks_start(b, &observers[RANKS]);
    if (b->options->watch) {
        observers[WATCH] = b->options->watch->observer;
    }
    bool ok = gs_run_replay(b->run, observers, N, error, error_size);
    gs_peaks_finish(peaks);
    gs_timelines_finish(timelines);
    gs_memory_finish(memory);
    gs_growths_finish(growth);
    gs_churns_finish(churn);
    gs_preallocations_finish(preallocations);
    gs_ooms_finish(ooms);
    return ok;
}

struct calls {
    struct gs_builder *b;
    struct gs_syncs *syncs;
    struct gs_transfers *transfers;
    struct gs_ranks *ranks;
    uint64_t n;
};

static void on_call(void *self, const struct gs_copy *copy, const struct gs_sync *sync)
{
    struct calls *c = self;
    c->n++;
    gs_syncs_call(c->syncs, copy, sync);
    gs_ranks_call(c->ranks, copy, sync);
    if (sync) {
        gs_allocators_call(c->b, sync);
    }
    if (copy) {
        gs_transfers_call(c->transfers, copy);
    }
    if (c->b->options->watch && c->b->options->watch->call) {
        c->b->options->watch->call(c->b->options->watch->self, copy, sync);
    }
}

static bool watch_calls(struct gs_builder *b, struct gs_ranks *ranks, char *error, size_t error_size)
{
    struct calls c = {.b = b,
                      .syncs = gs_syncs_start(b),
                      .transfers = gs_transfers_start(b),
                      .ranks = ranks};
    bool ok = gs_run_calls(b->run, on_call, &c, error, error_size);
    gs_syncs_finish(c.syncs);
    gs_transfers_finish(c.transfers);
    b->report->events += c.n;
    return ok;
}

static int by_index(const void *a, const void *b)
{
    const struct gs_device *x = a, *y = b;
    return (x->device > y->device) - (x->device < y->device);
}

/* What the devices held for graphs at most: the processes of a run share them, but each was told of its
 * own graphs alone. */
static void most_for_graphs(struct gs_builder *b, struct gs_device *devices, size_t n)
{
    size_t graphs_n;
    const struct gs_graph_memory *g = gs_run_graph_memory(b->run, &graphs_n);
    for (size_t i = 0; i < graphs_n; i++) {
        for (size_t d = 0; d < n; d++) {
            if (devices[d].device == g[i].device && g[i].bytes > devices[d].graph_bytes) {
                devices[d].graph_bytes = g[i].bytes; /* GS_UNKNOWN is below all */
            }
        }
    }
}

/* Processes of one host see the same devices: each is listed once. */
static void list_devices(struct gs_builder *b)
{
    size_t n;
    const struct gs_device *all = gs_run_devices(b->run, &n);
    struct gs_device *list = gs_arena_alloc(b->arena, n * sizeof *list);
    size_t kept = 0;
    for (size_t i = 0; i < n && kept < 4096; i++) {
        bool seen = b->options->by_device && all[i].device != b->options->device;
        for (size_t j = 0; j < kept && !seen; j++) {
            seen = list[j].device == all[i].device && list[j].name == all[i].name &&
                   list[j].total_bytes == all[i].total_bytes;
        }
        if (!seen) {
            list[kept++] = all[i];
        }
    }
    if (kept > 1) {
        qsort(list, kept, sizeof *list, by_index);
    }
    most_for_graphs(b, list, kept);
    b->report->devices = list;
    b->report->devices_n = kept;
}

static void describe_run(struct gs_builder *b)
{
    struct gs_report *r = b->report;
    r->processes = gs_run_processes(b->run, &r->processes_n);
    r->command = r->processes[0].command;
    r->duration_s = (double)gs_run_duration(b->run) / 1e9;
    r->lost_first_s = NAN;
    r->complete = true;
    uint64_t damaged = 0;
    char count[UNITS_TEXT];
    for (size_t i = 0; i < r->processes_n; i++) {
        const struct gs_process *p = &r->processes[i];
        r->lost_events += p->lost_events;
        r->complete = r->complete && p->complete && !p->recording;
        damaged += p->damaged;
        if (p->lost_events && p->lost_first_ns != GS_UNKNOWN) {
            r->lost_first_s =
                fmin(r->lost_first_s, gs_seconds(p->lost_first_ns)); /* NAN gives way */
        }
    }
    r->complete = r->complete && r->lost_events == 0;
    if (damaged) {
        gs_run_note(b->run, "%s made no sense and %s left out",
                    format_plural(count, damaged, "record", NULL),
                    damaged == 1 ? "was" : "were");
    }
    r->checks = gs_run_tensor_checks(b->run, &r->checks_n);
    for (size_t i = 0; i < r->checks_n; i++) {
        char first[UNITS_TEXT];
        if (r->checks[i].mismatches) {
            gs_run_note(
                b->run,
                "the running total of tensors differs from PyTorch's own in %llu of %llu events "
                "(device %d, first at %s)",
                (unsigned long long)r->checks[i].mismatches,
                (unsigned long long)r->checks[i].events, r->checks[i].device,
                format_seconds(first, gs_seconds(r->checks[i].first_mismatch_ns)));
        }
    }
}

static int more_often(const void *x, const void *y)
{
    const struct gs_call *a = x, *b = y;
    return a->count != b->count ? (a->count > b->count ? -1 : 1) : strcmp(a->api, b->api);
}

static void list_calls(struct gs_builder *b)
{
    enum { MOST = 20 };
    size_t n, work_n = 0, top = b->top;
    const struct gs_counted *counted = gs_run_counted(b->run, &n);
    struct gs_call *work = gs_realloc(NULL, n, sizeof *work);
    double wall = (double)gs_run_duration(b->run) / 1e9;
    for (size_t i = 0; i < n; i++) {
        const char *api = gs_run_api(b->run, counted[i].process, counted[i].api);
        size_t at = 0;
        while (at < work_n && strcmp(work[at].api, api) != 0) {
            at++;
        }
        if (at == work_n) {
            work[work_n++] = (struct gs_call){.api = api};
        }
        work[at].count += counted[i].count;
        work[at].not_ready += counted[i].not_ready;
        work[at].per_s = wall > 0 ? (double)work[at].count / wall : NAN;
    }
    b->top = MOST;
    b->report->calls = gs_list(b, work, work_n, sizeof *work, more_often, &b->report->calls_n,
                               &b->report->calls_total);
    b->top = top;
    free(work);
}

/* The recorder's own count, so that the line at its exit and the report name one figure, whatever
 * of the run is looked at; it is missing where the recorder never got to write it. */
static void count_events(struct gs_builder *b)
{
    size_t ooms;
    uint64_t recorded = 0;
    bool all = b->report->processes_n > 0;
    for (size_t i = 0; i < b->report->processes_n; i++) {
        recorded += b->report->processes[i].events;
        all = all && b->report->processes[i].events > 0;
    }
    if (all) {
        b->report->events = recorded;
        return;
    }
    gs_run_ooms(b->run, &ooms);
    b->report->events += ooms;
    for (size_t i = 0; i < b->report->peaks_n; i++) {
        b->report->events += b->report->peaks[i].allocations + b->report->peaks[i].frees;
    }
}

struct gs_report *gs_report_build(struct gs_run *run, const struct gs_options *options, char *error,
                                  size_t error_size)
{
    static const struct gs_options defaults;
    struct owner *o = gs_realloc(NULL, 1, sizeof *o);
    *o = (struct owner){.report.run = run};
    struct gs_builder b = {.run = run, .report = &o->report, .arena = &o->arena};
    b.options = options ? options : &defaults;
    b.top = b.options->all ? SIZE_MAX : b.options->top ? b.options->top : TOP;
    gs_site_helpers(run, &b.helpers);
    o->report.simulated = gs_simulated(&b);
    struct gs_ranks *ranks;
    bool ok = watch_memory(&b, &ranks, error, error_size) &&
              watch_calls(&b, ranks, error, error_size) &&
              gs_categories_build(&b, error, error_size) && gs_budgets_read(&b, error, error_size);
    gs_ranks_finish(ranks);
    if (ok) {
        describe_run(&b);
        list_devices(&b);
        count_events(&b);
        list_calls(&b);
        gs_steps_build(&b);
        gs_leaks_build(&b);
        gs_allocators_build(&b);
        gs_ooms_explain(&b);
        gs_loop_build(&b);
        gs_budgets_build(&b);
        gs_marks_build(&b);
        gs_samples_build(&b);
        gs_advice_build(&b);
        gs_loop_advice(&b);
        o->report.notes = gs_run_notes(run, &o->report.notes_n);
    }
    gs_steps_free(b.steps);
    gs_budgets_free(b.budgets);
    free(b.sites);
    gs_allocators_free(&b);
    gs_owners_free(&b);
    gs_map_free(&b.helpers);
    gs_map_free(&b.site_of_key);
    free(b.site_of_stack);
    free(b.growing);
    if (!ok) {
        gs_report_free(&o->report);
        return NULL;
    }
    return &o->report;
}

void gs_report_free(struct gs_report *report)
{
    if (report) {
        struct owner *o = (struct owner *)report;
        gs_uses_free(o->report.uses);
        gs_arena_free(&o->arena);
        free(o);
    }
}
