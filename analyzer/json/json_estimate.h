/* An estimate for programs. */
#ifndef GPUSPY_JSON_ESTIMATE_H
#define GPUSPY_JSON_ESTIMATE_H

#include <jansson.h>
#include "analyzer/estimate/answer.h"

/* The whole answer; NULL where memory runs out. The caller's to decref. */
json_t *json_estimate(const struct estimate_answer *a);

#endif
