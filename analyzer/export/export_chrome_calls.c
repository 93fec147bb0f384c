/* Waits, copies and NVTX ranges as slices of their threads. Of a long run only the longest, as many as a viewer can
 * show. */
#include <string.h>
#include "analyzer/export/export_chrome.h"
#include "analyzer/site/site.h"
#include "analyzer/base/term.h"
#include "analyzer/run/words.h"
#include "schema/event.h"

enum { SLICES_MOST = 100000, MARKS_MOST = 100000, FINE = 8, CLASSES = 64 * FINE };

/* Durations by class: eight classes per power of two. */
struct lengths {
    uint64_t n[CLASSES];
    int64_t ns[CLASSES];
};

static unsigned class_of(int64_t ns)
{
    uint64_t x = ns > 0 ? (uint64_t)ns : 0;
    unsigned top = x < FINE ? 0 : 63 - (unsigned)__builtin_clzll(x);
    return x < FINE ? (unsigned)x : (top - 2) * FINE + (unsigned)(x >> (top - 3) & (FINE - 1));
}

static void count_length(struct lengths *l, int64_t ns)
{
    unsigned c = class_of(ns);
    l->n[c]++;
    l->ns[c] = arena_add_capped(l->ns[c], ns > 0 ? ns : 0);
}

/* Returns the lowest class such that it and all higher ones together have at most `most` entries. */
static unsigned choose_length(const struct lengths *l, uint64_t most, uint64_t *in, uint64_t *out, int64_t *out_ns)
{
    unsigned least = CLASSES;
    *in = *out = 0;
    *out_ns = 0;
    while (least > 0 && *in + l->n[least - 1] <= most) *in += l->n[--least];
    for (unsigned i = 0; i < least; i++) {
        *out += l->n[i];
        *out_ns = arena_add_capped(*out_ns, l->ns[i]);
    }
    return least;
}

struct calls {
    struct export_chrome *c;
    struct lengths lengths;
    bool writing;
    unsigned least;
    uint32_t process;
    uint64_t ranges; /* ids of ranges that need not nest */
};

static const char *site_name(struct export_chrome *c, uint32_t stack)
{
    uint32_t *at = map_at(&c->sites, stack);
    if (*at == MAP_NEW) {
        char text[512], clean[512];
        struct result_site site = site_of(c->e->run, stack, &c->helpers);
        *at = (uint32_t)c->site_n;
        *ARENA_ADD(c->site) =
            site.known ? arena_printf(&c->arena, "%s",
                                      terminal_clean(clean, sizeof clean, site_text(&site, text, sizeof text), true))
                       : NULL;
    }
    return c->site[*at];
}

static void write_slice(struct calls *s, uint32_t process, uint32_t thread, int64_t start, int64_t ns)
{
    export_chrome_event(s->c, 'X', process, start);
    fputs(",\"dur\":", s->c->out);
    export_chrome_us(s->c->out, ns);
    export_chrome_thread(s->c, process, thread);
}

static void end_args(struct calls *s, uint32_t stack)
{
    const char *site = site_name(s->c, stack);
    if (site) export_chrome_text(s->c, "site", site);
    fputs("}}", s->c->out);
}

/* The first pass counts, the second one writes. */
static bool is_chrome_call_chosen(struct calls *s, int device, int64_t ns)
{
    if (!export_includes_device(s->c->e, device)) return false;
    if (!s->writing) count_length(&s->lengths, ns);
    return s->writing && class_of(ns) >= s->least;
}

