/* Inside of stored.c and stored_model.c: see files.h. */
#ifndef GPUSPY_MODEL_STORED_H
#define GPUSPY_MODEL_STORED_H

#include "analyzer/base/arena.h"
#include "analyzer/model/files.h"

struct model_stored_form {
    char *pattern; /* the name with numbers between dots as "*" */
    const char *type;
    unsigned rank;
    uint64_t first, second, elements; /* of one */
    uint64_t count;
    uint64_t layer_first, layer_last; /* of those within layers */
    double bytes;                     /* of all */
    enum model_tensor_role role;      /* stored_model.c, once a form: it reads the whole name many times */
    unsigned packing;                 /* parameters in a stored number, in parts; stored_model.c */
    bool by_columns;                  /* a packed matrix has more columns than are stored, not more rows */
    uint32_t next;                    /* form of the same pattern; MAP_NEW: none */
};

struct model_stored {
    struct arena arena;  /* patterns */
    struct map names;    /* hashes of names */
    struct map forms_by; /* hash of pattern and form → place */
    struct map patterns; /* hash of pattern → place of its first form */
    struct model_stored_form *forms;
    size_t forms_n, forms_cap;
    uint64_t tensors;
    uint64_t header_bytes; /* of all files */
    uint64_t layers;       /* one more than the largest number of a layer */
};

/* The first form with this pattern; NULL: none. */
const struct model_stored_form *model_stored_find(const struct model_stored *s, const char *pattern);

#endif
