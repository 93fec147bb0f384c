/* A model as the estimator uses it: the numbers of its configuration (its shape), and the list of its parameter
 * tensors, which follows from the shape or was read from a file's header.
 *
 * All exact figures come from the tensors: the count, the states of optimizers that depend on matrices, the largest
 * layer, what LoRA adds, what the allocator rounds. What grows with the batch comes from the shape. A model can have
 * one without the other: a number of parameters has one tensor of unknown form; a .safetensors file has tensors but,
 * without a config.json beside it, no shape. */
#pragma once

#include "analyzer/base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* FAMILY(id, word, description): determines how activations are computed and which tensors there are. */
#define MODEL_FAMILIES(FAMILY)                                                                              \
    FAMILY(UNKNOWN, "unknown", "only its tensors or their number are known")                                \
    FAMILY(GPT, "gpt", "decoder with LayerNorm, biases and a plain MLP: GPT-2, OPT, NeoX, Falcon")          \
    FAMILY(LLAMA, "llama", "decoder with rotary positions, RMSNorm and a gated MLP; with experts: Mixtral") \
    FAMILY(BERT, "bert", "encoder of text: BERT, RoBERTa, ELECTRA, ALBERT; before each block: ModernBERT")  \
    FAMILY(VIT, "vit", "encoder of image patches: ViT, DeiT, DINOv2, BEiT")                                 \
    FAMILY(CLIP, "clip", "two towers, of images and of text: CLIP, SigLIP")                                 \
    FAMILY(CONV, "conv", "convolutional network, known by its name")                                        \
    FAMILY(T5, "t5", "encoder and decoder with cross-attention: T5, BART, Marian, Pegasus, mBART, NLLB")    \
    FAMILY(WHISPER, "whisper", "encoder of 30 seconds of audio, decoder with cross-attention")              \
    FAMILY(MAMBA, "mamba", "state-space decoder without attention: Mamba; with heads: Mamba-2")             \
    FAMILY(DENOISER, "denoiser", "UNet or transformer of a diffusion pipeline")

#define FAMILY(id, word, what) MODEL_##id,
enum model_family { MODEL_FAMILIES(FAMILY) MODEL_FAMILIES_N };
#undef FAMILY

/* Image towers beside a language model: TOWER(id). Their tensors: towers.def. */
/* clang-format off */
#define MODEL_TOWERS(TOWER)                                                                           \
    TOWER(NONE) TOWER(GEMMA3) TOWER(MISTRAL3) TOWER(PIXTRAL12) TOWER(LLAVA) TOWER(QWEN2VL)            \
    TOWER(QWEN25VL) TOWER(QWEN25VL_LARGE) TOWER(QWEN3VL) TOWER(QWEN3VL_LARGE) TOWER(QWEN35_TINY)      \
    TOWER(QWEN35_SMALL) TOWER(QWEN35) TOWER(GEMMA4) TOWER(GEMMA4E) TOWER(GEMMA4U) TOWER(LLAMA4)       \
    TOWER(MLLAMA11) TOWER(MLLAMA90) TOWER(PADDLEOCR)
/* clang-format on */

#define TOWER(id) MODEL_TOWER_##id,
enum model_tower { MODEL_TOWERS(TOWER) };
#undef TOWER

enum { MODEL_LINEAR_HEAD = 128 }; /* in all published models */

/* What mixes the tokens in a layer. MIXER(id, word) */
#define MODEL_MIXERS(MIXER)         \
    MIXER(ATTENTION, "attention")   \
    MIXER(NONE, "MLP")              \
    MIXER(MAMBA, "Mamba")           \
    MIXER(DELTA, "gated delta net") \
    MIXER(KDA, "Kimi delta attention") MIXER(LIGHTNING, "lightning attention") MIXER(CONV, "short convolution")

#define MIXER(id, word) MODEL_MIXER_##id,
enum model_mixer { MODEL_MIXERS(MIXER) MODEL_MIXERS_N };
#undef MIXER

