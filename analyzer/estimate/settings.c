#include "analyzer/estimate/settings.h"

#include "analyzer/base/term.h"

const char estimate_default_precision[] = "fp32";

/* `counted`: only a number of parameters is known. */
static const struct estimate_optimizer *find_optimizer(const char *command, const char *name, bool counted)
{
    const struct estimate_optimizer *o = counted ? estimate_optimizer(name) : estimate_any_optimizer(name);
    const char *why = estimate_shaped(name);
    char near[32];

    if (o) return o;
    if (why)
        complain("%s: --optimizer: the states of '%s' depend on the shapes of the matrices (%s); "
                 "add --model or a shape",
                 command, name, why);
    else if (options_nearest(name, estimate_all_optimizers, near, sizeof near))
        complain("%s: --optimizer: '%s' is unknown; did you mean '%s'?", command, name, near);
    else
        complain("%s: --optimizer: '%s' is unknown; 'gpuspy estimate --help' lists them", command, name);
    return NULL;
}

bool estimate_parts_of(const char *command, const struct estimate_settings *s, const struct estimate_optimizer **o,
                       const struct estimate_precision **p)
{
    *o = find_optimizer(command, s->optimizer, s->params > 0);
    *p = estimate_precision(s->precision);
    if (!*o || !*p) return false;
    if (s->master_weights && (*p)->weights >= 4) {
        return complain_with(false,
                             "%s: --master-weights: with --precision %s the weights are already float32; use it "
                             "with bf16 or fp16",
                             command, (*p)->name);
    }
    return true;
}
