/* The GPUs that estimates know: gpus.def, and the names that people use for them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a GPU computes with. RATE(symbol, word, bytes per element, meaning): all without sparsity. */
#define GPU_RATES(RATE)                                                              \
    RATE(FP64, "fp64", 8, "FP64 on the ordinary cores")                              \
    RATE(FP64_TENSOR, "fp64-tensor", 8, "FP64 on tensor cores")                      \
    RATE(FP32, "fp32", 4, "FP32 on the ordinary cores")                              \
    RATE(FP16_PLAIN, "fp16-plain", 2, "FP16 on the ordinary cores, no tensor cores") \
    RATE(TF32, "tf32", 4, "TF32 on tensor cores: float32 matmuls, if allowed")       \
    RATE(FP16, "fp16", 2, "FP16 on tensor cores, accumulated in FP32")               \
    RATE(BF16, "bf16", 2, "BF16 on tensor cores, accumulated in FP32")               \
    RATE(FP8, "fp8", 1, "FP8 on tensor cores")                                       \
    RATE(INT8, "int8", 1, "INT8 on tensor cores")                                    \
    RATE(FP4, "fp4", 0.5, "FP4 on tensor cores")
#define GPU_RATE(symbol, word, bytes, what) GPU_##symbol,
enum estimate_gpu_rate { GPU_RATES(GPU_RATE) GPU_RATES_N };
#undef GPU_RATE

extern const char estimate_gpu_rate_words[]; /* "fp64|fp64-tensor|…" */
extern const char *const estimate_gpu_rate_name[GPU_RATES_N], *const estimate_gpu_rate_meaning[GPU_RATES_N];
extern const double estimate_gpu_rate_bytes[GPU_RATES_N]; /* per element */

/* How the memory of a GPU is known. KNOWN(symbol, GiB by which it may be off, text). */
#define GPU_KNOWNS(KNOWN)                                                         \
    KNOWN(PYTORCH, 0.3, "the total capacity in PyTorch's out-of-memory messages") \
    KNOWN(SMI, 0.5, "nvidia-smi's total minus what the driver keeps")
#define GPU_KNOWN(symbol, off, text) GPU_BY_##symbol,
enum estimate_gpu_known { GPU_KNOWNS(GPU_KNOWN) GPU_KNOWNS_N };
#undef GPU_KNOWN

struct estimate_gpu {
    const char *key, *product;
    uint64_t total_bytes; /* the memory that the driver offers to a program */
    uint64_t total_off;   /* by how much that may differ, in either direction */
    enum estimate_gpu_known known;
    const char *capability; /* "8.0", "gfx942" */
    int multiprocessors;
    double hbm, pcie, nvlink;   /* bytes/s; pcie (host and device) and nvlink (all links) per direction;
                                   nvlink 0: none */
    int reach;                  /* GPUs that the links join: 2 is a bridge, 0 none */
    int node;                   /* GPUs of a machine as it is commonly rented */
    double tflops[GPU_RATES_N]; /* 10^12 operations/s, dense; 0: none, or no figure */
    const char *source;
    bool simulated; /* gpuspy run --simulate knows it */
};

extern const struct estimate_gpu estimate_gpus[];
extern const size_t estimate_gpu_count;
extern const char estimate_gpu_words[]; /* "p100-16g|…": all keys */

/* By key, by a common name ("h100", "RTX 4090", "A100-80GB") or by the driver's name, in upper or lower case. NULL:
 * unknown. */
const struct estimate_gpu *estimate_gpu_find(const char *name);
/* The same. If there is none, prints a line on stderr with the command, the option and the nearest name. */
const struct estimate_gpu *estimate_gpu_require(const char *command, const char *option, const char *name);
/* For an option that also takes a size: if it is one, returns NULL, and *bytes is more than 0. */
const struct estimate_gpu *estimate_gpu_require_or_size(const char *command, const char *option, const char *text,
                                                        uint64_t *bytes);

/* The list: for people, and for programs ({"schema": 1, "gpus": [...]}). */
struct terminal;
struct json_t;
/* `explain`: below each GPU, its name and the sources of its figures. */
void estimate_gpu_list_text(FILE *out, const struct terminal *term, bool explain);
struct json_t *estimate_gpu_list_json(void); /* {"schema", "gpus": [...]}; the caller's to decref */
