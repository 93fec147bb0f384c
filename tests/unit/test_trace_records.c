/* Records are sorted equally in memory and in parts on the disk. */
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analyzer/import/trace_records.h"

static uint64_t state;

static uint64_t any(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void fill(struct import_records *s, uint64_t seed, size_t n)
{
    size_t since = 0; /* added since the last two were dropped */
    state = seed;
    for (size_t i = 0; i < n; i++, since++) {
        struct import_trace_record *r = import_records_add(s);
        r->at_ns = (int64_t)any(n / 2 + 1) - 5;
        r->duration_ns = (int64_t)any(4) - 1;
        r->bytes = (int64_t)i;
        if (any(10) == 0 && since > 2) {
            assert_int_equal(import_records_last(s, 0)->bytes, i);
            assert_non_null(import_records_last(s, 1));
            import_records_drop(s, 2);
            since = 0;
        }
    }
}

static void change(void *count, struct import_trace_record *r)
{
    r->a = (uint32_t)++ * (uint64_t *)count;
}

static void compare(uint64_t seed, size_t n, size_t held)
{
    char path[] = "/tmp/gpuspy-records-XXXXXX";
    uint64_t seen = 0, seen_in_pieces = 0;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct import_records *whole = import_records_new(path, SIZE_MAX), *pieces = import_records_new(path, held);
    fill(whole, seed, n);
    fill(pieces, seed, n);
    assert_int_equal(import_records_count(whole), import_records_count(pieces));
    assert_true(import_records_sort(whole, change, &seen) && import_records_sort(pieces, change, &seen_in_pieces));
    assert_int_equal(seen, import_records_count(whole));
    int64_t last = INT64_MIN;
    for (uint64_t i = 0; i <= seen; i++) {
        const struct import_trace_record *a = import_records_next(whole), *b = import_records_next(pieces);
        assert_true((a != NULL) == (i < seen) && (b != NULL) == (i < seen));
        if (!a) break;
        assert_true(a->at_ns >= last && a->a == i + 1);
        assert_memory_equal(a, b, sizeof *a);
        last = a->at_ns;
    }
    assert_int_equal(import_records_error(pieces), 0);
    import_records_free(whole);
    import_records_free(pieces);
    unlink(path);
}

static void in_pieces(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        compare(seed, 5000, 3 + seed * 7);
        compare(seed, seed, 3);
    }
    compare(1, 100000, 1000); /* more than is read from each part at once */
}

static void where_no_file_can_be(void **unused)
{
    (void)unused;
    uint64_t seen = 0;
    struct import_records *s = import_records_new("/proc/no/such/folder", 10);
    fill(s, 1, 1000);
    assert_false(import_records_sort(s, change, &seen));
    assert_true(import_records_error(s) != 0);
    import_records_free(s);
}

CASES(in_pieces, where_no_file_can_be)
