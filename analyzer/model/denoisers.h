/* Denoisers of diffusion models as Hugging Face's diffusers build them: their tensors, the operations of a forward
 * pass, and what is around them in a pipeline. */
#ifndef GPUSPY_MODEL_DENOISERS_H
#define GPUSPY_MODEL_DENOISERS_H

#include "analyzer/model/model.h"

enum model_op_kind {
    MODEL_OP_LINEAR,
    MODEL_OP_CONV,
    MODEL_OP_GROUP_NORM,
    MODEL_OP_LAYER_NORM,
    MODEL_OP_RMS_NORM,
    MODEL_OP_MAP,   /* element by element, without anything that backward needs: division, rotation, a change of type */
    MODEL_OP_UNARY, /* an activation that keeps its input */
    MODEL_OP_RELU,  /* keeps its output */
    MODEL_OP_GATED, /* half of its input times an activation of the other half */
    MODEL_OP_SCALE, /* times a vector for each image, which depends on the time step */
    MODEL_OP_SHIFT, /* plus such a vector */
    MODEL_OP_MULTIPLY,
    MODEL_OP_ADD,
    MODEL_OP_JOIN, /* torch.cat of two */
    MODEL_OP_PART, /* a copy of a part */
    MODEL_OP_UPSAMPLE,
    MODEL_OP_ATTENTION, /* scaled_dot_product_attention of queries, keys and values */
    MODEL_OP_MIX,       /* products of keys and values, then of queries, without scores (Sana) */
};

/* Of one image or video. */
struct model_op {
    enum model_op_kind kind;
    uint64_t width, places;      /* of the output */
    uint32_t from, others[2];    /* operations that it reads, from 1; 0: none, or what comes from outside */
    uint32_t lets_go[4];         /* outputs that variables of the code have until this operation is done */
    bool view;                   /* of a part: no copy */
    bool in_layer;               /* its weight is TENSOR_IN_LAYER */
    uint32_t block;              /* from 1: the part that gradient checkpointing computes again as a whole; 0: none */
    uint64_t rows, cols, bias;   /* of its weight and bias */
    uint64_t heads, keys;        /* of attention; keys: places that each query looks at */
    unsigned turns;              /* of a map: float32 temporaries that it makes beside its output */
    bool wide;                   /* in float32 in any precision */
    bool narrow;                 /* back to the type of the weights */
    enum model_tensor_role role; /* of its weight */
    const char *name;            /* of its weight */
};

/* The operations for an image of that many pixels and so many tokens of text; NULL: it is not a denoiser, or the size
 * is none that it can have. To be freed. */
struct model_op *model_denoiser_ops(const struct model *m, size_t *n);

/* What a pipeline has beside its denoiser: denoisers.def. */
struct model_pipeline {
    const char *name;
    uint64_t vae, text, largest_text; /* parameters: of the VAE, of all text encoders, of the largest of them */
    unsigned image, frames, text_tokens;
    bool guidance;                  /* classifier-free: each step is for the prompt and for the empty one */
    bool wide_vae;                  /* it decodes in float32 where the pipeline has float16 */
    unsigned shrink, shrink_frames; /* pixels to a side of a latent place, frames to one */
    unsigned decode;                /* tenths of numbers that are live for each pixel of what is decoded at once */
    unsigned at_once;               /* frames; 0: all */
    unsigned tile;                  /* pixels to a side of a tile */
};
const struct model_pipeline *model_pipeline_of(const struct model *m);

/* Completes `m`, whose shape is that of a denoiser; false: too many parameters. */
bool model_denoiser_make(struct model *m);

#endif