static void slices_on_call(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct calls *s = self;
    FILE *out = s->c->out;
    if (copy && is_chrome_call_chosen(s, copy->device, copy->blocked_ns)) {
        const char *direction = run_direction_word(copy->direction);
        write_slice(s, copy->process, copy->thread, copy->start_ns, copy->blocked_ns);
        fprintf(out, ",\"cat\":\"copy\",\"name\":\"copy %s\",\"args\":{\"bytes\":%lld,\"device\":%d,\"async\":%s",
                direction, (long long)copy->bytes, copy->device, copy->async ? "true" : "false");
        export_chrome_text(s->c, "api", run_api_name(s->c->e->run, copy->process, copy->api));
        end_args(s, copy->stack);
    } else if (sync && is_chrome_call_chosen(s, sync->device, sync->blocked_ns)) {
        write_slice(s, sync->process, sync->thread, sync->start_ns, sync->blocked_ns);
        fprintf(out, ",\"cat\":\"wait\",\"name\":\"wait for %s\",\"args\":{\"device\":%d", run_sync_word(sync->kind),
                sync->device);
        export_chrome_text(s->c, "api", run_api_name(s->c->e->run, sync->process, sync->api));
        end_args(s, sync->stack);
    }
}

static void finish_mark(struct calls *s, const struct run_mark *m)
{
    export_chrome_text(s->c, "name",
                       m->full                             ? m->full
                       : m->kind == GS_MARK_PROFILER_START ? "cudaProfilerStart"
                       : m->kind == GS_MARK_PROFILER_STOP  ? "cudaProfilerStop"
                                                           : "");
    if (m->domain) {
        fputs(",\"args\":{\"kind\":\"nvtx\"", s->c->out);
        export_chrome_text(s->c, "domain", m->domain);
        fputs("}", s->c->out);
    }
    fputs("}", s->c->out);
}

static void write_mark(struct calls *s, const struct run_mark *m, int64_t end)
{
    FILE *out = s->c->out;
    if (m->kind == GS_MARK_PUSH) {
        write_slice(s, s->process, m->thread, m->start_ns, end - m->start_ns);
        fputs(",\"cat\":\"nvtx\"", out);
        finish_mark(s, m);
    } else if (m->kind == GS_MARK_START) { /* these may overlap without nesting */
        s->ranges++;
        for (int i = 0; i < 2; i++) {
            export_chrome_event(s->c, i ? 'e' : 'b', s->process, i ? end : m->start_ns);
            export_chrome_thread(s->c, s->process, m->thread);
            fprintf(out, ",\"cat\":\"nvtx\",\"id\":%llu", (unsigned long long)s->ranges);
            finish_mark(s, m);
        }
    } else {
        export_chrome_event(s->c, 'i', s->process, m->start_ns);
        export_chrome_thread(s->c, s->process, m->thread);
        fputs(",\"s\":\"t\",\"cat\":\"nvtx\"", out);
        finish_mark(s, m);
    }
}

static void slices_on_mark(void *self, const struct run_mark *m)
{
    struct calls *s = self;
    int64_t end = run_process_at(s->c->e->run, s->process)->end_ns;
    end = m->end_ns != RUN_NEVER ? m->end_ns : end > m->start_ns ? end : m->start_ns;
    if (!s->writing)
        count_length(&s->lengths, end - m->start_ns);
    else if (class_of(end - m->start_ns) >= s->least)
        write_mark(s, m, end);
}

static bool each_mark(struct calls *s, bool writing, char *error, size_t error_size)
{
    bool ok = true;
    s->writing = writing;
    for (s->process = 0; ok && s->process < RUN_COUNT(run_processes, s->c->e->run); s->process++)
        ok = run_each_mark(s->c->e->run, s->process, slices_on_mark, s, error, error_size);
    return ok;
}

bool export_chrome_calls(struct export_chrome *c, char *error, size_t error_size)
{
    struct calls s = {.c = c};
    int64_t ignored;
    if (!run_each_call(c->e->run, slices_on_call, &s, error, error_size)) return false;
    s.least = choose_length(&s.lengths, SLICES_MOST, &c->slices, &c->slices_left, &c->slices_left_ns);
    s.writing = true;
    if (!run_each_call(c->e->run, slices_on_call, &s, error, error_size)) return false;
    memset(&s.lengths, 0, sizeof s.lengths);
    if (!each_mark(&s, false, error, error_size)) return false;
    s.least = choose_length(&s.lengths, MARKS_MOST, &c->marks, &c->marks_left, &ignored);
    return each_mark(&s, true, error, error_size);
}
