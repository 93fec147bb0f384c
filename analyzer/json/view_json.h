#pragma once

#include "analyzer/result/result.h"

/* The JSON of `gpuspy report --json`. The caller owns the reference. */
struct json_t;
struct json_t *json_report_build(const struct result_report *report);
/* Writes it as text, with a newline at the end: the keys that `is_chosen` accepts, and "schema"; NULL: all keys. -1: a
 * write error. */
int json_report_some(const struct result_report *report, bool (*is_chosen)(uint64_t only, const char *key),
                     uint64_t only, FILE *out);
