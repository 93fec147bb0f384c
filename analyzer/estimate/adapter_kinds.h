/* Kinds of adapters: what each trains, keeps beside it, and saves for backward. */
#ifndef GPUSPY_ESTIMATE_ADAPTER_KINDS_H
#define GPUSPY_ESTIMATE_ADAPTER_KINDS_H

#include "analyzer/estimate/plan.h"

/* Where a kind's matrices go, one call each: they are trained. */
typedef void estimate_adapter_add(void *context, double rows, double cols);

/* What its one number is. */
enum estimate_adapter_size { ADAPTER_HAS_NO_SIZE, ADAPTER_HAS_RANK, ADAPTER_HAS_BLOCKS, ADAPTER_HAS_TOKENS };

struct estimate_adapter_kind {
    enum estimate_adapter_size size_is;
    uint64_t size; /* peft's default, but LoRA's 16; 0: it must be given */
    /* beside a weight of rows · cols, NULL: it has none of its own (prompts) */
    void (*trained)(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                    estimate_adapter_add *add, void *context);
    /* saved for backward of each adapted weight. Times tokens, in float32, under autocast in 16 bits: its input, as
     * many numbers as its rank, its output. Its output in 16 bits. At any number of tokens, in float32 or 16 bits:
     * matrices of the weight's size. Measured with peft 0.21.2 on PyTorch 2.11,
     * torch.autograd.graph.saved_tensors_hooks. */
    double input, rank, output, output16, weight;
    const char *source;
};

/* The plan's; of no adapter all is 0. */
const struct estimate_adapter_kind *estimate_adapter_kind(const struct plan *p);
/* Is it one of the matrices that the plan puts adapters on? */
bool estimate_adapter_is_target(const struct plan *p, const struct model_tensor *t);
/* Beside a weight of rows · cols: parameters that are not trained, and inputs of `cols` that are kept at any number of
 * tokens, in bytes. */
double estimate_adapter_frozen(const struct plan *p, double rows, double cols);
double estimate_adapter_blocks(const struct plan *p, double cols, bool amp);
/* "lora-rank", "block-size", "virtual-tokens"; NULL: it has no size. */
const char *estimate_adapter_option(const struct plan *p);

#endif
