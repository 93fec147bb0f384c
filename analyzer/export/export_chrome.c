/* A Chrome trace of the whole run: Perfetto and chrome://tracing read it. */
#include "analyzer/export/export_chrome.h"

#include <stdlib.h>
#include "analyzer/allocator/allocator.h"
#include "analyzer/base/json_out.h"
#include "analyzer/report/report.h"
#include "analyzer/site/site.h"
#include "analyzer/step/step.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "schema/event.h"

enum { STEPS_MOST = 20000, STEPS_TRACK = 2000000000 };

static void place_processes(struct export_chrome *c)
{
    size_t n;
    const struct run_process *p = run_processes(c->e->run, &n);
    int64_t first = RUN_NEVER;
    c->offset_ns = arena_realloc(NULL, n, sizeof *c->offset_ns);
    c->pid = arena_realloc(NULL, n, sizeof *c->pid);
    for (size_t i = 0; i < n; i++)
        first = p[i].start_real_ns != RUN_UNKNOWN && p[i].start_real_ns < first ? p[i].start_real_ns : first;
    for (size_t i = 0; i < n; i++) {
        bool twice = false;
        for (size_t j = 0; j < i; j++) twice = twice || p[j].pid == p[i].pid;
        c->pid[i] = twice ? 1000000000 + (int64_t)i : p[i].pid;
        c->offset_ns[i] = p[i].start_real_ns == RUN_UNKNOWN ? 0 : arena_add_capped(p[i].start_real_ns, -first);
    }
}

static void write_metadata(struct export_chrome *c, uint32_t process, const char *what, const char *text)
{
    export_chrome_event(c, 'M', process, RUN_UNKNOWN);
    fprintf(c->out, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    json_out_text(c->out, text);
    fputs("}}", c->out);
}

/* "/usr/bin/python train.py" → "python train.py" */
static const char *without_folder(const char *command)
{
    const char *at = command;
    for (const char *p = command; *p && *p != ' '; p++) at = *p == '/' ? p + 1 : at;
    return at;
}

static void name_processes(struct export_chrome *c)
{
    size_t n;
    const struct run_process *p = run_processes(c->e->run, &n);
    for (uint32_t i = 0; i < n; i++) {
        char name[512], rank[32] = "", command[128], host[128];
        if (p[i].rank != RUN_UNKNOWN) snprintf(rank, sizeof rank, "rank %lld: ", (long long)p[i].rank);
        terminal_clean(command, sizeof command, without_folder(p[i].command ? p[i].command : ""), true);
        terminal_clean(host, sizeof host, p[i].host ? p[i].host : "", true);
        snprintf(name, sizeof name, "%s%s on %s", rank, *command ? command : "a process",
                 *host ? host : "an unknown host");
        write_metadata(c, i, "process_name", name);
        export_chrome_event(c, 'M', i, RUN_UNKNOWN);
        fprintf(c->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%lld}}",
                (long long)(p[i].rank != RUN_UNKNOWN ? p[i].rank : (int64_t)i));
    }
}

static void name_threads(struct export_chrome *c)
{
    size_t n;
    const struct run_thread *t = run_threads(c->e->run, &n);
    for (size_t i = 0; i < n; i++) {
        char name[256];
        *map_at(&c->tids, (uint64_t)t[i].process << 32 | t[i].number) = (uint32_t)i + 1;
        if (t[i].name && *t[i].name) {
            export_chrome_event(c, 'M', t[i].process, RUN_UNKNOWN);
            export_chrome_thread(c, t[i].process, t[i].number);
            fputs(",\"name\":\"thread_name\",\"args\":{\"name\":", c->out);
            json_out_text(c->out, terminal_clean(name, sizeof name, t[i].name, true));
            fputs("}}", c->out);
        }
    }
}

static void put_chrome_int(struct export_chrome *c, const char *key, int64_t value)
{
    if (value != RUN_UNKNOWN) fprintf(c->out, ",\"%s\":%lld", key, (long long)value);
}

static void write_chrome_ooms(struct export_chrome *c)
{
    size_t n;
    const struct run_oom *o = run_ooms(c->e->run, &n);
    for (size_t i = 0; i < n; i++) {
        char site[512];
        struct result_site at = site_of(c->e->run, o[i].stack, &c->helpers);
        export_chrome_event(c, 'i', o[i].process, o[i].time_ns);
        export_chrome_thread(c, o[i].process, o[i].thread);
        fprintf(c->out, ",\"s\":\"p\",\"cat\":\"oom\",\"name\":\"%s: %s requested\",\"args\":{\"device\":%d",
                o[i].fatal ? "out of memory" : "allocation failed",
                o[i].requested_bytes >= 0 ? UNITS_BYTES((uint64_t)o[i].requested_bytes) : "unknown", o[i].device);
        put_chrome_int(c, "requested_bytes", o[i].requested_bytes);
        put_chrome_int(c, "free_bytes", o[i].free_bytes);
        put_chrome_int(c, "total_bytes", o[i].total_bytes);
        if (at.known) export_chrome_text(c, "site", site_text(&at, site, sizeof site));
        fputs("}}", c->out);
    }
}

