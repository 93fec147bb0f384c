#include "analyzer/export/export_choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"

/* ---------------------------------------------------------------- the process */

struct overview {
    struct gs_run *run;
    struct gs_export_device (*devices)[GS_EXPORT_DEVICES]; /* by process */
    uint32_t process;
};

static void on_process_start(void *self, uint32_t process)
{
    ((struct overview *)self)->process = process;
}

static struct gs_export_device *on_event(struct overview *o, const struct gs_series *series)
{
    bool tensor = series->layer == GS_SERIES_TENSOR;
    if ((!tensor && series->layer != GS_SERIES_DEVICE) || series->device < 0 || series->device >= GS_EXPORT_DEVICES)
        return NULL;
    struct gs_export_device *d = &o->devices[o->process][series->device];
    d->used = true;
    d->tensors = d->tensors || tensor;
    d->rows++;
    return d;
}

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_export_device *d = on_event(self, series);
    int level = series->layer == GS_SERIES_TENSOR;

    if (d && series->live_bytes >= d->peak_bytes[level]) {
        d->peak_bytes[level] = series->live_bytes;
        d->peak_ns[level] = life->alloc_ns;
    }
}

static void on_free(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    (void)life;
    on_event(self, series);
}

static bool look(struct overview *o, char *error, size_t error_size)
{
    size_t n;
    struct gs_observer observer = {.self = o, .process_start = on_process_start, .alloc = on_alloc, .free = on_free};

    gs_run_processes(o->run, &n);
    o->devices = gs_realloc(NULL, n, sizeof *o->devices);
    memset(o->devices, 0, n * sizeof *o->devices);
    return gs_run_replay(o->run, &observer, 1, error, error_size);
}

/* Those of a folder or of a run. */
static void list_processes(const struct gs_process *all, size_t n, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (size_t i = 0; i < n && i < 16 && at < size; i++) {
        at += (size_t)snprintf(out + at, size - at, "%s%u", i ? ", " : "", all[i].pid);
        if (all[i].rank != GS_UNKNOWN && at < size)
            at += (size_t)snprintf(out + at, size - at, " (rank %lld)", (long long)all[i].rank);
    }
    if (n > 16 && at < size) snprintf(out + at, size - at, ", …");
}

/* GS_NONE after a line on stderr. */
static uint32_t choose_process(const struct export_wish *w, const struct overview *o)
{
    size_t n, wanted = 0;
    char list[1024];
    const struct gs_process *all = gs_run_processes(o->run, &n);
    uint32_t first = GS_NONE;

    list_processes(all, n, list, sizeof list);
    for (uint32_t i = 0; i < n; i++) {
        bool used = false;
        if ((w->pid >= 0 && all[i].pid != (uint32_t)w->pid) || (w->rank >= 0 && all[i].rank != w->rank)) continue;
        wanted++;
        for (int d = 0; d < GS_EXPORT_DEVICES; d++)
            used = used || (o->devices[i][d].used && (w->device < 0 || w->device == d));
        if (used && (first == GS_NONE || (all[i].rank != GS_UNKNOWN && all[i].rank < all[first].rank)))
            first = i; /* the lowest rank */
    }
    if (!wanted)
        complain("export: there is no such process in this run; its processes are %s", list);
    else if (first == GS_NONE && w->device >= 0)
        complain("export: GPU %d holds no memory in this recording", w->device);
    else if (first == GS_NONE)
        complain("export: no GPU memory was allocated in this recording");
    else if (wanted > 1)
        complain("export: this is process %u of %s; --process or --rank chooses another", all[first].pid, list);
    return first;
}

/* ---------------------------------------------------------------- the moment */

