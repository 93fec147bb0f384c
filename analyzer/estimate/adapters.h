/* Adapters beside frozen weights. */
#pragma once

#include "analyzer/estimate/estimate.h"

/* What moves between GPUs with the same layers, before it is divided among them: parameters of the adapters, which
 * have float32, and bytes of the frozen weights as they are stored. */
#define ADAPTERS_BYTES 4.0
struct estimate_adapters_moved {
    double trained, frozen_bytes;
};
struct estimate_adapters_moved estimate_adapters_moved(const struct plan *p, uint64_t stage);
