#include "analyzer/estimate/estimate.h"

#include <string.h>

static const struct optimizer optimizers[] = {
#define OPTIMIZER(name, copies, fixed_32nds, source) {name, copies, fixed_32nds, source},
#include "analyzer/estimate/optimizers.def"
#undef OPTIMIZER
};

static const struct precision precisions[] = {
#define PRECISION(name, weights, gradients, cast_copy, meaning) \
    {name, weights, gradients, cast_copy, meaning},
#include "analyzer/estimate/precisions.def"
#undef PRECISION
};

const char estimate_optimizers[] =
#define OPTIMIZER(name, copies, fixed_32nds, source) name "|"
#include "analyzer/estimate/optimizers.def"
#undef OPTIMIZER
    "";

const char estimate_precisions[] =
#define PRECISION(name, weights, gradients, cast_copy, meaning) name "|"
#include "analyzer/estimate/precisions.def"
#undef PRECISION
    "";

static const char *const shaped[][2] = {
#define OPTIMIZER(name, copies, fixed_32nds, source)
#define SHAPED_OPTIMIZER(name, why) {name, why},
#include "analyzer/estimate/optimizers.def"
#undef SHAPED_OPTIMIZER
#undef OPTIMIZER
};

const struct optimizer *estimate_optimizer(const char *name)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (strcmp(optimizers[i].name, name) == 0)
            return &optimizers[i];
    return NULL;
}

const struct precision *estimate_precision(const char *name)
{
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(precisions[i].name, name) == 0)
            return &precisions[i];
    return NULL;
}

const char *estimate_shaped(const char *name)
{
    for (size_t i = 0; i < sizeof shaped / sizeof *shaped; i++)
        if (strcmp(shaped[i][0], name) == 0)
            return shaped[i][1];
    return NULL;
}

struct estimate estimate_training(uint64_t params, const struct optimizer *optimizer,
                                  const struct precision *precision, bool master_weights)
{
    bool master = master_weights && precision->weights < 4;
    unsigned element = master ? 4 : precision->weights; /* of a state tensor */
    struct estimate e = {
        .params = params,
        .weights = params * precision->weights,
        .gradients = params * precision->gradients,
        .optimizer =
            params * optimizer->copies * element + (params * optimizer->fixed_32nds + 31) / 32,
        .master = master ? params * 4 : 0,
        .cast_copies = params * precision->cast_copy,
    };

    e.total = e.weights + e.gradients + e.optimizer + e.master;
    return e;
}
