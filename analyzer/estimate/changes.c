/* Changes that save memory, each computed anew; and the cheapest way to make the plan fit. */
#include "analyzer/estimate/changes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/sort.h"
#include "analyzer/base/units.h"
#include "analyzer/estimate/changes_moves.h"
#include "analyzer/estimate/wires.h"

#define COST(id, word, weight) word,
const char *const estimate_change_cost_word[] = {CHANGE_COSTS(COST)};
#undef COST
#define COST(id, word, weight) weight,
static const unsigned weights[] = {CHANGE_COSTS(COST)};
#undef COST

#define TOO_LITTLE (1024 * 1024) /* bytes: changes that save less are not listed */

/* Both results share the uncertainty of the rest, so low is compared with low and high with high. */
static struct estimate_interval subtract_interval(struct estimate_interval before, struct estimate_interval after)
{
    double low = before.low - after.low, likely = before.likely - after.likely, high = before.high - after.high;

    return (struct estimate_interval){fmin(low, fmin(likely, high)), likely, -fmin(-low, fmin(-likely, -high))};
}

/* Applies the move and computes the result; false if the move does not apply or makes no sense. */
static bool try_move(const struct estimate_move *move, struct plan *p, struct estimate_move_words *w,
                     struct estimate_result *after)
{
    *w = (struct estimate_move_words){.what = ""};
    return (p->inference ? move->inference : move->training) && move->apply(move, p, w) && plan_possible(p) &&
           estimate_make(p, after);
}

/* Adds the time of transfers per step to the cost, if the change increases it. */
static void add_wires(const struct plan *before, const struct plan *after, struct estimate_change *c)
{
    static struct estimate_wires old, new;
    size_t n = strlen(c->cost);

    if (before->inference) return;
    estimate_wires_build(before, 0, &old);
    estimate_wires_build(after, 0, &new);
    if (new.sum_s <= old.sum_s * 1.02 || !(new.sum_s > 0)) return;
    if (old.sum_s > 0)
        snprintf(c->cost + n, sizeof c->cost - n, "; %s of transfers per step, %s now%s", UNITS_SECONDS(new.sum_s),
                 UNITS_SECONDS(old.sum_s), new.links.assumed ? " (A100's)" : "");
    else
        snprintf(c->cost + n, sizeof c->cost - n, "; %s of transfers per step%s", UNITS_SECONDS(new.sum_s),
                 new.links.assumed ? " (A100's)" : "");
}

static void fill_change(const struct estimate_move *move, const struct estimate_move_words *w,
                        struct estimate_interval before, const struct estimate_result *after, double memory,
                        struct estimate_change *c)
{
    *c = (struct estimate_change){.id = move->id,
                                  .source = move->source,
                                  .cost_class = move->cost,
                                  .saved = subtract_interval(before, after->peak),
                                  .peak = after->peak};
    memcpy(c->what, w->what, sizeof c->what);
    memcpy(c->option, w->option, sizeof c->option);
    memcpy(c->cost, w->cost, sizeof c->cost);
    if (memory > 0) c->fit = estimate_fit(after, memory);
}

/* Of a series, the smallest change that fits is enough; if none fits, the one that saves most. */
static bool better_of_series(const struct estimate_change *new, const struct estimate_change *old, bool has_memory)
{
    if (!has_memory) return false;
    return old->fit.verdict != FIT_YES && (new->fit.verdict < old->fit.verdict ||
                                           (new->fit.verdict == FIT_NO &&new->saved.likely > old->saved.likely));
}

static void keep_change(struct estimate_changes *out, const struct estimate_change *c, bool has_memory)
{
    for (size_t i = 0; i < out->n; i++)
        if (strcmp(out->rows[i].id, c->id) == 0) {
            if (better_of_series(c, &out->rows[i], has_memory)) out->rows[i] = *c;
            return;
        }
    if (out->n < CHANGES_MAX) out->rows[out->n++] = *c;
}

SORT_ORDER(by_saved, struct estimate_change,
           SORT_DOWN(x->saved.likely, y->saved.likely) ?: SORT_UP(weights[x->cost_class], weights[y->cost_class]))

