/* The running total of a series in a bounded number of moments, collected while a run is replayed for the first time.
 *
 * A moment stands for a number of successive events, which doubles whenever there are too many moments, so that an
 * event costs O(1) and memory is bounded. The events around the peak, before each failure and at the end are also kept
 * one by one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAGE_CURVE_POINTS = 4096, /* events that are kept one by one at each of these places */
    PAGE_CURVE_PLACES = 8,    /* at most, besides the peak and the end: the first failures */
};

struct page_moment { /* bytes and ns */
    int64_t start_ns, high_ns, high, low;
    uint64_t first; /* the index of its first event */
    bool by_alloc;  /* an allocation reached `high` at high_ns, the last one of those that did */
};

struct page_point {
    int64_t ns, total;
    bool alloc;
};

struct page_place { /* successive events */
    uint64_t first;
    size_t n;
    struct page_point *points;
};

struct page_curve { /* set `most`, the rest is zero-initialised; free it with page_curve_free */
    struct page_moment *moments;
    size_t n, cap, most;         /* most: moments, an even number */
    uint64_t events, each, next; /* each: events per moment; next: the event that begins another one */
    int64_t last_ns, peak;
    uint64_t keep_at;        /* the events around the peak are kept when the event keep_at has been added */
    struct page_point *last; /* a ring of the last events */
    struct page_place peak_place, places[PAGE_CURVE_PLACES];
    size_t places_n;
};

void page_curve_begin(struct page_curve *c, int64_t ns, int64_t total, bool alloc);
void page_curve_keep_peak(struct page_curve *c);

static inline void page_moment_raise(struct page_moment *m, int64_t high, int64_t high_ns, bool alloc)
{
    if (high > m->high || (high == m->high && alloc)) {
        m->high = high;
        m->high_ns = high_ns;
        m->by_alloc = alloc;
    }
}

/* The total after an event. */
static inline void page_curve_add(struct page_curve *c, int64_t ns, int64_t total, bool alloc)
{
    const uint64_t index = c->events++;
    ns = ns < c->last_ns ? c->last_ns : ns; /* inconsistent times do not run backwards */
    if (index >= c->next) page_curve_begin(c, ns, total, alloc);
    c->last_ns = ns;
    c->last[index % PAGE_CURVE_POINTS] = (struct page_point){ns, total, alloc};
    struct page_moment *m = &c->moments[c->n - 1];
    page_moment_raise(m, total, ns, alloc);
    m->low = total < m->low ? total : m->low;
    if (alloc && total >= c->peak) {
        c->peak = total;
        c->keep_at = index + PAGE_CURVE_POINTS / 2;
    }
    if (index == c->keep_at) page_curve_keep_peak(c);
}
/* Keeps the events up to now one by one. */
void page_curve_keep_last(struct page_curve *c);
/* Returns all moments in order of time, with single events where they were kept. *n receives their number; the caller
 * frees the list. */
struct page_moment *page_curve_moments(const struct page_curve *c, size_t *n);
void page_curve_free(struct page_curve *c);
