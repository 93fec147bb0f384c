/* What autograd keeps of an operation of a convolutional network. */
#pragma once

#include "analyzer/estimate/plan.h"
#include "analyzer/model/convnets.h"

/* Whether backward of this operation needs its input; whether it needs its output. */
bool estimate_conv_keeps_input(enum model_conv_op op);
bool estimate_conv_keeps_output(enum model_conv_op op);
/* The rows of model_conv_maps(), of which there is room for CONV_MAPS_MAX, as autocast leaves them (`amp`), or as they
 * are without it. 0: too many, or none. */
size_t estimate_conv_maps(const struct plan *p, bool amp, struct model_conv_map *maps);
