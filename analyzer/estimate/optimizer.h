/* What an optimizer keeps for the tensors of one GPU, and what its step takes on top. */
#pragma once

#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/shard.h"

/* Bytes of the states of one tensor of rows x cols elements; `element`: bytes per element of states that have the
 * parameters' type. An interval if the form of the tensor is unknown, or if states can move to the host. */
struct estimate_interval estimate_optimizer_tensor(const struct estimate_optimizer *o, const struct model_tensor *t,
                                                   double rows, double cols, double element, uint64_t rank);

/* Summed over tensors that are trained. */
struct estimate_optimizer_sum {
    struct estimate_interval states; /* bytes */
    double elements;                 /* of this GPU's part */
    double largest;                  /* elements of the largest tensor's part */
    double whole;                    /* Muon: bytes of the states of one whole tensor, the largest */
    double decomposed;               /* GaLore: elements of the matrices in a decomposition of the largest gradient */
    double orthogonal, rest;         /* Muon: bytes that its largest matrix needs in a step; elements that Adam steps */
};
/* `group`: GPUs among which each tensor's states are divided, 1: not divided. */
void estimate_optimizer_take(const struct plan *p, const struct estimate_shard *s, double element, double group,
                             struct estimate_optimizer_sum *sum);
/* Temporaries of a step; `how`: their cause in words (static). */
struct estimate_interval estimate_optimizer_temporaries(const struct plan *p, const struct estimate_optimizer_sum *sum,
                                                        double element, const char **how);
