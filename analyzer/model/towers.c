/* The image tower of a model: its tensors come from a table, towers.def. Its activations are unknown. */
#include "analyzer/model/model.h"

enum { LM = 0 };

static const struct part {
    enum model_tower tower;
    const char *name;
    enum model_tensor_role role;
    unsigned dims;
    uint64_t rows, cols, count; /* rows or cols LM: the language model's hidden size */
} parts[] = {
#define TENSOR(tower, name, role, dims, rows, cols, count) \
    {MODEL_TOWER_##tower, name, TENSOR_##role, dims, rows, cols, count},
#include "analyzer/model/towers.def"
#undef TENSOR
};

bool model_add_tower(struct model *m)
{
    const uint64_t hidden = m->shape.hidden;

    for (size_t i = 0; m->shape.tower && i < sizeof parts / sizeof *parts; i++) {
        const struct part *p = &parts[i];
        struct model_tensor *t;
        if (p->tower != m->shape.tower) continue;
        t = model_add(m, p->name, p->role, TENSOR_BEFORE, p->rows == LM ? hidden : p->rows,
                      p->cols == LM ? hidden : p->cols, p->count);
        if (!t) return false;
        t->dims = p->dims;
        t->tower = true;
    }
    return true;
}
