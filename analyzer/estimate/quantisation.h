/* Bits of stored weights, tensor by tensor. */
#pragma once

#include "analyzer/estimate/plan.h"

extern const char plan_quantisations[];                                           /* "fp32|bf16|…" */
const struct estimate_quantisation *estimate_quantisation_find(const char *word); /* NULL: none of that name */

/* Bits per weight of tensor `t` of `m` stored as `q`, scales included; an average over the layers if a mixture uses
 * different types for different layers. `plain`: bits of tensors that are not quantised (16). */
double estimate_quantisation_bits(const struct estimate_quantisation *q, const struct model *m,
                                  const struct model_tensor *t, double plain);
/* The same of a plan with --weights. litgpt's bitsandbytes plugin also replaces the output layer. */
double estimate_quantisation_bits_in(const struct plan *p, const struct model_tensor *t, double plain);
/* Whether the loader of frozen weights does not quantise experts that a class holds in one tensor, as all classes of
 * transformers 5 do (bitsandbytes' issue 1849). */
bool estimate_quantisation_skips_experts(const struct plan *p);
