/* Writes one metric family after the other: a table row per family, in the order of output. OpenMetrics wants all
 * samples of a family together, so each family visits all recordings. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/fleet/fleet.h"
#include "analyzer/run/words.h"

enum family_type { GAUGE, COUNTER, INFO };
struct writer;

struct family {
    const char *name, *unit; /* name: without a counter's _total; unit NULL: none */
    enum family_type type;
    const char *help;
    void (*write)(struct writer *w);
    /* instead of it: the value of each series, of each device; RUN_UNKNOWN or NAN: no sample */
    int64_t (*of_series)(const struct top_series *s);
    int64_t (*of_device)(const struct writer *w, const struct top_device *d);
    double (*real_of_device)(const struct writer *w, const struct top_device *d);
    bool whole; /* only once all rows have been read: it would be too small, and a counter's rate too high */
};

struct writer {
    const struct fleet *fleet;
    const struct fleet_recording *r; /* its samples are being written; NULL: samples of gpuspy metrics itself */
    const struct family *family;
    FILE *out;
    bool openmetrics, has_head, has_label;
};

static const char *counter_suffix(const struct writer *w)
{
    return w->family->type == COUNTER ? "_total" : w->family->type == INFO ? "_info" : "";
}

/* In the older format a counter has the name of its samples, and there are no units and no info metrics. */
static void put_metric_head(struct writer *w)
{
    static const char *const types[] = {[GAUGE] = "gauge", [COUNTER] = "counter", [INFO] = "info"};
    const struct family *f = w->family;
    const char *name_suffix = w->openmetrics ? "" : counter_suffix(w);
    const char *type = types[f->type == INFO && !w->openmetrics ? GAUGE : f->type];
    fprintf(w->out, "# TYPE %s%s %s\n", f->name, name_suffix, type);
    if (f->unit && w->openmetrics) fprintf(w->out, "# UNIT %s %s\n", f->name, f->unit);
    fprintf(w->out, "# HELP %s%s %s\n", f->name, name_suffix, f->help);
    w->has_head = true;
}

/* terminal_clean leaves valid UTF-8 without control characters. */
static void put_fleet_label(struct writer *w, const char *key, const char *value)
{
    char clean[1024];
    if (!value || !*value) return; /* to Prometheus an empty label is a missing label */
    fprintf(w->out, "%c%s=\"", w->has_label ? ',' : '{', key);
    w->has_label = true;
    for (const char *p = terminal_clean(clean, sizeof clean, value, true); *p; p++) {
        if (*p == '"' || *p == '\\') putc('\\', w->out);
        putc(*p, w->out);
    }
    putc('"', w->out);
}

static void label_number(struct writer *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    put_fleet_label(w, key, text);
}

static void label_gpu(struct writer *w, int device)
{
    char gpu[FLEET_WORD];
    if (device >= 0) {
        fleet_gpu(&w->r->labels, device, gpu, sizeof gpu);
        put_fleet_label(w, "gpu", gpu);
    }
}

/* Begins a sample; the caller adds labels and ends the line with the value. */
static void begin_sample(struct writer *w)
{
    if (!w->has_head) put_metric_head(w);
    fprintf(w->out, "%s%s", w->family->name, counter_suffix(w));
    w->has_label = false;
    if (w->r) {
        const struct top_source *s = &w->r->model->sources[0];
        put_fleet_label(w, "run_id", s->run_id);
        label_number(w, "pid", w->r->pid);
        if (s->rank != RUN_UNKNOWN) label_number(w, "rank", s->rank);
        put_fleet_label(w, "job_id", w->r->labels.job_id);
        put_fleet_label(w, "pod", w->r->labels.pod);
        put_fleet_label(w, "namespace", w->r->labels.name_space);
    }
}

