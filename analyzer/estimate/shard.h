/* Which part of a model one GPU has: by pipeline stage, tensor and expert parallelism, and among how many
 * data-parallel GPUs that part can be divided further (ZeRO). */
#pragma once

#include "analyzer/estimate/estimate.h"

/* The part of some tensors of one form that is on a GPU. */
struct estimate_shard {
    const struct model_tensor *tensor;
    double count;      /* how many of them (a fraction if layers cannot be divided evenly) */
    double rows, cols; /* of one of them, on this GPU */
    bool expert;
};

/* Layers of a pipeline stage: the stages after the first get the remainder. */
uint64_t estimate_shard_layers(const struct plan *p, uint64_t stage);
/* False: no part of it is on that stage. */
bool estimate_shard_of(const struct plan *p, uint64_t stage, const struct model_tensor *t, struct estimate_shard *s);
/* The number of GPUs that hold the same: those with other data, and with other parts of the same sequences. Experts are
 * divided among ep of them. At least 1. */
double estimate_shard_group(const struct plan *p, bool expert);
/* Are gradients views of DDP's buckets? FSDP and ZeRO have none, whatever --bucket-view says. */
bool estimate_shard_views_buckets(const struct plan *p);
/* Whether matrix multiplications read it. Embeddings only if they are the output layer too. */
bool estimate_shard_multiplied(const struct plan *p, const struct model_tensor *t);

/* Whether layers' weights come from other GPUs, or from the host's memory, before they are used. */
bool estimate_shard_gathers(const struct plan *p);
/* Whether they then stay whole until backward is over. */
bool estimate_shard_gathers_until_backward(const struct plan *p);

/* Sums over a stage; `own` counts 1/group of each parameter: the part of one GPU if it is divided. */
struct estimate_shard_sum {
    double all, own;
    double dense, experts;
};
struct estimate_shard_sum estimate_shard_sum(const struct plan *p, uint64_t stage,
                                             bool (*keep)(const struct plan *, const struct model_tensor *));
/* Parameters of the largest layer; parameters outside of the layers. */
double estimate_shard_layer(const struct plan *p, uint64_t stage);
double estimate_shard_outside(const struct plan *p, uint64_t stage);
