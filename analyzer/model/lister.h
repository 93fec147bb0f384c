/* The list of a model's tensors while it is made: shape.c lists what is around the layers, shape_layers.c the layers,
 * shape_mixers.c what mixes tokens there besides attention. */
#pragma once

#include "analyzer/model/model.h"

/* Kinds of layers: see struct model_tensor. */
enum { MODEL_EVERY, MODEL_FIRST, MODEL_SECOND };

/* The list that is being made. */
struct model_lister {
    struct model *m;
    const struct model_shape *s;
    uint64_t layers[3]; /* number of layers of each kind; [MODEL_EVERY] is their sum */
    bool failed;        /* too many parameters, or out of memory */
};

void model_lister_add(struct model_lister *l, const char *name, enum model_tensor_role role,
                      enum model_tensor_place place, uint64_t rows, uint64_t cols, uint64_t count);
/* Adds `each` of them to every layer of the kind. */
void model_lister_add_in(struct model_lister *l, unsigned kind, const char *name, enum model_tensor_role role,
                         uint64_t rows, uint64_t cols, uint64_t each);
void model_lister_add_bias(struct model_lister *l, unsigned kind, bool has, const char *name, uint64_t rows,
                           uint64_t each);
void model_lister_add_norms(struct model_lister *l, unsigned kind, const char *name, uint64_t rows, uint64_t each);
void model_lister_add_norm(struct model_lister *l, const char *name, enum model_tensor_place place);
/* `each` is 2 if the layer has cross-attention, too. */
void model_lister_add_attention(struct model_lister *l, unsigned kind, uint64_t each);
void model_lister_add_mlps(struct model_lister *l, unsigned kind, enum model_tensor_role role, uint64_t ffn, bool bias,
                           uint64_t each);
/* Everything in the layers of a decoder or encoder. */
void model_lister_add_layers(struct model_lister *l);
/* The mixer of the shape's layers, which is not attention. */
void model_lister_add_mixer(struct model_lister *l, unsigned kind);
void model_lister_add_mamba(struct model_lister *l, unsigned kind);
void model_lister_add_delta(struct model_lister *l, unsigned kind);
