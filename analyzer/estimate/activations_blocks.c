/* What layers of several kinds keep for backward: each group of layers is estimated as a model of its own. */
#include "analyzer/estimate/activations.h"

static void append_activation(struct estimate_act_tape *t, const struct estimate_act_op *op, double share)
{
    if (t->n == ACT_OPS_MAX) return;
    t->ops[t->n++] =
        (struct estimate_act_op){op->group, op->saved * share, op->in * share, op->work * share, op->params * share};
}

void estimate_act_block_layer(const struct plan *p, const struct estimate_act_sizes *z, bool last,
                              struct estimate_act_tape *t)
{
    const struct model_shape *m = &p->model->shape;
    const unsigned from = last ? m->blocks_n - 1 : 0, to = last || m->blocks_n == 1 ? m->blocks_n : m->blocks_n - 1;
    struct model model = *p->model;
    struct plan one = *p;
    static struct estimate_act_tape tape;
    double layers = 0;

    one.model = &model;
    t->n = 0;
    for (unsigned i = from; i < to; i++) layers += m->blocks[i].layers;
    for (unsigned i = from; i < to; i++) {
        model.shape = model_block_shape(m, i);
        estimate_act_layer(&one, z, model.shape.experts > 0, &tape);
        for (size_t k = 0; k < tape.n; k++) append_activation(t, &tape.ops[k], (double)m->blocks[i].layers / layers);
    }
}

/* modeling_lfm2.py, Lfm2ShortConv: three parts of one projection, the first product, the convolution, the second. */
static void short_conv(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *t)
{
    const double h = (double)p->model->shape.hidden, c = z->compute, trained = p->adapter == PLAN_ADAPTER_NONE ? h : 0;

    append_activation(t, &(struct estimate_act_op){ACT_INNER, c * 3 * h, c * h, 0, 3 * h * trained}, 1);
    append_activation(t, &(struct estimate_act_op){ACT_INNER, c * 3 * h, c * 3 * h, 0, trained}, 1);
    append_activation(t, &(struct estimate_act_op){ACT_INNER, 0, c * h, 0, h * trained}, 1);
}

void estimate_act_mixer(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *t)
{
    struct model model = *p->model;
    struct plan one = *p;
    static struct estimate_act_tape tape;

    if (p->model->shape.mixer == MODEL_MIXER_CONV) {
        short_conv(p, z, t);
        return;
    }
    one.model = &model;
    model.shape.family = MODEL_MAMBA;
    model.shape.heads = model.shape.state_heads;
    model.shape.head_dim = model.shape.state_head_dim;
    estimate_act_mamba_layer(&one, z, &tape);
    for (size_t k = 2; k < tape.n; k++) { /* after the norm and its result, which the layer has counted */
        struct estimate_act_op op = tape.ops[k];
        op.saved /= z->tokens;
        op.work /= z->tokens;
        append_activation(t, &op, 1);
    }
    if (tape.n > 1) append_activation(t, &(struct estimate_act_op){ACT_INNER, 0, 0, 0, tape.ops[1].params}, 1);
}
