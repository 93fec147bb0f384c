/* The whole report: one replay of the allocations, one pass over copies and waits, then the conclusions. */
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
#include "analyzer/base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 50 };

struct owner { /* the report comes first, so that a pointer to it is also one to this */
    struct result_report report;
    struct arena arena;
};

/* The rows of questions.def, for one caller. */
struct asked { /* what is requested of one run */
    struct site_builder *b;
    unsigned order[REPORT_QUESTIONS_N], n;
    void *state[REPORT_QUESTIONS_N];
    uint64_t calls; /* copies and waits read */
};

#define STARTS(name, ...)                                                     \
    static void *name##_start(struct site_builder *b, struct run_observer *o) \
    {                                                                         \
        return __VA_ARGS__;                                                   \
    }
#define FINISHES(name, function)           \
    static void name##_finish(void *state) \
    {                                      \
        function(state);                   \
    }
#define CALLS(name, ...)                                                                      \
    static void name##_call(struct site_builder *b, void *state, const struct run_copy *copy, \
                            const struct run_sync *sync)                                      \
    {                                                                                         \
        __VA_ARGS__;                                                                          \
    }
#define BUILDS(name, function)                                                       \
    static bool name##_build(struct site_builder *b, char *error, size_t error_size) \
    {                                                                                \
        function(b);                                                                 \
        return true;                                                                 \
    }

static void *start_watch(const struct result_watch *w, struct run_observer *o)
{
    if (w) *o = w->observer;
    return NULL;
}

static void call_watch(const struct result_watch *w, const struct run_copy *copy, const struct run_sync *sync)
{
    if (w && w->call) w->call(w->self, copy, sync);
}

/* clang-format off */
STARTS(steps, step_finder_start(b, o))
STARTS(uses, category_uses_start(b, o))
STARTS(peaks, question_peaks_start(b, o)) FINISHES(peaks, question_peaks_finish)
STARTS(timelines, question_timelines_start(b, o)) FINISHES(timelines, question_timelines_finish)
STARTS(memory, question_memory_start(b, o)) FINISHES(memory, question_memory_finish)
STARTS(growths, question_growths_start(b, o)) FINISHES(growths, question_growths_finish)
STARTS(scopes, question_scopes_start(b, o)) FINISHES(scopes, question_scopes_finish)
STARTS(churns, question_churns_start(b, o)) FINISHES(churns, question_churns_finish)
STARTS(preallocations, question_preallocations_start(b, o)) FINISHES(preallocations, question_preallocations_finish)
STARTS(ooms, oom_start(b, o)) FINISHES(ooms, oom_finish)
STARTS(ranks, question_ranks_start(b, o)) FINISHES(ranks, question_ranks_finish)
STARTS(syncs, question_syncs_start(b)) FINISHES(syncs, question_syncs_finish)
STARTS(transfers, question_transfers_start(b)) FINISHES(transfers, question_transfers_finish)
STARTS(owners, (site_owners_start(b, o), NULL))
STARTS(allocators, (allocator_start(b, o), NULL))
STARTS(watch, start_watch(b->options->watch, o))
CALLS(ranks, question_ranks_add(state, copy, sync))
CALLS(syncs, question_syncs_add(state, copy, sync))
CALLS(transfers, question_transfers_add(state, copy, sync))
CALLS(allocators, if (sync) allocator_add_sync(b, sync))
CALLS(watch, call_watch(b->options->watch, copy, sync))
BUILDS(steps, step_finder_build)
BUILDS(allocators, allocator_build)
BUILDS(leaks, question_leaks_build)
BUILDS(verdicts, oom_explain_all)
BUILDS(loop, question_loop_build)
BUILDS(budgets, question_budgets_build)
BUILDS(marks, question_marks_build)
BUILDS(samples, question_samples_build)
    /* clang-format on */

    static bool advice_build(struct site_builder *b, char *error, size_t error_size)
{
    question_use_plain_names(b); /* of waits, which advice mentions */
    question_advice_build(b);
    question_loop_advice(b);
    return true;
}

