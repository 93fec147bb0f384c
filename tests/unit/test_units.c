/* Numbers in both directions: printed and parsed. */
#include "tests/cases.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "analyzer/base/units.h"

static void bytes_are_binary_with_two_decimals(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {512, "512 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {1048575, "1.00 MiB"}, /* not "1024.00 KiB" */
        {UINT64_C(16000000000), "14.90 GiB"},
        {UINT64_C(1) << 30, "1.00 GiB"},
        {UINT64_MAX, "16.00 EiB"},
    };
    char out[UNITS_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(units_format_bytes(out, rows[i].bytes), rows[i].text);
    assert_string_equal(units_format_bytes_signed(out, -1536), "-1.50 KiB");
    assert_string_equal(units_format_bytes_signed(out, 1536), "+1.50 KiB");
    assert_string_equal(units_format_bytes_signed(out, 0), "0 B");
    assert_string_equal(units_format_bytes_signed(out, INT64_MIN), "-8.00 EiB");
}

static void times_have_three_figures(void **state)
{
    static const struct {
        double s;
        const char *text;
    } rows[] = {
        {0, "0 s"},
        {1e-10, "<1 ns"},
        {830e-9, "830 ns"},
        {12.5e-6, "12.5 us"},
        {0.875, "875 ms"},
        {0.9996, "1.00 s"},
        {1.534, "1.53 s"},
        {59.9, "59.9 s"},
        {59.96, "1 min 00 s"},
        {123, "2 min 03 s"},
        {3599.6, "1 h 00 min"},
        {3720, "1 h 02 min"},
        {86369, "23 h 59 min"},
        {86370, "1 d 0 h"},
        {263000, "3 d 1 h"},
        {1e9, "11574 d 2 h"},
        {-1, "?"},
        {NAN, "?"},
        {INFINITY, "?"},
    };
    char out[UNITS_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(units_format_seconds(out, rows[i].s), rows[i].text);
}

static void whole_parts_stay_in_their_range(void **state)
{
    (void)state;
    assert_true(units_whole(7.9) == 7);
    assert_true(units_whole(-1) == 0);
    assert_true(units_whole(NAN) == 0);
    assert_true(units_whole(INFINITY) == UINT64_MAX);
    assert_true(units_whole(0x1p64) == UINT64_MAX);
    assert_true(units_whole(0x1p63) == UINT64_C(1) << 63);
}

static void counts_rates_and_shares(void **state)
{
    char out[UNITS_TEXT];

    (void)state;
    assert_string_equal(units_format_count(out, 0), "0");
    assert_string_equal(units_format_count(out, 999), "999");
    assert_string_equal(units_format_count(out, 1000), "1,000");
    assert_string_equal(units_format_count(out, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(units_format_plural(out, 0, "event", NULL), "0 events");
    assert_string_equal(units_format_plural(out, 1, "event", NULL), "1 event");
    assert_string_equal(units_format_plural(out, 1234, "event", NULL), "1,234 events");
    assert_string_equal(units_format_plural(out, 1, "event was", "events were"), "1 event was");
    assert_string_equal(units_format_plural(out, UINT64_MAX, "event was", "events were"),
                        "18,446,744,073,709,551,615 events were");
    assert_string_equal(units_format_rate(out, 12.4e9), "12.4 GB/s");
    assert_string_equal(units_format_rate(out, 999.9e6), "1.00 GB/s");
    assert_string_equal(units_format_rate(out, NAN), "?");
    assert_string_equal(units_format_mean(out, 4.958), "4.96");
    assert_string_equal(units_format_mean(out, 2677.2), "2,677");
    assert_string_equal(units_format_share(out, 0), "0 %");
    assert_string_equal(units_format_share(out, 0.0004), "<0.1 %");
    assert_string_equal(units_format_share(out, 0.042), "4.2 %");
    assert_string_equal(units_format_share(out, 0.374), "37 %");
    assert_string_equal(units_format_share(out, 1.5), "150 %");
}

static void counts_are_read_exactly(void **state)
{
    static const struct {
        const char *text;
        uint64_t n;
    } rows[] = {
        {"0", 0},
        {"1", 1},
        {"1000000", 1000000},
        {"1_000_000", 1000000},
        {"1e9", 1000000000},
        {"1E9", 1000000000},
        {"1e+9", 1000000000},
        {"1.5e3", 1500},
        {"7B", UINT64_C(7000000000)},
        {"6.7B", UINT64_C(6700000000)},
        {"0.1k", 100},
        {"350M", 350000000},
        {"350m", 350000000},
        {"7b", UINT64_C(7000000000)},
        {"125k", 125000},
        {"2T", UINT64_C(2000000000000)},
        {"1500e-1", 150},
        {"1.0", 1},
        {"0e400", 0},
        {"000007", 7},
        {"18446744073709551615", UINT64_MAX},
        {".5k", 500},
        {"5.", 5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[UNITS_WHY] = "";
        uint64_t n = 42;
        if (!units_parse_count(rows[i].text, &n, why)) fail_msg("'%s' %s", rows[i].text, why);
        if (n != rows[i].n) fail_msg("'%s' was read as %" PRIu64, rows[i].text, n);
    }
}

static void invalid_counts_are_refused(void **state)
{
    static const char *const rows[][2] = {
        {"", "is empty"},
        {"-1", "is negative"},
        {"-0", "is negative"},
        {"abc", "is not a number"},
        {"nan", "is not a number"},
        {"inf", "is not a number"},
        {" 1", "is not a number"},
        {"+1", "is not a number"},
        {".", "is not a number"},
        {"1e", "is not a number"},
        {"1e+", "is not a number"},
        {"0x10", "ends in 'x10', which is not a unit"},
        {"1 ", "ends in ' ', which is not a unit"},
        {"1e9x", "ends in 'x', which is not a unit"},
        {"1..5", "ends in '.5', which is not a unit"},
        {"1_", "ends in '_', which is not a unit"},
        {"1,000", "ends in ',000', which is not a unit"},
        {"1.5", "is not a whole number"},
        {"1e-1", "is not a whole number"},
        {"1e400", "is too large"},
        {"1e99999999999999999999", "is too large"},
        {"18446744073709551616", "is too large"},
        {"1e30", "is too large"},
        {"1234567890123456789012345678901", "has too many digits"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[UNITS_WHY] = "";
        uint64_t n = 42;
        if (units_parse_count(rows[i][0], &n, why)) fail_msg("'%s' was read as %" PRIu64, rows[i][0], n);
        assert_string_equal(why, rows[i][1]);
        assert_int_equal(n, 42);
    }
}

static void sizes_know_both_kinds_of_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"0.0", 0},
        {"1024B", 1024},
        {"1024b", 1024},
        {"1gib", 1 << 30},
        {"1 GiB", 1 << 30},
        {"1gB", 1000000000},
        {"1KiB", 1024},
        {"1kB", 1000},
        {"24GiB", UINT64_C(24) << 30},
        {"24G", UINT64_C(24) << 30},
        {"24GB", UINT64_C(24000000000)},
        {"1.5MiB", 1572864},
        {"0.3KiB", 307},
        {"1e3B", 1000},
        {"16777215TiB", UINT64_C(16777215) << 40},
    };
    static const char *const bad[] = {"",       "-1GiB", "GiB",         "10",      "1e3",
                                      "1  GiB", "1 ",    "16777216TiB", "1e30GiB", "1GiBx"};
    char why[UNITS_WHY];
    uint64_t n;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!units_parse_bytes(rows[i].text, &n, why)) fail_msg("'%s' %s", rows[i].text, why);
        if (n != rows[i].bytes) fail_msg("'%s' was read as %" PRIu64, rows[i].text, n);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (units_parse_bytes(bad[i], &n, why)) fail_msg("'%s' was read as %" PRIu64, bad[i], n);
}

static void rates_know_bits_and_bytes(void **state)
{
    const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"300GB/s", 300000000000},  {"300G", 300000000000},      {"32e9", 32000000000},
        {"400Gb/s", 50000000000},   {"400Gbit/s", 50000000000},  {"400Gbps", 50000000000},
        {"25GBps", 25000000000},    {"1GiB/s", 1 << 30},         {"8b/s", 1},
        {"1.8TB/s", 1800000000000}, {"2039GB/s", 2039000000000}, {"5B", 5},
    };
    const char *const bad[] = {"",         "300",   "-1GB/s", "GB/s",
                               "300 GB/s", "3GB/h", "nan",    "inf",
                               "1e30TB/s", "3GBs",  "3B/s/s", "1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                               "0x10"};
    char why[UNITS_WHY];
    uint64_t n = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!units_parse_rate(rows[i].text, &n, why)) fail_msg("'%s' %s", rows[i].text, why);
        if (n != rows[i].bytes) fail_msg("'%s' was read as %" PRIu64, rows[i].text, n);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (units_parse_rate(bad[i], &n, why)) fail_msg("'%s' was read as %" PRIu64, bad[i], n);
}

