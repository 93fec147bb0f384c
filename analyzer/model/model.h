/* A model as the estimator sees it: the numbers of its configuration (its shape), and the list of its
 * parameter tensors that follows from them or was read from a file's header.
 *
 * Everything that is exact comes from the tensors: the count, the states of optimizers that depend on
 * matrices, the largest layer, what LoRA adds, what the allocator rounds. What grows with the batch
 * comes from the shape. A model can have one without the other: a bare number of parameters has one
 * tensor of unknown form, a .safetensors file has tensors and, without a config.json beside it, no
 * shape. */
#ifndef GPUSPY_MODEL_H
#define GPUSPY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* FAMILY(id, word, what it is): how activations are computed and how the tensors are laid out. */
/* clang-format off */
#define MODEL_FAMILIES(FAMILY)                                                                       \
    FAMILY(UNKNOWN, "unknown", "only its tensors or their number are known")                         \
    FAMILY(GPT, "gpt", "decoder with LayerNorm, biases and a plain MLP: GPT-2, OPT, NeoX, Falcon")   \
    FAMILY(LLAMA, "llama", "decoder with rotary positions, RMSNorm and a gated MLP; with experts: Mixtral") \
    FAMILY(BERT, "bert", "encoder with token types, a pooler and LayerNorm after each block")        \
    FAMILY(VIT, "vit", "encoder of image patches with a class token")                                \
    FAMILY(CONV, "conv", "convolutional network, known by its name")                                 \
    FAMILY(T5, "t5", "encoder and decoder with cross-attention: T5")                                 \
    FAMILY(WHISPER, "whisper", "encoder of 30 seconds of audio, decoder with cross-attention")       \
    FAMILY(MAMBA, "mamba", "state-space decoder without attention: Mamba; with heads: Mamba-2")      \
    FAMILY(DENOISER, "denoiser", "UNet or transformer of a diffusion pipeline")
/* clang-format on */

enum model_family {
#define FAMILY(id, word, what) MODEL_##id,
    MODEL_FAMILIES(FAMILY)
#undef FAMILY
        MODEL_FAMILIES_N
};

/* What sees, beside a language model: TOWER(id). Their tensors: towers.def. */
/* clang-format off */
#define MODEL_TOWERS(TOWER)                                                                           \
    TOWER(NONE) TOWER(GEMMA3) TOWER(MISTRAL3) TOWER(PIXTRAL12) TOWER(LLAVA) TOWER(QWEN2VL)            \
    TOWER(QWEN25VL) TOWER(QWEN25VL_LARGE) TOWER(QWEN3VL) TOWER(QWEN3VL_LARGE) TOWER(QWEN35_TINY) TOWER(QWEN35_SMALL) TOWER(QWEN35) TOWER(GEMMA4) TOWER(LLAMA4)           \
    TOWER(MLLAMA11) TOWER(MLLAMA90) TOWER(PADDLEOCR)
/* clang-format on */

enum model_tower {
#define TOWER(id) MODEL_TOWER_##id,
    MODEL_TOWERS(TOWER)
#undef TOWER
};

enum { MODEL_LINEAR_HEAD = 128 }; /* of all published ones */

#define MODEL_AS_CONTEXT UINT64_MAX /* as positions: a learned table of `context` rows */

/* DENOISER(id, diffusers' class) */
/* clang-format off */
#define MODEL_DENOISERS(DENOISER)                                                                     \
    DENOISER(UNET, "UNet2DConditionModel") DENOISER(FLUX, "FluxTransformer2DModel")                   \
    DENOISER(SD3, "SD3Transformer2DModel") DENOISER(PIXART, "PixArtTransformer2DModel")               \
    DENOISER(SANA, "SanaTransformer2DModel") DENOISER(WAN, "WanTransformer3DModel")                   \
    DENOISER(COGVIDEOX, "CogVideoXTransformer3DModel") DENOISER(HUNYUAN, "HunyuanVideoTransformer3DModel") \
    DENOISER(LTX, "LTXVideoTransformer3DModel")
/* clang-format on */

enum model_denoiser_kind {
#define DENOISER(id, name) MODEL_DENOISER_##id,
    MODEL_DENOISERS(DENOISER)
#undef DENOISER
        MODEL_DENOISERS_N
};

