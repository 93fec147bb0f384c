/* Steps by NVTX: ranges or moments that a program repeats. A mark whose name has the word step, iter, iteration or
 * batch counts wherever it is; others only if no other range contains them and they fill the time between the first and
 * the last of them: nearly all of it, or most of it if they are evenly spread. Those of several threads at once are the
 * requests of a server, those of torch.compile are before the steps. Of several, the one with the most time
 * in it, because a step contains its parts; of PyTorch's ranges around an optimizer's step and around the fetch of a
 * batch, the rarer one: an evaluation fetches batches too, and a program can have two optimizers. */
#include "analyzer/step/step_moments.h"
#include "analyzer/base/text.h"
#include "analyzer/base/sort.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct series { /* marks of one name */
    struct step_moments moments;
    const char *name;
    bool moment, named, library, compiler;
    uint32_t thread;
    uint64_t nested, elsewhere; /* elsewhere: on other threads */
    uint64_t counted;           /* those that table removed_scope includes, too */
    uint64_t beside;            /* those outside of steps: the table does not distinguish them */
    const char *domain;
    int64_t total_ns, longest_ns, until_ns; /* until_ns: when the last of them ends */
};

struct finder {
    struct map index; /* name, domain, kind → series */
    struct series *list;
    size_t n, cap;
    struct map threads;        /* → ends */
    ARENA_LIST(int64_t, ends); /* by thread: where the outermost open range ends */
    int64_t kept_from_ns;      /* earlier marks are incomplete */
    int64_t counted_ns;        /* table removed_scope includes those up to this time */
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
    int64_t *gaps = sorted_gaps(times, n),
            median = gaps[(n - 2) / 2]; /* of two the shorter: the first step is longer */
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
    ARENA_RELEASE(m->times, m->begins);
}

/* Of batch_norm and BatchNorm2d, each layer has one; "batch" must be the last word, or numbered. */
static bool is_step_word(const char *word, size_t n)
{
    static const char step[] = "step", batch[] = "batch";
    const size_t step_n = sizeof step - 1, batch_n = sizeof batch - 1;
    if (n >= step_n && strncasecmp(word + n - step_n, step, step_n) == 0) return true;
    if (n >= batch_n && strncasecmp(word + n - batch_n, batch, batch_n) == 0) {
        const char *next = word + n + strspn(word + n, " _-:.");
        return !isalpha((unsigned char)*next);
    }
    return (n == strlen("iter") && strncasecmp(word, "iter", n) == 0) ||
           (n == strlen("iteration") && strncasecmp(word, "iteration", n) == 0);
}

/* A capital after a small letter begins a word. */
static bool says_step(const char *name)
{
    for (const char *at = name; at && *at;) {
        const char *end = at;
        while (isalpha((unsigned char)*end) &&
               !(end > at && isupper((unsigned char)*end) && islower((unsigned char)end[-1])))
            end++;
        if (is_step_word(at, (size_t)(end - at))) return true;
        at = end > at ? end : at + 1;
    }
    return false;
}

static struct series *mark_series_of(struct finder *f, const struct run_mark *mark)
{
    uint64_t key = map_hash((uintptr_t)mark->name) ^ map_hash((uintptr_t)mark->domain + mark->kind);
    return MAP_ROW(&f->index, key, f->list, f->n, f->cap,
                   (struct series){.name = mark->name,
                                   .domain = mark->domain,
                                   .moment = mark->kind == GS_MARK_MOMENT,
                                   .named = says_step(mark->name),
                                   .library = mark->domain != NULL,
                                   .compiler = strstr(mark->name, "(dynamo_timed)") != NULL,
                                   .thread = mark->thread,
                                   .moments.place = RUN_NONE});
}

