#include "analyzer/model/json_scan.h"
#include "schema/utf8.h"

#include <string.h>

enum { DEPTH_MAX = 128 }; /* the same limit as serde_json */

static bool fail_scan(struct model_scan *s, const char *problem)
{
    if (!s->problem) s->problem = problem;
    s->at = s->end;
    return false;
}

static void skip_blanks(struct model_scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t')) s->at++;
}

bool model_scan_utf8(const char *text, size_t n)
{
    for (size_t i = 0, length; i < n; i += length)
        if (!(length = gs_utf8_decode(text + i, n - i, NULL))) return false;
    return true;
}

bool model_scan_take(struct model_scan *s, char c)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

bool model_scan_expect(struct model_scan *s, char c)
{
    if (model_scan_take(s, c)) return true;
    return fail_scan(s, s->at == s->end ? "ends in the middle"
                        : c == '{'      ? "has another value where an object is expected"
                        : c == '['      ? "has another value where a list is expected"
                                        : "is not JSON");
}

static bool scan_hex4(struct model_scan *s, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = s->at < s->end ? *s->at++ : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return fail_scan(s, "has a bad escape in a string");
        *out = *out << 4 | (unsigned)digit;
    }
    return true;
}

/* After a backslash. The decoded text is never longer than the source. */
static char *scan_escape(struct model_scan *s, char *to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char c = s->at < s->end ? *s->at++ : 0;
    const char *place = c ? strchr(from, c) : NULL;
    unsigned high, low;

    if (place) {
        *to++ = into[place - from];
        return to;
    }
    if (c != 'u')
        fail_scan(s, "has a bad escape in a string");
    else if (scan_hex4(s, &high)) {
        if (high < 0xd800 || high > 0xdfff) return to + gs_utf8_encode(high, to);
        if (high < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u') {
            s->at += 2;
            if (scan_hex4(s, &low) && low >= 0xdc00 && low <= 0xdfff)
                return to + gs_utf8_encode(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), to);
        }
        fail_scan(s, "has a bad escape in a string");
    }
    return to;
}

bool model_scan_string(struct model_scan *s, const char **text, size_t *n)
{
    char *to;

    if (!model_scan_take(s, '"'))
        return fail_scan(s, s->at == s->end ? "ends in the middle" : "has another value where a string is expected");
    *text = to = s->at;
    while (s->at < s->end && *s->at != '"') {
        const unsigned char c = (unsigned char)*s->at++;
        if (c < 0x20) return fail_scan(s, "has a control character in a string");
        if (c == '\\')
            to = scan_escape(s, to);
        else
            *to++ = (char)c;
    }
    if (s->at == s->end) return fail_scan(s, "ends in the middle");
    s->at++;
    *n = (size_t)(to - *text);
    return true;
}

bool model_scan_uint(struct model_scan *s, uint64_t *n)
{
    skip_blanks(s);
    const char *from = s->at;
    *n = 0;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        const unsigned digit = (unsigned)(*s->at++ - '0');
        if (__builtin_mul_overflow(*n, 10, n) || __builtin_add_overflow(*n, digit, n))
            return fail_scan(s, "has a number of 2^64 or more");
    }
    if (s->at == from || (*from == '0' && s->at - from > 1) ||
        (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E')))
        return fail_scan(s,
                         from == s->end ? "ends in the middle" : "has another value where a whole number is expected");
    return true;
}

static bool scan_digits(struct model_scan *s)
{
    const char *from = s->at;

    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    return s->at > from;
}

static bool scan_one_of(struct model_scan *s, const char *set)
{
    if (s->at == s->end || !*s->at || !strchr(set, *s->at)) return false;
    s->at++;
    return true;
}

static bool skip_number(struct model_scan *s)
{
    scan_one_of(s, "-");
    const bool zero = s->at < s->end && *s->at == '0';
    const char *from = s->at;
    if (!scan_digits(s) || (zero && s->at - from > 1)) return false;
    if (scan_one_of(s, ".") && !scan_digits(s)) return false;
    if (scan_one_of(s, "eE")) {
        scan_one_of(s, "+-");
        return scan_digits(s);
    }
    return true;
}

static bool skip_plain(struct model_scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->at) >= n && memcmp(s->at, words[i], n) == 0) {
            s->at += n;
            return true;
        }
    }
    return skip_number(s) || fail_scan(s, s->at == s->end ? "ends in the middle" : "is not JSON");
}

static bool skip_at(struct model_scan *s, int depth)
{
    const char *text;
    size_t n;
    bool first = true;

    if (depth > DEPTH_MAX) return fail_scan(s, "is nested too deeply");
    skip_blanks(s);
    if (s->at < s->end && *s->at == '"') return model_scan_string(s, &text, &n);
    if (model_scan_take(s, '{')) {
        while (model_scan_key(s, &first, &text, &n)) skip_at(s, depth + 1);
        return !s->problem;
    }
    if (model_scan_take(s, '[')) {
        if (model_scan_take(s, ']')) return true;
        do {
            if (!skip_at(s, depth + 1)) return false;
        } while (model_scan_take(s, ','));
        return model_scan_expect(s, ']');
    }
    return skip_plain(s);
}

bool model_scan_skip(struct model_scan *s)
{
    return skip_at(s, 0);
}

bool model_scan_is_done(struct model_scan *s)
{
    skip_blanks(s);
    return !s->problem && (s->at == s->end || fail_scan(s, "continues after its end"));
}

bool model_scan_key(struct model_scan *s, bool *first, const char **key, size_t *n)
{
    if (s->problem) return false;
    if (model_scan_take(s, '}')) return false;
    if (!*first && !model_scan_expect(s, ',')) return false;
    *first = false;
    return model_scan_string(s, key, n) && model_scan_expect(s, ':');
}
