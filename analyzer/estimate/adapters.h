/* Low-rank adapters. */
#ifndef GPUSPY_ESTIMATE_ADAPTERS_H
#define GPUSPY_ESTIMATE_ADAPTERS_H

#include "analyzer/estimate/estimate.h"

/* Is it one of the matrices that `target` names? */
bool estimate_adapters_is_target(enum plan_target target, const struct model_tensor *t);

/* What moves between GPUs with the same layers, before it is divided among them: parameters of the adapters, which
 * have float32, and bytes of the frozen weights as they are stored. */
#define ADAPTERS_BYTES 4.0
struct estimate_adapters_moved {
    double trained, frozen_bytes;
};
struct estimate_adapters_moved estimate_adapters_moved(const struct plan *p, uint64_t stage);

#endif
