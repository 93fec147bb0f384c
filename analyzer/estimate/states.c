/* Weights, gradients, optimizer states: what is there whatever the batch. */
#include "analyzer/estimate/estimate.h"

struct local_params estimate_local_params(const struct plan *p, uint64_t stage)
{
    (void)stage;
    return (struct local_params){.dense = (double)p->model->params};
}

void estimate_states(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    struct estimate e;

    (void)stage;
    if (p->inference)
        return;
    e = estimate_training(p->model->params, p->optimizer, p->precision, p->master_weights);
    estimate_add(r, ESTIMATE_WEIGHTS, IN_TRAINING, "weights", EXACTLY((double)e.weights));
    estimate_add(r, ESTIMATE_GRADIENTS, IN_PHASE(BACKWARD) | IN_PHASE(STEP), "gradients",
                 EXACTLY((double)e.gradients));
    estimate_add(r, ESTIMATE_OPTIMIZER, IN_TRAINING, "optimizer states", EXACTLY((double)e.optimizer));
    if (e.master)
        estimate_add(r, ESTIMATE_MASTER, IN_TRAINING, "master weights", EXACTLY((double)e.master));
}