static const struct question {
    void *(*start)(struct site_builder *, struct run_observer *);
    void (*finish)(void *state);
    void (*call)(struct site_builder *, void *state, const struct run_copy *, const struct run_sync *);
    void (*called)(void *state);
    bool (*build)(struct site_builder *, char *error, size_t error_size);
    uint64_t needs;
} questions[] = {
#define none NULL
#define NOTHING 0
#define NEEDS(name) REPORT_ASK(name)
#define QUESTION(name, start, finish, call, called, build, needs) \
    [REPORT_QUESTION_##name] = {start, finish, call, called, build, needs},
#include "analyzer/report/questions.def"
#undef QUESTION
#undef NEEDS
#undef NOTHING
#undef none
};

/* Everything that a question needs, then the question. Other questions do not need OOMs if there are none. */
static void order_question(struct asked *a, unsigned question, uint64_t *seen)
{
    size_t ooms_n;
    if (*seen & (uint64_t)1 << question) return;
    *seen |= (uint64_t)1 << question;
    (void)run_ooms(a->b->run, &ooms_n);
    const uint64_t needs = questions[question].needs & ~(ooms_n ? 0 : REPORT_ASK(OOMS));
    for (unsigned i = 0; i < REPORT_QUESTIONS_N; i++)
        if (needs & (uint64_t)1 << i) order_question(a, i, seen);
    a->order[a->n++] = question;
}

/* All questions, if a loop on a simulated GPU ended the run: that changes the other answers. Steps always: every view
 * names them. */
static struct asked ask_questions(struct site_builder *b)
{
    struct asked a = {.b = b};
    uint64_t seen = 0;
    uint64_t selected = b->options->questions && !run_endless_loop(b->run)
                            ? b->options->questions | REPORT_ASK(WATCH) | REPORT_ASK(STEPS)
                            : ~(uint64_t)0;
    for (unsigned i = 0; i < REPORT_QUESTIONS_N; i++)
        if (selected & (uint64_t)1 << i) order_question(&a, i, &seen);
    return a;
}

static bool watch_memory(struct asked *a, char *error, size_t error_size)
{
    struct run_observer observers[REPORT_QUESTIONS_N] = {0};
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        a->state[a->order[i]] = q->start ? q->start(a->b, &observers[i]) : NULL;
    }
    bool ok = run_replay(a->b->run, observers, a->n, error, error_size);
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        if (q->finish) q->finish(a->state[a->order[i]]);
    }
    return ok;
}

static void questions_on_call(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct asked *a = self;
    a->calls++;
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        if (q->call) q->call(a->b, a->state[a->order[i]], copy, sync);
    }
}

static bool watch_calls(struct asked *a, bool ok, char *error, size_t error_size)
{
    ok = ok && run_each_call(a->b->run, questions_on_call, a, error, error_size);
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        if (q->called) q->called(a->state[a->order[i]]);
    }
    a->b->report->events += a->calls;
    return ok;
}

static bool conclude_questions(struct asked *a, char *error, size_t error_size)
{
    bool ok = true;
    for (unsigned i = 0; i < a->n && ok; i++) {
        const struct question *q = &questions[a->order[i]];
        ok = !q->build || q->build(a->b, error, error_size);
    }
    question_use_frameworks_words(a->b);
    return ok;
}

SORT_ORDER(by_index, struct run_device, SORT_UP(x->device, y->device))

/* The most that the devices held for graphs: the processes of a run share them, but each was told only of its own
 * graphs. */
static void most_for_graphs(struct site_builder *b, struct run_device *devices, size_t n)
{
    size_t graphs_n;
    const struct run_graph_memory *g = run_graph_memory(b->run, &graphs_n);
    for (size_t i = 0; i < graphs_n; i++) {
        for (size_t d = 0; d < n; d++)
            if (devices[d].device == g[i].device && g[i].bytes > devices[d].graph_bytes)
                devices[d].graph_bytes = g[i].bytes; /* RUN_UNKNOWN is below all */
    }
}

/* Processes of one host see the same devices: each is listed once. */
static void list_devices(struct site_builder *b)
{
    size_t n;
    const struct run_device *all = run_devices(b->run, &n);
    struct run_device *list = arena_alloc(b->arena, n * sizeof *list);
    size_t kept = 0;
    for (size_t i = 0; i < n && kept < 4096; i++) {
        bool seen = b->options->by_device && all[i].device != b->options->device;
        for (size_t j = 0; j < kept && !seen; j++) {
            seen = list[j].device == all[i].device && list[j].name == all[i].name &&
                   list[j].total_bytes == all[i].total_bytes;
        }
        if (!seen) list[kept++] = all[i];
    }
    SORT(list, kept, by_index);
    most_for_graphs(b, list, kept);
    b->report->devices = list;
    b->report->devices_n = kept;
}

