/* Shared by those who say what is there whatever the batch: states.c, adapters.c, fixed.c. */
#ifndef GPUSPY_ESTIMATE_STATES_H
#define GPUSPY_ESTIMATE_STATES_H

#include "analyzer/estimate/estimate.h"

/* Bytes of an element of the optimizer's states. */
double states_element(const struct plan *p);

#endif
