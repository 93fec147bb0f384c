/* Parts of an inference estimate that others ask for: bytes on one GPU of a pipeline stage. */
#ifndef GPUSPY_SERVING_H
#define GPUSPY_SERVING_H

#include "analyzer/estimate/plan.h"

struct estimate_result;

/* Adds the activations of a convolutional network whose numbers have `size` bytes; false: its operations are not
 * known. */
bool estimate_serving_conv(const struct plan *p, double size, struct estimate_result *r);
/* All lines of a diffusion pipeline; false: it is none. */
bool estimate_serving_denoiser(const struct plan *p, struct estimate_result *r);
/* Weights of what is on the GPU beside the denoiser. */
void estimate_serving_beside(const struct plan *p, struct estimate_result *r);
double estimate_serving_beside_bytes(const struct plan *p);
/* Is there a token after token, and with it a KV cache? */
bool estimate_serving_decodes(const struct plan *p);

#endif