/* What is around a denoiser: denoisers.def. */
enum model_pipeline_id {
#define PIPELINE(id, ...) MODEL_PIPELINE_##id,
#include "analyzer/model/denoisers.def"
#undef PIPELINE
};

enum { MODEL_UNET_LEVELS = 4 };

/* What a denoiser has beside layers, hidden, heads, head_dim and ffn of the shape. */
struct model_denoiser {
    enum model_denoiser_kind kind;
    enum model_pipeline_id pipeline;
    uint64_t latent, out;           /* channels of what it reads and makes */
    uint64_t patch;                 /* latent places to a side of a token */
    uint64_t text, pooled;          /* widths of the text's embeddings; of the one for all of it */
    uint64_t cross;                 /* width of keys and values of the text (Sana, LTX) */
    uint64_t single, dual, refiner; /* layers of one stream; with a second attention; of text */
    uint64_t time;                  /* width of the time step's embedding (CogVideoX) */
    uint64_t levels, block_layers, width[MODEL_UNET_LEVELS];     /* UNet: residual blocks a level; channels */
    uint64_t depth[MODEL_UNET_LEVELS], split[MODEL_UNET_LEVELS]; /* transformer blocks after each, 0: none; heads */
    uint64_t table;                                              /* numbers of positions that are no parameters */
    bool linear_in;                /* UNet: transformers begin with a Linear, not a convolution */
    bool qk_norm, guidance, sizes; /* sizes: embeddings of resolution and aspect ratio */
    bool rotary;
    /* what is made: pixels to a side or height; width if it is another; frames; 0: as the pipeline's default */
    uint64_t width_pixels, frames, text_tokens;
};

/* The numbers of a configuration; 0 or false where a family has no such thing. Sizes are elements. */
struct model_shape {
    enum model_family family;
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn;
    uint64_t encoder_layers; /* T5, Whisper: of the layers, those of the encoder; the others are the decoder's */
    uint64_t vocab;
    uint64_t embedding;   /* width of the token table where it is not `hidden` (OPT-350m); else 0 */
    uint64_t context;     /* the longest sequence it was made for (max_position_embeddings) */
    uint64_t positions;   /* rows of a learned position table; 0: rotary or none */
    uint64_t buckets;     /* T5: rows of the relative-position table, one a stack */
    uint64_t token_types; /* rows of BERT's token-type table */
    bool tied;            /* the output layer is the embedding */
    bool gated;           /* MLP of three matrices (SwiGLU, GeGLU) */
    bool
        one_kernel_gelu; /* of GPT-2's kind: "gelu", "relu" and the like instead of gelu_new, which is six operations */
    bool new_gelu;       /* gelu_new in models with rotary positions (Phi, GPT-J) */
    bool no_dropout;     /* of GPT-2's kind: its configuration drops nothing out */
    bool fused_qkv;      /* q, k and v are stored as one matrix (GPT-2, NeoX, Phi-3, torchvision) */
    bool fused_gate;     /* the MLP's gate and up matrices are stored as one (Phi-3) */
    bool qkv_bias, out_bias, mlp_bias, head_bias; /* of q, k, v; of the output projection; of the MLP */
    bool no_k_bias;                               /* with qkv_bias: the keys have none (Whisper) */
    bool qk_norm;                                 /* RMSNorm of each head's queries and keys (Qwen3) */
    bool qk_norm_wide;                            /* with qk_norm: of all heads at once (OLMo-2) */
    bool sinks;                                   /* a learned number for each head and layer (gpt-oss) */
    bool norm_bias;                               /* LayerNorm rather than RMSNorm */
    unsigned norms;      /* a layer: 2; Gemma-2: 4; Falcon-7B: 1; OLMo-1 has none with weights: 0 */
    bool embedding_norm; /* a norm after the embeddings (BERT, BLOOM) */
    bool final_norm;
    /* experts: in `moe_layers` of the layers the MLP is `experts` MLPs of `expert_ffn`, of which each
     * token uses `experts_used`, and `shared_experts` that all tokens use, of `shared_ffn` together
     * (0: shared_experts · expert_ffn). The other layers, the first ones, have an MLP of `ffn`. */
    uint64_t experts, experts_used, shared_experts, expert_ffn, shared_ffn, moe_layers;
    bool router_bias, expert_bias; /* gpt-oss; DeepSeek-V3's correction of the router */
    bool shared_gate;              /* a gate in front of the shared experts (Qwen2-MoE) */
    /* multi-head latent attention (DeepSeek): ranks of the compressed queries (0: not compressed) and
     * keys/values, and the parts of a head; kv_rank 0: ordinary attention */
    uint64_t q_rank, kv_rank, rope_dim, nope_dim, v_dim;
    /* sliding window in tokens (0: none) and how many of the layers have it */
    uint64_t window, window_layers;
    /* gated delta nets (Qwen3-Next): in so many of the layers, three of four, in the place of attention; heads of keys
     * and of values, each of LINEAR_HEAD; attention in the others has a gate beside the queries */
    uint64_t linear_layers, linear_keys, linear_values;
    bool gated_attention;
    /* Gemma 4: layers without a window have heads and key heads of their own, whose values are the keys; experts come
     * beside a dense MLP, which counts as shared, and have norms of their own */
    uint64_t global_head_dim, global_kv_heads;
    bool experts_beside;
    /* images; Whisper: the channels are those of its spectrogram */
    uint64_t image, patch, channels, classes;
    uint64_t sound; /* Whisper: positions of the encoder, which it always has: 1500, a spectrogram is twice as long */
    /* Mamba: width inside of a layer, numbers of state that each element of it has, taps of the convolution;
     * Mamba: rank of the time steps; Mamba-2, which has heads: groups that share what reads and writes the state */
    uint64_t inner, state, taps, step_rank, groups;
    bool conv_bias, inner_bias; /* of the convolution; of the projections in and out */
    bool pooler;
    bool masked_lm;         /* BERT: the head for masked tokens, whose output layer is tied */
    enum model_tower tower; /* what sees, beside the language model that all other numbers describe */
    unsigned conv_net;      /* which convolutional network: 1 + its row in convnets.def */
    struct model_denoiser denoiser;
};