/* A group of equal layers in a model whose layers differ. Numbers that are 0 are those of the model. */
struct model_block {
    uint32_t layers, heads, kv_heads, head_dim, v_dim, ffn, window;
    uint32_t compress; /* DeepSeek-V4: tokens per entry of the compressed cache */
    uint8_t mixer;     /* enum model_mixer */
    bool beside;       /* the layer has attention, too, in parallel (Falcon-H1) */
    bool experts, no_mlp;
    bool no_keys;         /* uses the keys and values of an earlier layer (Gemma 3n) */
    bool keys_are_values; /* one projection makes both (Gemma 4) */
    bool sinks, index;    /* index: selects the tokens that attention reads (DeepSeek-V3.2) */
};

enum { MODEL_BLOCKS_MAX = 16 };

#define MODEL_AS_CONTEXT UINT64_MAX /* for `positions`: a learned table of `context` rows */

/* DENOISER(id, denoise_… that walks it, class in diffusers) */
#define MODEL_DENOISERS(DENOISER)                                 \
    DENOISER(UNET, unet, "UNet2DConditionModel")                  \
    DENOISER(FLUX, flux, "FluxTransformer2DModel")                \
    DENOISER(SD3, sd3, "SD3Transformer2DModel")                   \
    DENOISER(PIXART, pixart, "PixArtTransformer2DModel")          \
    DENOISER(SANA, sana, "SanaTransformer2DModel")                \
    DENOISER(WAN, wan, "WanTransformer3DModel")                   \
    DENOISER(COGVIDEOX, cogvideox, "CogVideoXTransformer3DModel") \
    DENOISER(HUNYUAN, hunyuan, "HunyuanVideoTransformer3DModel")  \
    DENOISER(LTX, ltx, "LTXVideoTransformer3DModel")

#define DENOISER(id, walk, name) MODEL_DENOISER_##id,
enum model_denoiser_kind { MODEL_DENOISERS(DENOISER) MODEL_DENOISERS_N };
#undef DENOISER

/* The pipeline of a denoiser: denoisers.def. */
enum model_pipeline_id {
#define PIPELINE(id, ...) MODEL_PIPELINE_##id,
#include "analyzer/model/denoisers.def"
};

enum { MODEL_UNET_LEVELS = 4 };

/* What a denoiser has in addition to layers, hidden, heads, head_dim and ffn of the shape. */
struct model_denoiser {
    enum model_denoiser_kind kind;
    enum model_pipeline_id pipeline;
    uint64_t latent, out;           /* channels of its input and output */
    uint64_t patch;                 /* latent positions per side of a token */
    uint64_t text, pooled;          /* widths of the text's embedding per token, and of the pooled one */
    uint64_t cross;                 /* width of keys and values of the text (Sana, LTX) */
    uint64_t single, dual, refiner; /* number of layers with one stream; with a second attention; for the text only */
    uint64_t time;                  /* width of the time step's embedding (CogVideoX) */
    uint64_t levels, block_layers, width[MODEL_UNET_LEVELS];     /* UNet: levels; residual blocks per level; channels */
    uint64_t depth[MODEL_UNET_LEVELS], split[MODEL_UNET_LEVELS]; /* transformer blocks after each residual block, 0:
                                                                    none; heads */
    uint64_t table;                                              /* elements of stored positions that are not
                                                                    parameters */
    bool linear_in;                /* UNet: transformers begin with a Linear instead of a convolution */
    bool qk_norm, guidance, sizes; /* sizes: embeddings of resolution and aspect ratio */
    bool rotary;
    /* the output: pixels per side, or height; width if it differs; frames; 0: the pipeline's default */
    uint64_t width_pixels, frames, text_tokens;
};

