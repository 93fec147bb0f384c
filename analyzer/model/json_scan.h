/* JSON read once from the front, where a tree of it all would cost a gigabyte: headers of safetensors
 * files and their indices. What it reads is what RFC 8259 says, and what serde_json takes. */
#ifndef GPUSPY_MODEL_JSON_SCAN_H
#define GPUSPY_MODEL_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_scan {
    char *at, *end;      /* strings are decoded in place */
    const char *problem; /* the first one; static */
};

/* Is it UTF-8? */
bool json_scan_utf8(const char *text, size_t n);
/* Skips blanks and `c`; false, without a problem, where something else follows. */
bool json_scan_take(struct json_scan *s, char c);
/* The same, and where something else follows that is the problem. */
bool json_scan_need(struct json_scan *s, char c);
/* A string, decoded; it stays good. It may hold NULs. */
bool json_scan_string(struct json_scan *s, const char **text, size_t *n);
/* A whole number that is not negative and has no exponent. */
bool json_scan_number(struct json_scan *s, uint64_t *n);
/* Any value. */
bool json_scan_skip(struct json_scan *s);
/* Nothing but blanks is left. */
bool json_scan_done(struct json_scan *s);
/* After '{': the next key and its colon; false at the '}' or at a problem. `first` is set before the first. */
bool json_scan_key(struct json_scan *s, bool *first, const char **key, size_t *n);

#endif
