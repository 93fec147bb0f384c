/* The common values of a family's models, as the beginning of an initialiser of struct model_shape. For presets,
 * options and files. */
#pragma once

#define GPT                                                                                                     \
    .family = MODEL_GPT, .norms = 2, .norm_bias = true, .final_norm = true, .qkv_bias = true, .out_bias = true, \
    .mlp_bias = true, .fused_qkv = true, .tied = true, .positions = MODEL_AS_CONTEXT
#define LLAMA .family = MODEL_LLAMA, .norms = 2, .final_norm = true, .gated = true
#define BERT                                                                                                         \
    .family = MODEL_BERT, .norms = 2, .norm_bias = true, .embedding_norm = true, .qkv_bias = true, .out_bias = true, \
    .mlp_bias = true, .pooler = true, .token_types = 2, .positions = MODEL_AS_CONTEXT
#define VIT                                                                                                     \
    .family = MODEL_VIT, .norms = 2, .norm_bias = true, .final_norm = true, .qkv_bias = true, .out_bias = true, \
    .mlp_bias = true, .image = 224, .patch = 16, .channels = 3, .class_tokens = 1, .classes = 1000
#define WHISPER                                                                                                      \
    .family = MODEL_WHISPER, .norms = 2, .norm_bias = true, .final_norm = true, .qkv_bias = true, .no_k_bias = true, \
    .out_bias = true, .mlp_bias = true, .tied = true, .positions = MODEL_AS_CONTEXT, .context = 448, .sound = 1500,  \
    .channels = 80
#define MAMBA .family = MODEL_MAMBA, .norms = 1, .final_norm = true, .tied = true, .taps = 4, .conv_bias = true
#define T5 .family = MODEL_T5, .norms = 2, .final_norm = true, .tied = true, .buckets = 32

#define CLIP                                                                                                     \
    .family = MODEL_CLIP, .norms = 2, .norm_bias = true, .final_norm = true, .qkv_bias = true, .out_bias = true, \
    .mlp_bias = true, .tied = true, .positions = MODEL_AS_CONTEXT, .channels = 3, .class_tokens = 1

/* Denoisers: kind, and the pipeline (denoisers.def) */
#define DENOISER(k, p, latents, text_width)                                                                 \
    .family = MODEL_DENOISER, .denoiser.kind = MODEL_DENOISER_##k, .denoiser.pipeline = MODEL_PIPELINE_##p, \
    .denoiser.latent = (latents), .denoiser.out = (latents), .denoiser.text = (text_width)
#define UNET(p, text_width, n) DENOISER(UNET, p, 4, text_width), .denoiser.levels = (n), .denoiser.block_layers = 2
#define LEVELS(...) .denoiser.width = {__VA_ARGS__}
#define DEPTHS(...) .denoiser.depth = {__VA_ARGS__}
#define SPLITS(...) .denoiser.split = {__VA_ARGS__}
#define TOKENS(l, a, d, f) .layers = (l), .heads = (a), .head_dim = (d), .hidden = (uint64_t)(a) * (d), .ffn = (f)
#define PATCHED .denoiser.patch = 2
#define FLUX1 \
    DENOISER(FLUX, FLUX, 64, 4096), PATCHED, .denoiser.pooled = 768, TOKENS(57, 24, 128, 12288), .denoiser.single = 38
#define SD3S DENOISER(SD3, SD3, 16, 4096), PATCHED, .denoiser.pooled = 2048
#define PIXARTS DENOISER(PIXART, PIXART, 4, 4096), .denoiser.out = 8, PATCHED, TOKENS(28, 16, 72, 4608)
#define SANAS DENOISER(SANA, SANA, 32, 2304), .denoiser.patch = 1
#define WANS DENOISER(WAN, WAN, 16, 4096), PATCHED
#define COGS DENOISER(COGVIDEOX, COGVIDEOX, 16, 4096), PATCHED, .denoiser.time = 512

/* Variants that several presets share. */
#define OPT GPT, .fused_qkv = false
#define CEREBRAS GPT, .one_kernel_gelu = true, .no_dropout = true
#define NEOX GPT, .positions = 0, .tied = false
/* Also GPT-J: attention and MLP in parallel. */
#define PHI NEOX, .fused_qkv = false, .norms = 1, .head_bias = true, .new_gelu = true
#define BLOOM GPT, .positions = 0, .embedding_norm = true
#define FALCON GPT, .positions = 0, .qkv_bias = false, .out_bias = false, .mlp_bias = false
#define STARCODER2 GPT, .positions = 0, .fused_qkv = false
#define QWEN3 LLAMA, .head_dim = 128, .qk_norm = true
#define QWEN35(l, k, v)                                                                                        \
    LLAMA, .head_dim = 256, .qk_norm = true, .gated_attention = true, .taps = 4, .linear_layers = (l) / 4 * 3, \
           .linear_keys = (k), .linear_values = (v)
#define GEMMA2 LLAMA, .norms = 4, .tied = true
#define GEMMA3 GEMMA2, .qk_norm = true
#define GEMMA4 GEMMA3, .head_dim = 256, .window = 1024, .global_head_dim = 512
#define PHI3 LLAMA, .fused_qkv = true, .fused_gate = true
#define GLM4 LLAMA, .norms = 4, .qkv_bias = true, .fused_gate = true
#define OLMO LLAMA, .norms = 0, .final_norm = false /* norms without weights */
#define OLMO2 LLAMA, .qk_norm = true, .qk_norm_wide = true
#define GPT_OSS \
    LLAMA, .head_dim = 64, .qkv_bias = true, .out_bias = true, .sinks = true, .router_bias = true, .expert_bias = true
#define MLA LLAMA, .kv_rank = 512, .rope_dim = 64, .nope_dim = 128, .v_dim = 128

#define GPTS(l, h, a, v, c) .layers = (l), .hidden = (h), .heads = (a), .vocab = (v), .context = (c)
#define SIZES(l, h, a, kv, f, v, c) GPTS(l, h, a, v, c), .kv_heads = (kv), .ffn = (f)
#define EXPERTS(n, used, f, l) .experts = (n), .experts_used = (used), .expert_ffn = (f), .moe_layers = (l)
#define SPEECH(e, d, h, a, v) .layers = (e) + (d), .encoder_layers = (e), .hidden = (h), .heads = (a), .vocab = (v)
#define STATES(l, h, v) .layers = (l), .hidden = (h), .vocab = (v)
/* Every second layer has a sliding window. */
#define HALF_WINDOW(tokens, l) .window = (tokens), .window_layers = (l) / 2
