/* OpenMetrics text: figures of a run for Prometheus's textfile collector, which also reads this format. All are gauges,
 * because a recording is complete and its figures do not increase any more. Every sample has the labels run_id, pid and
 * rank, so that files of several runs in one folder do not contradict each other. */
#include <math.h>
#include <string.h>
#include "analyzer/export/export_tables.h"
#include "analyzer/step/step.h"
#include "analyzer/base/term.h"
#include "analyzer/run/words.h"

struct metrics {
    struct export_tables x;
    struct export_lines waits, copies; /* by process, device and kind only */
    FILE *out;
    const struct family *family;
};

/* One row a family: `write` writes its samples, or takes each one's value as the row describes; a time is in
 * nanoseconds. */
struct family {
    const char *name, *unit, *help; /* unit NULL: none */
    void (*write)(struct metrics *m);
    int64_t (*of_process)(const struct run_process *p); /* NULL: the member at `at` */
    size_t at;        /* of an integer of 64 bits in struct run_process, result_peak or step_list */
    unsigned of_line; /* which of its values */
    unsigned needs;   /* facts, a bit each: without one of them, the recording has no such metric */
};

enum { ALL_EVENTS = 1u << RUN_FACT_HISTORY, TIMES = 1u << RUN_FACT_TIMES };

static void put_metric_label(struct metrics *m, const char *key, const char *value)
{
    char clean[512];
    if (!value || !*value) return; /* to Prometheus an empty label is a missing label */
    fprintf(m->out, ",%s=\"", key);
    for (const char *p = terminal_clean(clean, sizeof clean, value, true); *p; p++) {
        if (*p == '"' || *p == '\\') putc('\\', m->out);
        putc(*p, m->out);
    }
    putc('"', m->out);
}

static void put_int_label(struct metrics *m, const char *key, int64_t value)
{
    if (value != RUN_UNKNOWN && value >= 0) fprintf(m->out, ",%s=\"%lld\"", key, (long long)value);
}

/* The caller adds labels, then calls end_metric() or end_real_metric(). */
static void begin_metric(struct metrics *m, uint32_t process)
{
    char clean[128];
    const struct run_process *p = run_process_at(m->x.e->run, process);
    terminal_clean(clean, sizeof clean, p->run_id, true);
    for (char *c = clean; *c; c++) *c = *c == '"' || *c == '\\' ? '?' : *c;
    fprintf(m->out, "%s{run_id=\"%s\"", m->family->name, clean);
    put_int_label(m, "pid", p->pid ? (int64_t)p->pid : RUN_UNKNOWN);
    put_int_label(m, "rank", p->rank);
}

static void end_metric(struct metrics *m, int64_t value)
{
    fprintf(m->out, "} %lld\n", (long long)value);
}

static void end_real_metric(struct metrics *m, double value)
{
    fprintf(m->out, "} %.9g\n", value);
}

static void end_seconds(struct metrics *m, int64_t ns)
{
    fprintf(m->out, "} %lld.%09lld\n", (long long)(ns / 1000000000), (long long)(ns % 1000000000));
}

static void end_value(struct metrics *m, int64_t value)
{
    const char *unit = m->family->unit;
    (unit && strcmp(unit, "seconds") == 0 ? end_seconds : end_metric)(m, value);
}

static void run_info(struct metrics *m)
{
    size_t n;
    const struct run_process *p = run_processes(m->x.e->run, &n);
    for (uint32_t i = 0; i < n; i++) {
        begin_metric(m, i);
        put_metric_label(m, "host", p[i].host);
        put_metric_label(m, "command", p[i].command);
        put_metric_label(m, "python_version", p[i].python_version);
        put_metric_label(m, "gpuspy_version", GPUSPY_VERSION);
        end_metric(m, 1);
    }
}

static int64_t value_at(const struct metrics *m, const void *of)
{
    int64_t value;
    memcpy(&value, (const char *)of + m->family->at, sizeof value);
    return value;
}

static void of_processes(struct metrics *m)
{
    size_t n;
    const struct run_process *p = run_processes(m->x.e->run, &n);
    for (uint32_t i = 0; i < n; i++) {
        begin_metric(m, i);
        end_value(m, m->family->of_process ? m->family->of_process(&p[i]) : value_at(m, &p[i]));
    }
}

static int64_t metric_duration_of(const struct run_process *p)
{
    return p->end_ns > 0 ? p->end_ns : 0;
}

static int64_t is_process_complete(const struct run_process *p)
{
    return p->complete && !p->recording;
}

