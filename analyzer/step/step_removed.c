/* How many steps a bounded recording had before its kept part, from the totals of what it removed: a call path that is
 * used equally often in each recorded step was so before. */
#include "analyzer/step/step_removed.h"

#include <stdlib.h>
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"
#include "analyzer/site/builder.h"

enum { POINTS = STEP_REMOVED_SINGLE + 256 };

static bool is_place_below(const struct step_place_tree *t, uint32_t place, uint32_t above)
{
    while (place != above && place != STEP_PLACE_ROOT) place = t->places[place].parent;
    return place == above;
}

static bool counts_as_event(const struct run_removed *r, bool calls, bool tensors)
{
    if (calls) return r->what == GS_REMOVED_COPY || r->what == GS_REMOVED_SYNC;
    return r->what == GS_REMOVED_ALLOCATION && !(tensors && run_removed_layer(r) == RUN_SERIES_DEVICE);
}

void step_removed_add(struct step_removed_events *e, uint32_t stack, const struct step_removed_event *more)
{
    if (stack == RUN_NONE || !more->count) return;
    struct step_removed_event *at = SITE_REACH(e->of_stack, stack, e->of_stack_n);
    at->first_ns = !at->count || more->first_ns < at->first_ns ? more->first_ns : at->first_ns;
    at->count += more->count;
    at->lost += more->lost;
}

void step_removed_add_row(struct step_removed_events *e, uint32_t stack, int64_t ns, bool stayed)
{
    step_removed_add(e, stack, &(struct step_removed_event){.count = 1, .first_ns = ns});
    if (stayed) *ARENA_ADD(e->stayed_ns) = ns;
}

void step_removed_free(struct step_removed_events *e)
{
    ARENA_RELEASE(e->of_stack, e->stayed_ns);
    *e = (struct step_removed_events){0};
}

void step_removed_add_totals(struct step_removed_events *e, const struct run *run, uint32_t process, bool calls,
                             bool tensors)
{
    RUN_EACH (r, run_removed, run)
        if (r->process == process && counts_as_event(r, calls, tensors))
            step_removed_add(e, r->stack, &(struct step_removed_event){r->count, r->count, r->first_ns});
}

struct path {       /* that each step uses equally often */
    uint64_t steps; /* in the whole run */
    uint64_t count;
};

SORT_ORDER(order_paths_by_steps, struct path, SORT_UP(x->steps, y->steps))

/* The number of steps that most of the events show. */
static uint64_t steps_of_most(const struct path *paths, size_t n)
{
    uint64_t usual = 0, most = 0;
    for (size_t i = 0, end; i < n; i = end) {
        uint64_t count = 0;
        for (end = i; end < n && paths[end].steps == paths[i].steps; end++) count += paths[end].count;
        usual = count >= most ? paths[i].steps : usual;
        most = count >= most ? count : most;
    }
    return usual;
}

static struct step_removed_event removed_of(const struct step_removed_events *e, uint32_t stack)
{
    return stack < e->of_stack_n ? e->of_stack[stack] : (struct step_removed_event){0};
}

/* 0: not equally often in each of `steps`. */
static uint64_t uses_per_step(uint64_t events, uint64_t steps)
{
    const uint64_t each = (events + steps / 2) / steps, all = each * steps;
    return (events < all ? all - events : events - all) <= each ? each : 0;
}

static int64_t first_use(const struct step_removed_events *e, const struct step_place_tree *t, uint64_t steps)
{
    int64_t first = RUN_NEVER;
    for (uint32_t stack = 0; stack < t->stacks_n; stack++) {
        const struct step_removed_event r = removed_of(e, stack);
        if (r.count && t->stacks[stack].events && uses_per_step(t->stacks[stack].events + r.count, steps))
            first = r.first_ns < first ? r.first_ns : first;
    }
    return first;
}

/* Which paths count: those of whose earlier events no row is left (others may also have allocated what stays, such as a
 * workspace), those of which some are without rows, or all. */
enum which { GONE, SOME_GONE, ANY };

static bool is_path_meant(struct step_removed_event r, enum which which)
{
    return which == ANY || (r.lost && (which == SOME_GONE || r.lost == r.count));
}

/* A step that the beginning of the kept part cuts is counted once: by the sum of its removed and its recorded events.
 */
static uint64_t count_steps_below(const struct step_removed_events *e, const struct step_place_tree *t, uint32_t place,
                                  uint64_t visits, enum which which)
{
    struct path *paths = NULL;
    size_t n = 0, cap = 0;
    for (uint32_t stack = 0; visits && stack < t->stacks_n; stack++) {
        const struct step_place_stack *s = &t->stacks[stack];
        const struct step_removed_event r = removed_of(e, stack);
        const uint64_t each = uses_per_step(s->events, visits), all = s->events + r.count;
        if (s->place && each && is_path_meant(r, which) && is_place_below(t, s->place - 1, place))
            *ARENA_PUSH(paths, n, cap) = (struct path){(all + each / 2) / each, all};
    }
    if (n) qsort(paths, n, sizeof *paths, order_paths_by_steps);
    const uint64_t steps = steps_of_most(paths, n);
    free(paths);
    return steps;
}

