/* The list of a model's tensors, and sums over it. */
#include "analyzer/model/model.h"
#include "analyzer/base/arena.h"

#include <stdlib.h>

struct model_tensor *model_add(struct model *m, const char *name, enum model_tensor_role role,
                               enum model_tensor_place place, uint64_t rows, uint64_t cols, uint64_t count)
{
    unsigned __int128 params = (unsigned __int128)rows * cols;
    struct model_tensor *t;

    if (params > MODEL_PARAMS_MAX || params * count > MODEL_PARAMS_MAX - m->params) return NULL;
    t = ARENA_ADD(m->tensors);
    *t = (struct model_tensor){
        .role = role, .place = place, .rows = rows, .cols = cols, .dims = cols > 1 ? 2 : 1, .count = count};
    snprintf(t->name, sizeof t->name, "%s", name);
    m->params += (uint64_t)(params * count);
    return t;
}

bool model_add_one(struct model *m, const char *name, enum model_tensor_role role, enum model_tensor_place place,
                   unsigned kind, uint64_t rows, uint64_t cols, unsigned dims)
{
    struct model_tensor *t = model_add(m, name, role, place, rows, cols, 1);

    if (!t) return false;
    t->dims = dims;
    if (place == TENSOR_IN_LAYER) {
        t->layers = 1;
        t->kind = kind;
    }
    return true;
}

void model_from_count(uint64_t params, struct model *m)
{
    struct model_tensor *t;

    *m = (struct model){.source = "--params"};
    t = model_add(m, "parameters", TENSOR_OTHER, TENSOR_IN_LAYER, params, 1, 1);
    if (t) t->dims = 0;
}

void model_free(struct model *m)
{
    free(m->tensors);
    m->tensors = NULL;
    m->tensors_n = m->tensors_cap = 0;
}

/* Includes the biases of experts: in the list a bias follows its matrix. */
static uint64_t expert_params(const struct model *m)
{
    uint64_t params = 0;
    bool expert = false;

    EACH_IN (t, m->tensors) {

        expert = t->role == TENSOR_EXPERT || (expert && t->role == TENSOR_BIAS);
        if (expert) params += t->rows * t->cols * t->count;
    }
    return params;
}

uint64_t model_active_params(const struct model *m)
{
    uint64_t experts = expert_params(m), n = m->shape.experts;

    if (!experts || !n || m->shape.experts_used >= n) return m->params;
    return m->params - experts + (uint64_t)((unsigned __int128)experts * m->shape.experts_used / n);
}
