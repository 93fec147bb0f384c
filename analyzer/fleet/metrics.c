/* One row a family, in the order of output. All samples of a family stand together, so each family asks all recordings.
 */
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
    const char *name, *unit; /* without the _total of a counter; unit NULL: none */
    enum family_type type;
    const char *help;
    void (*write)(struct writer *w);
};

struct writer {
    const struct fleet *fleet;
    const struct fleet_recording *r; /* whose samples are written; NULL: the fleet's own */
    const struct family *family;
    FILE *out;
    bool openmetrics, has_head, has_label;
};

/* ---------------------------------------------------------------- samples */

static const char *suffix(const struct writer *w)
{
    return w->family->type == COUNTER ? "_total" : w->family->type == INFO ? "_info" : "";
}

/* The older format names a counter as its samples, and has no unit and no info. */
static void put_head(struct writer *w)
{
    static const char *const types[] = {[GAUGE] = "gauge", [COUNTER] = "counter", [INFO] = "info"};
    const struct family *f = w->family;
    const char *name_suffix = w->openmetrics ? "" : suffix(w);
    const char *type = types[f->type == INFO && !w->openmetrics ? GAUGE : f->type];
    fprintf(w->out, "# TYPE %s%s %s\n", f->name, name_suffix, type);
    if (f->unit && w->openmetrics) {
        fprintf(w->out, "# UNIT %s %s\n", f->name, f->unit);
    }
    fprintf(w->out, "# HELP %s%s %s\n", f->name, name_suffix, f->help);
    w->has_head = true;
}

/* terminal_clean leaves valid UTF-8 without control characters. */
static void label(struct writer *w, const char *key, const char *value)
{
    char clean[1024];
    if (!value || !*value) {
        return; /* an empty label is one that does not exist */
    }
    fprintf(w->out, "%c%s=\"", w->has_label ? ',' : '{', key);
    w->has_label = true;
    for (const char *p = terminal_clean(clean, sizeof clean, value, true); *p; p++) {
        if (*p == '"' || *p == '\\') {
            putc('\\', w->out);
        }
        putc(*p, w->out);
    }
    putc('"', w->out);
}

static void label_number(struct writer *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    label(w, key, text);
}

static void label_gpu(struct writer *w, int device)
{
    char gpu[FLEET_WORD];
    if (device >= 0) {
        fleet_gpu(&w->r->labels, device, gpu, sizeof gpu);
        label(w, "gpu", gpu);
    }
}

/* The caller adds labels of its own, then ends the line with the value. */
static void begin(struct writer *w)
{
    if (!w->has_head) {
        put_head(w);
    }
    fprintf(w->out, "%s%s", w->family->name, suffix(w));
    w->has_label = false;
    if (w->r) {
        const struct top_source *s = &w->r->model->sources[0];
        label(w, "run_id", s->run_id);
        label_number(w, "pid", w->r->pid);
        if (s->rank != RUN_UNKNOWN) {
            label_number(w, "rank", s->rank);
        }
        label(w, "job_id", w->r->labels.job_id);
        label(w, "pod", w->r->labels.pod);
        label(w, "namespace", w->r->labels.name_space);
    }
}

static void end(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void end(struct writer *w, const char *format, ...)
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
    end(w, "%lld", (long long)value);
}

static void end_real(struct writer *w, double value)
{
    end(w, "%.9g", value);
}

static const struct top_source *source(const struct writer *w)
{
    return &w->r->model->sources[0];
}

/* ---------------------------------------------------------------- the recording */

static void recording(struct writer *w)
{
    begin(w);
    label(w, "host", source(w)->host);
    label(w, "command", source(w)->command);
    label(w, "state", top_state_word(source(w)->state));
    end_int(w, 1);
}

static void active(struct writer *w)
{
    begin(w);
    end_int(w, !w->r->ended_ns);
}

static void age(struct writer *w)
{
    begin(w);
    end_real(w, (double)source(w)->age_ns / 1e9);
}

static void events(struct writer *w)
{
    begin(w);
    end_int(w, (int64_t)source(w)->events);
}

static void lost(struct writer *w)
{
    begin(w);
    end_int(w, (int64_t)source(w)->lost_events);
}

static void failures(struct writer *w)
{
    begin(w);
    end_int(w, (int64_t)source(w)->failures_seen);
}

/* ---------------------------------------------------------------- memory */