static void end_sample(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void end_sample(struct writer *w, const char *format, ...)
{
    va_list arguments;
    fputs(w->has_label ? "} " : " ", w->out);
    va_start(arguments, format);
    vfprintf(w->out, format, arguments);
    va_end(arguments);
    putc('\n', w->out);
}

static void end_int(struct writer *w, int64_t value)
{
    end_sample(w, "%lld", (long long)value);
}

static void end_real_sample(struct writer *w, double value)
{
    end_sample(w, "%.9g", value);
}

static const struct top_source *current_source(const struct writer *w)
{
    return &w->r->model->sources[0];
}

static void write_recording(struct writer *w)
{
    begin_sample(w);
    put_fleet_label(w, "host", current_source(w)->host);
    put_fleet_label(w, "command", current_source(w)->command);
    put_fleet_label(w, "state", top_state_word(current_source(w)->state));
    end_int(w, 1);
}

#define WRITE(name, end, value)        \
    static void name(struct writer *w) \
    {                                  \
        begin_sample(w);               \
        end(w, value);                 \
    }
WRITE(write_active, end_int, !w->r->ended_ns)
WRITE(write_age, end_real_sample, (double)current_source(w)->age_ns / 1e9)
WRITE(write_events, end_int, (int64_t)current_source(w)->events)
WRITE(write_lost, end_int, (int64_t)current_source(w)->lost_events)
WRITE(write_failures, end_int, (int64_t)current_source(w)->failures_seen)
WRITE(write_unread, end_int, current_source(w)->unread_rows)
WRITE(write_left_out, end_int, (int64_t)w->fleet->left_out)
WRITE(write_refresh, end_real_sample, w->fleet->refresh_s)

static void write_recordings(struct writer *w)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->fleet->n; i++) n += !w->fleet->list[i]->ended_ns;
    begin_sample(w);
    end_int(w, n);
}

static void write_each_series(struct writer *w)
{
    EACH_IN (s, w->r->model->series) {
        const int64_t value = w->family->of_series(s);
        if (value != RUN_UNKNOWN) {
            begin_sample(w);
            label_gpu(w, s->device);
            put_fleet_label(w, "layer", top_layer_words[s->layer]);
            end_int(w, value);
        }
    }
}

static int64_t series_live_of(const struct top_series *s)
{
    return s->known != RUN_UNKNOWN ? s->known : s->bytes;
}

static int64_t series_peak_of(const struct top_series *s)
{
    return s->peak;
}

/* Writes one value per device that has one. */
static void write_each_device(struct writer *w)
{
    const struct family *f = w->family;
    for (size_t i = 0; i < current_source(w)->devices_n; i++) {
        const struct top_device *d = &current_source(w)->devices[i];
        const int64_t n = f->of_device ? f->of_device(w, d) : RUN_UNKNOWN;
        const double x = f->real_of_device ? f->real_of_device(w, d) : NAN;
        if (n != RUN_UNKNOWN || !isnan(x)) {
            begin_sample(w);
            label_gpu(w, d->device);
            f->of_device ? end_int(w, n) : end_real_sample(w, x);
        }
    }
}

/* A device's figure. */
#define FIGURE(type, name, value)                                        \
    static type name(const struct writer *w, const struct top_device *d) \
    {                                                                    \
        return value;                                                    \
    }
FIGURE(int64_t, total_of, top_held_of(w->r->model, 0, d).total)
FIGURE(int64_t, used_of, top_held_of(w->r->model, 0, d).used)
FIGURE(int64_t, cached_of, d->reserved_bytes == RUN_UNKNOWN ? RUN_UNKNOWN : top_held_of(w->r->model, 0, d).cached)
FIGURE(int64_t, temperature_of, d->temperature < 0 ? RUN_UNKNOWN : d->temperature)
FIGURE(double, utilization_of, d->utilisation < 0 ? NAN : d->utilisation / 100.0)
FIGURE(double, full_of, top_forecast_of(w->r->model, 0, d).full_s)

static int64_t others_of(const struct writer *w, const struct top_device *d)
{
    const struct top_held h = top_held_of(w->r->model, 0, d);
    return h.by_nvml ? h.others : RUN_UNKNOWN;
}

static double growth_of(const struct writer *w, const struct top_device *d)
{
    const double growth = top_forecast_of(w->r->model, 0, d).bytes_per_s;
    return isnan(growth) && !w->r->ended_ns ? 0 : growth;
}

static double step_growth_of(const struct writer *w, const struct top_device *d)
{
    const struct fleet_analysis *a = &w->r->analysis;
    return a->done && a->has_steps && d->device < FLEET_DEVICES ? a->device[d->device].growth : NAN;
}

static void write_categories(struct writer *w)
{
    for (int device = 0; device < FLEET_DEVICES; device++) {
        for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
            const int64_t bytes = w->r->analysis.device[device].by_category[c];
            if (bytes > 0) {
                begin_sample(w);
                label_gpu(w, device);
                put_fleet_label(w, "category", result_category_word((enum result_category)c));
                end_int(w, bytes);
            }
        }
    }
}

static void write_step(struct writer *w)
{
    if (w->r->analysis.has_steps) {
        begin_sample(w);
        end_real_sample(w, (double)w->r->analysis.median_ns / 1e9);
    }
}

struct line {
    char file[512], function[256], caller[576]; /* caller: as "train.py:7" */
    int line;
    int64_t bytes;
};

