/* What vLLM's profiling pass takes for the image tower of a model. */
#pragma once

#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/plan.h"

/* Bytes. `pass`: while the tower reads the largest items; `kept`: their pixels and its results, which are still there
 * while the language model is profiled. 0 without a tower. */
struct estimate_tower_pass {
    struct estimate_interval pass, kept;
};

void estimate_server_tower(const struct plan *p, struct estimate_interval tokens, struct estimate_interval requests,
                           struct estimate_tower_pass *out);
