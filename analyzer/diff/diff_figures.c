/* The other figures of two runs: peaks, steps, waits, copies and growth per step, failures. */
#include "analyzer/diff/diff_parts.h"

#include <math.h>
#include <string.h>
#include "analyzer/step/step.h"

static const double worth = 1 << 20;

struct asked {
    const struct result_report *report;
    const struct diff_request *wish;
};

static bool is_figure_meant(const struct asked *q, uint32_t process, int device)
{
    return (q->wish->device < 0 || device == q->wish->device) &&
           (q->wish->rank < 0 || q->report->processes[process].rank == q->wish->rank);
}

/* The maximum of one layer that one process had on one device; or its end. */
static double figure_most_of(const struct asked *q, enum run_series_layer layer, bool at_end)
{
    double most = NAN;
    EACH_IN (p, q->report->peaks)
        if (p->layer == layer && is_figure_meant(q, p->process, p->device))
            most = fmax(most, (double)(at_end ? p->end_bytes : p->bytes)); /* NAN gives way */
    return most;
}

static double figure_pinned(const struct asked *q)
{
    double most = figure_most_of(q, RUN_SERIES_PINNED, false);
    return most >= worth ? most : 0; /* a flag or two is always pinned */
}

static bool figure_part(const struct asked *q)
{
    return q->wish->rank >= 0 || q->wish->device >= 0;
}

static const struct step_list *figure_steps_of(const struct asked *q)
{
    for (size_t i = 0; i < q->report->steps_n; i++)
        if (is_figure_meant(q, q->report->steps[i]->process, q->wish->device)) return q->report->steps[i];
    return NULL;
}

/* Of a bounded recording perhaps only the last steps are known. */
static double figure_steps(const struct asked *q)
{
    const struct step_list *s = figure_steps_of(q);
    const bool other = s && s->removed && s->source == STEP_SOURCE_PERIOD; /* it is the kept part's loop */
    return s && !s->removed_unknown && !other ? (double)s->n : NAN;
}

static double add_pace(double sum, const struct result_pace *p)
{
    return isfinite(p->calls_per_step) ? (isfinite(sum) ? sum : 0) + p->calls_per_step : sum;
}

static double waits_per_step(const struct asked *q)
{
    double sum = q->report->steps_n ? 0 : NAN;
    for (size_t i = 0; i < q->report->syncs_n; i++) sum = add_pace(sum, &q->report->syncs[i].pace);
    return figure_part(q) ? NAN : sum;
}

static double copies_per_step(const struct asked *q)
{
    double sum = q->report->steps_n ? 0 : NAN;
    for (size_t i = 0; i < q->report->transfers_n; i++) sum = add_pace(sum, &q->report->transfers[i].pace);
    return figure_part(q) ? NAN : sum;
}

static double figure_copied(const struct asked *q)
{
    double sum = 0;
    for (size_t i = 0; i < q->report->transfers_n; i++) sum += (double)q->report->transfers[i].bytes;
    return figure_part(q) ? NAN : sum;
}

static double growth_per_step(const struct asked *q)
{
    double sum = q->report->steps_n ? 0 : NAN;
    EACH_IN (g, q->report->growth)
        if (is_figure_meant(q, g->process, g->device) && g->by_steps)
            sum = (isfinite(sum) ? sum : 0) + g->bytes_per_step;
    return sum;
}

/* Of a bounded recording perhaps only the growth of the last steps is known. */
static double figure_growth(const struct asked *q)
{
    double sum = q->report->no_memory || q->report->no_history || run_growth_from(q->report->run) ? NAN : 0;
    EACH_IN (g, q->report->growth) sum += is_figure_meant(q, g->process, g->device) ? (double)g->bytes : 0;
    return sum;
}

static double figure_retries(const struct asked *q)
{
    double n = 0;
    for (size_t i = 0; i < q->report->retries_n; i++)
        n += is_figure_meant(q, q->report->retries[i].process, q->report->retries[i].device);
    return n;
}

static double figure_failures(const struct asked *q)
{
    const struct result_report *r = q->report;
    double n = r->no_memory || r->no_history || r->outcome_unknown || r->failed_unknown ? NAN : 0;
    for (size_t i = 0; i < r->ooms_n; i++) n += is_figure_meant(q, r->ooms[i].process, r->ooms[i].device);
    return n;
}

#define FIGURE(name, value)                   \
    static double name(const struct asked *q) \
    {                                         \
        return value;                         \
    }
FIGURE(figure_tensors, figure_most_of(q, RUN_SERIES_TENSOR, false))
FIGURE(figure_device, figure_most_of(q, RUN_SERIES_DEVICE, false))
FIGURE(tensors_at_end, figure_most_of(q, RUN_SERIES_TENSOR, true))
FIGURE(figure_duration, figure_part(q) || q->report->no_times ? NAN : q->report->duration_s)
FIGURE(step_s, figure_steps_of(q) ? (double)figure_steps_of(q)->median_ns / 1e9 : NAN)
FIGURE(figure_waited, figure_part(q) ? NAN : q->report->sync_blocked_s)
FIGURE(figure_lost, (double)q->report->lost_events)

