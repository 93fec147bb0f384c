#ifndef GPUSPY_VIEW_JSON_H
#define GPUSPY_VIEW_JSON_H

#include "analyzer/result/result.h"

/* The JSON of the contract. */
struct json_t;
struct json_t *json_report_build(const struct result_report *report);
/* The same as text, newline at the end. -1 on a write error. Of its keys those that `is_chosen` accepts, and "schema";
 * NULL: all. */
int json_report_some(const struct result_report *report, bool (*is_chosen)(uint64_t only, const char *key),
                     uint64_t only, FILE *out);

#endif