static void of_series(struct writer *w, int64_t (*value)(const struct top_series *s))
{
    for (size_t i = 0; i < w->r->model->series_n; i++) {
        const struct top_series *s = &w->r->model->series[i];
        if (value(s) != RUN_UNKNOWN) {
            begin(w);
            label_gpu(w, s->device);
            label(w, "layer", top_layer_words[s->layer]);
            end_int(w, value(s));
        }
    }
}

static int64_t live_of(const struct top_series *s)
{
    return s->known != RUN_UNKNOWN ? s->known : s->bytes;
}

static int64_t peak_of(const struct top_series *s)
{
    return s->peak;
}

static void live(struct writer *w)
{
    of_series(w, live_of);
}

static void peak(struct writer *w)
{
    of_series(w, peak_of);
}

/* One value for each device; RUN_UNKNOWN: none. */
static void of_devices(struct writer *w, int64_t (*value)(const struct writer *w, const struct top_device *d))
{
    for (size_t i = 0; i < source(w)->devices_n; i++) {
        const struct top_device *d = &source(w)->devices[i];
        const int64_t n = value(w, d);
        if (n != RUN_UNKNOWN) {
            begin(w);
            label_gpu(w, d->device);
            end_int(w, n);
        }
    }
}

static int64_t total_of(const struct writer *w, const struct top_device *d)
{
    return top_held_of(w->r->model, 0, d).total;
}

static int64_t used_of(const struct writer *w, const struct top_device *d)
{
    return top_held_of(w->r->model, 0, d).used;
}

static int64_t cached_of(const struct writer *w, const struct top_device *d)
{
    return d->reserved_bytes == RUN_UNKNOWN ? RUN_UNKNOWN : top_held_of(w->r->model, 0, d).cached;
}

static int64_t others_of(const struct writer *w, const struct top_device *d)
{
    const struct top_held h = top_held_of(w->r->model, 0, d);
    return h.by_nvml ? h.others : RUN_UNKNOWN;
}

static int64_t temperature_of(const struct writer *w, const struct top_device *d)
{
    return d->temperature < 0 ? RUN_UNKNOWN : d->temperature;
}

static void total(struct writer *w)
{
    of_devices(w, total_of);
}

static void used(struct writer *w)
{
    of_devices(w, used_of);
}

static void cached(struct writer *w)
{
    of_devices(w, cached_of);
}

static void others(struct writer *w)
{
    of_devices(w, others_of);
}

static void temperature(struct writer *w)
{
    of_devices(w, temperature_of);
}

static void of_devices_real(struct writer *w, double (*value)(const struct writer *w, const struct top_device *d))
{
    for (size_t i = 0; i < source(w)->devices_n; i++) {
        const struct top_device *d = &source(w)->devices[i];
        const double n = value(w, d);
        if (!isnan(n)) {
            begin(w);
            label_gpu(w, d->device);
            end_real(w, n);
        }
    }
}

static double utilization_of(const struct writer *w, const struct top_device *d)
{
    return d->utilisation < 0 ? NAN : d->utilisation / 100.0;
}

static double growth_of(const struct writer *w, const struct top_device *d)
{
    const double growth = top_forecast_of(w->r->model, 0, d).bytes_per_s;
    return isnan(growth) && !w->r->ended_ns ? 0 : growth;
}

static double full_of(const struct writer *w, const struct top_device *d)
{
    return top_forecast_of(w->r->model, 0, d).full_s;
}

static double step_growth_of(const struct writer *w, const struct top_device *d)
{
    const struct fleet_analysis *a = &w->r->analysis;
    return a->done && a->has_steps && d->device < FLEET_DEVICES ? a->device[d->device].growth : NAN;
}

static void utilization(struct writer *w)
{
    of_devices_real(w, utilization_of);
}

static void growth(struct writer *w)
{
    of_devices_real(w, growth_of);
}

static void full(struct writer *w)
{
    of_devices_real(w, full_of);
}

static void step_growth(struct writer *w)
{
    of_devices_real(w, step_growth_of);
}

static void categories(struct writer *w)
{
    for (int device = 0; device < FLEET_DEVICES; device++) {
        for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
            const int64_t bytes = w->r->analysis.device[device].by_category[c];
            if (bytes > 0) {
                begin(w);
                label_gpu(w, device);
                label(w, "category", result_category_word((enum result_category)c));
                end_int(w, bytes);
            }
        }
    }
}