enum model_tensor_role {
    TENSOR_OTHER,     /* not known */
    TENSOR_EMBEDDING, /* tokens (also the output layer where tied), positions, types */
    TENSOR_ATTENTION, /* matrices of q, k, v and the output */
    TENSOR_MLP,       /* matrices of a dense MLP, or of shared experts */
    TENSOR_EXPERT,    /* matrices of the experts that tokens choose */
    TENSOR_ROUTER,
    TENSOR_CONV,
    TENSOR_NORM, /* vectors of norms */
    TENSOR_BIAS,
    TENSOR_HEAD, /* output layer, classifier, pooler */
    TENSOR_ROLES_N
};

enum model_tensor_place { TENSOR_BEFORE, TENSOR_IN_LAYER, TENSOR_AFTER }; /* for pipeline stages */

/* Some tensors of one form. Names that model_from_shape gives to the matrices of a layer: q_proj, k_proj,
 * v_proj (qkv_proj where fused), o_proj; with latent attention q_proj or q_a_proj and q_b_proj, kv_a_proj,
 * kv_b_proj; gate_proj, up_proj (gate_up_proj where fused), down_proj, of experts and shared experts too
 * (role and `kind` tell); a bias is called as its matrix and " bias". */
struct model_tensor {
    char name[80]; /* such as "q_proj"; from a file: so too where it is known, else the file's name
                    * with the layer's number as "*" */
    enum model_tensor_role role;
    enum model_tensor_place place;
    uint64_t rows, cols; /* of one; a vector has cols 1; a convolution has rows = outputs, cols = the rest */
    unsigned dims;       /* 1: vector, 2: matrix, 4: convolution, 0: unknown form */
    uint64_t count;      /* how many there are in the whole model */
    uint64_t layers;     /* TENSOR_IN_LAYER: how many layers have it; 0: as many as the shape has */
    unsigned kind;       /* 0: in layers of every kind; else only in layers of this kind: where some layers
                          * have experts, those without are kind 1, those with are kind 2; T5: 1 is the
                          * encoder's, 2 the decoder's; convolutional networks: one kind a block */
    bool fixed;          /* a table that is never trained: no gradient, no states (Whisper's sinusoids) */
    bool tower;          /* of what sees, beside the language model */
    double bytes;        /* stored bytes of all of them, as their file says; 0: not from a file */
};

