#include "analyzer/step/step_moments.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/site/builder.h"
#include "analyzer/step/step_gate.h"
#include "analyzer/step/step_tree.h"
#include "analyzer/base/sort.h"

enum { LEAST_PERIODS = 8, FEW_PERIODS = 4, RARER = 16, MANY_LINES = 256 };

/* The time of its second visit. The first iteration is not representative: PyTorch loads its kernels in it. */
static int64_t second_ns(const struct step_place *p)
{
    return p->times.n > 1 ? times_at(&p->times, 1) : p->first_ns;
}

/* For call sites that take turns: among those that were active for most of the time the rarest, so that one iteration
 * is a step; if several are equal, the one that comes last in an iteration. */
static uint32_t anchor_of(const struct step_place_tree *t, const uint32_t *group, size_t n)
{
    int64_t first = INT64_MAX, second = INT64_MAX, last = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const struct step_place *p = &t->places[group[i]];
        first = p->first_ns < first ? p->first_ns : first;
        second = second_ns(p) < second ? second_ns(p) : second;
        last = p->last_ns > last ? p->last_ns : last;
        most = p->visits > most ? p->visits : most;
    }
    uint32_t anchor = RUN_NONE;
    for (size_t i = 0; i < n; i++) {
        const struct step_place *p = &t->places[group[i]], *a = &t->places[anchor == RUN_NONE ? 0 : anchor];
        bool spans = p->visits == most ? (double)(p->last_ns - second_ns(p)) >= 0.5 * (double)(last - second)
                                       : (double)(p->last_ns - p->first_ns) >= 0.8 * (double)(last - first);
        bool better =
            anchor == RUN_NONE || p->visits < a->visits || (p->visits == a->visits && p->first_ns > a->first_ns);
        if (p->visits * RARER >= most && spans && better) anchor = group[i];
    }
    return anchor;
}

/* LBFGS computes the loss several times per step, and is visited after each: the line that calls it decides, if it is
 * left in between. */
static uint32_t whole_step(const struct step_place_tree *t, uint32_t anchor)
{
    if (anchor != RUN_NONE && t->places[anchor].name && strstr(t->places[anchor].name, "LBFGS")) {
        const struct step_place *line = &t->places[t->places[anchor].parent];
        return line->visits >= 2 && line->visits < t->places[anchor].visits ? t->places[anchor].parent : anchor;
    }
    return anchor;
}

static void add_times(struct step_moments *m, struct step_place_tree *t, const struct step_place *p)
{
    const struct times *times = step_place_times(t, p);
    for (size_t i = 0; i < times->n; i++) *ARENA_PUSH(m->times, m->n, m->cap) = times_at(times, i);
    m->count += p->visits;
}

/* Phases with their own call sites follow one another; each has its anchor. A thinned one cannot be joined to others:
 * then only the longest counts. */
static void join_anchors(struct step_place_tree *t, const uint32_t *anchors, size_t n, struct step_moments *m)
{
    bool thinned = false;
    uint32_t most = anchors[0];
    for (size_t i = 0; i < n; i++) {
        thinned = thinned || t->places[anchors[i]].shift > 0;
        most = t->places[anchors[i]].visits > t->places[most].visits ? anchors[i] : most;
    }
    m->place = most;
    m->stack = t->places[most].stack;
    m->stride = (size_t)1 << t->places[most].shift;
    for (size_t i = 0; i < n; i++) {
        const struct step_place *p = &t->places[anchors[i]];
        bool once = p->visits == 1 || p->visits * RARER < t->places[most].visits; /* a trial before the loop */
        if (anchors[i] == most || (!thinned && !once)) add_times(m, t, p);
    }
}

