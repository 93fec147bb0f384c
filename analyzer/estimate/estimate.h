/* What training needs at least: weights, gradients and optimizer states, on one device that holds
 * all of them. Activations and temporary buffers come on top and are not estimated here.
 *
 * Bytes = parameters · (weights + gradients + states [+ master]):
 *   float32 Adam            4 + 4 + 8      = 16 B a parameter: 14.90 GiB for 1e9
 *   autocast Adam           4 + 4 + 8      = 16 B, and up to 2 B on top while forward runs
 *   pure 16-bit Adam        2 + 2 + 4      =  8 B
 *   16-bit Adam with master 2 + 2 + 8 + 4  = 16 B (ZeRO, Rajbhandari et al. 2020, section 3.1)
 * Sources of each optimizer's states: optimizers.def; of the precisions: precisions.def. */
#ifndef GPUSPY_ESTIMATE_H
#define GPUSPY_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ESTIMATE_PARAMS_MAX 1e15 /* 24 bytes each still fit in 64 bits */

struct optimizer {
    const char *name;
    unsigned copies, fixed_32nds;
    const char *source;
};

struct precision {
    const char *name;
    unsigned weights, gradients, cast_copy; /* bytes a parameter */
    const char *meaning;
};

/* "adam|adamw|…", "fp32|amp|…" and "gpt2|…": what the options accept. */
extern const char estimate_optimizers[], estimate_precisions[], estimate_models[];
uint64_t estimate_model(const char *name); /* its parameters; 0: none of that name */
const struct optimizer *estimate_optimizer(const char *name); /* NULL: none of that name */
const struct precision *estimate_precision(const char *name);
/* Why an optimizer that people do use is not in the table: what its states depend on; NULL where the
 * name is not known either. */
const char *estimate_shaped(const char *name);

struct estimate {
    uint64_t params;
    uint64_t weights, gradients, optimizer, master, total; /* bytes */
    uint64_t cast_copies; /* bytes on top while a forward pass runs under autocast */
};

/* `master_weights`: the optimizer keeps a float32 copy of the weights and its states in float32
 * (DeepSpeed, Megatron-LM, apex O2); only for 16-bit precisions, ignored else. Fractions of a byte
 * are rounded up. params 1 … ESTIMATE_PARAMS_MAX. */
struct estimate estimate_training(uint64_t params, const struct optimizer *optimizer,
                                  const struct precision *precision, bool master_weights);

#endif
