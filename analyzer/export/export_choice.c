#include "analyzer/export/export_choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"

struct overview {
    struct run *run;
    struct export_device (*devices)[EXPORT_DEVICES]; /* by process */
    uint32_t process;
};

static void overview_on_process_start(void *self, uint32_t process)
{
    ((struct overview *)self)->process = process;
}

static struct export_device *overview_on_event(struct overview *o, const struct run_series *series)
{
    bool tensor = series->layer == RUN_SERIES_TENSOR;
    if ((!tensor && series->layer != RUN_SERIES_DEVICE) || series->device < 0 || series->device >= EXPORT_DEVICES)
        return NULL;
    struct export_device *d = &o->devices[o->process][series->device];
    d->used = true;
    d->tensors = d->tensors || tensor;
    d->rows++;
    return d;
}

static void overview_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct export_device *d = overview_on_event(self, series);
    int level = series->layer == RUN_SERIES_TENSOR;

    if (d && series->live_bytes >= d->peak_bytes[level]) {
        d->peak_bytes[level] = series->live_bytes;
        d->peak_ns[level] = life->alloc_ns;
    }
}

static void overview_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    overview_on_event(self, series);
}

static bool replay_overview(struct overview *o, char *error, size_t error_size)
{
    struct run_observer observer = {
        .self = o, .process_start = overview_on_process_start, .alloc = overview_on_alloc, .free = overview_on_free};

    o->devices = arena_zeroed(RUN_COUNT(run_processes, o->run), sizeof *o->devices);
    return run_replay(o->run, &observer, 1, error, error_size);
}

/* The process to export: of those asked for, the lowest rank that used the device. RUN_NONE: none, after a line on
 * stderr. */
static uint32_t choose_process(const struct export_request *w, const struct overview *o)
{
    size_t n, candidates = 0;
    char list[1024], why[640];
    const struct run_process *all = run_processes(o->run, &n);
    uint32_t first = RUN_NONE;

    run_list_processes(o->run, list, sizeof list);
    for (uint32_t i = 0; i < n; i++) {
        bool used = false;
        if ((w->pid >= 0 && all[i].pid != (uint32_t)w->pid) || (w->rank >= 0 && all[i].rank != w->rank)) continue;
        candidates++;
        for (int d = 0; d < EXPORT_DEVICES; d++)
            used = used || (o->devices[i][d].used && (w->device < 0 || w->device == d));
        if (used && (first == RUN_NONE || (all[i].rank != RUN_UNKNOWN && all[i].rank < all[first].rank)))
            first = i; /* the lowest rank */
    }
    if (!candidates) {
        run_explain_absent(o->run, w->pid, w->rank, why, sizeof why);
        complain("export: %s", why);
    } else if (first == RUN_NONE && w->device >= 0)
        complain("export: GPU %d holds no memory in this recording", w->device);
    else if (first == RUN_NONE && run_why_unknown(o->run, RUN_FACT_MEMORY))
        complain("export: memory is unknown: %s", run_why_unknown(o->run, RUN_FACT_MEMORY));
    else if (first == RUN_NONE)
        complain("export: no GPU memory was allocated in this recording");
    else if (candidates > 1)
        complain("export: this is process %u of %s; --process or --rank chooses another", all[first].pid, list);
    return first;
}

static const struct run_oom *last_oom(const struct export *e, bool fatal)
{
    size_t n;
    const struct run_oom *ooms = run_ooms(e->run, &n), *last = NULL;

    for (size_t i = 0; i < n; i++)
        if (ooms[i].process == e->process && ooms[i].device >= 0 && ooms[i].device < EXPORT_DEVICES &&
            e->devices[ooms[i].device].used && ooms[i].space != GS_SPACE_PINNED && (ooms[i].fatal || !fatal))
            last = &ooms[i];
    return last;
}

