/* Steps by NVTX: ranges or moments that a program repeats. A mark whose name contains "step", "iter" or "batch" counts
 * wherever it is; others only if no other range contains them and they fill the time between the first and the last of
 * them: nearly all of it, or most of it if they are evenly spread. Of several, the one with the most time in it,
 * because a step contains its parts. */
#include "analyzer/step/step_moments.h"
#include "analyzer/base/sort.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct series { /* marks of one name */
    struct step_moments moments;
    const char *name;
    bool moment, named, library;
    uint32_t thread;
    uint64_t nested;
    int64_t total_ns, until_ns; /* until_ns: when the last of them ends */
};

struct finder {
    struct map index; /* name, domain, kind → series */
    struct series *list;
    size_t n, cap;
    struct map threads; /* → ends */
    int64_t *ends;      /* by thread: where the outermost open range ends */
    size_t ends_n, ends_cap;
    int64_t kept_from_ns; /* earlier marks are incomplete */
};

static int64_t *sorted_gaps(const int64_t *times, size_t n)
{
    int64_t *gaps = arena_realloc(NULL, n, sizeof *gaps);
    for (size_t i = 0; i + 1 < n; i++) gaps[i] = times[i + 1] - times[i];
    SORT(gaps, n - 1, sort_int64_up);
    return gaps;
}

int64_t step_moments_gap(const int64_t *times, size_t n)
{
    if (n < 2) return 0;
    int64_t *gaps = sorted_gaps(times, n), median = gaps[(n - 1) / 2];
    free(gaps);
    return median;
}

bool step_moments_are_even(const int64_t *times, size_t n)
{
    if (n < 3) return false;
    int64_t *gaps = sorted_gaps(times, n), median = gaps[(n - 1) / 2];
    size_t even = 0;
    for (size_t i = 0; i + 1 < n; i++) even += gaps[i] >= median / 4 && gaps[i] / 4 <= median;
    free(gaps);
    return even * 4 >= (n - 1) * 3;
}

void step_moments_add(struct step_moments *m, int64_t begin_ns, int64_t time_ns)
{
    m->stride = m->stride ? m->stride : 1;
    if (m->count++ % m->stride != 0) return;
    size_t n = m->n;
    *ARENA_PUSH(m->begins, n, m->begins_cap) = begin_ns;
    *ARENA_PUSH(m->times, m->n, m->cap) = time_ns;
    if (m->n == STEP_MOMENTS_MAX) {
        m->n /= 2;
        m->stride *= 2;
        for (size_t i = 0; i < m->n; i++) {
            m->times[i] = m->times[2 * i];
            m->begins[i] = m->begins[2 * i];
        }
    }
}

void step_moments_free(struct step_moments *m)
{
    free(m->times);
    free(m->begins);
}

static bool says_step(const char *name)
{
    static const char *const names[] = {"step", "iter", "batch"};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcasestr(name, names[i])) return true;
    return false;
}

static struct series *mark_series_of(struct finder *f, const struct run_mark *mark)
{
    uint64_t key = map_hash((uintptr_t)mark->name) ^ map_hash((uintptr_t)mark->domain + mark->kind);
    return MAP_ROW(&f->index, key, f->list, f->n, f->cap,
                   (struct series){.name = mark->name,
                                   .moment = mark->kind == GS_MARK_MOMENT,
                                   .named = says_step(mark->name),
                                   .library = mark->domain != NULL,
                                   .thread = mark->thread,
                                   .moments.place = RUN_NONE});
}

static void marks_on_mark(void *self, const struct run_mark *mark)
{
    struct finder *f = self;
    if (!mark->name || mark->end_ns == RUN_NEVER || mark->kind > GS_MARK_MOMENT || mark->start_ns < f->kept_from_ns)
        return;
    int64_t *end = MAP_ROW(&f->threads, mark->thread, f->ends, f->ends_n, f->ends_cap, 0);
    struct series *s = mark_series_of(f, mark);
    if (s->thread != mark->thread || mark->start_ns < s->until_ns) return; /* a step does not contain itself */
    s->until_ns = mark->end_ns;
    s->nested += mark->start_ns < *end;
    *end = mark->end_ns > *end ? mark->end_ns : *end;
    s->total_ns = arena_add_capped(s->total_ns, mark->end_ns - mark->start_ns);
    step_moments_add(&s->moments, mark->start_ns, mark->end_ns);
}

static bool is_series_repeated(const struct series *s)
{
    const struct step_moments *m = &s->moments;
    if (s->named && !s->library) return m->count >= 2;
    if (m->count < 8 || s->moment || s->nested) return false;
    double filled = (double)s->total_ns / (double)(m->times[m->n - 1] - m->begins[0]);
    return filled >= 0.9 || (filled >= 0.5 && step_moments_are_even(m->begins, m->n));
}

static bool is_series_better(const struct series *a, const struct series *b)
{
    bool own_a = a->named && !a->library, own_b = b->named && !b->library;
    return own_a != own_b ? own_a : a->total_ns > b->total_ns;
}

struct step_moments step_moments_of_marks(struct run *run, struct arena *arena, uint32_t process)
{
    size_t processes_n;
    struct finder f = {.kept_from_ns = run_processes(run, &processes_n)[process].kept_from_ns};
    struct step_moments found = {.stride = 1, .place = RUN_NONE, .stack = RUN_NONE};
    char error[256]; /* of a damaged table: then its marks are not used here */
    run_each_mark(run, process, marks_on_mark, &f, error, sizeof error);
    struct series *best = NULL;
    for (size_t i = 0; i < f.n; i++)
        if (is_series_repeated(&f.list[i]) && (!best || is_series_better(&f.list[i], best))) best = &f.list[i];
    for (size_t i = 0; i < f.n; i++) {
        if (&f.list[i] == best) {
            found = best->moments;
            found.place = found.stack = RUN_NONE;
            found.name = arena_printf(arena, "%s \"%s\"", best->moment ? "mark" : "range", best->name);
        } else {
            step_moments_free(&f.list[i].moments);
        }
    }
    free(f.list);
    free(f.ends);
    map_free(&f.index);
    map_free(&f.threads);
    return found;
}
