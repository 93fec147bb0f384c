/* Shared by the files for memory that does not depend on the batch: states.c, adapters.c. */
#pragma once

#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/optimizer.h"
#include "analyzer/estimate/shard.h"

double estimate_states_element(const struct plan *p);
/* "8,030,261,248 parameters · 2 B / 64 GPUs": the formula of a line. `each`: bytes per parameter; `divided`: among the
 * GPUs with other data. */
void estimate_states_explain(struct estimate_line *line, const char *source, const struct plan *p,
                             const struct estimate_shard_sum *n, const char *each, bool divided);

/* Lines of parameters that are trained. estimate_states_buckets: DDP's flat copy of their gradients, `each` bytes per
 * parameter. estimate_states_step: what the step allocates and frees, `element` bytes per element of a state. */
/* FSDP's no_sync, if a step has several micro-batches: gradients stay whole until the last. `each` bytes per parameter;
 * `kept` bytes of them have a line already. */
void estimate_states_no_sync(const struct plan *p, const struct estimate_shard_sum *n, double each, double kept,
                             struct estimate_result *r);
void estimate_states_buckets(const struct plan *p, const struct estimate_shard_sum *n, unsigned each,
                             struct estimate_result *r);
void estimate_states_step(const struct plan *p, const struct estimate_shard_sum *n,
                          const struct estimate_optimizer_sum *sum, double element, struct estimate_result *r);
/* Lines of all parameters. estimate_states_gathered: those of a few layers, whole temporarily (ZeRO 3), `each` bytes
 * per parameter. estimate_states_casts: copies in the type of the products. */
void estimate_states_gathered(const struct plan *p, uint64_t stage, const struct estimate_shard_sum *n, double each,
                              struct estimate_result *r);
void estimate_states_casts(const struct plan *p, uint64_t stage, struct estimate_result *r);