/* The device with the highest peak: of tensors, if any device has some. */
static int peak_device(const struct export *e)
{
    int best = -1;
    int64_t most = -1;

    for (int tensors = 1; tensors >= 0 && best < 0; tensors--)
        for (int d = 0; d < EXPORT_DEVICES; d++)
            if (e->devices[d].used && e->devices[d].tensors == (bool)tensors &&
                e->devices[d].peak_bytes[tensors] > most) {
                most = e->devices[d].peak_bytes[tensors];
                best = d;
            }
    return best;
}

/* Printed when the output is open: if it cannot be written, that is the only line. */
static void note_moment(struct export *e, const char *what, int device)
{
    char bytes[UNITS_TEXT] = "";
    const struct export_device *d = device >= 0 ? &e->devices[device] : NULL;

    if (d && strcmp(what, "the peak") == 0)
        snprintf(e->moment, sizeof e->moment, "the memory at the peak of GPU %d, %s after %s", device,
                 units_format_bytes(bytes, (uint64_t)d->peak_bytes[d->tensors]),
                 UNITS_SECONDS((double)e->moment_ns / 1e9));
    else if (d)
        snprintf(e->moment, sizeof e->moment, "the memory at %s on GPU %d after %s", what, device,
                 UNITS_SECONDS((double)e->moment_ns / 1e9));
    else
        snprintf(e->moment, sizeof e->moment, "the memory at %s, after %s", what,
                 UNITS_SECONDS((double)e->moment_ns / 1e9));
}

static int choose_moment(const struct export_request *w, struct export *e)
{
    int64_t end = run_process_at(e->run, e->process)->end_ns;
    bool asks_oom = w->at && strcmp(w->at, "oom") == 0;
    const struct run_oom *oom = last_oom(e, true);

    if (asks_oom && !oom) oom = last_oom(e, false);
    e->snapshot = run_is_imported(e->run) && run_why_unknown(e->run, RUN_FACT_WAITS) &&
                  !run_why_unknown(e->run, RUN_FACT_SEGMENTS);
    if (w->at ? strcmp(w->at, "end") == 0 : e->snapshot) {
        e->moment_ns = end;
        if (run_why_unknown(e->run, RUN_FACT_HISTORY))
            snprintf(e->moment, sizeof e->moment, "the memory at the moment of the recording");
        else
            note_moment(e, "the end", -1);
    } else if (asks_oom && !oom) {
        return complain_with(EXIT_NO, "export: %s in this process; --at peak shows the peak",
                             run_why_unknown(e->run, RUN_FACT_OUTCOME) ? "no failed allocation was recorded"
                                                                       : "memory did not run out");
    } else if (oom && (asks_oom || !w->at)) {
        e->moment_ns = oom->time_ns;
        note_moment(e, "the out-of-memory error", oom->device);
    } else if (!w->at || strcmp(w->at, "peak") == 0) {
        int device = peak_device(e);
        e->moment_ns = e->devices[device].peak_ns[e->devices[device].tensors];
        note_moment(e, "the peak", device);
    } else {
        char why[256];
        units_parse_seconds(w->at, &e->moment_ns);
        if (profile_is_removed(e->run, e->moment_ns, why, sizeof why)) return complain_with(EXIT_NO, "export: %s", why);
        if (e->moment_ns > end)
            complain("export: the process ended after %s; its end is shown", UNITS_SECONDS((double)end / 1e9));
    }
    return EXIT_YES;
}

static struct run *open_exported_run(const char *const *paths, size_t n, bool alone, struct symbolizer *symbols)
{
    char error[1024] = "";
    struct run_options o = {.alone = alone, .memory_map = true, SYMBOLIZER_OPTIONS(symbols)};
    struct run *run = run_open(paths, n, &o, error, sizeof error);

    if (!run) complain("export: %s", error);
    return run;
}

/* Prints what is missing or damaged. */
static void print_notes(const struct run *run)
{
    size_t n;
    const char *const *notes = run_notes(run, &n);

    for (size_t i = 0; i < n; i++) complain("export: %s", notes[i]);
    const struct run_process *p = run_processes(run, &n);
    for (size_t i = 0; i < n; i++)
        if (p[i].lost_events)
            complain("export: %s lost: their allocations and frees are missing",
                     UNITS_PLURAL(p[i].lost_events, "event was", "events were"));
}

