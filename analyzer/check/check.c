/* Opens the recording, process by process, and compares the measured figures with the limits.
 *
 * Each process is examined separately: figures per step are those of one process, and if there are several, the worst
 * counts. The memory of several processes on one GPU is not added up (--per device does that, shared.c).
 */
#include "analyzer/check/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/question/rank.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/sort.h"

enum { LINES = 50 };

struct base { /* a reading of the baseline */
    enum check_gate_id gate;
    const char *scope;
    int device;
    double value;
};
struct bases {
    struct base *list;
    size_t n, cap;
};

struct runner {
    const struct check_request *wish;
    struct check *out;
    struct bases *bases;
    bool of_baseline; /* collect into bases instead of judging */
    bool any;         /* a limit applied to some process */
    struct checking c;
};

static int compare_check_lines(const void *a, const void *b)
{
    const struct check_line *x = a, *y = b;
    double p = isnan(x->amount) ? 0 : x->amount, q = isnan(y->amount) ? 0 : y->amount;
    return SORT_DOWN(p, q) ?: strcmp(x->file ? x->file : "", y->file ? y->file : "") ?: SORT_UP(x->line, y->line);
}

SORT_ORDER(by_words, struct check_line, strcmp(x->place, y->place) ?: sort_compare_texts(x->note, y->note))

/* Call paths with the same text become one line. */
static size_t merge_lines(struct check_line *lines, size_t n)
{
    size_t kept = 0;
    SORT(lines, n, by_words);
    for (size_t i = 0; i < n; i++)
        if (kept && !isnan(lines[i].amount) && by_words(&lines[kept - 1], &lines[i]) == 0)
            lines[kept - 1].amount += lines[i].amount;
        else
            lines[kept++] = lines[i];
    return kept;
}

/* In the arena, largest first, the list cut. */
static void settle_lines(struct checking *c, struct check_result *r)
{
    struct check_line *work = r->lines;
    if (r->lines_n) {
        r->lines_total = r->lines_n = merge_lines(work, r->lines_n);
        SORT(work, r->lines_n, compare_check_lines);
        r->lines_n = r->lines_n < LINES ? r->lines_n : LINES;
        r->lines = arena_alloc(c->arena, r->lines_n * sizeof *work);
        memcpy(r->lines, work, r->lines_n * sizeof *work);
    }
    free(work);
}

static double base_value_of(const struct bases *b, enum check_gate_id gate, const char *scope, int device)
{
    double most = NAN;
    bool same = false;
    EACH (x, b->list, b->n) {
        if (x->gate != gate || !check_is_same_scope(x->scope, scope) || (same && x->device != device)) continue;
        if (x->device == device && !same) { /* its own GPU's, if it has one */
            same = true;
            most = x->value;
        } else if (isnan(most) || x->value > most) {
            most = x->value;
        }
    }
    return most;
}

static double limit_value_of(const struct runner *r, const struct check_result *reading, const struct check_limit *l)
{
    const struct check_gate *g = &check_gates[r->c.gate];
    if (!isnan(reading->limit)) return reading->limit;
    if (!l || g->unit == UNIT_EVENTS || check_gate_is_flag(g)) return 0;
    if (!l->relative) return l->value;
    double base = base_value_of(r->bases, r->c.gate, reading->scope, reading->device);
    return l->of_share ? base * (1 + l->value) : base + l->value;
}

/* A recording of one moment has the memory that was live then, and a trace the memory that was allocated during it: the
 * peak is at least that. */
static const char *why_peak_unknown(struct runner *r, enum check_gate_id gate)
{
    const bool peak = gate == GATE_PEAK || gate == GATE_TENSOR_PEAK || gate == GATE_PINNED;
    const char *why = peak ? run_why_unknown(r->c.run, RUN_FACT_HISTORY) : NULL;
    if (!why && (gate == GATE_PEAK || gate == GATE_TENSOR_PEAK)) why = run_why_unknown(r->c.run, RUN_FACT_BEFORE);
    return why;
}

static void judge_results(struct runner *r, struct check_result *result)
{
    enum { SLACK = 1000000000 }; /* of figures that were divided */
    if (isnan(result->value) || isnan(result->limit)) {
        result->status = CHECK_UNKNOWN;
        if (!isnan(result->value)) result->why = "the baseline does not contain it";
    } else {
        double most = result->limit + result->limit / SLACK;
        const char *unknown = why_peak_unknown(r, result->gate);
        result->at_least = unknown != NULL;
        result->status = result->value > most ? CHECK_FAILED : unknown ? CHECK_UNKNOWN : CHECK_OK;
        if (result->status == CHECK_UNKNOWN)
            result->why =
                arena_printf(r->c.arena, "the live memory is within the limit, but the peak is unknown: %s", unknown);
    }
    if (result->status == CHECK_FAILED) {
        check_gates[result->gate].explain(&r->c, result);
        settle_lines(&r->c, result);
    }
}

