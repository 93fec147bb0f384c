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

/* --- the rows of questions.def, for one caller -------------------------------------------------------- */

struct asked { /* what is asked of one run */
    struct gs_builder *b;
    unsigned order[GS_QUESTIONS_N], n;
    void *state[GS_QUESTIONS_N];
    uint64_t calls; /* copies and waits read */
};

#define STARTS(name)                                                       \
    static void *name##_start(struct gs_builder *b, struct gs_observer *o) \
    {                                                                      \
        return gs_##name##_start(b, o);                                    \
    }
#define FINISHES(name)                     \
    static void name##_finish(void *state) \
    {                                      \
        gs_##name##_finish(state);         \
    }
#define BUILDS(name, function)                                                     \
    static bool name##_build(struct gs_builder *b, char *error, size_t error_size) \
    {                                                                              \
        (void)error;                                                               \
        (void)error_size;                                                          \
        function(b);                                                               \
        return true;                                                               \
    }

/* clang-format off */
STARTS(steps)
STARTS(uses)
STARTS(peaks) FINISHES(peaks)
STARTS(timelines) FINISHES(timelines)
STARTS(memory) FINISHES(memory)
STARTS(growths) FINISHES(growths)
STARTS(churns) FINISHES(churns)
STARTS(preallocations) FINISHES(preallocations)
STARTS(ooms) FINISHES(ooms)
STARTS(ranks) FINISHES(ranks)
FINISHES(syncs)
FINISHES(transfers)
BUILDS(steps, gs_steps_build)
BUILDS(allocators, gs_allocators_build)
BUILDS(leaks, gs_leaks_build)
BUILDS(verdicts, gs_ooms_explain)
BUILDS(loop, gs_loop_build)
BUILDS(budgets, gs_budgets_build)
BUILDS(marks, gs_marks_build)
BUILDS(samples, gs_samples_build)
    /* clang-format on */

    static void *owners_start(struct gs_builder *b, struct gs_observer *o)
{
    gs_owners_start(b, o);
    return NULL;
}

static void *allocators_start(struct gs_builder *b, struct gs_observer *o)
{
    gs_allocators_start(b, o);
    return NULL;
}

static void *watch_start(struct gs_builder *b, struct gs_observer *o)
{
    if (b->options->watch) {
        *o = b->options->watch->observer;
    }
    return NULL;
}

static void *syncs_start(struct gs_builder *b, struct gs_observer *o)
{
    (void)o;
    return gs_syncs_start(b);
}

static void *transfers_start(struct gs_builder *b, struct gs_observer *o)
{
    (void)o;
    return gs_transfers_start(b);
}

static void allocators_call(struct gs_builder *b, void *state, const struct gs_copy *copy, const struct gs_sync *sync)
{
    (void)state, (void)copy;
    if (sync) {
        gs_allocators_call(b, sync);
    }
}

static void ranks_call(struct gs_builder *b, void *state, const struct gs_copy *copy, const struct gs_sync *sync)
{
    (void)b;
    gs_ranks_call(state, copy, sync);
}

static void watch_call(struct gs_builder *b, void *state, const struct gs_copy *copy, const struct gs_sync *sync)
{
    (void)state;
    if (b->options->watch && b->options->watch->call) {
        b->options->watch->call(b->options->watch->self, copy, sync);
    }
}

static void syncs_call(struct gs_builder *b, void *state, const struct gs_copy *copy, const struct gs_sync *sync)
{
    (void)b;
    gs_syncs_call(state, copy, sync);
}

static void transfers_call(struct gs_builder *b, void *state, const struct gs_copy *copy, const struct gs_sync *sync)
{
    (void)b, (void)sync;
    if (copy) {
        gs_transfers_call(state, copy);
    }
}

static bool categories_build(struct gs_builder *b, char *error, size_t error_size)
{
    return gs_categories_build(b, error, error_size);
}

static bool estimate_build(struct gs_builder *b, char *error, size_t error_size)
{
    return gs_budgets_read(b, error, error_size);
}

static bool advice_build(struct gs_builder *b, char *error, size_t error_size)
{
    (void)error, (void)error_size;
    gs_advice_build(b);
    gs_loop_advice(b);
    return true;
}

