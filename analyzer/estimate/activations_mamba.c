/* What a layer of Mamba or Mamba-2 keeps for backward. With mamba_ssm's kernels: what their autograd functions save
 * (ops/selective_scan_interface.py, MambaInnerFn; ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn). Without
 * them: the saved tensors of transformers' modules, counted. */
#include <math.h>
#include "analyzer/estimate/activations.h"

#define SCANNED 2048 /* tokens between two states that the scan's kernel keeps: selective_scan.cpp */

static void put_scan_activation(struct estimate_act_tape *t, enum estimate_act_group group, double saved, double work,
                                double params, double around)
{
    t->ops[t->n++] = (struct estimate_act_op){group, saved, 0, work, params, around, false};
}

/* Bytes per token of the scan: its inputs and outputs, its states, what backward allocates temporarily, and what the
 * variables of forward's function hold in addition until it returns. */
struct scan {
    double inner, states, work, around;
};

static double chunk_tokens(const struct model_shape *m)
{
    return m->chunk ? (double)m->chunk : 256;
}

/* Mamba: discretised A and B, and a state, for each token, element and state dimension. */
static struct scan scan_of_steps(const struct model_shape *m, const struct estimate_act_sizes *z)
{
    double i = (double)m->inner, state = i * (double)m->state, c = z->compute;
    bool half = c < 4;
    double small = (double)(m->step_rank + 2 * m->state);

    return (struct scan){(half ? 26 + (z->amp ? 2 : 0) : 40) * i + c * small, (half ? 14 : 12) * state, 12 * state, 0};
}

static struct scan scan_of_kernel(const struct model_shape *m, const struct estimate_act_sizes *z)
{
    double i = (double)m->inner, c = z->compute, small = (double)(m->step_rank + 4 * m->state);
    double states = z->seq > 0 ? 8 * i * (double)m->state * ceil(z->seq / SCANNED) / z->seq : 0;

    return (struct scan){3 * c * i + c * small, states, 8 * c * i, 0};
}

/* Mamba-2, in float32: a matrix of tokens by tokens for each chunk, and B and C once for each head. */
static struct scan scan_of_chunks(const struct model_shape *m, const struct estimate_act_sizes *z, double in,
                                  double mixed)
{
    double i = (double)m->inner, c = z->compute, heads = (double)m->heads, chunk = chunk_tokens(m);
    double whole = z->seq > 0 ? ceil(z->seq / chunk) * chunk / z->seq : 1;
    const double freed = 10 * heads * (double)m->state; /* copies of B and C, before the matrices' own backward */
    double one = 4 * heads * chunk, state = 8 * i * (double)m->state / chunk,
           floats = c < 4 ? 10 * 4 * i + c * i : 9 * 4 * i + 4 * mixed;

    if (z->amp) /* under autocast matrix products read 16 bits */
        return (struct scan){2 * c * mixed + floats - 6 * i,
                             whole * (2 * one + (4 + 4 * c) * heads * (double)m->state + state / 2),
                             whole * fmax(0, 2.5 * one - freed), one + 8 * heads * (double)m->state + 12 * i};
    return (struct scan){c * (in + mixed) + floats, whole * (3 * one + 5 * 4 * heads * (double)m->state + state),
                         whole * fmax(0, 2 * one - freed), 4 * heads * (double)m->state + 16 * i};
}

static struct scan chunk_kernel(const struct model_shape *m, const struct estimate_act_sizes *z, double in)
{
    double i = (double)m->inner, c = z->compute, chunk = chunk_tokens(m), states = 8 * i * (double)m->state / chunk;

    return (struct scan){c * (in + i) + 4, 0, 2 * c * in + 4 * c * i + states + 4 * (double)m->groups * chunk, 0};
}

void estimate_act_mamba_layer(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *t)
{
    const struct model_shape *m = &p->model->shape;
    bool eager = p->attention == PLAN_ATTENTION_EAGER, trained = p->adapter == PLAN_ADAPTER_NONE;
    double i = (double)m->inner, h = (double)m->hidden, mixed = i + 2 * (double)(m->groups * m->state);
    double in = i + mixed + (double)m->heads, c = z->compute;
    double far = eager ? 0.05 : 0.2, scale = z->variant == ACT_PADDED ? 1 + far : z->variant == ACT_FUSED ? 1 - far : 1;
    struct scan s = m->heads ? (eager ? scan_of_chunks(m, z, in, mixed) : chunk_kernel(m, z, in))
                             : (eager ? scan_of_steps(m, z) : scan_of_kernel(m, z));
    double other = m->heads ? 0 : i * (double)(m->step_rank + 2 * m->state) + i * (double)(m->step_rank + m->state);

    t->n = 0;
    put_scan_activation(t, ACT_NORM, (c < 4 ? (z->amp ? 8 : 6) : 8) * h + 4, 8 * h, trained ? h : 0, 0);
    put_scan_activation(t, ACT_NORM, c * h, c * h, trained ? in * h : 0, 0);
    put_scan_activation(t, ACT_INNER, s.inner, 0, trained ? mixed * (double)m->taps : 0, 0);
    put_scan_activation(t, ACT_STATES, s.states, s.work, trained ? other : 0, s.around);
    /* the projection reads the output, which is counted with the inner tensors */
    put_scan_activation(t, ACT_INNER, 0, c * i, trained ? i * h : 0, 0);
    for (size_t k = 0; k < t->n; k++) {
        t->ops[k].saved *= scale * z->tokens;
        t->ops[k].work *= scale * z->tokens;
        t->ops[k].around *= scale * z->tokens;
    }
}
