/* Kinds of adapters: what each trains, keeps beside it, and saves for backward. */
#pragma once

#include "analyzer/estimate/plan.h"

/* Receives a kind's trained matrices, one per call. */
typedef void estimate_adapter_add(void *context, double rows, double cols);

/* What the number of a kind means. */
enum estimate_adapter_size { ADAPTER_HAS_NO_SIZE, ADAPTER_HAS_RANK, ADAPTER_HAS_BLOCKS, ADAPTER_HAS_TOKENS };

struct estimate_adapter_kind {
    enum estimate_adapter_size size_is;
    uint64_t size; /* peft's default, except 16 for LoRA; 0: it must be given */
    /* trained matrices of a weight of rows · cols; NULL: none per weight (prompts) */
    void (*trained)(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                    estimate_adapter_add *add, void *context);
    /* How much each adapted weight saves for backward. Per token, in float32, under autocast in 16 bits: of its input,
     * of its rank, of its output. Per token in 16 bits: of its output. At any number of tokens, in float32 or 16 bits:
     * of matrices of the weight's size. Measured with peft 0.21.2 on PyTorch 2.11,
     * torch.autograd.graph.saved_tensors_hooks. */
    double input, rank, output, output16, weight;
    const char *source;
};

/* The kind of the plan's adapter; all zero without one. */
const struct estimate_adapter_kind *estimate_adapter_kind(const struct plan *p);
/* The matrices (PLAN_QUERIES …) that a module's name or a word of --target means, 0 if it is unknown: "q_proj",
 * "self_attn.q_proj", "c_attn", "qv". Those that an adapter has without --target. A set in words of --target. */
enum { ESTIMATE_MATRICES_TEXT = 96 };
unsigned estimate_adapter_find_matrices(const char *name, size_t length);
unsigned estimate_adapter_usual_matrices(const struct plan *p);
const char *estimate_adapter_name_matrices(unsigned matrices, char out[ESTIMATE_MATRICES_TEXT]);
/* Whether the plan puts an adapter on this matrix. */
bool estimate_adapter_is_target(const struct plan *p, const struct model_tensor *t);
/* Of a weight of rows · cols: adapter parameters that are not trained. Of one with `cols` inputs: bytes of rotations
 * that are kept at any number of tokens (OFT, BOFT). */
double estimate_adapter_frozen(const struct plan *p, double rows, double cols);
double estimate_adapter_blocks(const struct plan *p, double cols, bool amp);
/* Whether peft's layer applies lora_dropout (or its kind's) to its input. */
bool estimate_adapter_has_dropout(const struct plan *p);
/* "lora-rank", "block-size", "virtual-tokens"; NULL: it has no size. */
const char *estimate_adapter_option(const struct plan *p);
