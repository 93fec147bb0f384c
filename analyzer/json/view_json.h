#ifndef GPUSPY_VIEW_JSON_H
#define GPUSPY_VIEW_JSON_H

#include "analyzer/result/result.h"

/* The JSON of the contract, newline at the end. -1 on a write error. */
struct json_t;
struct json_t *gs_view_json_build(const struct gs_report *report);
int gs_view_json(const struct gs_report *report, FILE *out);
/* Of its keys those that `wanted` says yes to, and "schema"; wanted NULL: all. */
int gs_view_json_some(const struct gs_report *report, bool (*wanted)(uint64_t only, const char *key), uint64_t only,
                      FILE *out);

#endif