static void device_total(struct metrics *m)
{
    RUN_EACH (d, run_devices, m->x.e->run) {
        if (export_includes_device(m->x.e, d->device) && d->total_bytes > 0) {
            begin_metric(m, d->process);
            put_int_label(m, "device", d->device);
            put_metric_label(m, "name", d->name);
            end_metric(m, d->total_bytes);
        }
    }
}

static void of_peaks(struct metrics *m)
{
    EACH_IN (p, m->x.report->peaks) {
        if (export_includes_device(m->x.e, p->device)) {
            begin_metric(m, p->process);
            put_int_label(m, "device", p->device);
            put_metric_label(m, "layer", result_series_word(p->layer));
            end_value(m, value_at(m, p));
        }
    }
}

static void put_category_bytes(struct metrics *m)
{
    EACH_IN (p, m->x.report->peaks) {
        for (int c = 0; c < RESULT_CATEGORIES_N && export_includes_device(m->x.e, p->device); c++) {
            if (p->by_category.bytes[c] && p->layer == RUN_SERIES_TENSOR) {
                begin_metric(m, p->process);
                put_int_label(m, "device", p->device);
                put_metric_label(m, "category", result_category_word((enum result_category)c));
                end_metric(m, p->by_category.bytes[c]);
            }
        }
    }
}

static void put_scope_peaks(struct metrics *m)
{
    EACH_IN (s, m->x.report->scopes) {
        if (s->device >= 0 && export_includes_device(m->x.e, s->device)) {
            begin_metric(m, s->process);
            put_int_label(m, "device", s->device);
            put_metric_label(m, "layer", result_series_word(s->layer));
            put_metric_label(m, "scope", s->name);
            put_metric_label(m, "domain", s->domain);
            end_metric(m, s->peak_bytes);
        }
    }
}

/* One sample of a count per process, device and kind. */
static void put_counted(struct metrics *m, struct export_lines *l, const char *label_of_kind)
{
    for (size_t i = 0; i < l->n; i++) {
        begin_metric(m, l->list[i].process);
        put_int_label(m, "device", l->list[i].device);
        if (label_of_kind) put_metric_label(m, label_of_kind, l->list[i].kind ? "true" : "false");
        end_metric(m, l->list[i].values[0]);
    }
    export_lines_free(l);
}

static void put_ooms(struct metrics *m)
{
    struct export_lines l = {0};
    EACH_IN (o, m->x.report->ooms)
        if (export_includes_device(m->x.e, o->device))
            export_lines_at(&l, o->process, RUN_NONE, o->device, o->fatal)->values[0]++;
    put_counted(m, &l, "fatal");
}

static void put_retries(struct metrics *m)
{
    struct export_lines l = {0};
    EACH_IN (r, m->x.report->retries)
        if (export_includes_device(m->x.e, r->device))
            export_lines_at(&l, r->process, RUN_NONE, r->device, 0)->values[0]++;
    put_counted(m, &l, NULL);
}

static void of_waits(struct metrics *m)
{
    EACH (l, m->waits.list, m->waits.n) {
        begin_metric(m, l->process);
        put_int_label(m, "device", l->device);
        put_metric_label(m, "kind", run_sync_word(l->kind));
        end_value(m, l->values[m->family->of_line]);
    }
}

static void of_copies(struct metrics *m)
{
    EACH (l, m->copies.list, m->copies.n) {
        begin_metric(m, l->process);
        put_int_label(m, "device", l->device);
        put_metric_label(m, "direction", run_direction_word(l->kind >> 16));
        put_metric_label(m, "host_memory", run_host_memory_word(l->kind >> 1 & 0x7fff));
        put_metric_label(m, "async", l->kind & 1 ? "true" : "false");
        end_value(m, l->values[m->family->of_line]);
    }
}

static void put_utilisation(struct metrics *m)
{
    EACH_IN (f, m->x.report->fragmentation) {
        if (export_includes_device(m->x.e, f->device) && !isnan(f->utilisation)) {
            begin_metric(m, f->process);
            put_int_label(m, "device", f->device);
            end_real_metric(m, f->utilisation);
        }
    }
}

static void of_all_steps(struct metrics *m)
{
    for (size_t i = 0; i < m->x.report->steps_n; i++) {
        begin_metric(m, m->x.report->steps[i]->process);
        end_value(m, value_at(m, m->x.report->steps[i]));
    }
}