/* The numbers of a configuration; 0 or false if a family does not have the item. Sizes are elements. */
struct model_shape {
    enum model_family family;
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn;
    uint64_t encoder_layers; /* T5, Whisper: how many of the layers belong to the encoder; the others belong to the
                                decoder. CLIP: those of the image tower, which the next row describes; `hidden` and the
                                others are the text tower's */
    uint64_t image_hidden, image_heads, image_ffn, projection; /* projection 0: attention pools the image (SigLIP) */
    bool quick_gelu;                                           /* x · sigmoid(1.702 x), in three operations */
    uint64_t vocab;
    uint64_t embedding;   /* width of the token table if it is not `hidden` (OPT-350m, ELECTRA, ALBERT); else 0 */
    uint64_t shared;      /* layers that use the same parameters (ALBERT: all of them); 0: each has its own */
    uint64_t context;     /* the longest sequence that it supports (max_position_embeddings) */
    uint64_t positions;   /* rows of a learned position table; 0: rotary positions or none */
    uint64_t buckets;     /* T5: rows of the relative-position table, of which each stack has one; BEiT: each layer */
    uint64_t token_types; /* rows of BERT's token-type table */
    bool tied;            /* the output layer is the embedding */
    bool gated;           /* an MLP of three matrices (SwiGLU, GeGLU) */
    bool one_kernel_gelu; /* GPT-2's kind: "gelu", "relu" or similar instead of gelu_new, which is six operations */
    bool new_gelu;        /* gelu_new in models with rotary positions (Phi, GPT-J), and in ALBERT */
    bool no_dropout;      /* GPT-2's kind and encoders of text: all dropout probabilities are 0 */
    bool bare_experts;    /* Granite's experts are parameters of no nn.Linear, which adapters leave out */
    bool no_score_dropout, inner_dropout; /* BART's kind: attention has none; the MLP has one between its matrices */
    bool relu;                            /* BART's kind */
    bool logits_bias;                     /* BART's kind: a float32 buffer is added to the logits */
    bool dropout;                         /* of the residual stream and the scores, in a rotary model (StarCoder2) */
    bool joined_cache;  /* its published code joins the caches of all layers anew for each layer that reads a prompt */
    bool tuple_cache;   /* its published code keeps keys and values in tuples: the old and the new cache are live */
    const char *stored; /* the format of its published weights, a word of --weights; NULL: 16 or 32 bits */
    bool fused_qkv;     /* q, k and v are stored as one matrix (GPT-2, NeoX, Phi-3, torchvision) */
    bool fused_gate;    /* the MLP's gate and up matrices are stored as one (Phi-3) */
    bool qkv_bias, out_bias, mlp_bias, head_bias; /* of q, k, v; of the output projection; of the MLP */
    bool no_k_bias;                               /* with qkv_bias: the keys have none (Whisper) */
    bool qk_norm;                                 /* RMSNorm of each head's queries and keys (Qwen3) */
    bool qk_norm_wide;                            /* with qk_norm: over all heads at once (OLMo-2) */
    bool sinks;                                   /* a learned number per head and layer (gpt-oss) */
    bool norm_bias;                               /* LayerNorm instead of RMSNorm */
    unsigned norms;      /* norms with weights per layer: usually 2; Gemma-2: 4; Falcon-7B: 1; OLMo-1: 0 */
    bool embedding_norm; /* a norm after the embeddings (BERT, BLOOM) */
    bool final_norm;
    /* experts: in `moe_layers` of the layers the MLP consists of `experts` MLPs of `expert_ffn`, `experts_used` of
     * which each token uses, and of `shared_experts` for all tokens, with `shared_ffn` in total (0: shared_experts ·
     * expert_ffn). The other layers, which are the first ones, have an MLP of `ffn`. */
    uint64_t experts, experts_used, shared_experts, expert_ffn, shared_ffn, moe_layers;
    bool router_bias, expert_bias; /* gpt-oss; the router's correction in DeepSeek-V3 */
    bool shared_gate;              /* a gate before the shared experts (Qwen2-MoE) */
    /* multi-head latent attention (DeepSeek): ranks of the compressed queries (0: not compressed) and of keys/values,
     * and the parts of a head; kv_rank 0: ordinary attention */
    uint64_t q_rank, kv_rank, rope_dim, nope_dim, v_dim;
    /* sliding window in tokens (0: none), and how many of the layers have it */
    uint64_t window, window_layers;
    /* gated delta nets (Qwen3-Next) instead of attention: in how many of the layers (three of four); heads of keys and
     * of values, each of MODEL_LINEAR_HEAD; attention in the other layers has a gate beside the queries */
    uint64_t linear_layers, linear_keys, linear_values;
    bool gated_attention;
    /* Gemma 4: layers without a window have their own heads and key heads, whose keys are also the values; experts are
     * in parallel with a dense MLP, which counts as shared, and have their own norms */
    uint64_t global_head_dim, global_kv_heads;
    bool experts_beside;
    /* layers of more than these kinds: `blocks_n` groups, the heaviest last; 0: see above. model_block_shape() makes a
     * shape of one group, which has only `block`, its number from 1, and its mixer */
    struct model_block blocks[MODEL_BLOCKS_MAX];
    unsigned blocks_n, block;
    enum model_mixer mixer;
    bool beside, no_mlp, no_keys, keys_are_values;
    uint64_t state_heads, state_head_dim;       /* Mamba-2 in a layer of a block */
    bool state_norms, no_inner_norm;            /* Mamba: norms of time steps, B and C (Jamba); Mamba-2: no norm */
    uint64_t linear_key_dim, linear_value_dim;  /* gated delta nets; 0: MODEL_LINEAR_HEAD */
    bool full_rank_gates;                       /* Kimi delta attention: gates of one matrix instead of two */
    bool head_gate, wide_gate;                  /* attention: one gate per head; a matrix for gates */
    uint64_t index_heads, index_dim;            /* the indexer of sparse attention */
    uint64_t latent_ffn;                        /* width to which experts' inputs are projected (Nemotron 3) */
    bool activation_numbers;                    /* two learned numbers in each MLP (Apertus) */
    bool expert_choice_bias;                    /* a learned bias of the router's choice (AFMoE) */
    uint64_t layer_vocab, layer_width;          /* embeddings of each layer (Gemma 3n) */
    uint64_t hyper, o_groups, o_rank, compress; /* DeepSeek-V4: residual streams; output projection in two matrices */
    uint64_t streams, laurel_rank;              /* Gemma 3n: AltUp's streams, LAuReL's rank */
    /* images; Whisper: channels are those of its spectrogram */
    uint64_t image, patch, channels, classes;
    uint64_t class_tokens, registers; /* tokens beside the patches: class, distillation (DeiT); without a position */
    bool layer_scale, mask_token;     /* DINOv2, BEiT: a factor for each element of a block's output */
    bool mean_in_head;                /* DINOv2: the classifier also reads the mean of the patches */
    bool fixed_positions; /* DINOv2: positions of another image size, which the model interpolates; Marian: sinusoids */
    uint64_t sound; /* Whisper: positions of the encoder, always the same: 1500, for a spectrogram twice as long */
    /* Mamba: inner width of a layer, states per element of it, taps of the convolution; Mamba: rank of the time steps;
     * Mamba-2, which has heads: groups that share the projections into and out of the state */
    uint64_t inner, state, taps, step_rank, groups;
    uint64_t chunk;             /* Mamba-2: tokens per chunk of the scan; 0: 256, as in most configurations */
    bool conv_bias, inner_bias; /* of the convolution; of the input and output projections */
    bool pooler;
    bool wide_norms;  /* RMSNorm multiplies by its weight in float32 (OLMo-2), as Gemma's does */
    bool wide_logits; /* the model returns its logits in float32 (Mamba, Nemotron-H) */
    bool masked_lm;   /* BERT: the head for masked tokens */
    /* the class of the architecture has no output layer over the vocabulary, but perhaps a task's head of `labels`
     * rows, after a dense layer (label_dense) */
    bool headless, label_bias, label_dense;
    uint64_t labels;
    enum model_tower tower; /* the image tower beside the language model, which all other numbers describe */
    unsigned conv_net;      /* the convolutional network: 1 + its row in convnets.def */
    struct model_denoiser denoiser;
};

