/* How much of a GPU a server uses for its KV cache: vLLM takes a share of the GPU (gpu_memory_utilization), subtracts
 * what a profiling pass needed, and divides the rest into blocks. */
#pragma once

#include "analyzer/estimate/estimate.h"

/* Bytes on one GPU of the fullest pipeline stage. */
struct estimate_server {
    double share, taken;               /* gpu_memory_utilization, and its bytes */
    struct estimate_interval used;     /* weights, the profiling pass, CUDA's context, NCCL */
    struct estimate_interval cache;    /* what is left, at least 0 */
    double request;                    /* cache of one request of the longest length (--seq) */
    struct estimate_interval requests; /* how many of these fit at once: vLLM's "maximum concurrency" */
    double admitted;                   /* requests in one pass: --max-num-seqs, or vLLM's default for this GPU */
    struct estimate_interval tokens;   /* in whole blocks: vLLM's "GPU KV cache size" */
};

/* `memory`: the GPU's. False: a sum exceeds 2^63 bytes, or the model has no cache. */
bool estimate_server(const struct plan *p, double memory, struct estimate_server *s);