static void find_singles(const struct plan *p, const struct estimate_result *now, struct estimate_changes *out)
{
    static struct estimate_result after;

    for (size_t i = 0; i < estimate_move_count; i++) {
        struct plan changed = *p;
        struct estimate_move_words w;
        struct estimate_change c;
        if (!try_move(&estimate_moves[i], &changed, &w, &after)) continue;
        fill_change(&estimate_moves[i], &w, now->peak, &after, p->memory, &c);
        if (c.saved.likely < TOO_LITTLE ||
            (p->memory > 0 && c.cost_class == CHANGE_COST_HARDWARE && c.fit.verdict == FIT_NO))
            continue;
        add_wires(p, &changed, &c);
        keep_change(out, &c, p->memory > 0);
    }
    qsort(out->rows, out->n, sizeof *out->rows, by_saved);
}

struct way {
    size_t moves[CHANGES_WAY_MAX];
    size_t n;
    unsigned cost; /* 0: none found yet */
    double peak;
};

struct search {
    const struct plan *p;
    struct way now, surely, likely;
    struct estimate_result result;
};

static void note_way(struct way *best, const struct way *now, unsigned cost, double peak)
{
    if (best->cost && (best->cost < cost || (best->cost == cost && best->n < now->n) ||
                       (best->cost == cost && best->n == now->n && best->peak <= peak)))
        return;
    *best = *now;
    best->cost = cost;
    best->peak = peak;
}

/* In a series, a later row costs more: 8 GPUs more than 4. */
static unsigned cost_of(size_t i)
{
    unsigned cost = weights[estimate_moves[i].cost];

    for (size_t j = 0; j < i; j++) cost += strcmp(estimate_moves[j].id, estimate_moves[i].id) == 0;
    return cost;
}

/* Adds one of the moves from `first` on, in the order of the table, unless the sum exceeds that of the best way. A move
 * that raises the likely peak, `before`, does not count as a way to make it fit, even if it lowers the high end. */
static void deepen_search(struct search *s, const struct plan *p, double before, size_t first, unsigned groups,
                          unsigned cost)
{
    for (size_t i = first; i < estimate_move_count; i++) {
        struct plan changed = *p;
        struct estimate_move_words w;
        unsigned sum = cost + cost_of(i);
        struct estimate_interval peak;
        if ((groups & estimate_moves[i].groups) || (s->surely.cost && sum > s->surely.cost) ||
            !try_move(&estimate_moves[i], &changed, &w, &s->result) || s->result.peak.likely > before)
            continue;
        peak = s->result.peak;
        s->now.moves[s->now.n++] = i;
        if (peak.high <= p->memory) note_way(&s->surely, &s->now, sum, peak.high);
        if (peak.likely <= p->memory) note_way(&s->likely, &s->now, sum, peak.likely);
        if (peak.high > p->memory && s->now.n < CHANGES_WAY_MAX)
            deepen_search(s, &changed, peak.likely, i + 1, groups | estimate_moves[i].groups, sum);
        s->now.n--;
    }
}

static void find_way(const struct plan *p, const struct estimate_result *now, struct estimate_changes *out)
{
    static struct search s;
    static struct estimate_result after;
    const struct way *best;
    struct plan before = *p;
    struct estimate_interval peak = now->peak;

    s = (struct search){.p = p};
    deepen_search(&s, p, peak.likely, 0, 0, 0);
    best = s.surely.cost ? &s.surely : &s.likely;
    if (!best->cost || (!s.surely.cost && peak.likely <= p->memory)) return;
    for (size_t i = 0; i < best->n; i++) {
        const struct estimate_move *move = &estimate_moves[best->moves[i]];
        struct plan changed = before;
        struct estimate_move_words w;
        struct estimate_change *c = &out->way[out->way_n];
        if (!try_move(move, &changed, &w, &after)) return;
        fill_change(move, &w, peak, &after, p->memory, c);
        add_wires(&before, &changed, c);
        before = changed;
        peak = after.peak;
        out->way_n++;
    }
}

void estimate_find_changes(const struct plan *p, const struct estimate_result *now, struct estimate_changes *out)
{
    memset(out, 0, sizeof *out);
    find_singles(p, now, out);
    out->needed = p->memory > 0 && now->peak.high > p->memory;
    if (out->needed) find_way(p, now, out);
}