enum model_tensor_role {
    TENSOR_OTHER,     /* unknown */
    TENSOR_EMBEDDING, /* tokens (also the output layer if tied), positions, types */
    TENSOR_ATTENTION, /* matrices of q, k, v and the output */
    TENSOR_MLP,       /* matrices of a dense MLP, or of shared experts */
    TENSOR_EXPERT,    /* matrices of the experts among which tokens choose */
    TENSOR_ROUTER,
    TENSOR_CONV,
    TENSOR_NORM, /* vectors of norms */
    TENSOR_BIAS,
    TENSOR_HEAD, /* output layer, classifier, pooler */
    TENSOR_ROLES_N
};

enum model_tensor_place { TENSOR_BEFORE, TENSOR_IN_LAYER, TENSOR_AFTER }; /* for pipeline stages */

/* A number of tensors of one form. Names that model_from_shape gives to the matrices of a layer: q_proj, k_proj, v_proj
 * (qkv_proj if fused), o_proj; with latent attention q_proj or q_a_proj and q_b_proj, kv_a_proj, kv_b_proj; gate_proj,
 * up_proj (gate_up_proj if fused), down_proj, also of experts and shared experts (role and `kind` distinguish them). A
 * bias has its matrix's name and " bias". */
struct model_tensor {
    char name[80]; /* such as "q_proj"; from a file: the same if it is recognised, else the file's name with the
                      layer's number as "*" */
    enum model_tensor_role role;
    enum model_tensor_place place;
    uint64_t rows, cols; /* of one tensor; a vector has cols 1; a convolution has rows = outputs, cols = the rest */
    unsigned dims;       /* 1: vector, 2: matrix, 4: convolution, 0: unknown */
    uint64_t count;      /* number of them in the whole model */
    uint64_t layers;     /* TENSOR_IN_LAYER: number of layers that have it; 0: all layers of the shape */
    unsigned kind;       /* 0: in layers of every kind; else only in layers of this kind. If some layers have experts,
                            those without are kind 1, those with are kind 2; T5: 1 is the encoder's, 2 the decoder's;
                            convolutional networks: one kind per block */
    bool fixed;          /* a table that is never trained: no gradient and no optimizer states (Whisper's sinusoids) */
    bool tower;          /* belongs to the image tower beside the language model */
    double bytes;        /* stored bytes of all of them in the file; 0: not from a file */
};