static const char *checked_gpu_name(struct checking *c, int device)
{
    struct arena words = {0};
    struct site_builder b = {.run = c->run, .arena = &words};
    const char *gpu = device < 0 ? ""
                                 : arena_printf(c->arena, "%s %s", c->process->host ? c->process->host : "",
                                                question_gpu_word(&b, 0, device));
    arena_free(&words);
    return gpu;
}

static void judge_reading(struct checking *c, const struct check_result *reading)
{
    struct runner *r = c->self;
    const struct check_limit *l =
        check_limits_find(r->wish->limits, c->gate, reading->scope, c->paths, reading->device);
    bool always = c->gate == GATE_COMPLETE || c->gate == GATE_LOST;
    if (r->of_baseline) {
        if (l && l->relative && !isnan(reading->value)) {
            ARENA_APPEND_TO(r->bases->list, r->bases->n, r->bases->cap, c->gate, reading->scope, reading->device,
                            reading->value);
        }
        return;
    }
    if (!l && (!always || (c->gate == GATE_LOST && reading->value == 0)))
        return; /* lost events are mentioned only if there are any */
    struct check_result *result = ARENA_PUSH(r->out->results, r->out->n, r->out->cap);
    *result = *reading;
    result->gate = c->gate;
    result->path = check_copy_text(c->arena, c->process->path);
    result->cwd = check_copy_text(c->arena, c->process->cwd);
    result->why = check_copy_text(c->arena, reading->why);
    result->gpu = checked_gpu_name(c, reading->device);
    result->pid = c->process->pid;
    result->rank = c->process->rank;
    result->limit = limit_value_of(r, reading, l);
    judge_results(r, result);
}

static bool is_limited(const struct runner *r, enum check_gate_id gate)
{
    bool given = check_limits_has(r->wish->limits, gate, r->c.paths);
    if (gate == GATE_COMPLETE) return !r->of_baseline && !r->wish->allow_incomplete;
    if (gate == GATE_LOST) return !r->of_baseline && (given || !r->wish->allow_incomplete);
    return given;
}

static void measure_all(struct runner *r, struct run *run, const struct result_report *report)
{
    struct checking *c = &r->c;
    c->run = run;
    c->report = report;
    c->process = &report->processes[0];
    for (int g = 0; g < GATES_N; g++) {
        c->gate = (enum check_gate_id)g;
        if (is_limited(r, c->gate)) {
            r->any = r->any ||
                     (g != GATE_COMPLETE && (g != GATE_LOST || check_limits_has(r->wish->limits, c->gate, c->paths)));
            check_gates[g].measure(c);
        }
    }
    c->run = NULL;
    c->report = NULL;
    c->process = NULL;
}

/* The parameters of the report's question. */
static struct run_estimate_bytes estimate_bytes(const struct estimate *e)
{
    return (struct run_estimate_bytes){(double)e->weights, (double)e->gradients, (double)(e->optimizer + e->master),
                                       (double)e->total,   (double)e->params,    (double)e->cast_copies};
}

static bool one_process(struct runner *r, const char *path, struct symbolizer *symbols, char *error, size_t error_size)
{
    const char *paths[] = {path, r->wish->n == 1 ? r->wish->paths[0] : path, NULL};
    struct run_options o = {.all = true, .alone = true, SYMBOLIZER_OPTIONS(symbols)};
    const struct check_limit *budget = check_limits_find(r->wish->limits, GATE_BUDGET, NULL, paths, -1);
    struct run_estimate_bytes bytes;
    r->c.paths = paths;
    if (budget) {
        bytes = estimate_bytes(&budget->budget.estimate);
        o.estimate = &bytes;
        o.memory_map = true; /* each category's own peak needs the calls that freed */
    }
    struct run *run = run_open(&path, 1, &o, error, error_size);
    struct result_report *report = run ? report_build(run, &o, error, error_size) : NULL;
    if (report) {
        measure_all(r, run, report);
        r->out->events += r->of_baseline ? 0 : report->events;
        if (!r->of_baseline && !r->out->command && report->command)
            r->out->command = arena_printf(&r->out->arena, "%s", report->command);
        r->out->simulated = r->out->simulated || report->simulated;
        report_free(report);
    }
    if (run) run_close(run);
    r->c.paths = NULL;
    return report != NULL;
}