static struct line *fleet_line_at(struct line *lines, size_t *n, size_t most, const struct result_site *site)
{
    char file[512], function[256], caller[576] = "", name[512];
    terminal_clean(file, sizeof file, site->file ? site->file : site->known ? "" : "unknown", true);
    terminal_clean(function, sizeof function, site->function, true);
    if (!site->function && site->known && site->offset)
        snprintf(function, sizeof function, "+0x%llx", (unsigned long long)site->offset);
    if (site->caller && site->caller->file) {
        snprintf(caller, sizeof caller, "%s:%d", terminal_clean(name, sizeof name, site->caller->file, true),
                 site->caller->line);
    }
    for (size_t i = 0; i < *n; i++)
        if (lines[i].line == site->line && strcmp(lines[i].file, file) == 0 &&
            strcmp(lines[i].function, function) == 0 && strcmp(lines[i].caller, caller) == 0)
            return &lines[i];
    if (*n == most) return NULL;
    struct line *l = &lines[(*n)++];
    *l = (struct line){.line = site->line};
    memcpy(l->file, file, sizeof file);
    memcpy(l->function, function, sizeof function);
    memcpy(l->caller, caller, sizeof caller);
    return l;
}

static void write_lines(struct writer *w)
{
    struct top_tables *t = (struct top_tables *)(uintptr_t)&w->r->tables;
    const struct top_choice choice = {.source = TOP_ALL, .device = TOP_ALL, .layer = TOP_LAYER_AUTO};
    struct line *list = arena_realloc(NULL, FLEET_LINES_MAX, sizeof *list);
    size_t n = 0;
    top_tables_fill(t, &choice);
    for (size_t i = 0; i < t->n && t->rows[i].bytes > 0; i++) {
        struct line *l = fleet_line_at(list, &n, w->fleet->lines, &t->rows[i].site);
        if (l) l->bytes = arena_add_capped(l->bytes, t->rows[i].bytes);
    }
    for (size_t i = 0; i < n; i++) {
        begin_sample(w);
        put_fleet_label(w, "file", list[i].file);
        if (list[i].line > 0) label_number(w, "line", list[i].line);
        put_fleet_label(w, "function", list[i].function);
        put_fleet_label(w, "caller", list[i].caller);
        end_int(w, list[i].bytes);
    }
    free(list);
}

enum { KINDS = 8 };
struct kinds {
    uint64_t count[KINDS];
    int64_t blocked_ns[KINDS], bytes[KINDS];
};

/* Unknown kinds of a damaged recording are counted as the last one. */
static struct kinds add_up_calls(const struct top_calls *calls, size_t n, const char *(*word)(unsigned kind))
{
    struct kinds k = {{0}, {0}, {0}};
    for (size_t i = 0; i < n; i++) {
        unsigned kind = calls[i].kind & (KINDS - 1); /* of a copy, its direction */
        kind = strcmp(word(kind), "unknown") == 0 ? KINDS - 1 : kind;
        k.count[kind] += calls[i].count;
        k.blocked_ns[kind] = arena_add_capped(k.blocked_ns[kind], calls[i].blocked_ns);
        k.bytes[kind] = arena_add_capped(k.bytes[kind], calls[i].bytes);
    }
    return k;
}

enum figure { COUNT, BYTES, SECONDS };

static void write_calls(struct writer *w, const struct top_calls *calls, size_t n, const char *label,
                        const char *(*word)(unsigned kind), enum figure figure)
{
    const struct kinds k = add_up_calls(calls, n, word);
    for (unsigned i = 0; i < KINDS; i++) {
        if (k.count[i]) {
            begin_sample(w);
            put_fleet_label(w, label, word(i));
            figure == SECONDS ? end_real_sample(w, (double)k.blocked_ns[i] / 1e9)
                              : end_int(w, figure == BYTES ? k.bytes[i] : (int64_t)k.count[i]);
        }
    }
}

