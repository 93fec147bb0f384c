/* Parts of an inference estimate that other files use: bytes on one GPU of a pipeline stage. */
#pragma once

#include "analyzer/estimate/plan.h"

struct estimate_result;
struct estimate_interval;

/* Bytes of a number of the activations. */
double estimate_serving_element(const struct plan *p);
/* Numbers per token that the layer that needs most keeps at once. */
struct estimate_interval estimate_serving_token_elements(const struct plan *p);

uint64_t estimate_serving_layers(const struct plan *p, uint64_t stage);
/* Adds weights, and what loaders and kernels make of them; `decodes`: of a model that generates text. */
void estimate_serving_weights(const struct plan *p, uint64_t stage, bool decodes, struct estimate_result *r);
/* Adds the activations of a convolutional network whose numbers have `size` bytes; false: its operations are unknown.
 */
bool estimate_serving_conv(const struct plan *p, double size, struct estimate_result *r);
/* Adds all lines of a diffusion pipeline; false: it is another model. */
bool estimate_serving_denoiser(const struct plan *p, struct estimate_result *r);
/* Whether a pipeline's model of that format is on the GPU while the pipeline is loaded, in spite of offload:
 * bitsandbytes quantises there. */
bool estimate_serving_loads_whole(const struct plan *p, const struct estimate_quantisation *q);
bool estimate_serving_reads_in_chunks(const struct plan *p);
/* Weights of the models that are on the GPU beside the denoiser. */
void estimate_serving_beside(const struct plan *p, struct estimate_result *r);
double estimate_serving_beside_bytes(const struct plan *p);
/* Whether the model generates token after token, and so has a KV cache. */
bool estimate_serving_decodes(const struct plan *p);
/* The states of layers that have no keys and values (serving_states.c); `size`: bytes per element of activations. */
void estimate_serving_states(const struct plan *p, double size, struct estimate_result *r);
