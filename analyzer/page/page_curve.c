#include "analyzer/page/page_curve.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

/* Adds a moment that follows. */
static void extend_moment(struct page_moment *m, const struct page_moment *next)
{
    page_moment_raise(m, next->high, next->high_ns, next->by_alloc);
    m->low = next->low < m->low ? next->low : m->low;
}

static void halve_moments(struct page_curve *c)
{
    for (size_t i = 0; i < c->n; i += 2) {
        struct page_moment m = c->moments[i];
        if (i + 1 < c->n) extend_moment(&m, &c->moments[i + 1]);
        c->moments[i / 2] = m;
    }
    c->n = (c->n + 1) / 2;
    c->each *= 2;
}

static struct page_moment point_moment(const struct page_point *p, uint64_t index)
{
    return (struct page_moment){p->ns, p->ns, p->total, p->total, index, p->alloc};
}

void page_curve_begin(struct page_curve *c, int64_t ns, int64_t total, bool alloc)
{
    const struct page_point point = {ns, total, alloc};
    if (!c->last) {
        c->last = arena_realloc(NULL, PAGE_CURVE_POINTS, sizeof *c->last);
        c->last_ns = ns;
        c->peak = INT64_MIN;
        c->keep_at = UINT64_MAX;
        c->each = 1;
    }
    if (c->n == c->most) halve_moments(c);
    c->next = c->events - 1 + c->each;
    *ARENA_PUSH(c->moments, c->n, c->cap) = point_moment(&point, c->events - 1);
}

/* The events in the ring, oldest first; the caller frees its points. */
static struct page_place copy_last_points(const struct page_curve *c)
{
    struct page_place place = {.n = c->events < PAGE_CURVE_POINTS ? (size_t)c->events : PAGE_CURVE_POINTS};
    place.first = c->events - place.n;
    place.points = arena_realloc(NULL, place.n + 1, sizeof *place.points);
    for (size_t i = 0; i < place.n; i++) place.points[i] = c->last[(place.first + i) % PAGE_CURVE_POINTS];
    return place;
}

void page_curve_keep_peak(struct page_curve *c)
{
    free(c->peak_place.points);
    c->peak_place = copy_last_points(c);
    c->keep_at = UINT64_MAX;
}

void page_curve_keep_last(struct page_curve *c)
{
    if (c->events && c->places_n < PAGE_CURVE_PLACES) c->places[c->places_n++] = copy_last_points(c);
}

void page_curve_free(struct page_curve *c)
{
    ARENA_RELEASE(c->moments, c->last, c->peak_place.points);
    for (size_t i = 0; i < c->places_n; i++) free(c->places[i].points);
}

struct refining {
    struct page_place places[PAGE_CURVE_PLACES + 2];
    size_t places_n, place; /* by their first event; place: the first one that does not end before the current event */
    struct page_moment *out;
    size_t n, cap;
};

SORT_ORDER(order_curve_places, struct page_place, SORT_UP(x->first, y->first))

/* The events of a moment from `from` to before `to`, which are not known one by one. `until_ns`: the time of `to`. A
 * part has its own moment only if the moment's highest total is in it. */
static void refine_part(struct refining *r, const struct page_moment *m, uint64_t from, uint64_t to, int64_t until_ns)
{
    const bool whole = from == m->first;
    const int64_t from_ns = whole || !r->n ? m->start_ns : r->out[r->n - 1].high_ns;
    if (from >= to) return;
    if (m->high_ns < until_ns && (whole || m->high_ns > from_ns)) {
        *ARENA_PUSH(r->out, r->n, r->cap) = *m;
        r->out[r->n - 1].start_ns = from_ns;
        r->out[r->n - 1].first = from;
    } else if (r->n) {
        r->out[r->n - 1].low = m->low < r->out[r->n - 1].low ? m->low : r->out[r->n - 1].low;
    }
}

static void refine_moment(struct refining *r, const struct page_moment *m, uint64_t end)
{
    uint64_t at = m->first;
    while (at < end) {
        const struct page_place *p = r->place < r->places_n ? &r->places[r->place] : NULL;
        if (p && p->first + p->n <= at) {
            r->place++;
            continue;
        }
        const uint64_t stop = p && p->first < end ? p->first > at ? p->first : at : end;
        refine_part(r, m, at, stop, stop < end ? p->points[stop - p->first].ns : INT64_MAX);
        at = stop;
        for (; p && at < end && at < p->first + p->n; at++)
            *ARENA_PUSH(r->out, r->n, r->cap) = point_moment(&p->points[at - p->first], at);
    }
}

struct page_moment *page_curve_moments(const struct page_curve *c, size_t *n)
{
    struct refining r = {0};
    const struct page_place end = c->events ? copy_last_points(c) : (struct page_place){0};
    memcpy(r.places, c->places, c->places_n * sizeof *r.places);
    r.places_n = c->places_n;
    r.places[r.places_n++] = c->peak_place;
    r.places[r.places_n++] = end;
    SORT(r.places, r.places_n, order_curve_places);
    for (size_t i = 0; i < c->n; i++)
        refine_moment(&r, &c->moments[i], i + 1 < c->n ? c->moments[i + 1].first : c->events);
    free(end.points);
    *n = r.n;
    return r.out;
}
