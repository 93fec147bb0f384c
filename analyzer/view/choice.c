#include "analyzer/view/choice.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"

static bool is_process_chosen(const struct view_choice *c, const struct run_process *p)
{
    return (c->pid < 0 || p->pid == (uint32_t)c->pid) && (c->rank < 0 || p->rank == c->rank);
}

static int no_such_process(const char *who, const struct run *run, const struct view_choice *c)
{
    char why[640];

    run_explain_absent(run, c->pid, c->rank, why, sizeof why);
    return complain_with(EXIT_NO, "%s: %s", who, why);
}

/* A recording that names no GPU (an old one, or of a program without one) is accepted for any GPU. */
static int find_device(const char *who, const struct run *run, int device)
{
    size_t n, at = 0;
    const struct run_device *all = run_devices(run, &n);
    uint64_t seen[2] = {0};
    char list[512] = "";

    for (size_t i = 0; i < n; i++) {
        if (all[i].device == device) return EXIT_YES;
        if (all[i].device >= 0 && all[i].device < 128) seen[all[i].device / 64] |= (uint64_t)1 << all[i].device % 64;
    }
    for (int d = 0; d < 128 && at < sizeof list; d++)
        if (seen[d / 64] >> d % 64 & 1) at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? ", " : "", d);
    if (!at) return EXIT_YES;
    return complain_with(EXIT_NO, "%s: this run has no GPU %d; it has GPU %s", who, device, list);
}

static struct run *open_chosen_run(const char *who, const char *const *paths, size_t n,
                                   const struct run_options *options)
{
    char error[1024] = "";
    struct run *run = run_open(paths, n, options, error, sizeof error);

    if (!run) complain("%s: %s", who, error);
    return run;
}

/* Opens only the files with the chosen processes again: each process has its own file. */
static struct run *open_chosen(const char *who, struct run *run, const struct view_choice *c, size_t chosen_n,
                               struct run_options *options)
{
    size_t n, at = 0;
    const struct run_process *all = run_processes(run, &n);
    char **paths = arena_realloc(NULL, chosen_n, sizeof *paths);

    for (size_t i = 0; i < n; i++)
        if (is_process_chosen(c, &all[i])) paths[at++] = strdup(all[i].path);
    run_close(run);
    options->alone = true;
    run = open_chosen_run(who, (const char *const *)paths, at, options);
    for (size_t i = 0; i < at; i++) free(paths[i]);
    free(paths);
    return run;
}

struct run *view_choice_open(const char *who, const char *const *paths, size_t n, const struct view_choice *c,
                             struct run_options *options, int *code)
{
    options->by_device = c->device >= 0;
    options->device = c->device;
    struct run *run = open_chosen_run(who, paths, n, options);
    size_t processes = 0, chosen_n = 0;
    const struct run_process *all = run ? run_processes(run, &processes) : NULL;

    *code = run ? EXIT_YES : EXIT_INPUT;
    for (size_t i = 0; i < processes; i++) chosen_n += is_process_chosen(c, &all[i]);
    if (run && !chosen_n) {
        *code = no_such_process(who, run, c);
    } else if (chosen_n < processes) {
        run = open_chosen(who, run, c, chosen_n, options);
        *code = run ? EXIT_YES : EXIT_INPUT;
    }
    if (*code == EXIT_YES && c->device >= 0) *code = find_device(who, run, c->device);
    if (*code != EXIT_YES && run) {
        run_close(run);
        run = NULL;
    }
    return run;
}