/* Opens all named processes first, to choose one; then opens only the chosen one. */

int export_choose(const struct export_request *w, const char *path, struct symbolizer *symbols, struct export *e)
{
    struct overview o = {.run = open_exported_run(&path, 1, w->pid < 0 && w->rank < 0, symbols)};
    char error[1024] = "";
    size_t n;

    e->run = o.run;
    if (!o.run) return EXIT_INPUT;
    if (!replay_overview(&o, error, sizeof error)) {
        complain("export: %s", error);
        free(o.devices);
        return EXIT_INPUT;
    }
    const struct run_process *all = run_processes(o.run, &n);
    uint32_t process = choose_process(w, &o);
    for (int d = 0; process != RUN_NONE && d < EXPORT_DEVICES; d++)
        if (w->device < 0 || w->device == d) e->devices[d] = o.devices[process][d];
    free(o.devices);
    if (process != RUN_NONE && n > 1) {
        char *only = arena_copy(all[process].path);
        run_close(o.run);
        e->run = open_exported_run((const char *const *)&only, 1, true, symbols);
        free(only);
        process = 0;
    }
    e->process = process;
    if (process == RUN_NONE) return EXIT_NO;
    if (!e->run) return EXIT_INPUT;
    print_notes(e->run);
    return choose_moment(w, e);
}

/* Drops all processes except the requested one. */
static int keep_process(const struct export_request *w, struct symbolizer *symbols, struct export_run *e)
{
    size_t n, found = 0;
    const struct run_process *all = run_processes(e->run, &n);
    char list[1024], *only = NULL;

    for (size_t i = 0; i < n; i++)
        if ((w->pid < 0 || all[i].pid == (uint32_t)w->pid) && (w->rank < 0 || all[i].rank == w->rank)) {
            found++;
            free(only);
            only = arena_copy(all[i].path);
        }
    run_list_processes(e->run, list, sizeof list);
    if (found != 1)
        complain(found ? "export: give one process with --process; this run has %s"
                       : "export: this run has no such process; it has %s",
                 list);
    if (found == 1 && n > 1) {
        run_close(e->run);
        e->run = open_exported_run((const char *const *)&only, 1, true, symbols);
    }
    free(only);
    return found != 1 ? EXIT_NO : e->run ? EXIT_YES : EXIT_INPUT;
}

int export_choose_run(const struct export_request *w, char **paths, size_t n, struct symbolizer *symbols,
                      struct export_run *e)
{
    const char *what = w->what ? w->what : w->at;
    int code = EXIT_YES;

    e->device = w->device;
    e->what = what ? profile_of_word(what) : PROFILE_KINDS_N;
    if (!w->what && w->at && e->what == PROFILE_KINDS_N) {
        e->what = PROFILE_AT;
        units_parse_seconds(w->at, &e->at_ns);
    }
    e->run = open_exported_run((const char *const *)paths, n, false, symbols);
    if (!e->run) return EXIT_INPUT;
    if (w->pid >= 0 || w->rank >= 0) code = keep_process(w, symbols, e);
    if (code == EXIT_YES) print_notes(e->run);
    char why[256];
    if (code == EXIT_YES && e->what == PROFILE_AT && profile_is_removed(e->run, e->at_ns, why, sizeof why))
        code = complain_with(EXIT_NO, "export: %s", why);
    return code;
}

int64_t export_ns(double seconds)
{
    return seconds < 9.2e9 ? llround(seconds * 1e9) : RUN_NEVER - 1;
}

struct profile *export_profile(struct export_run *e, enum profile_what what, bool categories, char *error,
                               size_t error_size)
{
    struct profile_request wish = {.what = what,
                                   .at_ns = e->at_ns,
                                   .process = -1,
                                   .device = e->device,
                                   .layer = PROFILE_USUAL,
                                   .categories = categories};
    return profile_build(e->run, &wish, error, error_size);
}
