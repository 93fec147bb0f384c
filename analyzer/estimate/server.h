/* How much of a GPU a server makes its KV cache: vLLM takes a share of the GPU (gpu_memory_utilization), subtracts what
 * a profiling pass needed, and makes blocks of the rest. */
#ifndef GPUSPY_ESTIMATE_SERVER_H
#define GPUSPY_ESTIMATE_SERVER_H

#include "analyzer/estimate/estimate.h"

/* Of one GPU, bytes; of the fullest pipeline stage. */
struct estimate_server {
    double share, taken;               /* gpu_memory_utilization, and what it is of the GPU */
    struct estimate_interval used;     /* weights, the profiling pass, CUDA's context, NCCL */
    struct estimate_interval cache;    /* what is left; 0 where nothing is */
    double request;                    /* cache of one request of the longest length (--seq) */
    struct estimate_interval requests; /* so many of these at once: vLLM's "maximum concurrency" */
    struct estimate_interval tokens;   /* in whole blocks: vLLM's "GPU KV cache size" */
};

/* `memory`: of the GPU. False: more than 2^63 bytes somewhere, or the model has no cache. */
bool estimate_server(const struct plan *p, double memory, struct estimate_server *s);

#endif