#define CALLS(name, list, label, word, figure)                                         \
    static void name(struct writer *w)                                                 \
    {                                                                                  \
        write_calls(w, w->r->model->list, w->r->model->list##_n, label, word, figure); \
    }
CALLS(write_waits, syncs, "kind", run_sync_word, COUNT)
CALLS(write_wait_seconds, syncs, "kind", run_sync_word, SECONDS)
CALLS(write_copies, copies, "direction", run_direction_word, COUNT)
CALLS(write_copied, copies, "direction", run_direction_word, BYTES)

static const struct family of_fleet[] = {
    {"gpuspy_recordings", NULL, GAUGE, "Recordings in progress.", .write = write_recordings},
    {"gpuspy_recordings_left_out", NULL, GAUGE, "Recordings that are not shown because there are too many.",
     .write = write_left_out},
    {"gpuspy_refresh_seconds", "seconds", GAUGE, "Time that the last refresh took.", .write = write_refresh},
};

static const struct family of_recording[] = {
    {"gpuspy_recording", NULL, INFO, "A recorded process.", .write = write_recording},
    {"gpuspy_recording_active", NULL, GAUGE, "1 while the process is being recorded, 0 for five minutes after its end.",
     .write = write_active},
    {"gpuspy_data_age_seconds", "seconds", GAUGE, "The age of the oldest figures.", .write = write_age},
    {"gpuspy_events", NULL, COUNTER, "Recorded events.", .write = write_events},
    {"gpuspy_lost_events", NULL, COUNTER, "Events that were dropped because there was no space.", .write = write_lost},
    {"gpuspy_unread_rows", NULL, GAUGE, "Rows that gpuspy metrics has not read yet.", .write = write_unread},
    {"gpuspy_memory_live_bytes", "bytes", GAUGE, "Live memory.", .of_series = series_live_of},
    {"gpuspy_memory_peak_bytes", "bytes", GAUGE, "The most memory that was live at once.", .of_series = series_peak_of},
    {"gpuspy_memory_peak_category_bytes", "bytes", GAUGE, "Tensors that were live at the peak, by category.",
     .write = write_categories},
    {"gpuspy_memory_cached_bytes", "bytes", GAUGE, "Memory in PyTorch's cache that no tensor uses.",
     .of_device = cached_of},
    {"gpuspy_memory_line_bytes", "bytes", GAUGE, "Live memory by line of code, the largest lines only.",
     .write = write_lines, .whole = true},
    {"gpuspy_memory_growth_bytes_per_second", "bytes_per_second", GAUGE,
     "Steady growth over the last minute; 0 if there is none.", .real_of_device = growth_of, .whole = true},
    {"gpuspy_memory_growth_per_step_bytes", "bytes", GAUGE, "Growth per step of the program; 0 if there is none.",
     .real_of_device = step_growth_of},
    {"gpuspy_time_to_full_seconds", "seconds", GAUGE, "Time until the GPU is full at the growth of the last minute.",
     .real_of_device = full_of, .whole = true},
    {"gpuspy_step_seconds", "seconds", GAUGE, "Median time per step of the program.", .write = write_step},
    {"gpuspy_out_of_memory", NULL, COUNTER, "Failed allocations that the program saw.", .write = write_failures},
    {"gpuspy_waits", NULL, COUNTER, "Waits of the host for the GPU.", .write = write_waits, .whole = true},
    {"gpuspy_wait_seconds", "seconds", COUNTER, "Time that the host waited for the GPU.", .write = write_wait_seconds,
     .whole = true},
    {"gpuspy_copies", NULL, COUNTER, "Copies to, from and on the GPU.", .write = write_copies, .whole = true},
    {"gpuspy_copied_bytes", "bytes", COUNTER, "Bytes copied to, from and on the GPU.", .write = write_copied,
     .whole = true},
    {"gpuspy_gpu_memory_total_bytes", "bytes", GAUGE, "Memory of the GPU.", .of_device = total_of},
    {"gpuspy_gpu_memory_used_bytes", "bytes", GAUGE, "Used memory of the GPU, of all processes.", .of_device = used_of},
    {"gpuspy_gpu_memory_other_processes_bytes", "bytes", GAUGE, "GPU memory of other processes, as NVML states it.",
     .of_device = others_of},
    {"gpuspy_gpu_utilization_ratio", "ratio", GAUGE, "Share of the time in which a kernel ran, as NVML states it.",
     .real_of_device = utilization_of},
    {"gpuspy_gpu_temperature_celsius", "celsius", GAUGE, "Temperature of the GPU, as NVML states it.",
     .of_device = temperature_of},
};

void fleet_write(const struct fleet *f, bool openmetrics, FILE *out)
{
    struct writer w = {.fleet = f, .out = out, .openmetrics = openmetrics};
    for (size_t i = 0; i < sizeof of_fleet / sizeof *of_fleet; i++) {
        w.family = &of_fleet[i];
        w.has_head = false;
        w.family->write(&w);
    }
    for (size_t i = 0; i < sizeof of_recording / sizeof *of_recording; i++) {
        w.family = &of_recording[i];
        w.has_head = false;
        for (size_t k = 0; k < f->n; k++) {
            w.r = f->list[k];
            if (w.r->model->sources[0].loaded && !(w.family->whole && w.r->model->sources[0].unread_rows)) {
                const struct family *m = w.family;
                (m->write ? m->write : m->of_series ? write_each_series : write_each_device)(&w);
            }
        }
    }
    if (openmetrics) fputs("# EOF\n", out);
}