static const struct gs_oom *last_oom(const struct gs_export *e, bool fatal)
{
    size_t n;
    const struct gs_oom *ooms = gs_run_ooms(e->run, &n), *last = NULL;

    for (size_t i = 0; i < n; i++)
        if (ooms[i].process == e->process && ooms[i].device >= 0 && ooms[i].device < GS_EXPORT_DEVICES &&
            e->devices[ooms[i].device].used && ooms[i].space != GS_SPACE_PINNED && (ooms[i].fatal || !fatal))
            last = &ooms[i];
    return last;
}

/* Of the device that held most: of its tensors where there are any. */
static int peak_device(const struct gs_export *e)
{
    int best = -1;
    int64_t most = -1;

    for (int tensors = 1; tensors >= 0 && best < 0; tensors--)
        for (int d = 0; d < GS_EXPORT_DEVICES; d++)
            if (e->devices[d].used && e->devices[d].tensors == (bool)tensors &&
                e->devices[d].peak_bytes[tensors] > most) {
                most = e->devices[d].peak_bytes[tensors];
                best = d;
            }
    return best;
}

static void say_moment(const struct gs_export *e, const char *what, int device)
{
    char bytes[UNITS_TEXT] = "", at[UNITS_TEXT];
    const struct gs_export_device *d = device >= 0 ? &e->devices[device] : NULL;

    if (d && strcmp(what, "the peak") == 0)
        complain("export: the memory at the peak of GPU %d, %s after %s", device,
                 format_bytes(bytes, (uint64_t)d->peak_bytes[d->tensors]),
                 format_seconds(at, (double)e->moment_ns / 1e9));
    else if (d)
        complain("export: the memory at %s on GPU %d after %s", what, device,
                 format_seconds(at, (double)e->moment_ns / 1e9));
    else
        complain("export: the memory at %s, after %s", what, format_seconds(at, (double)e->moment_ns / 1e9));
}

static int choose_moment(const struct export_wish *w, struct gs_export *e)
{
    char ended[UNITS_TEXT];
    size_t n;
    int64_t end = gs_run_processes(e->run, &n)[e->process].end_ns;
    bool oom_wanted = w->at && strcmp(w->at, "oom") == 0;
    const struct gs_oom *oom = last_oom(e, true);

    if (oom_wanted && !oom) oom = last_oom(e, false);
    if (w->at && strcmp(w->at, "end") == 0) {
        e->moment_ns = end;
        say_moment(e, "the end", -1);
    } else if (oom_wanted && !oom) {
        complain("export: memory did not run out in this process; --at peak shows the peak");
        return EXIT_NO;
    } else if (oom && (oom_wanted || !w->at)) {
        e->moment_ns = oom->time_ns;
        say_moment(e, "the out of memory", oom->device);
    } else if (!w->at || strcmp(w->at, "peak") == 0) {
        int device = peak_device(e);
        e->moment_ns = e->devices[device].peak_ns[e->devices[device].tensors];
        say_moment(e, "the peak", device);
    } else {
        parse_seconds(w->at, &e->moment_ns);
        if (e->moment_ns > end)
            complain("export: the process ended after %s: that is its end", format_seconds(ended, (double)end / 1e9));
    }
    return EXIT_YES;
}

static struct gs_run *open_run(const char *const *paths, size_t n, bool alone, struct symbolizer *symbols)
{
    char error[1024] = "";
    struct gs_options o = {.alone = alone, .memory_map = true, SYMBOLIZER_OPTIONS(symbols)};
    struct gs_run *run = gs_run_open(paths, n, &o, error, sizeof error);

    if (!run) complain("export: %s", error);
    return run;
}

/* What is missing or damaged. */
static void say_notes(const struct gs_run *run)
{
    size_t n;
    char count[UNITS_TEXT];
    const char *const *notes = gs_run_notes(run, &n);

    for (size_t i = 0; i < n; i++) complain("export: %s", notes[i]);
    const struct gs_process *p = gs_run_processes(run, &n);
    for (size_t i = 0; i < n; i++)
        if (p[i].lost_events)
            complain("export: %s lost: what they allocated and freed is not there",
                     format_plural(count, p[i].lost_events, "event was", "events were"));
}

