#include "analyzer/base/each.h"
#include "analyzer/estimate/estimate.h"

#include <string.h>

#define OPTIMIZER_ROW(name, copies, fixed_32nds, form, step, foreach, loop, before, source, why) \
    {name, copies, fixed_32nds, OPTIMIZER_##form, STEPS_##step, foreach, loop, before, source, why},
#define OPTIMIZER(...) OPTIMIZER_ROW(__VA_ARGS__, NULL)
#define SHAPED_OPTIMIZER(...) OPTIMIZER_ROW(__VA_ARGS__)
static const struct estimate_optimizer optimizers[] = {
#include "analyzer/estimate/optimizers.def"
};

static const struct estimate_precision precisions[] = {
#define PRECISION(name, weights, gradients, cast_copy, cast, meaning, source) \
    {name, weights, gradients, cast_copy, PRECISION_CAST_##cast, meaning, source},
#include "analyzer/estimate/precisions.def"
};

#define OPTIMIZER(name, ...) name "|"

#define SHAPED_OPTIMIZER(name, ...) name "|"
const char estimate_all_optimizers[] =
#include "analyzer/estimate/optimizers.def"
    "";

const char estimate_precisions[] =
#define PRECISION(name, ...) name "|"
#include "analyzer/estimate/precisions.def"
    "";

const struct estimate_optimizer *estimate_any_optimizer(const char *name)
{
    return FIND_OF(o, optimizers, COUNT_OF(optimizers), strcmp(o->name, name) == 0);
}

const struct estimate_optimizer *estimate_optimizer(const char *name)
{
    const struct estimate_optimizer *o = estimate_any_optimizer(name);
    return o && !o->shaped ? o : NULL;
}

const struct estimate_precision *estimate_precision(const char *name)
{
    return FIND_OF(p, precisions, COUNT_OF(precisions), strcmp(p->name, name) == 0);
}

const char *estimate_shaped(const char *name)
{
    const struct estimate_optimizer *o = estimate_any_optimizer(name);
    return o ? o->shaped : NULL;
}

struct estimate estimate_training(uint64_t params, const struct estimate_optimizer *optimizer,
                                  const struct estimate_precision *precision, bool master_weights)
{
    bool master = master_weights && precision->weights < 4;
    unsigned element = master ? 4 : precision->weights; /* of a state tensor */
    struct estimate e = {
        .params = params,
        .weights = params * precision->weights,
        .gradients = params * precision->gradients,
        .optimizer = params * optimizer->copies * element + (params * optimizer->fixed_32nds + 31) / 32,
        .master = master ? params * 4 : 0,
        .cast_copies = precision->cast == PRECISION_CAST_AUTOCAST ? params * precision->cast_copy : 0,
    };

    e.total = e.weights + e.gradients + e.optimizer + e.master;
    return e;
}
