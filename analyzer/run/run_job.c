/* Is the content of a folder one job? See run_internal.h. */
#include "analyzer/run/run_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NAMED = 3, RUNS = 4096 };

struct runs {        /* by run id, in the order in which they were read */
    uint32_t *of;    /* process → run */
    uint32_t *first; /* run → its first process */
    size_t *processes;
    size_t n;
};

static struct runs runs_of(const struct run *run, size_t from)
{
    size_t all = run->processes_n;
    struct runs r = {.of = arena_realloc(NULL, all, sizeof *r.of),
                     .first = arena_realloc(NULL, all, sizeof *r.first),
                     .processes = arena_realloc(NULL, all, sizeof *r.processes)};
    struct map seen = {0};
    for (size_t i = from; i < all; i++) {
        uint32_t *at = map_at(&seen, (uintptr_t)run->processes[i].run_id); /* each text exists once */
        if (*at == MAP_NEW) {
            *at = (uint32_t)r.n;
            r.first[r.n] = (uint32_t)i;
            r.processes[r.n++] = 0;
        }
        r.of[i] = *at;
        r.processes[*at]++;
    }
    map_free(&seen);
    return r;
}

/* Ranks of one world, none of them in two runs. */
static bool one_world(const struct run *run, size_t from, const struct runs *r)
{
    struct map run_of = {0}; /* rank → run + 1 */
    const char *world = NULL;
    bool ok = true;
    for (size_t i = from; ok && i < run->processes_n; i++) {
        const struct run_process *p = &run->processes[i];
        const char *own = run_setting_value(run, (uint32_t)i, "WORLD_SIZE");
        own = own ? own : run_setting_value(run, (uint32_t)i, "OMPI_COMM_WORLD_SIZE");
        ok = p->rank >= 0 && own && (!world || strcmp(world, own) == 0);
        world = own;
        if (ok) {
            uint32_t *at = map_at(&run_of, (uint64_t)p->rank);
            ok = *at == MAP_NEW || *at == r->of[i];
            *at = r->of[i];
        }
    }
    map_free(&run_of);
    return ok;
}

/* All of them ran at the same time. */
static bool at_one_time(const struct run *run, size_t from, const struct runs *r)
{
    int64_t *end = arena_realloc(NULL, r->n, sizeof *end), *start = arena_realloc(NULL, r->n, sizeof *start);
    int64_t last_start = INT64_MIN, first_end = INT64_MAX;
    bool known = true;
    for (size_t k = 0; k < r->n; k++) {
        end[k] = INT64_MIN;
        start[k] = INT64_MAX;
    }
    for (size_t i = from; i < run->processes_n; i++) {
        const struct run_process *p = &run->processes[i];
        int64_t until = arena_add_capped(p->start_real_ns, p->end_ns);
        known = known && p->start_real_ns != RUN_UNKNOWN;
        end[r->of[i]] = until > end[r->of[i]] ? until : end[r->of[i]];
        start[r->of[i]] = p->start_real_ns < start[r->of[i]] ? p->start_real_ns : start[r->of[i]];
    }
    for (size_t k = 0; k < r->n; k++) {
        last_start = start[k] > last_start ? start[k] : last_start;
        first_end = end[k] < first_end ? end[k] : first_end;
    }
    ARENA_RELEASE(end, start);
    return known && last_start < first_end;
}

static int describe_jobs(char *out, size_t size, const struct run *run, const struct runs *r, size_t k)
{
    const struct run_process *p = &run->processes[r->first[k]];
    char when[64] = "";
    time_t seconds = (time_t)(p->start_real_ns / 1000000000);
    struct tm tm;
    if (p->start_real_ns != RUN_UNKNOWN && gmtime_r(&seconds, &tm))
        strftime(when, sizeof when, " of %Y-%m-%d %H:%M:%S UTC", &tm);
    return snprintf(out, size, "%s'%s' with %zu process%s%s", k ? ", " : "", p->path, r->processes[k],
                    r->processes[k] == 1 ? "" : "es", when);
}

static bool refuse_jobs(const struct run *run, const struct runs *r, const char *folder, char *error, size_t error_size)
{
    char list[800] = "", more[64] = "";
    size_t used = 0;
    for (size_t k = 0; k < r->n && k < NAMED && used < sizeof list; k++) {
        int n = describe_jobs(list + used, sizeof list - used, run, r, k);
        used += n > 0 ? (size_t)n : 0;
    }
    if (r->n > NAMED) snprintf(more, sizeof more, " and %zu more", r->n - NAMED);
    return run_fail(error, error_size, "cannot read '%s': it holds several runs (%s%s); name one, or all files of one",
                    folder, list, more);
}

bool run_is_one_job(struct run *run, size_t from, const char *folder, char *error, size_t error_size)
{
    struct runs r = runs_of(run, from);
    bool ok = r.n < 2;
    if (!ok && r.n <= RUNS && one_world(run, from, &r) && at_one_time(run, from, &r)) {
        run_add_note(
            run,
            "%s: %zu run ids count as one job: each rank is in one of them, all have the same number of ranks, and "
            "they ran at the same time. To be certain, set the same GPUSPY_RUN_ID on all hosts",
            folder, r.n);
        ok = true;
    }
    ok = ok || refuse_jobs(run, &r, folder, error, error_size);
    ARENA_RELEASE(r.of, r.first, r.processes);
    return ok;
}
