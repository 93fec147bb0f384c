/* JSON read once from the front, where a tree of it all would cost a gigabyte: headers of safetensors
 * files and their indices. What it reads is what RFC 8259 says, and what serde_json takes. */
#ifndef GPUSPY_MODEL_JSON_SCAN_H
#define GPUSPY_MODEL_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_scan {
    char *at, *end;      /* strings are decoded in place */
    const char *problem; /* the first one; static */
};

/* Is it UTF-8? */
bool model_scan_utf8(const char *text, size_t n);
/* Skips blanks and `c`; false, without a problem, where something else follows. */
bool model_scan_take(struct model_scan *s, char c);
/* The same, and where something else follows that is the problem. */
bool model_scan_expect(struct model_scan *s, char c);
/* A string, decoded; it stays good. It may hold NULs. */
bool model_scan_string(struct model_scan *s, const char **text, size_t *n);
/* A whole number that is not negative and has no exponent. */
bool model_scan_uint(struct model_scan *s, uint64_t *n);
/* Any value. */
bool model_scan_skip(struct model_scan *s);
/* Nothing but blanks is left. */
bool model_scan_is_done(struct model_scan *s);
/* After '{': the next key and its colon; false at the '}' or at a problem. `first` is set before the first. */
bool model_scan_key(struct model_scan *s, bool *first, const char **key, size_t *n);

#endif