static int by_first(const void *a, const void *b, void *tree)
{
    const struct step_place_tree *t = tree;
    const struct step_place *x = &t->places[*(const uint32_t *)a], *y = &t->places[*(const uint32_t *)b];
    return x->first_ns != y->first_ns ? (x->first_ns < y->first_ns ? -1 : 1)
                                      : (*(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1);
}

/* Visits of backward passes after a time; approximate for thinned ones. */
static uint64_t passes_after(const struct step_place_tree *t, int64_t ns, uint64_t *all)
{
    uint64_t after = 0;
    *all = 0;
    for (size_t i = 1; i < t->n; i++) {
        const struct step_place *p = &t->places[i];
        if (p->kind != STEP_PLACE_BACKWARD || !p->visits) continue;
        *all += p->visits;
        for (size_t k = p->times.n; k-- > 0 && times_at(&p->times, k) > ns;) after += (uint64_t)1 << p->shift;
    }
    return after;
}

/* An optimizer that allocates only at its first call, as momentum does, is not visited later: the backward passes then
 * continue without it. */
static bool moments_go_on(const struct step_place_tree *t, const struct step_moments *m)
{
    uint64_t all, after;
    if (!m->n) return false;
    after = passes_after(t, m->times[m->n - 1], &all);
    return (double)after <= 2.0 * (double)all / (double)m->count + 1;
}

struct step_moments step_moments_of_calls(struct step_place_tree *t, unsigned kind)
{
    struct step_moments m = {.stride = 1, .place = RUN_NONE, .stack = RUN_NONE};
    uint32_t *found = NULL, *anchors = NULL;
    size_t n = 0, cap = 0, anchors_n = 0, anchors_cap = 0;
    for (uint32_t i = 1; i < t->n; i++)
        if (t->places[i].kind == kind && t->places[i].visits) *ARENA_PUSH(found, n, cap) = i;
    if (n) qsort_r(found, n, sizeof *found, by_first, t);
    for (size_t from = 0, to; from < n; from = to) {
        int64_t last = t->places[found[from]].last_ns;
        for (to = from + 1; to < n && t->places[found[to]].first_ns <= last; to++)
            last = t->places[found[to]].last_ns > last ? t->places[found[to]].last_ns : last;
        uint32_t anchor = whole_step(t, anchor_of(t, found + from, to - from));
        if (anchor != RUN_NONE) *ARENA_ADD(anchors) = anchor;
    }
    if (anchors_n) join_anchors(t, anchors, anchors_n, &m);
    ARENA_RELEASE(found, anchors);
    if (kind != STEP_PLACE_BACKWARD && !moments_go_on(t, &m)) m.count = 0;
    return m;
}

/* The optimizer that was first visited after the clipping, of the same function if there is one. */
static uint32_t optimizer_after(const struct step_place_tree *t, const struct step_place *clip)
{
    uint32_t found = RUN_NONE, caller = t->places[clip->parent].parent;
    bool found_beside = false;
    for (uint32_t i = 1; i < t->n; i++) {
        const struct step_place *p = &t->places[i];
        bool beside = p->parent == clip->parent || t->places[p->parent].parent == caller;
        if (p->kind != STEP_PLACE_OPTIMIZER || !p->visits || !p->name || p->first_ns < clip->first_ns) continue;
        if (found == RUN_NONE || beside > found_beside ||
            (beside == found_beside && p->first_ns < t->places[found].first_ns)) {
            found = i;
            found_beside = beside;
        }
    }
    return found;
}

struct step_moments step_moments_of_clips(struct step_place_tree *t)
{
    struct step_moments m = step_moments_of_calls(t, STEP_PLACE_CLIP);
    uint64_t passes;
    passes_after(t, 0, &passes);
    if (m.count && passes && m.count > passes) /* several calls of the first step */
        m.count = 0;
    if (!m.count) return m;
    uint32_t named = optimizer_after(t, &t->places[m.place]);
    if (named == RUN_NONE) {
        struct step_moments backward = step_moments_of_calls(t, STEP_PLACE_BACKWARD);
        named = backward.place;
        step_moments_free(&backward);
    }
    if (named != RUN_NONE) {
        m.named = named + 1;
        m.stack = t->places[named].stack;
    }
    return m;
}

/* Visited evenly, and until the end: a loop that only loads ends before the work begins. In time and in events: a pause
 * of the program makes one of its loops long. */
static bool is_place_regular(const struct step_place_tree *t, const struct step_place *p)
{
    return p->visits >= FEW_PERIODS && step_place_is_even(p) &&
           p->last_ns - p->first_ns >= (t->last_ns - p->first_ns) / 2 &&
           p->last_event - p->first_event >= (t->events - p->first_event) / 2;
}

/* Events in and below each call site. */
static uint64_t *sums_of(const struct step_place_tree *t)
{
    uint64_t *sums = arena_realloc(NULL, t->n, sizeof *sums);
    memset(sums, 0, t->n * sizeof *sums);
    for (size_t i = 0; i < t->stacks_n; i++) {
        uint32_t place = t->stacks[i].events ? t->stacks[i].place - 1 : 0;
        sums[place] += t->places[place].kind == STEP_PLACE_LOAD ? 0 : t->stacks[i].events;
    }
    for (size_t i = t->n; i-- > 1;) /* children come after their parents */
        sums[t->places[i].parent] += sums[i];
    return sums;
}

static bool lies_in(const struct step_place_tree *t, uint32_t place, uint32_t outer)
{
    while (t->places[place].depth > t->places[outer].depth) place = t->places[place].parent;
    return place == outer;
}

/* Is one visit one iteration? Not if everything that happens in it repeats: the only line of a loop is not left between
 * two iterations. */
static bool once_a_visit(const struct step_place_tree *t, uint32_t place)
{
    enum { AGAIN = 4 };
    uint64_t visits = t->places[place].visits;
    for (size_t i = 0; i < t->stacks_n; i++) {
        uint64_t events = t->stacks[i].events;
        if (events * 2 >= visits && events < AGAIN * visits && lies_in(t, t->stacks[i].place - 1, place)) return true;
    }
    return false;
}

/* A line whose loop has no other line but those that run only now and then: it is not left between two iterations. */
struct busy {
    uint32_t place, stack; /* STEP_PLACE_ROOT: there is none; the stack that it uses most */
    uint64_t each;         /* allocations of the stack per iteration; 0 unknown */
};

static bool is_in_loop_below(const struct step_place_tree *t, uint32_t stack, uint32_t place)
{
    return step_gate_repeats(t->run, stack, t->places[place].stack);
}

/* The path below a line that is used most; without those of inner loops unless `inner`. Sets *events. */
static uint32_t busiest_stack(const struct step_place_tree *t, uint32_t place, bool inner, uint64_t *events)
{
    uint32_t found = RUN_NONE;
    *events = 0;
    for (uint32_t i = 0; i < t->stacks_n; i++) {
        if (t->stacks[i].events <= *events || !lies_in(t, t->stacks[i].place - 1, place) ||
            (!inner && is_in_loop_below(t, i, place)))
            continue;
        *events = t->stacks[i].events;
        found = i;
    }
    return found;
}

/* Is the line beside a busy one in the same loop, and runs only under a condition there, or in the function that it
 * calls? */
static bool is_seldom(const struct step_place_tree *t, uint32_t place, uint32_t busy, int loop, struct step_gate *gate)
{
    const struct step_place *p = &t->places[place], *b = &t->places[busy];
    const struct run_frame *f = run_stack_frame(t->run, p->stack), *g = run_stack_frame(t->run, b->stack);
    if (place == busy || p->parent != b->parent || p->thread != b->thread || p->kind != STEP_PLACE_LINE || !p->visits ||
        !f || f->line == g->line || f->file != g->file || f->function != g->function ||
        !step_gate_read(t->run, f, loop, gate))
        return false;
    for (uint32_t s = p->first; !gate->guarded && s != RUN_NONE && s != p->stack; s = run_stack_parent(t->run, s)) {
        const struct run_frame *inner = run_stack_frame(t->run, s);
        if (!inner || (inner->kind == GS_FRAME_PYTHON && site_is_library(inner))) continue;
        step_gate_read(t->run, inner, 0, gate);
    }
    return gate->guarded;
}

static void leave_out(const struct step_place_tree *t, uint32_t place, uint64_t *sums)
{
    const uint64_t events = sums[place];
    for (uint32_t p = place; sums[place] && p != STEP_PLACE_ROOT; p = t->places[p].parent)
        sums[t->places[p].parent] -= events;
    sums[place] = 0;
}

/* Events per iteration, if another line ran that many times, in every `every`-th: a whole number that is possible.
 * Otherwise the nearest, or 0 unless `nearest`: an inner loop has not always as many iterations. */
static uint64_t each_of(uint64_t events, uint64_t every, uint64_t times, bool nearest)
{
    enum { FAR = 1000 }; /* more than a step's allocations vary; bounds the search */
    const uint64_t usual = (events + every * times / 2) / (every * times);
    const uint64_t least = events / (every * (times + 1)), most = events / (every * (times - 1));
    for (uint64_t away = 0; away <= most - least + 1 && away < FAR; away++) {
        const uint64_t less = usual > away ? usual - away : 0, more = usual + away;
        if (less > least && less <= most && events % less == 0) return less;
        if (more > least && more <= most && events % more == 0) return more;
    }
    return !nearest ? 0 : usual ? usual : 1;
}

/* The lines that run only now and then beside a busy one, in one of the loops around it. */
struct seldom {
    uint32_t lines[MANY_LINES], n;
    uint64_t visits;
    bool modulo;
    uint64_t every, times; /* of the first condition with a number: 100 of `step % 100`; how often its line ran */
};

/* `inner`: the loop is around that of the busy line. Then only conditions with a number count, and only if no other
 * loop contains them. */
static struct seldom seldom_beside(const struct step_place_tree *t, uint32_t line, int loop, bool inner)
{
    struct seldom found = {.n = 0};
    struct step_gate gate;
    for (uint32_t i = 1; i < t->n && found.n < MANY_LINES; i++) {
        if (!is_seldom(t, i, line, loop, &gate)) continue;
        const struct run_frame *f = run_stack_frame(t->run, t->places[i].stack);
        if (inner && (!gate.every || step_gate_loop(t->run, f, 0) != loop)) continue;
        found.visits += t->places[i].visits;
        if (gate.modulo && !found.every) {
            found.every = gate.every;
            found.times = t->places[i].visits;
        }
        found.modulo = found.modulo || gate.modulo;
        found.lines[found.n++] = i;
    }
    return found;
}

/* Leaves out the lines that run only now and then beside this one, if it is left at those only: logging, an
 * evaluation, a checkpoint. */
static bool leave_out_beside(struct step_place_tree *t, uint32_t line, uint64_t *sums, struct busy *busy)
{
    enum { FEW_TIMES = 16 }; /* a condition that may always hold; a line can make so many blocks per iteration */
    struct step_place *p = &t->places[line];
    const struct run_frame *f = run_stack_frame(t->run, p->stack);
    const int loop = p->kind == STEP_PLACE_LINE && f ? step_gate_loop(t->run, f, 0) : 0;
    int outer = loop ? step_gate_loop(t->run, f, loop) : 0;
    struct step_gate gate;
    uint64_t events;
    if (!loop || !step_gate_read(t->run, f, loop, &gate) || gate.enclosed || gate.modulo) return false;
    struct seldom seldom = seldom_beside(t, line, loop, false);
    const bool nested = outer, inner = !seldom.n;
    for (; !seldom.n && outer; outer = step_gate_loop(t->run, f, outer)) seldom = seldom_beside(t, line, outer, true);
    if (!seldom.n || p->visits > seldom.visits + seldom.visits / 4 + 2) return false;
    const uint32_t stack = busiest_stack(t, line, seldom.modulo, &events);
    if (events * 2 < p->visits * 3 || (!seldom.modulo && (nested || events < FEW_TIMES * p->visits))) return false;
    for (uint32_t i = 0; i < seldom.n; i++) leave_out(t, seldom.lines[i], sums);
    for (uint32_t i = 1; i < t->n; i++)
        if (t->places[i].visits <= p->visits && lies_in(t, i, line)) t->places[i].repeats = true;
    *busy = (struct busy){line, stack, 0};
    if (seldom.every && seldom.times >= FEW_PERIODS) busy->each = each_of(events, seldom.every, seldom.times, !inner);
    return true;
}

static void leave_out_seldom(struct step_place_tree *t, uint32_t parent, uint64_t *sums, struct busy *busy)
{
    for (uint32_t i = 1, tried = 0; i < t->n && tried < MANY_LINES; i++) {
        const struct step_place *p = &t->places[i];
        if (p->parent != parent || !p->visits || sums[i] * 2 < p->visits * 3) continue;
        tried++;
        if (leave_out_beside(t, i, sums, busy)) return;
    }
}

static bool as_often(uint64_t a, uint64_t b)
{
    uint64_t more = a > b ? a : b, less = a > b ? b : a;
    return (more - less) * 20 <= more;
}

enum { LAYERS = 64 }; /* of a model, at most */

/* Events beside a line of a loop that are those of a short inner loop, such as one over layers or micro-batches. */
static uint64_t inner_events(const struct step_place_tree *t, uint32_t line, const uint64_t *sums)
{
    uint64_t events = 0;
    for (uint32_t i = 1; i < t->n; i++) {
        const struct step_place *p = &t->places[i];
        if (p->parent == t->places[line].parent && p->repeats && sums[i] < LAYERS * t->places[line].visits)
            events += sums[i];
    }
    return events;
}

/* Lines below `parent` with equally many visits belong to one loop: returns the first line of the loop with the most
 * events. (A line of every fifth iteration and an inner loop of five look the same; neither has the most events.) */
static uint32_t round_of(const struct step_place_tree *t, uint32_t parent, const uint64_t *sums, uint64_t least)
{
    uint64_t most = 0;
    uint32_t found = RUN_NONE, tried = 0;
    for (uint32_t i = 1; i < t->n; i++) {
        const struct step_place *p = &t->places[i];
        if (p->parent != parent || p->visits < least || !sums[i] || p->repeats || tried == MANY_LINES ||
            !is_place_regular(t, p))
            continue;
        tried++;
        if (!once_a_visit(t, i)) continue;
        uint64_t events = 0;
        for (uint32_t k = 1; k < t->n; k++) {
            const struct step_place *q = &t->places[k];
            events += q->parent == parent && q->thread == p->thread && as_often(p->visits, q->visits) ? sums[k] : 0;
        }
        if (events > most || (events == most && p->first_ns < t->places[found].first_ns)) {
            most = events;
            found = i;
        }
    }
    return found != RUN_NONE && 4 * most >= sums[parent] - inner_events(t, found, sums) ? found : RUN_NONE;
}

static uint32_t heaviest_child(const struct step_place_tree *t, uint32_t parent, const uint64_t *sums)
{
    uint32_t heaviest = RUN_NONE;
    for (uint32_t i = 1; i < t->n; i++)
        if (t->places[i].parent == parent && sums[i] > 0 && (heaviest == RUN_NONE || sums[i] > sums[heaviest]))
            heaviest = i;
    return heaviest;
}

/* Is the loop at the calling line, rather than in a function that it calls? Yes if the line calls several functions:
 * f(g(x)) on the only line of a loop. */
static bool at_parent(const struct step_place_tree *t, uint32_t place)
{
    const struct step_place *p = &t->places[place];
    const struct run_frame *own = run_stack_frame(t->run, p->stack);
    for (uint32_t i = 1; p->parent != STEP_PLACE_ROOT && own && i < t->n; i++) {
        const struct step_place *q = &t->places[i];
        const struct run_frame *f = run_stack_frame(t->run, q->stack);
        if (q->parent == p->parent && q->visits * 2 >= p->visits && f &&
            (q->kind != STEP_PLACE_LINE || (own->function && (f->function != own->function || f->file != own->file))))
            return true;
    }
    return false;
}

static bool is_layer(const struct step_place_tree *t, uint32_t place)
{
    const struct step_place *p = &t->places[place];
    return t->places[p->parent].module && p->visits < LAYERS * step_place_calls(t, place);
}

/* A frame that calls main: _start, which is in the program, or the C library's. */
static bool is_before_main(const struct step_place_tree *t, uint32_t place)
{
    const uint32_t stack = t->places[place].stack;
    const struct run_frame *f = run_stack_frame(t->run, stack);
    return f && f->kind == GS_FRAME_NATIVE &&
           (f->rank == RUN_RANK_PLUMBING ||
            (f->rank == RUN_RANK_OWN && !run_stack_frame(t->run, run_stack_parent(t->run, stack))));
}

static uint32_t stack_of_loop(const struct step_place_tree *t, uint32_t place, const uint64_t *sums)
{
    place = at_parent(t, place) ? t->places[place].parent : place;
    for (uint32_t child; is_before_main(t, place) && (child = heaviest_child(t, place, sums)) != RUN_NONE;)
        place = child;
    return t->places[place].stack;
}

static bool is_inner_loop(const struct step_place_tree *t, uint32_t stack, const struct busy *busy)
{
    return busy->place && lies_in(t, t->stacks[stack].place - 1, busy->place) &&
           is_in_loop_below(t, stack, busy->place);
}

/* From the root inwards, along the path with the most events: the first loop. One with few iterations, such as epochs,
 * counts only if it contains no other; a loop inside a module counts only if nothing else repeats, and if it has more
 * iterations than a model has layers. */
struct step_moments step_moments_of_period(struct step_place_tree *t)
{
    struct step_moments m = {.stride = 1, .place = RUN_NONE, .stack = RUN_NONE};
    uint64_t *sums = sums_of(t);
    struct busy busy = {0};
    uint32_t found = RUN_NONE;
    for (uint32_t at = STEP_PLACE_ROOT; at != RUN_NONE; at = heaviest_child(t, at, sums)) {
        if (t->places[at].module && found != RUN_NONE) break;
        leave_out_seldom(t, at, sums, &busy);
        uint32_t round = round_of(t, at, sums, LEAST_PERIODS);
        if (round != RUN_NONE) {
            found = round;
            break;
        }
        found = found == RUN_NONE ? round_of(t, at, sums, FEW_PERIODS) : found;
    }
    if (found != RUN_NONE && (is_layer(t, found) || is_inner_loop(t, t->places[found].stack, &busy))) found = RUN_NONE;
    if (found != RUN_NONE) {
        join_anchors(t, &found, 1, &m);
        m.stack = stack_of_loop(t, busy.place && lies_in(t, found, busy.place) ? busy.place : found, sums);
    }
    free(sums);
    return m;
}

/* The others have a whole number of visits per iteration. */
static bool counts_divide(const uint32_t *counts, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (counts[i] % counts[0] > counts[i] / counts[0]) /* the last iteration may be incomplete */
            return false;
    return n > 1;
}

/* The number of visits of most stacks of a call site, the least if several are equally frequent; if no two agree the
 * least of all, if it divides the others. 0: none. */
static uint32_t usual_count(const struct step_place_tree *t, uint32_t place)
{
    uint32_t *counts = NULL, usual = 0;
    size_t n = 0, cap = 0, most = 1;
    for (size_t i = 0; i < t->stacks_n; i++)
        if (t->stacks[i].place == place + 1 && t->stacks[i].events >= LEAST_PERIODS)
            *ARENA_PUSH(counts, n, cap) = t->stacks[i].events;
    SORT(counts, n, sort_uint32_up);
    for (size_t i = 0, same = 0; i < n; i++) {
        same = i && counts[i] == counts[i - 1] ? same + 1 : 1;
        if (same > most) {
            most = same;
            usual = counts[i];
        }
    }
    usual = !usual && n && counts_divide(counts, n) ? counts[0] : usual;
    free(counts);
    return usual;
}

/* A few of them may be the layers of one pass, each of which keeps its block while the next one makes its own. */
static bool are_layers(const struct step_place *p, uint64_t n, uint64_t apart)
{
    return (p->module || p->kind == STEP_PLACE_BACKWARD) && n < LAYERS && apart < n / 2;
}

struct at_stack {
    uint32_t stack;
    int64_t rows, free_ns; /* free_ns: of its last block */
    uint64_t each, n;      /* its allocations: per step, so far */
    uint64_t apart;        /* blocks that were freed before its next one */
    struct step_moments *m;
};

static void choice_on_row(void *self, const struct run_row *row)
{
    struct at_stack *at = self;
    at->rows++;
    if (row->stack != at->stack) return;
    at->apart += at->m->count && at->free_ns <= row->alloc_ns;
    at->free_ns = row->free_ns;
    if (at->n++ % at->each == 0) step_moments_add(at->m, at->rows, row->alloc_ns);
}

struct step_moments step_moments_of_stacks(struct step_place_tree *t, uint32_t process)
{
    struct step_moments m = {.stride = 1, .place = RUN_NONE, .stack = RUN_NONE};
    uint64_t *sums = sums_of(t);
    uint32_t place = STEP_PLACE_ROOT, stack = 0;
    struct busy busy = {0};
    for (uint32_t at = place; at != RUN_NONE; at = heaviest_child(t, at, sums)) {
        leave_out_seldom(t, at, sums, &busy);
        place = at;
    }
    uint64_t here = sums[place], all = sums[STEP_PLACE_ROOT];
    free(sums);
    uint32_t usual = 2 * here >= all ? usual_count(t, place) : 0;
    if (t->places[place].kind == STEP_PLACE_OPTIMIZER) usual = 0; /* a stack per parameter */
    while (usual && (t->stacks[stack].place != place + 1 || t->stacks[stack].events != usual)) stack++;
    if (usual && !run_stack_is_located(t->run, stack)) usual = 0;
    if (usual && is_inner_loop(t, stack, &busy)) usual = 0;
    if (busy.each && lies_in(t, place, busy.place)) {
        place = busy.place;
        stack = busy.stack;
        usual = t->stacks[stack].events;
    }
    char error[256]; /* the replay has reported unreadable rows */
    struct at_stack at = {.stack = stack, .each = busy.each ? busy.each : 1, .m = &m};
    if (usual && run_each_row(t->run, process, choice_on_row, &at, error, sizeof error) && m.n) {
        int64_t span = m.times[m.n - 1] - m.times[0];
        bool spans = span >= (t->last_ns - m.times[0]) / 2 && /* begins: numbers of rows */
                     m.begins[m.n - 1] - m.begins[0] >= (at.rows - m.begins[0]) / 2 &&
                     !are_layers(&t->places[place], m.count, at.apart);
        m.count = spans && step_moments_are_even(m.begins, m.n) ? m.count : 0;
        free(m.begins);
        m.begins = NULL;
        m.place = place;
        m.stack = busy.each ? t->places[place].stack : stack;
    }
    return m;
}

struct zeroed { /* moments at which gradients were dropped */
    struct step_place_tree *t;
    int64_t *times;
    size_t n, cap;
    int64_t last_ns; /* of the newest */
};

/* Rows come in order of allocation: gradients that are made after others were dropped belong to another iteration. */
static void choice_on_zeroed(void *self, const struct run_row *row)
{
    struct zeroed *z = self;
    if (row->free_stack == RUN_NONE || row->free_ns == RUN_NEVER) return;
    const uint32_t place = step_place_of(z->t, row->free_stack); /* may move the places */
    if (z->t->places[place].kind != STEP_PLACE_ZERO) return;
    if ((!z->n || row->alloc_ns > z->last_ns) && z->n < STEP_MOMENTS_MAX) {
        *ARENA_PUSH(z->times, z->n, z->cap) = row->free_ns;
        z->last_ns = row->free_ns;
    }
    z->last_ns = row->free_ns > z->last_ns ? row->free_ns : z->last_ns;
}

void step_moments_accumulate(struct step_moments *m, struct step_place_tree *t, uint32_t process)
{
    struct zeroed z = {.t = t};
    char error[256];
    if (m->stride != 1 || !m->n || !run_each_row(t->run, process, choice_on_zeroed, &z, error, sizeof error)) {
        free(z.times);
        return;
    }
    size_t kept = 0, at = 0;
    if (z.n >= 2 && m->n * 2 >= z.n * 3) {
        for (size_t i = 0; i < m->n; i++) {
            while (at < z.n && z.times[at] <= m->times[i]) at++;
            bool last = i + 1 == m->n, dropped = at < z.n && !last && z.times[at] <= m->times[i + 1];
            if (last || dropped) m->times[kept++] = m->times[i];
        }
        m->n = m->count = kept;
        m->zeroed = true;
    }
    free(z.times);
}
