/* Adds tensors to the list of a model. */
#include "analyzer/model/lister.h"

void model_lister_add(struct model_lister *l, const char *name, enum model_tensor_role role,
                      enum model_tensor_place place, uint64_t rows, uint64_t cols, uint64_t count)
{
    if (count && rows && cols && !model_add(l->m, name, role, place, rows, cols, count)) l->failed = true;
}

/* Adds `each` of them to every layer of the kind. */
void model_lister_add_in(struct model_lister *l, unsigned kind, const char *name, enum model_tensor_role role,
                         uint64_t rows, uint64_t cols, uint64_t each)
{
    struct model_tensor *t;

    if (!l->layers[kind] || !each || !rows || !cols) return;
    const uint64_t sets = l->s->shared ? l->layers[kind] / l->s->shared : l->layers[kind];
    t = model_add(l->m, name, role, TENSOR_IN_LAYER, rows, cols, sets * each);
    if (!t) {
        l->failed = true;
        return;
    }
    t->layers = l->layers[kind];
    t->kind = l->s->block ? l->s->block : l->layers[kind] == l->layers[MODEL_EVERY] ? MODEL_EVERY : kind;
    if (role == TENSOR_ATTENTION || role == TENSOR_MLP || role == TENSOR_EXPERT || role == TENSOR_ROUTER) t->dims = 2;
}

void model_lister_add_bias(struct model_lister *l, unsigned kind, bool has, const char *name, uint64_t rows,
                           uint64_t each)
{
    if (has) model_lister_add_in(l, kind, name, TENSOR_BIAS, rows, 1, each);
}

void model_lister_add_norms(struct model_lister *l, unsigned kind, const char *name, uint64_t rows, uint64_t each)
{
    model_lister_add_in(l, kind, name, TENSOR_NORM, rows, 1, each);
    model_lister_add_bias(l, kind, l->s->norm_bias, "norm bias", rows, each);
}

void model_lister_add_norm(struct model_lister *l, const char *name, enum model_tensor_place place)
{
    model_lister_add(l, name, TENSOR_NORM, place, l->s->hidden, 1, 1);
    if (l->s->norm_bias) model_lister_add(l, "norm bias", TENSOR_BIAS, place, l->s->hidden, 1, 1);
}
