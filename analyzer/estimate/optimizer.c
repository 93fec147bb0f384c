#include "analyzer/estimate/optimizer.h"

#include <math.h>
#include <string.h>

#define LITTLE 4096.0          /* elements; smaller tensors are not quantised (bitsandbytes, torchao) */
#define PAGED_FROM 100000.0    /* elements; bitsandbytes' get_state_buffer */
#define PRECONDITIONED 10000.0 /* SOAP's max_precond_dim */

/* Two states of `bits`, and a float32 scale for each block. */
static double quantised_bytes(double n, double bits, double block, double element)
{
    if (n < LITTLE) return 2 * n * element;
    return 2 * (n * bits / 8 + 4 * ceil(n / block));
}

static struct estimate_interval paged_bytes(const struct model_tensor *t, double n, double bytes, double stays)
{
    bool moves = n >= PAGED_FROM || t->dims == 0;
    return (struct estimate_interval){moves ? stays : bytes, bytes, bytes};
}

/* A row and a column, in float32 or the gradient's type, instead of the matrix. Of a convolution, the last two
 * dimensions are the kernel's, whose sides are unknown: 7, 3 or 1. */
static struct estimate_interval factored_bytes(const struct model_tensor *t, double rows, double cols, double element)
{
    double n = rows * cols;

    if (t->dims == 1) return EXACTLY(n * element);
    if (t->dims == 4) return (struct estimate_interval){2 * n / 7 * element, 2 * n / 3 * element, 2 * n * element};
    return EXACTLY((rows + cols) * element);
}

static double soap_bytes(const struct model_tensor *t, double rows, double cols, double element)
{
    double squares = 0;

    if (t->dims > 1) {
        squares += rows <= PRECONDITIONED ? rows * rows : 0;
        squares += cols <= PRECONDITIONED ? cols * cols : 0;
    }
    return 2 * rows * cols * element + 2 * 4 * squares;
}

static bool is_projected(const struct model_tensor *t)
{
    return t->role == TENSOR_ATTENTION || t->role == TENSOR_MLP || t->role == TENSOR_EXPERT;
}

static double galore_bytes(const struct estimate_optimizer *o, const struct model_tensor *t, double rows, double cols,
                           double element, uint64_t rank)
{
    const bool projects = is_projected(t);
    const double large = fmax(rows, cols), small = fmin(rows, cols), r = projects ? fmin((double)rank, small) : small;
    const double states =
        strcmp(o->name, "galore8bit") == 0 ? quantised_bytes(r * large, 8, 256, 4) : 2 * r * large * element;

    return states + (projects ? r * small * element : 0);
}

static bool is_orthogonalised(const struct model_tensor *t)
{
    return t->place == TENSOR_IN_LAYER && t->dims >= 2;
}

struct estimate_interval estimate_optimizer_tensor(const struct estimate_optimizer *o, const struct model_tensor *t,
                                                   double rows, double cols, double element, uint64_t rank)
{
    double n = rows * cols, each = (o->copies * element + o->fixed_32nds / 32.0) * n;

    switch (o->form) {
    case OPTIMIZER_BLOCKS_8: return EXACTLY(t->dims ? quantised_bytes(n, 8, 256, 4) : each);
    case OPTIMIZER_BLOCKS_4:
        if (t->dims && fmod(n, 128) != 0) /* torchao quantises only whole blocks */
            return EXACTLY(2 * n * element);
        return EXACTLY(t->dims ? quantised_bytes(n, 4, 128, element) : each);
    case OPTIMIZER_PAGED_8: return paged_bytes(t, n, t->dims ? quantised_bytes(n, 8, 256, 4) : each, 8 * ceil(n / 256));
    case OPTIMIZER_PAGED_32: return paged_bytes(t, n, each, 0);
    case OPTIMIZER_MUON:
        if (t->dims == 0) return (struct estimate_interval){each, each, 2 * each};
        return EXACTLY(is_orthogonalised(t) ? each : 2 * each);
    case OPTIMIZER_FACTORED: return factored_bytes(t, rows, cols, element);
    case OPTIMIZER_SOAP: return EXACTLY(soap_bytes(t, rows, cols, element));
    case OPTIMIZER_GALORE: return EXACTLY(galore_bytes(o, t, rows, cols, element, rank));
    case OPTIMIZER_EVEN:
    case OPTIMIZER_MASKED: break;
    }
    return EXACTLY(each);
}

