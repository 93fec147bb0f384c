#include "analyzer/base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "analyzer/base/text.h"

char *units_format_bytes(char out[UNITS_TEXT], uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t u = 0;

    /* 1023.995, not 1024: a value that would print as 1024.00 belongs to the next unit. */
    while (u + 1 < sizeof unit / sizeof *unit && value >= (u ? 1023.995 : 1024)) {
        value /= 1024;
        u++;
    }
    snprintf(out, UNITS_TEXT, u ? "%.2f %s" : "%.0f %s", value, unit[u]);
    return out;
}

char *units_format_bytes_signed(char out[UNITS_TEXT], int64_t bytes)
{
    uint64_t magnitude = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;

    snprintf(out, UNITS_TEXT, "%s%.*s", bytes < 0 ? "-" : bytes > 0 ? "+" : "", UNITS_TEXT - 2, UNITS_BYTES(magnitude));
    return out;
}

/* Three significant figures, without the exponent to which %.3g would switch. */
static void three_figures(char out[UNITS_TEXT], double value, const char *unit)
{
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

    snprintf(out, UNITS_TEXT, "%.*f %s", decimals, value, unit);
}

char *units_format_rate(char out[UNITS_TEXT], double rate)
{
    static const char *const unit[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    size_t u = 0;

    if (!(rate >= 0) || isinf(rate)) {
        snprintf(out, UNITS_TEXT, "?");
        return out;
    }
    while (u + 1 < sizeof unit / sizeof *unit && rate >= 999.5) {
        rate /= 1000;
        u++;
    }
    three_figures(out, rate, unit[u]);
    return out;
}

static bool timed, untimed; /* recordings that were read */

void units_note_clock(bool has_times)
{
    timed = timed || has_times;
    untimed = untimed || !has_times;
}

char *units_format_seconds(char out[UNITS_TEXT], double s)
{
    if (!(s >= 0) || s > 1e12) {
        snprintf(out, UNITS_TEXT, "?");
    } else if (untimed && !timed) {
        units_format_plural(out, (uint64_t)(s * 1e6 + 0.5), "entry", "entries");
    } else if (s == 0) {
        snprintf(out, UNITS_TEXT, "0 s");
    } else if (s < 0.5e-9) {
        snprintf(out, UNITS_TEXT, "<1 ns");
    } else if (s < 999.5e-9) {
        snprintf(out, UNITS_TEXT, "%.0f ns", s * 1e9);
    } else if (s < 999.5e-6) {
        three_figures(out, s * 1e6, "us");
    } else if (s < 999.5e-3) {
        three_figures(out, s * 1e3, "ms");
    } else if (s < 59.95) {
        three_figures(out, s, "s");
    } else if (s < 3599.5) {
        uint64_t whole = (uint64_t)(s + 0.5);
        snprintf(out, UNITS_TEXT, "%u min %02u s", (unsigned)(whole / 60), (unsigned)(whole % 60));
    } else if (s < 86370) {
        unsigned minutes = (unsigned)(s / 60 + 0.5);
        snprintf(out, UNITS_TEXT, "%u h %02u min", minutes / 60, minutes % 60);
    } else {
        uint64_t hours = (uint64_t)(s / 3600 + 0.5);
        snprintf(out, UNITS_TEXT, "%llu d %u h", (unsigned long long)(hours / 24), (unsigned)(hours % 24));
    }
    return out;
}

uint64_t units_whole(double n)
{
    if (!(n > 0)) return 0;
    return n < 0x1p64 ? (uint64_t)n : UINT64_MAX;
}

char *units_format_count(char out[UNITS_TEXT], uint64_t n)
{
    char digits[UNITS_TEXT];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *to = out;

    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return out;
}

char *units_format_mean(char out[UNITS_TEXT], double n)
{
    if (n >= 999.5) return units_format_count(out, units_whole(n + 0.5));
    snprintf(out, UNITS_TEXT, "%.3g", n);
    return out;
}

char *units_format_plural(char out[UNITS_TEXT], uint64_t n, const char *one, const char *many)
{
    bool plain = n == 1 || !many;

    snprintf(out, UNITS_TEXT, "%.26s %.11s%s", UNITS_COUNT(n), plain ? one : many, n != 1 && !many ? "s" : "");
    return out;
}

char *units_format_share(char out[UNITS_TEXT], double share)
{
    double percent = share * 100;

    if (!(percent >= 0) || isinf(percent))
        snprintf(out, UNITS_TEXT, "?");
    else if (percent == 0)
        snprintf(out, UNITS_TEXT, "0 %%");
    else if (percent < 0.1)
        snprintf(out, UNITS_TEXT, "<0.1 %%");
    else
        snprintf(out, UNITS_TEXT, percent < 9.95 ? "%.1f %%" : "%.0f %%", percent);
    return out;
}

/* An exact decimal number without a sign: digits · 10^exponent. */
struct decimal {
    unsigned __int128 digits;
    int exponent;
};

static bool reject_number(char why[UNITS_WHY], const char *reason)
{
    snprintf(why, UNITS_WHY, "%s", reason);
    return false;
}

/* Digits with an optional point; '_' only between digits. More than 30 significant digits are rejected: no unit here
 * can use them, and the product must fit into 128 bits. */
static bool read_digits(const char **text, struct decimal *d, char why[UNITS_WHY])
{
    const char *p = *text;
    int significant = 0, seen = 0;
    bool point = false;

    for (;; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (*p == '_' && p > *text && text_is_digit(p[-1]) && text_is_digit(p[1])) continue;
        if (!text_is_digit(*p)) break;
        seen++;
        if (significant || *p != '0') significant++;
        if (significant > 30) return reject_number(why, "has too many digits");
        d->digits = d->digits * 10 + (unsigned)(*p - '0');
        if (point) d->exponent--;
    }
    if (!seen) return reject_number(why, "is not a number");
    *text = p;
    return true;
}

static bool read_decimal(const char **text, struct decimal *d, char why[UNITS_WHY])
{
    const char *p = *text;

    *d = (struct decimal){0};
    if (!*p) return reject_number(why, "is empty");
    if (*p == '-') return reject_number(why, "is negative");
    if (!read_digits(&p, d, why)) return false;
    /* "1e9", but not the E of a unit: an exponent has digits. */
    const char *e = p;
    if (*e == 'e' || *e == 'E') {
        bool negative = e[1] == '-';
        int exponent = 0;
        e += 1 + (e[1] == '-' || e[1] == '+');
        if (!text_is_digit(*e)) return reject_number(why, "is not a number");
        for (; text_is_digit(*e); e++) exponent = exponent > 9999 ? exponent : exponent * 10 + (*e - '0');
        d->exponent += negative ? -exponent : exponent;
        p = e;
    }
    *text = p;
    return true;
}

struct suffix {
    const char *text;
    int ten, two; /* powers */
};

static const struct suffix count_suffixes[] = {
    {"", 0, 0}, {"k", 3, 0}, {"M", 6, 0}, {"G", 9, 0}, {"B", 9, 0}, {"T", 12, 0}, {0},
};
static const struct suffix byte_suffixes[] = {
    {"B", 0, 0},    {"k", 0, 10},   {"M", 0, 20},   {"G", 0, 30},  {"T", 0, 40},  {"KiB", 0, 10},
    {"MiB", 0, 20}, {"GiB", 0, 30}, {"TiB", 0, 40}, {"Ki", 0, 10}, {"Mi", 0, 20}, {"Gi", 0, 30},
    {"Ti", 0, 40},  {"kB", 3, 0},   {"MB", 6, 0},   {"GB", 9, 0},  {"TB", 12, 0}, {0},
};

/* Per second, after "/s" or "ps" has been removed. A link's "G" is 10^9, as vendors count. */
static const struct suffix rate_suffixes[] = {
    {"", 0, 0},     {"B", 0, 0},    {"k", 3, 0},    {"K", 3, 0},  {"M", 6, 0},  {"G", 9, 0},
    {"T", 12, 0},   {"kB", 3, 0},   {"KB", 3, 0},   {"MB", 6, 0}, {"GB", 9, 0}, {"TB", 12, 0},
    {"KiB", 0, 10}, {"MiB", 0, 20}, {"GiB", 0, 30}, {0},
};
/* Bits: an eighth is 125/1000. */
static const struct suffix bit_suffixes[] = {
    {"b", -3, 0}, {"bit", -3, 0}, {"kb", 0, 0}, {"kbit", 0, 0}, {"Mb", 3, 0}, {"Mbit", 3, 0},
    {"Gb", 6, 0}, {"Gbit", 6, 0}, {"Tb", 9, 0}, {"Tbit", 9, 0}, {0},
};
static const struct suffix time_suffixes[] = {
    {"ns", 0, 0}, {"us", 3, 0}, {"ms", 6, 0}, {"s", 9, 0}, {0},
};

/* digits · 10^exponent · 2^two as a 64-bit number. */
static bool scale_decimal(struct decimal d, int two, bool whole, uint64_t *out, char why[UNITS_WHY])
{
    const unsigned __int128 limit = UINT64_MAX;

    if (!d.digits) {
        *out = 0;
        return true;
    }
    while (d.exponent < 0 && d.digits % 10 == 0) {
        d.digits /= 10;
        d.exponent++;
    }
    for (; d.exponent > 0; d.exponent--) {
        if (d.digits > limit) return reject_number(why, "is too large");
        d.digits *= 10;
    }
    for (; two > 0; two--) {
        if (d.digits >> 126) return reject_number(why, "is too large");
        d.digits *= 2;
    }
    for (; d.exponent < 0 && d.digits; d.exponent++) {
        if (whole && d.digits % 10) return reject_number(why, "is not a whole number");
        d.digits /= 10;
    }
    if (d.digits > limit) return reject_number(why, "is too large");
    *out = (uint64_t)d.digits;
    return true;
}

static bool parse_with_suffix(const char *text, const struct suffix *suffixes, bool whole, uint64_t *out,
                              char why[UNITS_WHY])
{
    struct decimal d;
    const char *rest = text;

    if (!read_decimal(&rest, &d, why)) return false;
    rest += *rest == ' ' && rest[1]; /* "5 GiB", as gpuspy prints sizes */
    for (const struct suffix *s = suffixes; s->text; s++) {
        if (strcasecmp(rest, s->text) == 0) {
            d.exponent += s->ten;
            return scale_decimal(d, s->two, whole, out, why);
        }
    }
    snprintf(why, UNITS_WHY, "ends in '%.20s', which is not a unit", rest);
    return false;
}

bool units_parse_count(const char *text, uint64_t *out, char why[UNITS_WHY])
{
    return parse_with_suffix(text, count_suffixes, true, out, why);
}

bool units_parse_bytes(const char *text, uint64_t *out, char why[UNITS_WHY])
{
    struct decimal d;
    const char *rest = text;

    if (read_decimal(&rest, &d, why) && !*rest) {
        if (d.digits) return reject_number(why, "has no unit");
        *out = 0;
        return true;
    }
    return parse_with_suffix(text, byte_suffixes, false, out, why);
}

bool units_parse_duration(const char *text, uint64_t *out, char why[UNITS_WHY])
{
    struct decimal d;
    const char *rest = text;

    if (read_decimal(&rest, &d, why) && !*rest) return reject_number(why, "has no unit");
    return parse_with_suffix(text, time_suffixes, false, out, why);
}

#define RATE_LEAST 1000000 /* bytes per second: no link is slower, so that a smaller number lacks its unit */

bool units_parse_rate(const char *text, uint64_t *out, char why[UNITS_WHY])
{
    char unit[16];
    struct decimal d;
    const char *rest = text;

    if (!read_decimal(&rest, &d, why)) return false;
    size_t length = strlen(rest);
    if (!length && d.digits && scale_decimal(d, 0, false, out, why) && *out < RATE_LEAST)
        return reject_number(why, "has no unit");
    if (length >= 2 && (strcmp(rest + length - 2, "/s") == 0 || strcmp(rest + length - 2, "ps") == 0)) length -= 2;
    if (length < sizeof unit) {
        snprintf(unit, sizeof unit, "%.*s", (int)length, rest);
        for (const struct suffix *s = rate_suffixes; s->text; s++) {
            if (strcmp(unit, s->text) == 0) {
                d.exponent += s->ten;
                return scale_decimal(d, s->two, false, out, why);
            }
        }
        for (const struct suffix *s = bit_suffixes; s->text; s++) {
            if (strcmp(unit, s->text) == 0) {
                d.digits *= 125;
                d.exponent += s->ten;
                return scale_decimal(d, 0, false, out, why);
            }
        }
    }
    snprintf(why, UNITS_WHY, "ends in '%.20s', which is not a unit", rest);
    return false;
}

const char *units_read_decimal(const char *text, double *out)
{
    double whole = 0, scale = 1;
    size_t digits = 0;
    bool point = false;
    for (; isdigit((unsigned char)*text) || (*text == '.' && !point); text++) {
        point = point || *text == '.';
        if (*text == '.') continue;
        digits++;
        whole = whole * 10 + (*text - '0');
        if (point) scale *= 10;
    }
    *out = whole / scale;
    return digits && isfinite(*out) ? text : NULL;
}

bool units_parse_seconds(const char *text, int64_t *ns)
{
    double s;
    const char *rest = units_read_decimal(text, &s);
    if (!rest || *rest || !(s < 9e9)) return false;
    *ns = llround(s * 1e9);
    return true;
}
