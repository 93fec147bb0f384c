/* Reads JSON in one pass, because a tree of the largest files would take a gigabyte: headers of safetensors files and
 * their indices. Accepts what RFC 8259 and serde_json accept. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_scan {
    char *at, *end;      /* strings are decoded in place */
    const char *problem; /* the first problem; static */
};

bool model_scan_utf8(const char *text, size_t n);
/* Skips blanks and `c`; false, without a problem, if something else follows. */
bool model_scan_take(struct model_scan *s, char c);
/* The same, but it is a problem if something else follows. */
bool model_scan_expect(struct model_scan *s, char c);
/* Decodes a string, which stays valid and may contain NULs. */
bool model_scan_string(struct model_scan *s, const char **text, size_t *n);
/* A whole number that is not negative and has no exponent. */
bool model_scan_uint(struct model_scan *s, uint64_t *n);
/* Skips a value of any type. */
bool model_scan_skip(struct model_scan *s);
/* Whether only blanks are left. */
bool model_scan_is_done(struct model_scan *s);
/* After '{': the next key and its colon; false at the '}' or after a problem. The caller sets `first` before the first
 * key. */
bool model_scan_key(struct model_scan *s, bool *first, const char **key, size_t *n);