static void describe_run(struct site_builder *b)
{
    struct result_report *r = b->report;
    r->processes = run_processes(b->run, &r->processes_n);
    r->command = r->processes[0].command;
    r->duration_s = (double)run_duration(b->run) / 1e9;
    r->lost_first_s = NAN;
    r->complete = true;
    uint64_t damaged = 0;
    EACH_IN (p, r->processes) {
        r->lost_events += p->lost_events;
        r->complete = r->complete && p->complete && !p->recording;
        damaged += p->damaged;
        if (p->lost_events && p->lost_first_ns != RUN_UNKNOWN)
            r->lost_first_s = fmin(r->lost_first_s, site_seconds(p->lost_first_ns)); /* NAN gives way */
    }
    r->complete = r->complete && r->lost_events == 0;
    if (damaged) {
        run_add_note(b->run, "%s %s invalid and left out", UNITS_PLURAL(damaged, "record", NULL),
                     damaged == 1 ? "was" : "were");
    }
    r->checks = run_tensor_checks(b->run, &r->checks_n);
    for (size_t i = 0; i < r->checks_n; i++) {
        if (r->checks[i].mismatches) {
            run_add_note(b->run,
                         "the running total of tensors differs from PyTorch's own in %llu of %llu events "
                         "(device %d, first at %s)",
                         (unsigned long long)r->checks[i].mismatches, (unsigned long long)r->checks[i].events,
                         r->checks[i].device, UNITS_SECONDS(site_seconds(r->checks[i].first_mismatch_ns)));
        }
    }
}

SORT_ORDER(order_calls_by_count, struct result_call, SORT_DOWN(x->count, y->count) ?: strcmp(x->api, y->api))

static void list_unhooked_calls(struct site_builder *b)
{
    enum { MOST = 20 };
    size_t n, work_n = 0, top = b->top;
    const struct run_counted *counted = run_counted(b->run, &n);
    struct result_call *work = arena_realloc(NULL, n, sizeof *work);
    double wall = (double)run_duration(b->run) / 1e9;
    for (size_t i = 0; i < n; i++) {
        const char *api = run_api_name(b->run, counted[i].process, counted[i].api);
        size_t at = 0;
        while (at < work_n && strcmp(work[at].api, api) != 0) at++;
        if (at == work_n) work[work_n++] = (struct result_call){.api = api};
        work[at].count += counted[i].count;
        work[at].not_ready += counted[i].not_ready;
        work[at].per_s = wall > 0 ? (double)work[at].count / wall : NAN;
    }
    b->top = MOST;
    b->report->calls =
        site_list(b, work, work_n, sizeof *work, order_calls_by_count, &b->report->calls_n, &b->report->calls_total);
    b->top = top;
    free(work);
}

/* The recorder's own count, so that the line at its exit and the report state one figure, whatever part of the run is
 * read; it is missing if the recorder did not get to write it. */
static void count_events(struct site_builder *b)
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
    run_ooms(b->run, &ooms);
    b->report->events += ooms;
    for (uint32_t i = 0; i < run_series_count(b->run); i++)
        b->report->events += run_series(b->run, i)->allocations + run_series(b->run, i)->frees;
}

static void note_report_lacks(const struct run *run, struct result_report *r)
{
    for (size_t i = 0; i < RUN_FACT_N; i++)
        if ((r->unknown[i] = run_why_unknown(run, (enum run_fact)i))) r->lacks[r->lacks_n++] = run_fact_words[i];
    r->imported = run_is_imported(run);
    r->no_history = run_why_unknown(run, RUN_FACT_HISTORY);
    r->no_times = run_why_unknown(run, RUN_FACT_TIMES);
    r->no_memory = run_why_unknown(run, RUN_FACT_MEMORY);
    r->failed_unknown = run_why_unknown(run, RUN_FACT_FAILURES);
    r->outcome_unknown = run_why_unknown(run, RUN_FACT_OUTCOME);
}

struct result_report *report_build(struct run *run, const struct run_options *options, char *error, size_t error_size)
{
    static const struct run_options defaults;
    struct owner *o = ARENA_NEW(struct owner, .report.run = run);
    struct site_builder b = {.run = run, .report = &o->report, .arena = &o->arena};
    b.options = options ? options : &defaults;
    b.top = b.options->all ? SIZE_MAX : b.options->top ? b.options->top : TOP;
    site_helpers(run, &b.helpers);
    o->report.simulated = step_is_simulated(&b);
    o->report.without_pools = run_setting_value(b.run, 0, "GPUSPY_INSIDE_POOLS") != NULL;
    note_report_lacks(run, &o->report);
    struct asked asked = ask_questions(&b);
    bool ok = watch_memory(&asked, error, error_size);
    ok = watch_calls(&asked, ok, error, error_size);
    if (ok) {
        describe_run(&b);
        list_devices(&b);
        count_events(&b);
        list_unhooked_calls(&b);
        ok = conclude_questions(&asked, error, error_size);
        o->report.notes = run_notes(run, &o->report.notes_n);
    }
    step_finder_free(b.steps);
    question_budgets_free(b.budgets);
    allocator_free(&b);
    site_owners_free(&b);
    site_builder_free(&b);
    if (!ok) {
        report_free(&o->report);
        return NULL;
    }
    return &o->report;
}

void report_free(struct result_report *report)
{
    if (report) {
        struct owner *o = (struct owner *)report;
        category_uses_free(o->report.uses);
        arena_free(&o->arena);
        free(o);
    }
}
