/* gpuspy top's curve: levels computed from changes, and when a growth is certain. */
#include "tests/cases.h"
#include "analyzer/top/curve.h"

#define S 1000000000ll

static void levels_are_those_of_the_changes(void **state)
{
    struct top_curve c = {0};
    struct top_span p[8];
    (void)state;
    for (int i = 0; i < 100; i++) { /* +10 at each full second, -9 half a second later */
        top_curve_add(&c, i * S, 10);
        top_curve_add(&c, i * S + S / 2, -9);
    }
    assert_int_equal(top_curve_read(&c, 100 * S - 1, 100, 0, 5, p, 8), 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(p[i].high, 60 + 5 * i + 14);
        assert_int_equal(p[i].low, 60 + 5 * i);
    }
    assert_true(top_curve_growth(p, 8) > 4.99 && top_curve_growth(p, 8) < 5.01);
    assert_int_equal(top_curve_read(&c, 100 * S - 1, 100, 89 * S, 5, p, 8), 2);
    assert_int_equal(top_curve_read(&c, 100 * S - 1, 100, 200 * S, 5, p, 8), 0);
    top_curve_clear(&c);
}

static void changes_older_than_five_minutes_are_dropped(void **state)
{
    struct top_curve c = {0};
    struct top_span p[100];
    (void)state;
    top_curve_add(&c, 0, 7);
    top_curve_add(&c, 1000 * S, 5);
    top_curve_add(&c, 2 * S, 3);
    assert_int_equal(top_curve_read(&c, 1000 * S, 15, 0, 5, p, 100), TOP_CURVE_S / 5);
    assert_int_equal(p[0].low, 10);
    top_curve_add(&c, INT64_MAX, INT64_MAX);
    top_curve_add(&c, INT64_MAX, INT64_MAX);
    assert_int_equal(top_curve_read(&c, INT64_MAX, INT64_MAX, 0, 300, p, 100), 1);
    top_curve_clear(&c);
    assert_int_equal(top_curve_read(&c, 10 * S, 4, 0, 5, p, 100), 2);
    assert_int_equal(p[1].high, 4);
}

static double growth(const int64_t *high, size_t n)
{
    struct top_span p[16];
    for (size_t i = 0; i < n; i++) p[i] = (struct top_span){0, high[i]};
    return top_curve_growth(p, n);
}

static void growth_is_certain_or_not_reported(void **state)
{
    const int64_t two[] = {1, 2}, line[] = {10, 20, 30, 40}, noise[] = {10, 90, 20, 70, 30, 80, 20, 90},
                  falls[] = {40, 30, 20, 10}, ended[] = {10, 20, 30, 40, 40}, flat[] = {5, 5, 5, 5},
                  rough[] = {10, 21, 29, 42, 50, 61};
    (void)state;
    assert_true(growth(two, 2) == 0 && growth(noise, 8) == 0 && growth(falls, 4) == 0 && growth(ended, 5) == 0 &&
                growth(flat, 4) == 0);
    assert_true(growth(line, 4) == 10 && growth(rough, 6) > 9 && growth(rough, 6) < 11);
}

CASES(levels_are_those_of_the_changes, changes_older_than_five_minutes_are_dropped, growth_is_certain_or_not_reported)