static void marks_on_mark(void *self, const struct run_mark *mark)
{
    struct finder *f = self;
    if (!mark->name || mark->end_ns == RUN_NEVER || mark->kind > GS_MARK_MOMENT || mark->start_ns < f->kept_from_ns)
        return;
    int64_t *end = MAP_ROW_IN(&f->threads, mark->thread, f->ends, 0);
    struct series *s = mark_series_of(f, mark);
    s->counted += mark->start_ns <= f->counted_ns;
    s->elsewhere += s->thread != mark->thread;
    if (s->thread != mark->thread || mark->start_ns < s->until_ns) { /* a step does not contain itself */
        s->beside++;
        return;
    }
    s->until_ns = mark->end_ns;
    s->nested += mark->start_ns < *end;
    *end = mark->end_ns > *end ? mark->end_ns : *end;
    s->total_ns = arena_add_capped(s->total_ns, mark->end_ns - mark->start_ns);
    if (mark->end_ns - mark->start_ns > s->longest_ns) s->longest_ns = mark->end_ns - mark->start_ns;
    step_moments_add(&s->moments, mark->start_ns, mark->end_ns);
}

static bool is_series_repeated(const struct series *s)
{
    const struct step_moments *m = &s->moments;
    if (s->compiler) return false;
    if (s->named && !s->library) return m->count >= 2;
    if (m->count < 8 || s->moment || s->nested || s->elsewhere > m->count / 2) return false;
    /* Without the longest, such as the first: one range that fills the time is not a repetition. */
    double filled = (double)(s->total_ns - s->longest_ns) / (double)(m->times[m->n - 1] - m->begins[0] - s->longest_ns);
    return filled >= 0.9 || (filled >= 0.5 && step_moments_are_even(m->begins, m->n));
}

static bool is_named_like(const struct series *s, const char *start)
{
    return strncmp(s->name, start, strlen(start)) == 0;
}

static bool is_step_beside_fetch(const struct series *a, const struct series *b)
{
    return is_named_like(a, "Optimizer.step#") && is_named_like(b, "enumerate(DataLoader)#");
}

static bool is_series_better(const struct series *a, const struct series *b)
{
    if ((is_step_beside_fetch(a, b) || is_step_beside_fetch(b, a)) && a->moments.count != b->moments.count)
        return a->moments.count < b->moments.count;
    bool own_a = a->named && !a->library, own_b = b->named && !b->library;
    return own_a != own_b ? own_a : a->total_ns > b->total_ns;
}

/* Table removed_scope has a row for each series. Marks that are moments are not in it. */
static void count_removed_marks(struct run *run, uint32_t process, const struct series *s, struct step_moments *m)
{
    const struct run_removed_scope *before = NULL;
    m->removed_first_ns = RUN_UNKNOWN;
    RUN_EACH (r, run_removed, run)
        if (r->process == process && r->what == GS_REMOVED_MARK && r->kind != GS_MARK_MOMENT && !s->moment &&
            !s->beside)
            m->removed_first_ns = r->first_ns;
    RUN_EACH (r, run_removed_scopes, run) {
        const bool again = before && before->process == r->process && text_is_same(before->name, r->name) &&
                           text_is_same(before->domain, r->domain);
        before = r;
        if (r->process == process && !again && text_is_same(run_mark_pattern(run, r->name), s->name) &&
            text_is_same(r->domain, s->domain))
            m->removed += r->count;
    }
    m->removed = m->removed > s->counted ? m->removed - s->counted : 0;
}

struct step_moments step_moments_of_marks(struct run *run, struct arena *arena, uint32_t process)
{
    size_t processes_n;
    struct finder f = {.kept_from_ns = run_processes(run, &processes_n)[process].kept_from_ns, .counted_ns = -1};
    RUN_EACH (r, run_removed_scopes, run)
        if (r->process == process) f.counted_ns = r->until_ns;
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
            if (f.kept_from_ns) count_removed_marks(run, process, best, &found);
            found.name = arena_printf(arena, "%s \"%s\"", best->moment ? "mark" : "range", best->name);
        } else {
            step_moments_free(&f.list[i].moments);
        }
    }
    ARENA_RELEASE(f.list, f.ends);
    MAP_RELEASE(&f.index, &f.threads);
    return found;
}