/* The first look is at all processes that are named; then only the chosen one is open. */

int export_choose(const struct export_wish *w, const char *path, struct symbolizer *symbols, struct gs_export *e)
{
    struct overview o = {.run = open_run(&path, 1, w->pid < 0 && w->rank < 0, symbols)};
    char error[1024] = "";
    size_t n;

    e->run = o.run;
    if (!o.run) return EXIT_INPUT;
    if (!look(&o, error, sizeof error)) {
        complain("export: %s", error);
        free(o.devices);
        return EXIT_INPUT;
    }
    const struct gs_process *all = gs_run_processes(o.run, &n);
    uint32_t process = choose_process(w, &o);
    for (int d = 0; process != GS_NONE && d < GS_EXPORT_DEVICES; d++)
        if (w->device < 0 || w->device == d) e->devices[d] = o.devices[process][d];
    free(o.devices);
    if (process != GS_NONE && n > 1) {
        char *only = strdup(all[process].path);
        gs_run_close(o.run);
        e->run = only ? open_run((const char *const *)&only, 1, true, symbols) : NULL;
        free(only);
        process = 0;
    }
    e->process = process;
    if (process == GS_NONE) return EXIT_NO;
    if (!e->run) return EXIT_INPUT;
    say_notes(e->run);
    return choose_moment(w, e);
}

/* ---------------------------------------------------------------- the whole run */

/* Only the process that was asked for. */
static int keep_process(const struct export_wish *w, struct symbolizer *symbols, struct gs_export_run *e)
{
    size_t n, found = 0;
    const struct gs_process *all = gs_run_processes(e->run, &n);
    char list[1024], *only = NULL;

    for (size_t i = 0; i < n; i++)
        if ((w->pid < 0 || all[i].pid == (uint32_t)w->pid) && (w->rank < 0 || all[i].rank == w->rank)) {
            found++;
            free(only);
            only = strdup(all[i].path);
        }
    list_processes(all, n, list, sizeof list);
    if (found != 1)
        complain(found ? "export: several processes are meant; those of this run are %s"
                       : "export: there is no such process in this run; its processes are %s",
                 list);
    if (found == 1 && n > 1) {
        gs_run_close(e->run);
        e->run = only ? open_run((const char *const *)&only, 1, true, symbols) : NULL;
    }
    free(only);
    return found != 1 ? EXIT_NO : e->run ? EXIT_YES : EXIT_INPUT;
}

int export_choose_run(const struct export_wish *w, char **paths, size_t n, struct symbolizer *symbols,
                      struct gs_export_run *e)
{
    const char *what = w->what ? w->what : w->at;
    int code = EXIT_YES;

    e->device = w->device;
    e->what = what ? gs_profile_of_word(what) : GS_PROFILES_N;
    if (!w->what && w->at && e->what == GS_PROFILES_N) {
        e->what = GS_PROFILE_AT;
        parse_seconds(w->at, &e->at_ns);
    }
    e->run = open_run((const char *const *)paths, n, false, symbols);
    if (!e->run) return EXIT_INPUT;
    if (w->pid >= 0 || w->rank >= 0) code = keep_process(w, symbols, e);
    if (code == EXIT_YES) say_notes(e->run);
    return code;
}

int64_t gs_export_ns(double seconds)
{
    return seconds < 9.2e9 ? llround(seconds * 1e9) : GS_NEVER - 1;
}

struct gs_profile *gs_export_profile(struct gs_export_run *e, enum gs_profile_what what, bool categories, char *error,
                                     size_t error_size)
{
    struct gs_profile_wish wish = {.what = what,
                                   .at_ns = e->at_ns,
                                   .process = -1,
                                   .device = e->device,
                                   .layer = GS_PROFILE_USUAL,
                                   .categories = categories};
    return gs_profile_build(e->run, &wish, error, error_size);
}