static void write_retries(struct export_chrome *c, const struct result_report *r)
{
    for (size_t i = 0; i < r->retries_n; i++) {
        const struct result_retry *t = &r->retries[i];
        char site[512];
        export_chrome_event(c, 'i', t->process, export_ns(t->time_s));
        fprintf(c->out,
                ",\"tid\":%lld,\"s\":\"p\",\"cat\":\"retry\",\"name\":\"allocation retried\",\"args\":{\"device\":%d",
                (long long)c->pid[t->process], t->device);
        put_chrome_int(c, "requested_bytes", t->requested_bytes);
        put_chrome_int(c, "freed_bytes", t->freed_bytes);
        if (t->stack.site.known) export_chrome_text(c, "site", site_text(&t->stack.site, site, sizeof site));
        fputs("}}", c->out);
    }
}

static void write_flushes(struct export_chrome *c, const struct result_report *r)
{
    for (size_t i = 0; i < r->flushes_n; i++) {
        const struct allocator_cache_flush *f = &r->flushes[i];
        for (size_t k = 0; k < f->times_n; k++) {
            char site[512];
            export_chrome_event(c, 'i', f->process, f->times_ns[k]);
            fprintf(c->out,
                    ",\"tid\":%lld,\"s\":\"p\",\"cat\":\"flush\",\"name\":\"cache freed (%s)\",\"args\":{\"device\":%d",
                    (long long)c->pid[f->process], allocator_flush_word(f->kind), f->device);
            if (f->site.known) export_chrome_text(c, "site", site_text(&f->site, site, sizeof site));
            fputs("}}", c->out);
        }
    }
}

/* The program's own steps, on a separate track. */
static void write_steps(struct export_chrome *c, const struct result_report *r)
{
    for (size_t i = 0; i < r->steps_n; i++) {
        const struct step_list *s = r->steps[i];
        char name[512];
        if (s->n > STEPS_MOST) continue;
        export_chrome_event(c, 'M', s->process, RUN_UNKNOWN);
        fprintf(c->out, ",\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":", STEPS_TRACK);
        snprintf(name, sizeof name, "steps: %.400s", s->by);
        json_out_text(c->out, terminal_clean(name, sizeof name, name, true));
        fputs("}}", c->out);
        for (size_t k = 0; k < s->n; k++) {
            int64_t start = step_start_ns(s, k);
            export_chrome_event(c, 'X', s->process, start);
            fputs(",\"dur\":", c->out);
            export_chrome_us(c->out, step_start_ns(s, k + 1) - start);
            fprintf(c->out, ",\"tid\":%d,\"cat\":\"step\",\"name\":\"step %zu\"}", STEPS_TRACK, k);
        }
    }
}

static bool write_report(struct export_chrome *c, char *error, size_t error_size)
{
    struct run_options options = {.top = 10000};
    struct result_report *r = report_build(c->e->run, &options, error, error_size);
    if (!r) return false;
    write_retries(c, r);
    write_flushes(c, r);
    write_steps(c, r);
    report_free(r);
    return true;
}

static void write_chrome_note(struct export_chrome *c)
{
    size_t at = 0;
    char took[UNITS_TEXT], *note = c->e->note;
    const size_t size = sizeof c->e->note;
    at += (size_t)(c->bucketed ? snprintf(note, size,
                                          "memory over time in %zu intervals per process: the highest, "
                                          "the lowest and the last point of each",
                                          c->buckets)
                               : snprintf(note, size, "memory after each allocation and free"));
    if (c->slices_left) {
        at += (size_t)snprintf(note + at, size - at,
                               "; of %llu waits and copies, the file has the longest %llu; the other %llu took "
                               "%s in total",
                               (unsigned long long)(c->slices + c->slices_left), (unsigned long long)c->slices,
                               (unsigned long long)c->slices_left,
                               units_format_seconds(took, (double)c->slices_left_ns / 1e9));
    }
    if (c->marks_left) {
        snprintf(note + at, size - at, "; of %llu NVTX ranges, the file has the longest %llu",
                 (unsigned long long)(c->marks + c->marks_left), (unsigned long long)c->marks);
    }
}

bool export_chrome(struct export_run *e, char *error, size_t error_size)
{
    struct export_chrome c = {.e = e, .out = e->out};
    site_helpers(e->run, &c.helpers);
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", e->out);
    place_processes(&c);
    name_processes(&c);
    name_threads(&c);
    bool ok = write_report(&c, error, error_size) && export_chrome_memory(&c, error, error_size) &&
              export_chrome_calls(&c, error, error_size);
    write_chrome_ooms(&c);
    write_chrome_note(&c);
    fprintf(e->out, "\n],\"otherData\":{\"exporter\":\"gpuspy %s\",\"recording\":", GPUSPY_VERSION);
    json_out_text(e->out, e->name);
    fputs(",\"resolution\":", e->out);
    json_out_text(e->out, e->note);
    fputs("}}\n", e->out);
    ARENA_RELEASE(c.offset_ns, c.pid, c.site);
    MAP_RELEASE(&c.tids, &c.sites, &c.helpers);
    arena_free(&c.arena);
    return ok;
}
