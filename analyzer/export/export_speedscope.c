/* speedscope's file format: each frame once, and profiles of weighted samples. One profile of the run per requested
 * kind, followed, if it has 2 to PROCESSES_MOST processes, by one per process. */
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/profile/call_tree.h"
#include "analyzer/export/export.h"
#include "analyzer/profile/frame_label.h"
#include "analyzer/base/json_out.h"

enum { PROCESSES_MOST = 64 }; /* a run with more processes gets no profiles per process */

struct scope_profile { /* a kind, of a process or of the run */
    struct profile_call_tree *tree;
    char name[256];
    const char *unit;
};

struct scope {
    struct export_run *e;
    struct map index; /* frame → number */
    ARENA_LIST(const struct run_frame *, frames);
    struct scope_profile *profiles;
    size_t n, cap;
};

static bool of_process(void *self, const struct profile_entry *entry)
{
    return entry->process == *(const uint32_t *)self;
}

static void add_speedscope_profile(struct scope *s, const struct profile *p, const uint32_t *process)
{
    size_t n;
    const struct run_process *all = run_processes(s->e->run, &n);
    struct profile_call_tree *t =
        profile_call_tree_build(s->e->run, p, s->e->native, process ? of_process : NULL, (void *)process);
    if (t->root->total <= 0) {
        profile_call_tree_free(t);
        return;
    }
    struct scope_profile *out = ARENA_PUSH(s->profiles, s->n, s->cap);
    *out = (struct scope_profile){.tree = t, .unit = strcmp(p->unit, "ns") == 0 ? "nanoseconds" : p->unit};
    if (!process)
        snprintf(out->name, sizeof out->name, "%s%s", p->title, n > 1 ? ", all processes" : "");
    else if (all[*process].rank != RUN_UNKNOWN)
        snprintf(out->name, sizeof out->name, "%s, rank %lld", p->title, (long long)all[*process].rank);
    else
        snprintf(out->name, sizeof out->name, "%s, process %u", p->title, all[*process].pid);
}

/* In order of rank, processes without one last. */
static void add_each(struct scope *s, const struct profile *p)
{
    size_t n;
    const struct run_process *all = run_processes(s->e->run, &n);
    uint32_t order[PROCESSES_MOST];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && (uint64_t)all[order[at - 1]].rank > (uint64_t)all[i].rank; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (size_t i = 0; i < n; i++) add_speedscope_profile(s, p, &order[i]);
}

static bool ask_speedscope(struct scope *s, enum profile_what what, char *error, size_t error_size)
{
    size_t n;
    struct profile *p = export_profile(s->e, what, false, error, error_size);
    if (!p) return false;
    run_processes(s->e->run, &n);
    add_speedscope_profile(s, p, NULL);
    if (n > 1 && n <= PROCESSES_MOST) add_each(s, p);
    profile_free(p);
    return true;
}

/* A sample is a path, outermost frame first. */
static void write_speedscope_samples(struct scope *s, const struct profile_call_tree *t)
{
    FILE *out = s->e->out;
    uint32_t *path = arena_realloc(NULL, t->depth + 1, sizeof *path);
    const char *comma = "";
    fputs("\"samples\":[", out);
    for (const struct profile_call_node *n = t->root; n; n = profile_call_next(n)) {
        if (n->depth) path[n->depth - 1] = MAP_INDEX_IN(&s->index, (uintptr_t)n->frame, s->frames, n->frame);
        if (n->self > 0) {
            fprintf(out, "%s[", comma);
            for (uint32_t i = 0; i < n->depth; i++) fprintf(out, i ? ",%u" : "%u", path[i]);
            fputs("]", out);
            comma = ",\n";
        }
    }
    fputs("],\n\"weights\":[", out);
    comma = "";
    for (const struct profile_call_node *n = t->root; n; n = profile_call_next(n)) {
        if (n->self > 0) {
            fprintf(out, "%s%lld", comma, (long long)n->self);
            comma = ",";
        }
    }
    fputs("]", out);
    free(path);
}

static void write_profiles(struct scope *s)
{
    FILE *out = s->e->out;
    fputs("\"profiles\":[", out);
    for (size_t i = 0; i < s->n; i++) {
        const struct scope_profile *p = &s->profiles[i];
        fprintf(out, "%s{\"type\":\"sampled\",\"name\":", i ? ",\n" : "");
        json_out_text(out, p->name);
        fprintf(out, ",\"unit\":\"%s\",\"startValue\":0,\"endValue\":%lld,\n", p->unit,
                (long long)p->tree->root->total);
        write_speedscope_samples(s, p->tree);
        fputs("}", out);
    }
    fputs("],\n", out);
}

static void write_frames(struct scope *s)
{
    FILE *out = s->e->out;
    char name[PROFILE_LABEL];
    fputs("\"shared\":{\"frames\":[", out);
    for (size_t i = 0; i < s->frames_n; i++) {
        const struct run_frame *f = s->frames[i];
        const char *file = f->file ? f->file : f->module;
        fputs(i ? ",\n{\"name\":" : "{\"name\":", out);
        json_out_text(out, profile_frame_function(f, name));
        if (file) {
            fputs(",\"file\":", out);
            json_out_text(out, file);
        }
        if (f->line) fprintf(out, ",\"line\":%d", f->line);
        fputs("}", out);
    }
    fputs("]}}\n", out);
}

static void write_speedscope(struct scope *s)
{
    FILE *out = s->e->out;
    fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n", out);
    fprintf(out, "\"exporter\":\"gpuspy %s\",\"name\":", GPUSPY_VERSION);
    json_out_text(out, s->e->name);
    fputs(",\"activeProfileIndex\":0,\n", out);
    write_profiles(s);
    write_frames(s);
}

bool export_speedscope(struct export_run *e, char *error, size_t error_size)
{
    static const enum profile_what usual[] = {PROFILE_PEAK,      PROFILE_OOM,   PROFILE_END,
                                              PROFILE_ALLOCATED, PROFILE_WAITS, PROFILE_COPIES};
    struct scope s = {.e = e};
    const bool once = run_why_unknown(e->run, RUN_FACT_HISTORY); /* the peak is the only moment */
    bool ok = true;
    if (e->what != PROFILE_KINDS_N) ok = ask_speedscope(&s, e->what, error, error_size);
    for (size_t i = 0; ok && e->what == PROFILE_KINDS_N && i < sizeof usual / sizeof *usual; i++)
        if (!once || (usual[i] != PROFILE_END && usual[i] != PROFILE_ALLOCATED))
            ok = ask_speedscope(&s, usual[i], error, error_size);
    if (ok && s.n) {
        write_speedscope(&s);
        snprintf(e->note, sizeof e->note, "%zu profiles, to be dropped on speedscope.app", s.n);
    } else if (ok) {
        snprintf(e->note, sizeof e->note, "this recording has nothing of that kind");
        e->nothing = true;
    }
    for (size_t i = 0; i < s.n; i++) profile_call_tree_free(s.profiles[i].tree);
    map_free(&s.index);
    ARENA_RELEASE(s.frames, s.profiles);
    return ok;
}