static const struct question {
    void *(*start)(struct gs_builder *, struct gs_observer *);
    void (*finish)(void *state);
    void (*call)(struct gs_builder *, void *state, const struct gs_copy *, const struct gs_sync *);
    void (*called)(void *state);
    bool (*build)(struct gs_builder *, char *error, size_t error_size);
    uint64_t needs;
} questions[] = {
#define none NULL
#define NOTHING 0
#define NEEDS(name) GS_ASK(name)
#define QUESTION(name, start, finish, call, called, build, needs) \
    [GS_QUESTION_##name] = {start, finish, call, called, build, needs},
#include "analyzer/report/questions.def"
#undef QUESTION
#undef NEEDS
#undef NOTHING
#undef none
};

/* --- asking ---------------------------------------------------------------------------------------------- */

/* Everything that a question needs, then the question. */
static void order_question(struct asked *a, unsigned question, uint64_t *seen)
{
    if (*seen & (uint64_t)1 << question) {
        return;
    }
    *seen |= (uint64_t)1 << question;
    for (unsigned i = 0; i < GS_QUESTIONS_N; i++) {
        if (questions[question].needs & (uint64_t)1 << i) {
            order_question(a, i, seen);
        }
    }
    a->order[a->n++] = question;
}

/* All, where a loop on a simulated GPU ended the run: that changes the other answers. Peaks and steps always: the
 * number of events may rest on the first, and every view names the second. */
static struct asked ask(struct gs_builder *b)
{
    struct asked a = {.b = b};
    uint64_t seen = 0;
    uint64_t wanted = b->options->questions && !gs_run_loop(b->run)
                          ? b->options->questions | GS_ASK(WATCH) | GS_ASK(PEAKS) | GS_ASK(STEPS)
                          : ~(uint64_t)0;
    for (unsigned i = 0; i < GS_QUESTIONS_N; i++) {
        if (wanted & (uint64_t)1 << i) {
            order_question(&a, i, &seen);
        }
    }
    return a;
}

static bool watch_memory(struct asked *a, char *error, size_t error_size)
{
    struct gs_observer observers[GS_QUESTIONS_N] = {0};
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        a->state[a->order[i]] = q->start ? q->start(a->b, &observers[i]) : NULL;
    }
    bool ok = gs_run_replay(a->b->run, observers, a->n, error, error_size);
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        if (q->finish) {
            q->finish(a->state[a->order[i]]);
        }
    }
    return ok;
}

static void on_call(void *self, const struct gs_copy *copy, const struct gs_sync *sync)
{
    struct asked *a = self;
    a->calls++;
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        if (q->call) {
            q->call(a->b, a->state[a->order[i]], copy, sync);
        }
    }
}

static bool watch_calls(struct asked *a, bool ok, char *error, size_t error_size)
{
    ok = ok && gs_run_calls(a->b->run, on_call, a, error, error_size);
    for (unsigned i = 0; i < a->n; i++) {
        const struct question *q = &questions[a->order[i]];
        if (q->called) {
            q->called(a->state[a->order[i]]);
        }
    }
    a->b->report->events += a->calls;
    return ok;
}

static bool conclude(struct asked *a, char *error, size_t error_size)
{
    bool ok = true;
    for (unsigned i = 0; i < a->n && ok; i++) {
        const struct question *q = &questions[a->order[i]];
        ok = !q->build || q->build(a->b, error, error_size);
    }
    return ok;
}

/* --- what is in every report ------------------------------------------------------------------------------- */

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
            r->lost_first_s = fmin(r->lost_first_s, gs_seconds(p->lost_first_ns)); /* NAN gives way */
        }
    }
    r->complete = r->complete && r->lost_events == 0;
    if (damaged) {
        gs_run_note(b->run, "%s made no sense and %s left out", format_plural(count, damaged, "record", NULL),
                    damaged == 1 ? "was" : "were");
    }
    r->checks = gs_run_tensor_checks(b->run, &r->checks_n);
    for (size_t i = 0; i < r->checks_n; i++) {
        char first[UNITS_TEXT];
        if (r->checks[i].mismatches) {
            gs_run_note(b->run,
                        "the running total of tensors differs from PyTorch's own in %llu of %llu events "
                        "(device %d, first at %s)",
                        (unsigned long long)r->checks[i].mismatches, (unsigned long long)r->checks[i].events,
                        r->checks[i].device, format_seconds(first, gs_seconds(r->checks[i].first_mismatch_ns)));
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
    b->report->calls = gs_list(b, work, work_n, sizeof *work, more_often, &b->report->calls_n, &b->report->calls_total);
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

struct gs_report *gs_report_build(struct gs_run *run, const struct gs_options *options, char *error, size_t error_size)
{
    static const struct gs_options defaults;
    struct owner *o = gs_realloc(NULL, 1, sizeof *o);
    *o = (struct owner){.report.run = run};
    struct gs_builder b = {.run = run, .report = &o->report, .arena = &o->arena};
    b.options = options ? options : &defaults;
    b.top = b.options->all ? SIZE_MAX : b.options->top ? b.options->top : TOP;
    gs_site_helpers(run, &b.helpers);
    o->report.simulated = gs_simulated(&b);
    struct asked asked = ask(&b);
    bool ok = watch_memory(&asked, error, error_size);
    ok = watch_calls(&asked, ok, error, error_size);
    if (ok) {
        describe_run(&b);
        list_devices(&b);
        count_events(&b);
        list_calls(&b);
        ok = conclude(&asked, error, error_size);
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