static void step(struct writer *w)
{
    if (w->r->analysis.has_steps) {
        begin(w);
        end_real(w, (double)w->r->analysis.median_ns / 1e9);
    }
}

/* ---------------------------------------------------------------- lines */

struct line {
    char file[512], function[256], caller[576]; /* caller: "train.py:7" */
    int line;
    int64_t bytes;
};

static struct line *line_at(struct line *lines, size_t *n, size_t most, const struct result_site *site)
{
    char file[512], function[256], caller[576] = "", name[512];
    terminal_clean(file, sizeof file, site->file ? site->file : site->known ? "" : "unknown", true);
    terminal_clean(function, sizeof function, site->function, true);
    if (!site->function && site->known && site->offset) {
        snprintf(function, sizeof function, "+0x%llx", (unsigned long long)site->offset);
    }
    if (site->caller && site->caller->file) {
        snprintf(caller, sizeof caller, "%s:%d", terminal_clean(name, sizeof name, site->caller->file, true),
                 site->caller->line);
    }
    for (size_t i = 0; i < *n; i++) {
        if (lines[i].line == site->line && strcmp(lines[i].file, file) == 0 &&
            strcmp(lines[i].function, function) == 0 && strcmp(lines[i].caller, caller) == 0) {
            return &lines[i];
        }
    }
    if (*n == most) {
        return NULL;
    }
    struct line *l = &lines[(*n)++];
    *l = (struct line){.line = site->line};
    memcpy(l->file, file, sizeof file);
    memcpy(l->function, function, sizeof function);
    memcpy(l->caller, caller, sizeof caller);
    return l;
}

static void lines(struct writer *w)
{
    struct top_tables *t = (struct top_tables *)(uintptr_t)&w->r->tables;
    const struct top_choice choice = {.source = TOP_ALL, .device = TOP_ALL, .layer = TOP_LAYER_AUTO};
    struct line *list = arena_realloc(NULL, FLEET_LINES_MAX, sizeof *list);
    size_t n = 0;
    top_tables_fill(t, &choice);
    for (size_t i = 0; i < t->n && t->rows[i].bytes > 0; i++) {
        struct line *l = line_at(list, &n, w->fleet->lines, &t->rows[i].site);
        if (l) {
            l->bytes = arena_add_capped(l->bytes, t->rows[i].bytes);
        }
    }
    for (size_t i = 0; i < n; i++) {
        begin(w);
        label(w, "file", list[i].file);
        if (list[i].line > 0) {
            label_number(w, "line", list[i].line);
        }
        label(w, "function", list[i].function);
        label(w, "caller", list[i].caller);
        end_int(w, list[i].bytes);
    }
    free(list);
}

/* ---------------------------------------------------------------- waits and copies */

enum { KINDS = 8 };
struct kinds {
    uint64_t count[KINDS];
    int64_t blocked_ns[KINDS], bytes[KINDS];
};

/* All that a damaged recording holds besides is one kind, the last. */
static struct kinds add_up(const struct top_calls *calls, size_t n, const char *(*word)(unsigned kind))
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

static struct kinds all_waits(const struct writer *w)
{
    return add_up(w->r->model->syncs, w->r->model->syncs_n, run_sync_word);
}

static struct kinds all_copies(const struct writer *w)
{
    return add_up(w->r->model->copies, w->r->model->copies_n, run_direction_word);
}

static void waits(struct writer *w)
{
    const struct kinds k = all_waits(w);
    for (unsigned i = 0; i < KINDS; i++) {
        if (k.count[i]) {
            begin(w);
            label(w, "kind", run_sync_word(i));
            end_int(w, (int64_t)k.count[i]);
        }
    }
}

static void wait_seconds(struct writer *w)
{
    const struct kinds k = all_waits(w);
    for (unsigned i = 0; i < KINDS; i++) {
        if (k.count[i]) {
            begin(w);
            label(w, "kind", run_sync_word(i));
            end_real(w, (double)k.blocked_ns[i] / 1e9);
        }
    }
}

static void copies(struct writer *w)
{
    const struct kinds k = all_copies(w);
    for (unsigned i = 0; i < KINDS; i++) {
        if (k.count[i]) {
            begin(w);
            label(w, "direction", run_direction_word(i));
            end_int(w, (int64_t)k.count[i]);
        }
    }
}

