/* What autograd keeps of an operation of a convolutional network. */
#ifndef GPUSPY_ESTIMATE_ACTIVATIONS_CONV_H
#define GPUSPY_ESTIMATE_ACTIVATIONS_CONV_H

#include "analyzer/model/convnets.h"

/* Whether backward of this operation needs its input; whether it needs its output. */
bool estimate_conv_keeps_input(enum model_conv_op op);
bool estimate_conv_keeps_output(enum model_conv_op op);

#endif
