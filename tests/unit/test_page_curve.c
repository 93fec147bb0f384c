/* A page's curve, compared with the list of all events that it was made of. */
#include "tests/cases.h"
#include <stdlib.h>
#include "analyzer/page/page_curve.h"

enum { MOST = 256 };

static uint64_t seed;
static uint64_t random_number(void)
{
    seed ^= seed << 13; /* xorshift64, Marsaglia 2003 */
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

struct events {
    struct page_point *points;
    size_t n, peak; /* peak: the last allocation that reached the highest total */
};

/* Totals that rise and fall, with times that are often equal; `failure`: the number of events before one. */
static struct events make_events(struct page_curve *c, size_t n, size_t failure)
{
    struct events e = {.points = calloc(n + 1, sizeof *e.points), .n = n};
    int64_t ns = 0, total = 0;
    for (size_t i = 0; i < n; i++) {
        const bool alloc = total == 0 || random_number() % 100 < 51;
        total += alloc ? 1 + (int64_t)(random_number() % 5) : -1;
        ns += (int64_t)(random_number() % 3);
        e.points[i] = (struct page_point){ns, total, alloc};
        if (alloc && total >= e.points[e.peak].total) e.peak = i;
        if (i == failure) page_curve_keep_last(c);
        page_curve_add(c, ns, total, alloc);
    }
    return e;
}

static const struct page_moment *moment_with(const struct page_moment *m, size_t n, size_t event)
{
    const struct page_moment *found = NULL;
    for (size_t i = 0; i < n && m[i].first <= event; i++) found = &m[i];
    return found;
}

static void assert_single(const struct events *e, const struct page_moment *m, size_t n, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const struct page_moment *found = moment_with(m, n, i);
        assert_int_equal(found->first, i);
        assert_int_equal(found->high, e->points[i].total);
        assert_int_equal(found->high_ns, e->points[i].ns);
    }
}

static size_t less(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

static void check_curve(size_t n, size_t failure)
{
    struct page_curve c = {.most = MOST};
    struct events e = make_events(&c, n, failure);
    size_t moments_n, at = 0, near = PAGE_CURVE_POINTS / 4;
    struct page_moment *m = page_curve_moments(&c, &moments_n);
    int64_t high = INT64_MIN, high_ns = 0;
    assert_true(moments_n <= MOST + 3 * PAGE_CURVE_POINTS + 8);
    for (size_t i = 0; i < moments_n; i++) {
        const size_t end = i + 1 < moments_n ? m[i + 1].first : n;
        assert_true(m[i].first < end && m[i].start_ns <= m[i].high_ns && m[i].low <= m[i].high);
        assert_true(i == 0 || (m[i - 1].first < m[i].first && m[i - 1].high_ns <= m[i].high_ns));
        if (m[i].high > high || (m[i].high == high && m[i].by_alloc)) {
            high = m[i].high;
            high_ns = m[i].high_ns;
        }
        while (e.points[at].ns < m[i].high_ns) at++;
        bool reached = false;
        for (size_t k = at; k < n && !reached && e.points[k].ns == m[i].high_ns; k++)
            reached = e.points[k].total == m[i].high;
        assert_true(reached);
    }
    if (n) {
        assert_int_equal(high, e.points[e.peak].total);
        assert_int_equal(high_ns, e.points[e.peak].ns);
        assert_single(&e, m, moments_n, less(e.peak, near), e.peak + near < n ? e.peak + near : n);
        assert_single(&e, m, moments_n, less(n, near), n);
        if (failure < n) assert_single(&e, m, moments_n, less(failure, near), failure);
    }
    free(m);
    free(e.points);
    page_curve_free(&c);
}

static void test_a_short_run_has_a_moment_for_each_event(void **state)
{
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        seed = 88172645463325252 + n;
        struct page_curve c = {.most = MOST};
        struct events e = make_events(&c, n, SIZE_MAX);
        size_t moments_n;
        struct page_moment *m = page_curve_moments(&c, &moments_n);
        assert_int_equal(moments_n, n);
        assert_single(&e, m, n, 0, n);
        free(m);
        free(e.points);
        page_curve_free(&c);
    }
}

static void test_the_peak_failures_and_the_end_are_exact(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        seed = 88172645463325252 * (i + 1);
        const size_t n = random_number() % 60000;
        check_curve(n, i % 3 ? random_number() % (n + 1) : SIZE_MAX);
    }
}

CASES(test_a_short_run_has_a_moment_for_each_event, test_the_peak_failures_and_the_end_are_exact)