static const struct family families[] = {
    {"gpuspy_run_info", NULL, "A recorded process; its value is 1.", .write = run_info},
    {"gpuspy_duration_seconds", "seconds", "How long the process was recorded.", .write = of_processes,
     .of_process = metric_duration_of, .needs = ALL_EVENTS | TIMES},
    {"gpuspy_complete", NULL, "1 if the process ended normally, else 0.", .write = of_processes,
     .of_process = is_process_complete},
    {"gpuspy_lost_events", NULL, "Events that were dropped because there was no space.", .write = of_processes,
     .at = offsetof(struct run_process, lost_events)},
    {"gpuspy_device_memory_bytes", "bytes", "Memory of the GPU as its driver reports it.", .write = device_total},
    {"gpuspy_peak_bytes", "bytes", "The most memory that was live at once.", .write = of_peaks,
     .at = offsetof(struct result_peak, bytes), .needs = ALL_EVENTS},
    {"gpuspy_peak_category_bytes", "bytes", "Tensors live at the peak by category.", .write = put_category_bytes,
     .needs = ALL_EVENTS},
    {"gpuspy_scope_peak_bytes", "bytes", "The most memory that was live while an NVTX range of that name was open.",
     .write = put_scope_peaks, .needs = ALL_EVENTS},
    {"gpuspy_end_bytes", "bytes", "Memory that was still live at the end.", .write = of_peaks,
     .at = offsetof(struct result_peak, end_bytes)},
    {"gpuspy_allocated_bytes", "bytes", "Sum of all allocations.", .write = of_peaks,
     .at = offsetof(struct result_peak, allocated_bytes), .needs = ALL_EVENTS},
    {"gpuspy_allocations", NULL, "Allocations over the run.", .write = of_peaks,
     .at = offsetof(struct result_peak, allocations), .needs = ALL_EVENTS},
    {"gpuspy_out_of_memory_failures", NULL, "Times that memory ran out.", .write = put_ooms},
    {"gpuspy_allocation_retries", NULL, "Allocations that succeeded only after memory was freed.",
     .write = put_retries},
    {"gpuspy_allocator_utilisation_ratio", "ratio",
     "The peak of tensors, as a share of the peak that PyTorch reserved.", .write = put_utilisation,
     .needs = ALL_EVENTS},
    {"gpuspy_waits", NULL, "Times that the host waited for the GPU.", .write = of_waits, .of_line = 1},
    {"gpuspy_wait_seconds", "seconds", "How long the host waited for the GPU.", .write = of_waits, .of_line = 0},
    {"gpuspy_copies", NULL, "Copies to, from and on the GPU.", .write = of_copies, .of_line = 1},
    {"gpuspy_copied_bytes", "bytes", "Bytes copied to, from and on the GPU.", .write = of_copies, .of_line = 0},
    {"gpuspy_copy_blocked_seconds", "seconds", "Time that the host spent in calls that copy.", .write = of_copies,
     .of_line = 2},
    {"gpuspy_steps", NULL, "The program's own steps, if it has any.", .write = of_all_steps,
     .at = offsetof(struct step_list, n)},
    {"gpuspy_step_median_seconds", "seconds", "The usual time per step.", .write = of_all_steps,
     .at = offsetof(struct step_list, median_ns), .needs = TIMES},
};

/* Adds up the lines of each process, device and kind. */
static void add_up_lines(const struct export_lines *from, struct export_lines *to)
{
    EACH (f, from->list, from->n) {
        struct export_line *l = export_lines_at(to, f->process, RUN_NONE, f->device, f->kind);
        for (unsigned v = 0; v < EXPORT_LINE_VALUES; v++) l->values[v] = arena_add_capped(l->values[v], f->values[v]);
    }
}

static bool lacks_facts(const struct run *run, unsigned facts)
{
    for (int i = 0; i < RUN_FACT_N; i++)
        if (facts >> i & 1 && run_why_unknown(run, (enum run_fact)i)) return true;
    return false;
}

bool export_metrics(struct export_run *e, char *error, size_t error_size)
{
    struct run_options options = {.top = 1 << 20};
    struct metrics m = {.x = {.e = e, .process = RUN_NONE}, .out = e->out};
    m.x.report = report_build(e->run, &options, error, error_size);
    bool ok = m.x.report && export_tables_gather_calls(&m.x, error, error_size);
    if (ok) {
        add_up_lines(&m.x.waits, &m.waits);
        add_up_lines(&m.x.copies, &m.copies);
        EACH (f, families, sizeof families / sizeof *families) {
            m.family = f;
            fprintf(e->out, "# TYPE %s gauge\n", f->name);
            if (f->unit) fprintf(e->out, "# UNIT %s %s\n", f->name, f->unit);
            fprintf(e->out, "# HELP %s %s\n", f->name, f->help);
            if (!lacks_facts(e->run, f->needs)) f->write(&m);
        }
        fputs("# EOF\n", e->out);
    }
    export_lines_free(&m.waits);
    export_lines_free(&m.copies);
    export_lines_free(&m.x.waits);
    export_lines_free(&m.x.copies);
    report_free(m.x.report);
    return ok;
}