static const struct {
    const char *key, *name, *unit;
    double (*of)(const struct asked *);
    bool always;         /* also if both are 0 */
    bool times;          /* meaningless on a simulated GPU */
    const char *once;    /* its name if both recordings have one moment; NULL: the same */
    enum run_fact needs; /* unknown in a recording without it; RUN_FACT_N: always known */
    const char *lines;   /* as in diff_figure */
} rows[] = {
    {"peak_tensor_bytes", "peak of tensors", "bytes", figure_tensors, false, false, "live tensors", RUN_FACT_MEMORY,
     NULL},
    {"peak_device_bytes", "peak of CUDA allocations", "bytes", figure_device, false, false, "live CUDA allocations",
     RUN_FACT_MEMORY, NULL},
    {"peak_pinned_bytes", "peak of pinned memory", "bytes", figure_pinned, false, false, "live pinned memory",
     RUN_FACT_PINNED, "--layer pinned"},
    {"end_tensor_bytes", "tensors at the end", "bytes", tensors_at_end, false, false, NULL, RUN_FACT_MEMORY, NULL},
    {"oom", "out of memory", "count", figure_failures, true, false, NULL, RUN_FACT_HISTORY, NULL},
    {"retries", "allocations retried", "count", figure_retries, false, false, NULL, RUN_FACT_SEGMENTS, NULL},
    {"growth_bytes", "steady growth", "bytes", figure_growth, false, false, NULL, RUN_FACT_HISTORY, NULL},
    {"growth_bytes_per_step", "growth per step", "bytes", growth_per_step, false, false, NULL, RUN_FACT_MEMORY, NULL},
    {"steps", "steps", "count", figure_steps, false, false, NULL, RUN_FACT_HISTORY, NULL},
    {"step_s", "time per step", "s", step_s, false, true, NULL, RUN_FACT_TIMES, NULL},
    {"waits_per_step", "waits per step", "count", waits_per_step, false, false, NULL, RUN_FACT_WAITS, "--what waits"},
    {"copies_per_step", "copies per step", "count", copies_per_step, false, false, NULL, RUN_FACT_COPIES,
     "--what copies"},
    {"blocked_s", "waited in total", "s", figure_waited, false, true, NULL, RUN_FACT_WAITS, NULL},
    {"copied_bytes", "copied in total", "bytes", figure_copied, false, false, NULL, RUN_FACT_COPIES, NULL},
    {"duration_s", "duration", "s", figure_duration, true, false, NULL, RUN_FACT_TIMES, NULL},
    {"lost_events", "events lost", "count", figure_lost, false, false, NULL, RUN_FACT_N, NULL},
};

/* "capacity", of the failure that ended it, else of the first. */
static const char *figure_cause(const struct asked *q)
{
    const struct result_oom_verdict *found = NULL;
    EACH_IN (v, q->report->ooms)
        if (is_figure_meant(q, v->process, v->device) && (!found || (v->fatal && !found->fatal))) found = v;
    return found ? result_cause_word(found->cause) : NULL;
}

void diff_add_figures(struct diff_owner *o, const struct diff_side side[2])
{
    struct diff *d = &o->diff;
    struct asked q[2] = {{side[0].report, &d->wish}, {side[1].report, &d->wish}};
    bool simulated = side[0].report->simulated || side[1].report->simulated;
    const bool once = side[0].report->no_history && side[1].report->no_history;
    d->figures = arena_alloc(&o->arena, sizeof rows / sizeof *rows * sizeof *d->figures);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct diff_figure f = {.key = rows[i].key,
                                .name = once && rows[i].once ? rows[i].once : rows[i].name,
                                .unit = rows[i].unit,
                                .lines = rows[i].lines};
        double largest = 0;
        if (once && rows[i].of == tensors_at_end) continue; /* the same as its live tensors */
        for (int k = 0; k < 2; k++) {
            const struct result_report *r = q[k].report;
            const bool unknown =
                (rows[i].needs != RUN_FACT_N && r->unknown[rows[i].needs]) || (rows[i].once && !once && r->no_history);
            f.value[k] = unknown ? NAN : rows[i].of(&q[k]);
            largest = fmax(largest, f.value[k]);
            f.text[k] = strcmp(f.key, "oom") == 0 ? figure_cause(&q[k]) : NULL;
        }
        bool known = isfinite(f.value[0]) || isfinite(f.value[1]);
        if (known && (rows[i].always || largest > 0) && !(rows[i].times && simulated)) d->figures[d->figures_n++] = f;
    }
    if (simulated && (d->wish.what == PROFILE_WAITS))
        diff_add_note(o, "a GPU is simulated: the duration of waits has no meaning, only their number");
    for (int k = 0; k < 2; k++) {
        const struct result_report *r = side[k].report;
        for (size_t i = 0; i < r->notes_n; i++) diff_add_note(o, "%s", r->notes[i]);
    }
}