/* The databases of the run: the named ones, and those beside them. */
static char **databases_of(const char *const *paths, size_t n, bool alone, size_t *found, struct check *times,
                           char *error, size_t error_size)
{
    struct run_options o = {.alone = alone};
    struct run *run = run_open(paths, n, &o, error, error_size);
    if (!run) return NULL;
    const struct run_process *p = run_processes(run, found);
    char **list = arena_realloc(NULL, *found, sizeof *list);
    for (size_t i = 0; i < *found; i++) {
        list[i] = arena_realloc(NULL, strlen(p[i].path) + 1, 1);
        strcpy(list[i], p[i].path);
    }
    times->duration_s = (double)run_duration(run) / 1e9;
    times->kept_from_ns = run_growth_from(run);
    run_close(run);
    return list;
}

static bool all_processes(struct runner *r, const char *const *paths, size_t n, char *error, size_t error_size)
{
    size_t found = 0;
    struct check times = {0};
    char **list = databases_of(paths, n, r->wish->alone, &found, &times, error, error_size);
    struct symbolizer *symbols = symbolizer_new();
    bool ok = list != NULL;
    for (size_t i = 0; list && i < found; i++) {
        ok = ok && one_process(r, list[i], symbols, error, error_size);
        free(list[i]);
    }
    free(list);
    symbolizer_free(symbols);
    if (!r->of_baseline) {
        r->out->processes = found;
        r->out->duration_s = times.duration_s;
        r->out->kept_from_ns = times.kept_from_ns;
    }
    return ok;
}

/* By gate and scope; then failed and unknown results first, then the largest. */
static int order_results(const void *a, const void *b)
{
    const struct check_result *x = a, *y = b;
    const double p = isnan(x->value) ? 0 : x->value, q = isnan(y->value) ? 0 : y->value;
    const bool are_one = x->what == y->what || x->scope;
    return SORT_UP(x->gate, y->gate)
               ?: strcmp(x->scope ? x->scope : "", y->scope ? y->scope : "")
               ?: SORT_UP(x->status == CHECK_OK, y->status == CHECK_OK)
               ?: (are_one ? SORT_DOWN(p, q) : 0)
               ?: SORT_UP(x->rank, y->rank)
               ?: SORT_UP(x->pid, y->pid)
               ?: SORT_UP(x->device, y->device);
}

/* An incomplete recording can prove a failure, but not a success. */
static void doubt_incomplete_run(struct check *c)
{
    bool whole = true;
    for (size_t i = 0; i < c->n; i++)
        whole = whole && (c->results[i].gate > GATE_LOST || c->results[i].status == CHECK_OK);
    EACH (r, c->results, c->n) {
        if (!whole && r->gate > GATE_LOST && r->status == CHECK_OK) {
            r->status = CHECK_UNKNOWN;
            r->why = "the recording is not complete";
        }
        c->failed = c->failed || r->status != CHECK_OK;
        r->several = c->processes > 1;
    }
}

bool check_run(const struct check_request *wish, struct check *out, bool *nothing, char *error, size_t error_size)
{
    struct bases bases = {0};
    *out = (struct check){.source = wish->paths[0]};
    struct check_scopes scopes = {0};
    struct runner r = {.wish = wish,
                       .out = out,
                       .bases = &bases,
                       .c = {.arena = &out->arena,
                             .limits = wish->limits,
                             .columns = wish->columns,
                             .scopes = &scopes,
                             .read = judge_reading}};
    r.c.self = &r;
    bool ok = true;
    if (wish->baseline) {
        r.of_baseline = true;
        ok = all_processes(&r, &wish->baseline, 1, error, error_size);
        r.of_baseline = false;
        r.any = false;
    }
    scopes.n = 0; /* the scopes of the baseline do not matter */
    ok = ok && all_processes(&r, wish->paths, wish->n, error, error_size) &&
         check_scopes_occurred(&scopes, wish->paths[0], error, error_size);
    ARENA_RELEASE(scopes.list, bases.list);
    *nothing = ok && !r.any;
    if (ok) {
        if (wish->per_device) check_share(out);
        SORT(out->results, out->n, order_results);
        doubt_incomplete_run(out);
    }
    return ok;
}

void check_free(struct check *c)
{
    free(c->results);
    arena_free(&c->arena);
    *c = (struct check){0};
}