static void copied(struct writer *w)
{
    const struct kinds k = all_copies(w);
    for (unsigned i = 0; i < KINDS; i++) {
        if (k.count[i]) {
            begin(w);
            label(w, "direction", run_direction_word(i));
            end_int(w, k.bytes[i]);
        }
    }
}

/* ---------------------------------------------------------------- all of it */

static void recordings(struct writer *w)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->fleet->n; i++) {
        n += !w->fleet->list[i]->ended_ns;
    }
    begin(w);
    end_int(w, n);
}

static void left_out(struct writer *w)
{
    begin(w);
    end_int(w, (int64_t)w->fleet->left_out);
}

static void refresh(struct writer *w)
{
    begin(w);
    end_real(w, w->fleet->refresh_s);
}

static const struct family of_fleet[] = {
    {"gpuspy_recordings", NULL, GAUGE, "Recordings in progress.", recordings},
    {"gpuspy_recordings_left_out", NULL, GAUGE, "Recordings that are not shown because there are too many.", left_out},
    {"gpuspy_refresh_seconds", "seconds", GAUGE, "Time that the last refresh took.", refresh},
};

static const struct family of_recording[] = {
    {"gpuspy_recording", NULL, INFO, "A recorded process.", recording},
    {"gpuspy_recording_active", NULL, GAUGE, "1 while the process is being recorded, 0 for five minutes after its end.",
     active},
    {"gpuspy_data_age_seconds", "seconds", GAUGE, "The age of the oldest figures.", age},
    {"gpuspy_events", NULL, COUNTER, "Recorded events.", events},
    {"gpuspy_lost_events", NULL, COUNTER, "Events that were dropped because there was no space.", lost},
    {"gpuspy_memory_live_bytes", "bytes", GAUGE, "Live memory.", live},
    {"gpuspy_memory_peak_bytes", "bytes", GAUGE, "The most memory that was live at once.", peak},
    {"gpuspy_memory_peak_category_bytes", "bytes", GAUGE, "Tensors that were live at the peak, by category.",
     categories},
    {"gpuspy_memory_cached_bytes", "bytes", GAUGE, "Memory in PyTorch's cache that no tensor uses.", cached},
    {"gpuspy_memory_line_bytes", "bytes", GAUGE, "Live memory by line of code, the largest lines only.", lines},
    {"gpuspy_memory_growth_bytes_per_second", "bytes_per_second", GAUGE,
     "Steady growth over the last minute; 0 if there is none.", growth},
    {"gpuspy_memory_growth_per_step_bytes", "bytes", GAUGE, "Growth per step of the program; 0 if there is none.",
     step_growth},
    {"gpuspy_time_to_full_seconds", "seconds", GAUGE, "When the GPU is full at the growth of the last minute.", full},
    {"gpuspy_step_seconds", "seconds", GAUGE, "Median time per step of the program.", step},
    {"gpuspy_out_of_memory", NULL, COUNTER, "Failed allocations that the program saw.", failures},
    {"gpuspy_waits", NULL, COUNTER, "Waits of the host for the GPU.", waits},
    {"gpuspy_wait_seconds", "seconds", COUNTER, "Time that the host waited for the GPU.", wait_seconds},
    {"gpuspy_copies", NULL, COUNTER, "Copies to, from and on the GPU.", copies},
    {"gpuspy_copied_bytes", "bytes", COUNTER, "Bytes copied to, from and on the GPU.", copied},
    {"gpuspy_gpu_memory_total_bytes", "bytes", GAUGE, "Memory of the GPU.", total},
    {"gpuspy_gpu_memory_used_bytes", "bytes", GAUGE, "Used memory of the GPU, of all processes.", used},
    {"gpuspy_gpu_memory_other_processes_bytes", "bytes", GAUGE, "GPU memory of other processes, as NVML states it.",
     others},
    {"gpuspy_gpu_utilization_ratio", "ratio", GAUGE, "Share of the time in which a kernel ran, as NVML states it.",
     utilization},
    {"gpuspy_gpu_temperature_celsius", "celsius", GAUGE, "Temperature of the GPU, as NVML states it.", temperature},
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
            if (w.r->model->sources[0].loaded) {
                w.family->write(&w);
            }
        }
    }
    if (openmetrics) {
        fputs("# EOF\n", out);
    }
}
