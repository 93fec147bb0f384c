/* What others' estimators print, for comparison and as a check of the parts they share with this one.
 *
 * DeepSpeed's leave out: reduce buckets (1 GB of 16-bit gradients each by default, twice with overlap_comm) and,
 * of stage 3, what is prefetched. Its documentation still prints 4P + 16P/N for stage 2, its code 2P + 18P/N. */
#ifndef GPUSPY_ESTIMATE_PUBLISHED_H
#define GPUSPY_ESTIMATE_PUBLISHED_H

#include <stdbool.h>

struct estimate_published {
    double gpu, host; /* bytes: of one GPU; of one node */
};

/* deepspeed/runtime/zero/stage_1_and_2.py: estimate_zero2_model_states_mem_needs. */
struct estimate_published estimate_deepspeed_zero2(double params, double gpus_per_node, double nodes,
                                                   bool offload_optimizer);
/* deepspeed/runtime/zero/stage3.py: estimate_zero3_model_states_mem_needs. `largest_layer`: parameters of the
 * largest module by itself; `zero_init`: the model is made inside zero.Init. */
struct estimate_published estimate_deepspeed_zero3(double params, double largest_layer, double gpus_per_node,
                                                   double nodes, bool offload_optimizer, bool offload_params,
                                                   bool zero_init);

/* megatron/training/theoretical_memory_usage.py: compute_weight_and_optimizer_memory. 0 where a model has no
 * such thing; sizes are elements. */
struct estimate_megatron_weights {
    double layers, hidden, heads, kv_heads, head_dim, ffn;
    double vocab; /* padded: estimate_megatron_padded_vocab */
    bool gated, rms_norm, untied;
    double experts, expert_ffn, shared_ffn;
    double tp, pp, dp, ep; /* dp: GPUs with other data; experts' tensors are divided by tp too */
    bool distributed_optimizer;
};
double estimate_megatron_weight_bytes(const struct estimate_megatron_weights *m);
/* make_vocab_size_divisible_by · tp divides it. */
double estimate_megatron_padded_vocab(double vocab, double divisible_by, double tp);

#endif
