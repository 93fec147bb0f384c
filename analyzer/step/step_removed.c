/* How many steps a bounded recording had before its kept part, from the totals of what it removed: a call path that is
 * used equally often in each recorded step was so before. */
#include "analyzer/step/step_removed.h"

#include <stdlib.h>
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"
#include "analyzer/site/builder.h"

static bool is_below(const struct step_place_tree *t, uint32_t place, uint32_t above)
{
    while (place != above && place != STEP_PLACE_ROOT) place = t->places[place].parent;
    return place == above;
}

static bool counts_as_event(const struct run_removed *r, bool calls, bool tensors)
{
    if (calls) return r->what == GS_REMOVED_COPY || r->what == GS_REMOVED_SYNC;
    return r->what == GS_REMOVED_ALLOCATION && !(tensors && run_removed_layer(r) == RUN_SERIES_DEVICE);
}

void step_removed_add(struct step_removed_events *e, uint32_t stack, uint64_t count, int64_t first_ns)
{
    if (stack == RUN_NONE || !count) return;
    struct step_removed_event *at = SITE_REACH(e->of_stack, stack, e->of_stack_n);
    at->first_ns = !at->count || first_ns < at->first_ns ? first_ns : at->first_ns;
    at->count += count;
}

void step_removed_add_row(struct step_removed_events *e, uint32_t stack, int64_t ns)
{
    step_removed_add(e, stack, 1, ns);
    *ARENA_ADD(e->rows_ns) = ns;
}

void step_removed_free(struct step_removed_events *e)
{
    ARENA_RELEASE(e->of_stack, e->rows_ns);
    *e = (struct step_removed_events){0};
}

void step_removed_add_totals(struct step_removed_events *e, const struct run *run, uint32_t process, bool calls,
                             bool tensors)
{
    RUN_EACH (r, run_removed, run)
        if (r->process == process && counts_as_event(r, calls, tensors))
            step_removed_add(e, r->stack, r->count, r->first_ns);
}

struct path { /* that each step uses equally often */
    uint64_t steps; /* in the whole run */
    int64_t first_ns;
};

SORT_ORDER(order_paths_by_steps, struct path, SORT_UP(x->steps, y->steps) ?: SORT_UP(x->first_ns, y->first_ns))

/* What most of the paths show. */
static struct path usual_path(const struct path *paths, size_t n)
{
    struct path usual = {0};
    size_t most = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && paths[end].steps == paths[i].steps;) end++;
        if (end - i < most) continue;
        most = end - i;
        usual = paths[i]; /* with the earliest first_ns */
    }
    return usual;
}

/* A step that the beginning of the kept part cuts is counted once: by the sum of its removed and its recorded events. */
struct step_removed step_removed_count(const struct step_removed_events *e, const struct step_place_tree *t,
                                       uint32_t place, uint64_t visits)
{
    struct path *paths = NULL;
    size_t n = 0, cap = 0;
    for (uint32_t stack = 0; visits && stack < t->stacks_n; stack++) {
        const struct step_place_stack *s = &t->stacks[stack];
        const uint64_t each = (s->events + visits / 2) / visits, all = each * visits;
        const uint64_t off = s->events < all ? all - s->events : s->events - all;
        if (!s->place || !each || off > each || !is_below(t, s->place - 1, place)) continue;
        const struct step_removed_event none = {0}, *r = stack < e->of_stack_n ? &e->of_stack[stack] : &none;
        *ARENA_PUSH(paths, n, cap) =
            (struct path){(s->events + r->count + each / 2) / each, r->count ? r->first_ns : RUN_NEVER};
    }
    if (n) qsort(paths, n, sizeof *paths, order_paths_by_steps);
    const struct path usual = usual_path(paths, n);
    free(paths);
    return (struct step_removed){.known = n > 0,
                                 .n = usual.steps > visits ? usual.steps - visits : 0,
                                 .first_ns = usual.first_ns};
}

struct clock {
    const struct run *run;
    uint32_t process;
    const struct step_removed_events *early;
};

/* How many allocations had been made that were freed before the kept part: equally many per step, also if a leak began in
 * between. */
static double clock_at(const struct clock *c, int64_t ns)
{
    const size_t rows = SORT_COUNT(c->early->rows_ns_n, i, c->early->rows_ns[i] <= ns);
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

/* The share of a step that has passed at its moment. */
static double share_before(const struct step_list *s, const struct step_moments *m)
{
    double before = 0, all = 0;
    for (size_t i = 0; i + 1 < s->starts_n && i < m->n; i++) {
        const int64_t to = m->times[i] < s->start_ns[i + 1] ? m->times[i] : s->start_ns[i + 1];
        before += to > s->start_ns[i] ? (double)(to - s->start_ns[i]) : 0;
        all += (double)(s->start_ns[i + 1] - s->start_ns[i]);
    }
    return all > 0 && s->stride == 1 ? before / all : 0;
}

void step_removed_set(struct arena *arena, struct step_list *s, const struct run *run, const struct step_removed *r,
                      const struct step_removed_events *early, const struct step_moments *m)
{
    enum { POINTS = 256 };
    const struct clock clock = {run, s->process, early};
    const size_t points = r->n < POINTS ? r->n : POINTS;
    s->removed_unknown = !r->known;
    if (!r->known || !r->n || r->first_ns >= s->start_ns[0]) return;
    int64_t *ns = arena_alloc(arena, (points + 1) * sizeof *ns);
    double first = clock_at(&clock, r->first_ns);
    const double end = clock_at(&clock, s->start_ns[0]);
    first -= m->begins ? 0 : share_before(s, m) * (end - first) / (double)r->n;
    for (size_t i = 0; i <= points; i++) {
        const double at = first + (end - first) * (double)i / (double)points;
        ns[i] = clock_time(&clock, at, i ? ns[i - 1] : 0, s->start_ns[0]);
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
    const size_t at = (size_t)(((double)(k - 1) + part) * (double)s->removed / (double)s->removed_points);
    return at < s->removed ? at : s->removed - 1;
}

int64_t step_removed_start_ns(const struct step_list *s, size_t i)
{
    const double at = (double)i * (double)s->removed_points / (double)s->removed;
    const size_t k = (size_t)at < s->removed_points ? (size_t)at : s->removed_points - 1;
    const double span = (double)(s->removed_ns[k + 1] - s->removed_ns[k]);
    return s->removed_ns[k] + (int64_t)(span * (at - (double)k));
}