struct model {
    char name[64];      /* the preset's name, or the file's base name */
    const char *source; /* "preset", "config.json", "safetensors", "gguf", "options", "--params" */
    struct model_shape shape;
    ARENA_LIST(struct model_tensor, tensors); /* owned */
    uint64_t params;                          /* exact: the sum over the tensors */
    double stored_bytes;                      /* from the files; 0: not from files */
    double other_bytes; /* the part of stored_bytes that is not parameters (masks, scales of quantised weights) */
    char stored_as[64]; /* types in the files: "BF16", "F32 + BF16", "Q4_K + Q6_K"; "": not from files */
    char note[320];     /* one or two sentences about how a file was read, if that is necessary; else "" */
    const char *packed; /* the format that config.json's quantization_config states, a word of --weights; NULL: none */
};

#define MODEL_PARAMS_MAX 1000000000000000u /* 1e15 */
#define MODEL_LAYERS_MAX 10000u            /* estimates loop over the layers */

/* All functions that make a model return false after one line on stderr ("COMMAND: what, where, what to do"), with
 * `*exit_code` 2 (usage) or 3 (a bad file). Call model_free() in all cases. */

/* `text` is a preset's name, or a path: config.json, a folder with one, .safetensors (one file, an index, or a folder)
 * or .gguf. An error about an unknown name suggests the nearest ones. */