struct model {
    char name[64];      /* the preset's, or the file's base name */
    const char *source; /* "preset", "config.json", "safetensors", "gguf", "options", "--params" */
    struct model_shape shape;
    struct model_tensor *tensors; /* owned */
    size_t tensors_n, tensors_cap;
    uint64_t params;     /* exact: the sum over the tensors */
    double stored_bytes; /* as the files say; 0: not from a file */
    double other_bytes;  /* of these: what is no parameter (masks, scales of quantised weights) */
    char stored_as[64];  /* "BF16", "F32 + BF16", "Q4_K + Q6_K": as the files say, "" else */
    char note[192];      /* how a file was read where that needs saying, one sentence; "" else */
};

#define MODEL_PARAMS_MAX 1000000000000000u /* 1e15 */
#define MODEL_LAYERS_MAX 100000u           /* estimates go over them one by one */

/* All that make a model return false after one line on stderr ("COMMAND: what, where, what to do"),
 * and `*exit_code` is then 2 (usage) or 3 (a bad file). model_free() in any case. */

/* `text` is a preset's name, or a path: config.json, a folder with one, .safetensors (one file, an
 * index, a folder of them) or .gguf. A name that is neither gets the nearest names. */
bool model_from_name(const char *command, const char *text, struct model *m, int *exit_code);
/* Is a model known by that name, and does it see, too? */
bool model_has_tower(const char *name);
/* Does `text` look like a path (a slash, .json, .safetensors, .gguf …), or is there such a file? */
bool model_is_path(const char *text);
/* What the file or folder there says. */
bool model_from_path(const char *command, const char *path, struct model *m, int *exit_code);
/* Only a count. */
void model_from_count(uint64_t params, struct model *m);
/* What a family has unless a configuration says otherwise: whether the MLP is gated, which norms and
 * biases there are, learned positions (MODEL_AS_CONTEXT), image and patch; all sizes that differ from
 * model to model are 0. The start for a shape whose numbers come from options or a file. */
struct model_shape model_family_shape(enum model_family family);
/* From a shape: completes what numbers follow from the rest (head_dim, kv_heads, ffn of GPT, BERT and ViT,
 * moe_layers, expert_ffn, image positions), refuses contradictions (heads that do not divide hidden) and
 * what is missing with exit code 2, and lists the tensors. Yes and no (gated, biases, norms) are taken as
 * they stand: see model_family_shape. `what` names the source in errors; one that begins with '-' is an
 * option, and the errors then name the options to give. */
bool model_from_shape(const char *command, const char *what, const struct model_shape *shape, struct model *m,
                      int *exit_code);
/* The same model of images, for images with a side of so many pixels: a transformer's table of positions
 * has as many rows as there are patches. False, with exit code 2, where it is not one of images, or they
 * cannot be cut into its patches, or are smaller than a network's kernels. */
bool model_set_image(const char *command, uint64_t side, struct model *m, int *exit_code);
/* The same encoder of text with the head for masked tokens in the place of the pooler. False, with exit code 2, where
 * it is none. */
bool model_set_masked_lm(const char *command, struct model *m, int *exit_code);
void model_free(struct model *m);

/* "gpt2|gpt2-medium|…", for help and completion. */
extern const char model_names[];
/* All of them, with their sizes; an alias says of what. */
struct terminal;
struct json_t;
/* `explain`: with the exact count and the family, whatever the width. */
void model_list_text(FILE *out, const struct terminal *term, bool explain);
struct json_t *model_list_json(void); /* {"schema", "models": [...]}; the caller's to decref */
const char *model_family_word(enum model_family family);

/* Adds tensors to the list; `params` grows. Returns the row, or NULL where the count passes
 * MODEL_PARAMS_MAX. */
struct model_tensor *model_add(struct model *m, const char *name, enum model_tensor_role role,
                               enum model_tensor_place place, uint64_t rows, uint64_t cols, uint64_t count);

/* The tensors of the shape's tower, if it has one. False: too many parameters. */
bool model_add_tower(struct model *m);

/* Parameters that one token uses: all but the experts that it does not choose. */
uint64_t model_active_params(const struct model *m);

/* The readers behind model_from_name, for the fuzzers: `bytes` are a whole file (or the head of one). */
bool model_from_config(const char *command, const char *path, const char *bytes, size_t n, struct model *m,
                       int *exit_code);
bool model_from_safetensors(const char *command, const char *path, struct model *m, int *exit_code);
bool model_from_gguf(const char *command, const char *path, struct model *m, int *exit_code);

#endif
