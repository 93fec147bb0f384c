/* A list of times must give the same as an array, however it is thinned and however far apart the times are. */
#include "tests/cases.h"

#include "analyzer/base/times.h"

static uint64_t seed = 1;

static uint64_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static size_t halve(int64_t *list, size_t n, size_t first)
{
    size_t kept = 0;
    for (size_t i = first; i < n; i += 2) list[kept++] = list[i];
    return kept;
}

static void check(const struct times *t, const int64_t *expected, size_t n)
{
    assert_int_equal(t->n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(times_at(t, i), expected[i]);
}

static void run_of(int64_t farthest)
{
    enum { MOST = 3000 };
    int64_t expected[MOST], ns = (int64_t)(draw() % 3) << 32;
    struct times t = {0};
    size_t n = 0;
    for (int i = 0; i < 4 * MOST; i++) {
        if (n == MOST || draw() % 500 == 0) {
            size_t first = draw() % 2;
            times_halve(&t, first);
            n = halve(expected, n, first);
            check(&t, expected, n);
        }
        ns += (int64_t)draw() % farthest;
        times_add(&t, ns);
        expected[n++] = ns;
    }
    check(&t, expected, n);
    times_free(&t);
    check(&t, NULL, 0);
}

static void test_reads_as_an_array(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        run_of(1 + (int64_t)draw() % 1000);
        run_of((int64_t)1 << (20 + draw() % 16));
    }
}

static void test_thins_the_shortest(void **state)
{
    (void)state;
    for (size_t n = 0; n < 5; n++) {
        for (size_t first = 0; first < 2; first++) {
            struct times t = {0};
            int64_t expected[5];
            for (size_t i = 0; i < n; i++) {
                expected[i] = (int64_t)i << 33;
                times_add(&t, expected[i]);
            }
            times_halve(&t, first);
            size_t kept = halve(expected, n, first);
            check(&t, expected, kept);
            times_add(&t, (int64_t)9 << 33);
            assert_int_equal(times_at(&t, kept), (int64_t)9 << 33);
            times_free(&t);
        }
    }
}

CASES(test_reads_as_an_array, test_thins_the_shortest)