static void times_have_a_unit(void **state)
{
    char why[UNITS_WHY];
    uint64_t n = 0;

    assert_true(units_parse_duration("1.2ms", &n, why) && n == 1200000);
    assert_true(units_parse_duration("830us", &n, why) && n == 830000);
    assert_true(units_parse_duration("3s", &n, why) && n == 3000000000);
    assert_true(units_parse_duration("7ns", &n, why) && n == 7);
    assert_false(units_parse_duration("3", &n, why));
    assert_string_equal(why, "has no unit");
    assert_false(units_parse_duration("-3ms", &n, why));
    assert_false(units_parse_duration("nan", &n, why));
    assert_false(units_parse_duration("3h", &n, why));
    assert_false(units_parse_duration("1e20s", &n, why));
}

static void decimals_are_plain(void **state)
{
    double n = 0;

    assert_string_equal(units_read_decimal("12.5%", &n), "%");
    assert_true(n == 12.5);
    assert_string_equal(units_read_decimal(".5", &n), "");
    assert_true(n == 0.5);
    assert_string_equal(units_read_decimal("0x10", &n), "x10");
    assert_string_equal(units_read_decimal("1e3", &n), "e3");
    assert_string_equal(units_read_decimal("1.2.3", &n), ".3");
    assert_null(units_read_decimal("", &n));
    assert_null(units_read_decimal(".", &n));
    assert_null(units_read_decimal("-1", &n));
    assert_null(units_read_decimal("nan", &n));
}

CASES(bytes_are_binary_with_two_decimals, times_have_three_figures, whole_parts_stay_in_their_range,
      counts_rates_and_shares, counts_are_read_exactly, invalid_counts_are_refused, sizes_know_both_kinds_of_units,
      rates_know_bits_and_bytes, times_have_a_unit, decimals_are_plain)
