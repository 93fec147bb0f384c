#include "analyzer/estimate/settings.h"

#include <string.h>
#include "analyzer/base/term.h"

static const struct optimizer *find_optimizer(const char *command, const char *name)
{
    const struct optimizer *o = estimate_optimizer(name);
    const char *why = estimate_shaped(name);
    char near[32];

    if (o)
        return o;
    if (why)
        complain("%s: --optimizer: the states of '%s' depend on the shapes of the matrices (%s); "
                 "a number of parameters is not enough",
                 command, name, why);
    else if (options_nearest(name, estimate_optimizers, near, sizeof near))
        complain("%s: --optimizer: '%s' is not known; did you mean '%s'?", command, name, near);
    else
        complain("%s: --optimizer: '%s' is not known; 'gpuspy %s --help' lists them", command, name,
                 command);
    return NULL;
}

bool estimate_from_settings(const char *command, const struct estimate_settings *s,
                            struct estimate *e)
{
    const struct optimizer *o = find_optimizer(command, s->optimizer);
    const struct precision *p = estimate_precision(s->precision);

    if (!o || !p)
        return false;
    if (s->model && s->params) {
        complain("%s: --model: '%s' says how many parameters there are; give it or --params", command,
                 s->model);
        return false;
    }
    if (s->master_weights && p->weights >= 4) {
        complain(
            "%s: --master-weights: with --precision %s the weights are float32 already; use it "
            "with bf16 or fp16",
            command, p->name);
        return false;
    }
    *e = estimate_training(s->model ? estimate_model(s->model) : s->params, o, p, s->master_weights);
    return true;
}
