/* An estimate for programs. */
#ifndef GPUSPY_JSON_ESTIMATE_H
#define GPUSPY_JSON_ESTIMATE_H

#include <jansson.h>
#include "analyzer/estimate/answer.h"
#include "analyzer/estimate/recipe.h"

/* The whole answer, and what --config was read as (may be NULL); NULL where memory runs out. The caller's to decref. */
json_t *json_estimate(const struct estimate_answer *a, const struct estimate_recipe *recipe);

#endif
