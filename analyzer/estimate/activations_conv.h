/* What autograd keeps of an operation of a convolutional network. */
#ifndef GPUSPY_ESTIMATE_ACTIVATIONS_CONV_H
#define GPUSPY_ESTIMATE_ACTIVATIONS_CONV_H

#include "analyzer/model/convnets.h"

/* Does backward of this operation need what it read, what it put out? */
bool estimate_conv_keeps_input(enum model_conv_op op);
bool estimate_conv_keeps_output(enum model_conv_op op);

#endif
