/* Shared by those who say what is there whatever the batch: states.c, adapters.c. */
#ifndef GPUSPY_ESTIMATE_STATES_H
#define GPUSPY_ESTIMATE_STATES_H

#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/optimizer.h"
#include "analyzer/estimate/shard.h"

/* Bytes of an element of the optimizer's states. */
double estimate_states_element(const struct plan *p);
/* "8,030,261,248 parameters · 2 B / 64 GPUs": where the line's bytes come from. `each`: what a parameter takes;
 * `divided`: among the GPUs with other data. */
void estimate_states_explain(struct estimate_line *line, const char *source, const struct plan *p,
                             const struct estimate_shard_sum *n, const char *each, bool divided);

/* Lines of parameters that are trained: DDP's flat copy of their gradients, of `each` bytes; what the step
 * makes and frees, `element` bytes an element of a state. */
/* FSDP's no_sync, where a step has several micro-batches: gradients stay whole until the last. `each` bytes a
 * parameter, of which `kept` bytes have a line already. */
void estimate_states_no_sync(const struct plan *p, const struct estimate_shard_sum *n, double each, double kept,
                             struct estimate_result *r);
void estimate_states_buckets(const struct plan *p, const struct estimate_shard_sum *n, unsigned each,
                             struct estimate_result *r);
void estimate_states_step(const struct plan *p, const struct estimate_shard_sum *n,
                          const struct estimate_optimizer_sum *sum, double element, struct estimate_result *r);
/* Lines of all parameters: those of a few layers, whole for a moment (ZeRO 3), `each` bytes a parameter; copies
 * in the type that is multiplied in. */
void estimate_states_gathered(const struct plan *p, uint64_t stage, const struct estimate_shard_sum *n, double each,
                              struct estimate_result *r);
void estimate_states_casts(const struct plan *p, uint64_t stage, struct estimate_result *r);

#endif
