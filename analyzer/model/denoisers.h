/* Denoisers of diffusion models as Hugging Face's diffusers builds them: their tensors, the operations of a forward
 * pass, and the other parts of their pipelines. */
#pragma once

#include "analyzer/model/model.h"

enum model_op_kind {
    MODEL_OP_LINEAR,
    MODEL_OP_CONV,
    MODEL_OP_GROUP_NORM,
    MODEL_OP_LAYER_NORM,
    MODEL_OP_RMS_NORM,
    MODEL_OP_MAP,   /* element by element, and backward needs nothing of it: division, rotation, a change of type */
    MODEL_OP_UNARY, /* an activation, which keeps its input for backward */
    MODEL_OP_RELU,  /* keeps its output for backward */
    MODEL_OP_GATED, /* one half of its input times an activation of the other half */
    MODEL_OP_SCALE, /* times a vector per image that depends on the time step */
    MODEL_OP_SHIFT, /* plus such a vector */
    MODEL_OP_ADD,
    MODEL_OP_JOIN, /* torch.cat of two inputs */
    MODEL_OP_PART, /* a copy of a part */
    MODEL_OP_UPSAMPLE,
    MODEL_OP_ATTENTION, /* scaled_dot_product_attention of queries, keys and values */
    MODEL_OP_MIX,       /* products of keys and values, then with queries, without scores (Sana) */
};

/* An operation on one image or video. */
struct model_op {
    enum model_op_kind kind;
    uint64_t width, places;      /* of the output */
    uint32_t from, others[2];    /* operations that it reads, from 1; 0: none, or an input of the model */
    uint32_t lets_go[4];         /* outputs that the code's variables keep until this operation has run */
    bool view;                   /* of a part: a view, not a copy */
    bool in_layer;               /* its weight is TENSOR_IN_LAYER */
    uint32_t block;              /* from 1: the block that gradient checkpointing recomputes as a whole; 0: none */
    uint64_t rows, cols, bias;   /* of its weight and bias */
    uint64_t heads, keys;        /* of attention; keys: number of positions that each query reads */
    unsigned turns;              /* of a map: number of float32 temporaries besides its output */
    bool wide;                   /* computes in float32, whatever the precision */
    bool narrow;                 /* converts back to the weights' type */
    enum model_tensor_role role; /* of its weight */
    const char *name;            /* of its weight */
};

/* The operations for the image size and the number of text tokens of the shape. NULL: the model is not a denoiser, or
 * does not support that size. The caller frees the list. */
struct model_op *model_denoiser_ops(const struct model *m, size_t *n);

/* The other parts of a denoiser's pipeline: denoisers.def. */
struct model_pipeline {
    const char *name;
    uint64_t vae, text; /* number of parameters: of the VAE, of all text encoders */
    uint64_t plain, wo; /* of those: what is not quantised; T5's matrices that transformers keeps in wider types */
    unsigned image, frames, text_tokens;
    bool guidance;                  /* classifier-free: each step computes the prompt and the empty one */
    bool wide_vae;                  /* the VAE decodes in float32 although the pipeline has float16 */
    unsigned shrink, shrink_frames; /* pixels per side of a latent position; frames per latent position */
    unsigned decode;                /* live numbers per pixel that is decoded at once, in tenths */
    unsigned workspace; /* what cuDNN's takes in addition, as published peaks show; 0: no more, or unknown */
    unsigned at_once;   /* number of frames; 0: all */
    unsigned tile;      /* pixels per side of a tile */
};
const struct model_pipeline *model_pipeline_of(const struct model *m);

/* Completes `m`, whose shape is that of a denoiser; false: too many parameters. */
bool model_denoiser_make(struct model *m);
