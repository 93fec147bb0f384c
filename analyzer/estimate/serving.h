/* Parts of an inference estimate that others ask for: bytes on one GPU of a pipeline stage. */
#ifndef GPUSPY_SERVING_H
#define GPUSPY_SERVING_H

#include "analyzer/estimate/plan.h"

double serving_weights(const struct plan *p, uint64_t stage);
double serving_cache(const struct plan *p, uint64_t stage); /* 0 where there is none */

#endif
