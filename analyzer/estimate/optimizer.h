/* What an optimizer keeps for the tensors of one GPU, and what its step takes on top. */
#ifndef GPUSPY_ESTIMATE_OPTIMIZER_H
#define GPUSPY_ESTIMATE_OPTIMIZER_H

#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/shard.h"

/* Bytes of the states of one tensor of rows x cols elements; `element`: bytes of one where the states follow
 * the parameters' type. Intervals where the form of the tensor is not known, or states can move away. */
struct interval optimizer_tensor(const struct optimizer *o, const struct model_tensor *t, double rows, double cols,
                                 double element, uint64_t rank);

/* Summed over tensors that are trained. */
struct optimizer_sum {
    struct interval states;  /* bytes */
    double elements;         /* of this GPU's part */
    double largest;          /* elements of the largest tensor's part */
    double orthogonal, rest; /* Muon: bytes that its largest matrix takes in a step; elements that Adam has */
};
/* `group`: GPUs among which each tensor's states are divided, 1: they are not. */
void optimizer_take(const struct plan *p, const struct shard *s, double element, double group,
                    struct optimizer_sum *sum);
/* Temporaries of a step; and in words how they come about (static). */
struct interval optimizer_temporaries(const struct plan *p, const struct optimizer_sum *sum, double element,
                                      const char **how);

#endif
