/* What a Mamba or a short convolution keeps for backward in a layer that also has an MLP. */
#include "analyzer/estimate/activations.h"

static void append_mixer_activation(struct estimate_act_tape *t, const struct estimate_act_op *op)
{
    if (t->n == ACT_OPS_MAX) return;
    t->ops[t->n++] = *op;
}

/* modeling_lfm2.py, Lfm2ShortConv: three parts of one projection, the first product, the convolution, the second. */
static void short_conv(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *t)
{
    const double h = (double)p->model->shape.hidden, c = z->compute, trained = p->adapter == PLAN_ADAPTER_NONE ? h : 0;

    append_mixer_activation(t, &(struct estimate_act_op){ACT_INNER, c * 3 * h, c * h, 0, 3 * h * trained, 0, false});
    append_mixer_activation(t, &(struct estimate_act_op){ACT_INNER, c * 3 * h, c * 3 * h, 0, trained, 0, false});
    append_mixer_activation(t, &(struct estimate_act_op){ACT_INNER, 0, c * h, 0, h * trained, 0, false});
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
        op.around /= z->tokens;
        append_mixer_activation(t, &op);
    }
    if (tape.n > 1)
        append_mixer_activation(t, &(struct estimate_act_op){ACT_INNER, 0, 0, 0, tape.ops[1].params, 0, false});
}