void estimate_optimizer_take(const struct plan *p, const struct estimate_shard *s, double element, double group,
                             struct estimate_optimizer_sum *sum)
{
    const struct estimate_optimizer *o = p->optimizer;
    struct estimate_interval bytes = estimate_optimizer_tensor(o, s->tensor, s->rows, s->cols, element, p->rank);
    double share = s->count / group, n = s->rows * s->cols, side = fmin(s->rows, s->cols);

    sum->states = estimate_interval_add(
        sum->states, (struct estimate_interval){bytes.low * share, bytes.likely * share, bytes.high * share});
    sum->elements += n * share;
    sum->largest = fmax(sum->largest, n / group);
    sum->whole = fmax(sum->whole, bytes.likely + (p->master_weights ? 4 * n : 0));
    if (o->form == OPTIMIZER_GALORE && is_projected(s->tensor)) /* the gradient, its copy, U and V */
        sum->decomposed = fmax(sum->decomposed, 3 * n + side * side);
    if (o->form == OPTIMIZER_MUON && is_orthogonalised(s->tensor)) /* the update, two bfloat16 copies, two grams */
        sum->orthogonal = fmax(sum->orthogonal, n * element + 2 * 2 * n + 2 * 2 * side * side);
    else
        sum->rest += n * share;
}

/* Temporaries of a step that processes one tensor after another. */
static struct estimate_interval looped_bytes(const struct estimate_optimizer *o,
                                             const struct estimate_optimizer_sum *sum, double element)
{
    double one = sum->largest * element, at_once = o->loop * one;

    if (o->form == OPTIMIZER_FACTORED) /* norms of the whole tensor */
        at_once = 8 * sum->largest;
    return (struct estimate_interval){o->steps == STEPS_OWN ? 0 : at_once, at_once, at_once + o->before * one};
}

static struct estimate_interval at_once(const struct plan *p, const struct estimate_optimizer_sum *sum, double element)
{
    const struct estimate_optimizer *o = p->optimizer;
    const int copies =
        o->foreach + (p->adds_out_of_place && o->steps == STEPS_FUSED); /* PyTorch's pull request 104898 */
    double bytes = copies * sum->elements * element;

    if (o->form == OPTIMIZER_MASKED) bytes += sum->largest * (element + 1);
    return EXACTLY(o->form == OPTIMIZER_FACTORED ? fmax(bytes, 8 * sum->largest) : bytes);
}

struct estimate_interval estimate_optimizer_temporaries(const struct plan *p, const struct estimate_optimizer_sum *sum,
                                                        double element, const char **how)
{
    const struct estimate_optimizer *o = p->optimizer;
    struct estimate_interval one = looped_bytes(o, sum, element), all = at_once(p, sum, element);

    *how = "temporaries of one tensor at a time";
    if (o->form == OPTIMIZER_MUON) {
        *how = "Newton-Schulz of the largest matrix, or Adam's copy of the rest";
        return EXACTLY(fmax(sum->orthogonal, sum->rest * element));
    }
    if (o->steps == STEPS_OWN || p->step == PLAN_STEP_LOOP || p->step == PLAN_STEP_IN_BACKWARD) return one;
    if (p->step == PLAN_STEP_FUSED && o->steps == STEPS_FUSED) return EXACTLY(0);
    if (o->steps == STEPS_SINGLE) /* foreach only on request */
        return (struct estimate_interval){one.low, one.likely, fmax(one.high, all.high)};
    *how = "copies as large as all parameters (foreach)";
    return all;
}