struct step_removed step_removed_count(const struct step_removed_events *e, const struct step_place_tree *t,
                                       uint32_t place, uint64_t visits)
{
    /* Those of autograd's threads may have had no stack: then other lines of the loop show it. */
    const uint64_t steps = count_steps_below(e, t, place, visits, GONE) ?:
                           count_steps_below(e, t, STEP_PLACE_ROOT, visits, GONE) ?:
                           count_steps_below(e, t, place, visits, SOME_GONE) ?:
                           count_steps_below(e, t, STEP_PLACE_ROOT, visits, SOME_GONE) ?:
                           count_steps_below(e, t, place, visits, ANY);
    return (struct step_removed){.known = steps > 0,
                                 .n = steps > visits ? steps - visits : 0,
                                 .first_ns = steps ? first_use(e, t, steps) : RUN_NEVER};
}

struct clock {
    const struct run *run;
    uint32_t process;
    const struct step_removed_events *early;
};

/* How many allocations had been made that were freed before the kept part: equally many per step, also if a leak began
 * in between. */
static double clock_at(const struct clock *c, int64_t ns)
{
    const size_t rows = SORT_COUNT(c->early->stayed_ns_n, i, c->early->stayed_ns[i] <= ns);
    return run_allocations_by(c->run, c->process, ns) - (double)rows;
}

static int64_t clock_time(const struct clock *c, double at, int64_t from_ns, int64_t to_ns)
{
    while (from_ns < to_ns) {
        const int64_t middle = from_ns + (to_ns - from_ns) / 2;
        if (clock_at(c, middle) < at)
            from_ns = middle + 1;
        else
            to_ns = middle;
    }
    return from_ns;
}

/* The number of the step with which point k begins: each of the first ones, then evenly chosen ones. */
static size_t point_step(size_t n, size_t points, size_t k)
{
    return points == n || k < STEP_REMOVED_SINGLE
               ? k
               : STEP_REMOVED_SINGLE + (size_t)((double)(n - STEP_REMOVED_SINGLE) * (double)(k - STEP_REMOVED_SINGLE) /
                                                (double)(points - STEP_REMOVED_SINGLE));
}

void step_removed_set(struct arena *arena, struct step_list *s, const struct run *run, const struct step_removed *r,
                      const struct step_removed_events *early)
{
    const struct clock clock = {run, s->process, early};
    const size_t points = r->n < POINTS ? r->n : POINTS;
    s->removed_unknown = !r->known;
    if (!r->known || !r->n || r->first_ns >= s->start_ns[0]) return;
    int64_t *ns = arena_alloc(arena, (points + 1) * sizeof *ns);
    const double first = clock_at(&clock, r->first_ns), end = clock_at(&clock, s->start_ns[0]);
    ns[0] = r->first_ns;
    for (size_t i = 1; i <= points; i++) {
        const double at = first + (end - first) * (double)point_step(r->n, points, i) / (double)r->n;
        ns[i] = clock_time(&clock, at, ns[i - 1], s->start_ns[0]);
    }
    s->removed_ns = ns;
    s->removed_points = points;
    s->removed = r->n;
    s->n += r->n;
    s->steady += r->n;
}

size_t step_removed_at(const struct step_list *s, int64_t ns)
{
    const size_t k = SORT_COUNT(s->removed_points, i, s->removed_ns[i] <= ns);
    if (k == 0) return 0;
    const double span = (double)(s->removed_ns[k] - s->removed_ns[k - 1]);
    const double part = span > 0 ? (double)(ns - s->removed_ns[k - 1]) / span : 0;
    const size_t from = point_step(s->removed, s->removed_points, k - 1);
    const size_t to = point_step(s->removed, s->removed_points, k);
    const size_t at = from + (size_t)(part * (double)(to - from));
    return at < s->removed ? at : s->removed - 1;
}

int64_t step_removed_start_ns(const struct step_list *s, size_t i)
{
    const size_t points = s->removed_points;
    const size_t k = SORT_COUNT(points, p, point_step(s->removed, points, p) <= i) - 1;
    const size_t from = point_step(s->removed, points, k), to = point_step(s->removed, points, k + 1);
    const double span = (double)(s->removed_ns[k + 1] - s->removed_ns[k]);
    return s->removed_ns[k] + (to > from ? (int64_t)(span * (double)(i - from) / (double)(to - from)) : 0);
}
