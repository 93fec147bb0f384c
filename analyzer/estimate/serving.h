/* Parts of an inference estimate that others ask for: bytes on one GPU of a pipeline stage. */
#ifndef GPUSPY_SERVING_H
#define GPUSPY_SERVING_H

#include "analyzer/estimate/plan.h"

struct estimate_result;

/* Adds the activations of a convolutional network whose numbers have `size` bytes; false: its operations are not
 * known. */
bool estimate_serving_conv(const struct plan *p, double size, struct estimate_result *r);
/* Is there a token after token, and with it a KV cache? */
bool estimate_serving_decodes(const struct plan *p);

#endif
