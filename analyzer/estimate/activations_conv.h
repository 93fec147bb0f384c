/* What autograd keeps of an operation of a convolutional network. */
#pragma once

#include "analyzer/model/convnets.h"

/* Whether backward of this operation needs its input; whether it needs its output. */
bool estimate_conv_keeps_input(enum model_conv_op op);
bool estimate_conv_keeps_output(enum model_conv_op op);
