#include "analyzer/text/choice.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"

enum { LISTED = 16 };

static bool chosen(const struct choice *c, const struct gs_process *p)
{
    return (c->pid < 0 || p->pid == (uint32_t)c->pid) && (c->rank < 0 || p->rank == c->rank);
}

static int no_such_process(const char *who, const struct gs_process *all, size_t n)
{
    char list[512] = "";
    size_t at = 0;

    for (size_t i = 0; i < n && i < LISTED && at < sizeof list; i++) {
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%u", i ? ", " : "", all[i].pid);
        if (all[i].rank != GS_UNKNOWN && at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, " (rank %lld)", (long long)all[i].rank);
    }
    complain("%s: there is no such process in this run; its processes are %s%s", who, list, n > LISTED ? ", …" : "");
    return EXIT_NO;
}

/* A recording that names no GPU at all (of old, or of a program without one) is not held to it. */
static int look_for_device(const char *who, const struct gs_run *run, int device)
{
    size_t n, at = 0;
    const struct gs_device *all = gs_run_devices(run, &n);
    uint64_t seen[2] = {0};
    char list[512] = "";

    for (size_t i = 0; i < n; i++) {
        if (all[i].device == device) return EXIT_YES;
        if (all[i].device >= 0 && all[i].device < 128) seen[all[i].device / 64] |= (uint64_t)1 << all[i].device % 64;
    }
    for (int d = 0; d < 128 && at < sizeof list; d++)
        if (seen[d / 64] >> d % 64 & 1) at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? ", " : "", d);
    if (!at) return EXIT_YES;
    complain("%s: there is no GPU %d in this run; it has GPU %s", who, device, list);
    return EXIT_NO;
}

static struct gs_run *open_run(const char *who, const char *const *paths, size_t n, const struct gs_options *options)
{
    char error[1024] = "";
    struct gs_run *run = gs_run_open(paths, n, options, error, sizeof error);

    if (!run) complain("%s: %s", who, error);
    return run;
}

/* Opens again those files alone that hold the chosen processes: a file is a process. */
static struct gs_run *open_chosen(const char *who, struct gs_run *run, const struct choice *c, size_t wanted,
                                  struct gs_options *options)
{
    size_t n, at = 0;
    const struct gs_process *all = gs_run_processes(run, &n);
    char **paths = gs_realloc(NULL, wanted, sizeof *paths);

    for (size_t i = 0; i < n; i++)
        if (chosen(c, &all[i])) paths[at++] = strdup(all[i].path);
    gs_run_close(run);
    options->alone = true;
    run = open_run(who, (const char *const *)paths, at, options);
    for (size_t i = 0; i < at; i++) free(paths[i]);
    free(paths);
    return run;
}

struct gs_run *choice_open(const char *who, const char *const *paths, size_t n, const struct choice *c,
                           struct gs_options *options, int *code)
{
    options->by_device = c->device >= 0;
    options->device = c->device;
    struct gs_run *run = open_run(who, paths, n, options);
    size_t processes = 0, wanted = 0;
    const struct gs_process *all = run ? gs_run_processes(run, &processes) : NULL;

    *code = run ? EXIT_YES : EXIT_INPUT;
    for (size_t i = 0; i < processes; i++) wanted += chosen(c, &all[i]);
    if (run && !wanted) {
        *code = no_such_process(who, all, processes);
    } else if (wanted < processes) {
        run = open_chosen(who, run, c, wanted, options);
        *code = run ? EXIT_YES : EXIT_INPUT;
    }
    if (*code == EXIT_YES && c->device >= 0) *code = look_for_device(who, run, c->device);
    if (*code != EXIT_YES && run) {
        gs_run_close(run);
        run = NULL;
    }
    return run;
}
