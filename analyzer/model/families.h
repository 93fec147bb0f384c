/* What all models of a kind have in common, as the beginning of an initialiser of struct model_shape.
 * For presets, options and files alike. */
#ifndef GPUSPY_MODEL_FAMILIES_H
#define GPUSPY_MODEL_FAMILIES_H

#define GPT                                                                                                  \
    .family = MODEL_GPT, .norms = 2, .norm_bias = true, .final_norm = true, .qkv_bias = true,                \
    .out_bias = true, .mlp_bias = true, .fused_qkv = true, .tied = true, .positions = MODEL_AS_CONTEXT
#define LLAMA .family = MODEL_LLAMA, .norms = 2, .final_norm = true, .gated = true
#define BERT                                                                                                 \
    .family = MODEL_BERT, .norms = 2, .norm_bias = true, .embedding_norm = true, .qkv_bias = true,           \
    .out_bias = true, .mlp_bias = true, .pooler = true, .token_types = 2, .positions = MODEL_AS_CONTEXT
#define VIT                                                                                                  \
    .family = MODEL_VIT, .norms = 2, .norm_bias = true, .final_norm = true, .qkv_bias = true,                \
    .out_bias = true, .mlp_bias = true, .image = 224, .patch = 16, .channels = 3, .classes = 1000
#define T5 .family = MODEL_T5, .norms = 2, .final_norm = true, .tied = true, .buckets = 32

#endif