bool model_from_name(const char *command, const char *text, struct model *m, int *exit_code);
/* Whether a model of that name is known and has an image tower. */
bool model_has_tower(const char *name);
/* The vocabulary of a known model; 0: unknown. */
uint64_t model_words(const char *name);
/* Whether `text` looks like a path (a slash, .json, .safetensors, .gguf …), or such a file exists. */
bool model_is_path(const char *text);
/* From the file or folder at that path. */
bool model_from_path(const char *command, const char *path, struct model *m, int *exit_code);
/* From a number of parameters only. */
void model_from_count(uint64_t params, struct model *m);
/* The defaults of a family: whether the MLP is gated, which norms and biases it has, learned positions
 * (MODEL_AS_CONTEXT), image and patch. Sizes that differ between models are 0. The start for a shape whose numbers come
 * from options or a file. */
struct model_shape model_family_shape(enum model_family family);
/* Makes a model of a shape. Completes numbers that follow from the others (head_dim, kv_heads, ffn of GPT, BERT and
 * ViT, moe_layers, expert_ffn, image positions), refuses contradictions (heads that do not divide hidden) and missing
 * numbers with exit code 2, and lists the tensors. Does not complete booleans (gated, biases, norms): see
 * model_family_shape. `what` names the source in errors; if it begins with '-', it is an option, and the errors name
 * the options to add. */
bool model_from_shape(const char *command, const char *what, const struct model_shape *shape, struct model *m,
                      int *exit_code);
/* Changes a model of images to images with this many pixels per side: a transformer's position table has one row per
 * patch. False, with exit code 2: it is not a model of images, or such images cannot be divided into its patches, or
 * are smaller than a network's kernels. */
bool model_set_image(const char *command, uint64_t side, struct model *m, int *exit_code);
/* Gives an encoder of text the head for masked tokens instead of the pooler. False, with exit code 2: it is not such an
 * encoder. */
bool model_set_masked_lm(const char *command, struct model *m, int *exit_code);
/* Gives the output layer of a decoder weights of its own. */
bool model_untie(const char *command, struct model *m, int *exit_code);
/* The shape of the layers of group `i` only; without groups the whole shape. */
struct model_shape model_block_shape(const struct model_shape *s, unsigned i);
/* CLIP: the shape of one tower, as that of a ViT. */
struct model_shape model_tower_shape(const struct model_shape *s, bool image);
uint64_t model_image_tokens(const struct model_shape *s);
/* Whether layers have this mixer. */
bool model_has_mixer(const struct model_shape *s, enum model_mixer mixer);
const char *model_mixer_word(enum model_mixer mixer);
void model_free(struct model *m);

/* "gpt2|gpt2-medium|…", for help and completion. */
extern const char model_names[];
/* All of them, with their sizes; an alias refers to its model. */
struct terminal;
struct json_t;
/* `explain`: prints the exact count and the family at any width. */
void model_list_text(FILE *out, const struct terminal *term, bool explain);
struct json_t *model_list_json(void); /* {"schema", "models": [...]}; the caller owns the reference */
const char *model_family_word(enum model_family family);

/* Adds tensors to the list and their number to `params`. Returns the row; NULL: the count exceeds MODEL_PARAMS_MAX. */
struct model_tensor *model_add(struct model *m, const char *name, enum model_tensor_role role,
                               enum model_tensor_place place, uint64_t rows, uint64_t cols, uint64_t count);
/* The same of one tensor with `dims` dimensions; in a layer: in layers of that kind only. False instead of NULL. */
bool model_add_one(struct model *m, const char *name, enum model_tensor_role role, enum model_tensor_place place,
                   unsigned kind, uint64_t rows, uint64_t cols, unsigned dims);

/* Adds the tensors of the shape's tower, if it has one. False: too many parameters. */
bool model_add_tower(struct model *m);

/* Number of parameters that one token uses: all except the experts that it does not choose. */
uint64_t model_active_params(const struct model *m);

/* The readers that model_from_name calls, for the fuzzers: `bytes` are a whole file, or the beginning of one. */
bool model_from_config(const char *command, const char *path, const char *bytes, size_t n, struct model *m,
                       int *exit_code);
bool model_from_safetensors(const char *command, const char *path, struct model *m, int *exit_code);
bool model_from_gguf(const char *command, const char *path, struct model *m, int *exit_code);
