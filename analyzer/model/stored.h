/* Shared by stored.c and stored_model.c; see files.h. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/model/files.h"

struct model_stored_form {
    char *pattern; /* the name with "*" for numbers between dots */
    const char *type;
    unsigned rank;
    uint64_t first, second, elements; /* of one tensor */
    uint64_t count;
    uint64_t layer_first, layer_last; /* first and last layer that has it */
    double bytes;                     /* of all of them */
    enum model_tensor_role role;      /* set by stored_model.c once per form, because it searches the whole name many
                                         times */
    unsigned packing;                 /* parameters per stored number, in parts of PLAIN; set by stored_model.c */
    bool by_columns;                  /* packing reduces the columns, not the rows */
    uint32_t next;                    /* the next form of the same pattern; MAP_NEW: none */
};

struct model_stored {
    struct arena arena;  /* patterns */
    struct map names;    /* hashes of names */
    struct map forms_by; /* hash of pattern and form → index */
    struct map patterns; /* hash of pattern → index of its first form */
    ARENA_LIST(struct model_stored_form, forms);
    uint64_t tensors;
    uint64_t header_bytes; /* of all files */
    uint64_t layers;       /* one more than the highest number of a layer */
};

/* The first form with this pattern; NULL: none. */
const struct model_stored_form *model_stored_find(const struct model_stored *s, const char *pattern);
