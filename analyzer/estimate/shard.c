#include "analyzer/estimate/shard.h"
#include "analyzer/base/arena.h"

#include <math.h>
#include <string.h>

/* Of `layers` that do not divide evenly, the first part gets none of the rest: torchtitan's generate_split_points
 * (distributed/pipeline.py) gives one more to each of the parts after it. */
static uint64_t part_of_layers(uint64_t layers, uint64_t parts, uint64_t part)
{
    return layers / parts + (part > 0 && part <= layers % parts);
}

/* Megatron-LM (transformer_block.py, get_num_layers_to_build) divides what the named stages leave evenly among the
 * others. A stage that holds several chunks has every pp-th of them. */
uint64_t estimate_shard_layers(const struct plan *p, uint64_t stage)
{
    const uint64_t first = p->first_layers, last = p->last_layers, named = (first > 0) + (last > 0), pp = p->pp;
    uint64_t sum = 0;

    if (!p->model->shape.layers) return 0;
    if (first && stage == 0) return first;
    if (last && stage + 1 == pp) return last;
    if (named) return part_of_layers(p->model->shape.layers - first - last, pp - named, stage - (first > 0));
    for (uint64_t chunk = 0; chunk < p->interleave; chunk++)
        sum += part_of_layers(p->model->shape.layers, pp * p->interleave, chunk * pp + stage);
    return sum;
}

/* The number of layers in earlier stages. */
static uint64_t layers_before(const struct plan *p, uint64_t stage)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < stage; i++) sum += estimate_shard_layers(p, i);
    return sum;
}

/* The stage's share of a tensor that is in layers. Kind 1 is in the first layers, the last kind in the last ones:
 * DeepSeek's dense layers come before those with experts. */
static double layer_share(const struct plan *p, uint64_t stage, const struct model_tensor *t)
{
    uint64_t layers = p->model->shape.layers, from = 0, to = t->layers, first, end;

    if (!layers) return 1.0 / (double)p->pp;
    if (t->kind == 0 || !t->layers || t->layers >= layers || p->model->shape.family == MODEL_CONV ||
        p->model->shape.linear_layers || p->model->shape.global_head_dim ||
        p->model->shape.blocks_n) /* kinds alternate */
        return (double)estimate_shard_layers(p, stage) / (double)layers;
    if (t->kind > 1) {
        from = layers - t->layers;
        to = layers;
    }
    first = layers_before(p, stage);
    end = first + estimate_shard_layers(p, stage);
    from = from > first ? from : first;
    to = to < end ? to : end;
    return to > from ? (double)(to - from) / (double)t->layers : 0;
}

static double stage_count(const struct plan *p, uint64_t stage, const struct model_tensor *t)
{
    bool last = stage == p->pp - 1;
    const struct model_shape *s = &p->model->shape;

    if (t->place == TENSOR_IN_LAYER) return (double)t->count * layer_share(p, stage, t);
    if (last && stage && s->tied && t->role == TENSOR_EMBEDDING && t->rows == s->vocab)
        return (double)t->count; /* the output layer has a copy of it */
    return (t->place == TENSOR_BEFORE ? stage == 0 : last) ? (double)t->count : 0;
}

static bool is_tensor_named(const struct model_tensor *t, const char *part)
{
    return strstr(t->name, part) != NULL;
}

/* Each key and value head is on several GPUs if there are fewer heads than GPUs. */
static double key_parts(const struct plan *p)
{
    double heads = (double)p->model->shape.kv_heads;

    return heads > 0 ? fmin((double)p->tp, heads) : (double)p->tp;
}

static double attention_rows(const struct plan *p, const struct model_tensor *t)
{
    const struct model_shape *s = &p->model->shape;
    double tp = (double)p->tp, kv = (double)(s->kv_heads * s->head_dim), rows = (double)t->rows;

    if (s->kv_rank) /* latent attention: the projections down to the ranks are on every GPU */
        return is_tensor_named(t, "q_a_") || is_tensor_named(t, "kv_a_") ? rows : rows / tp;
    if (is_tensor_named(t, "k_proj") || is_tensor_named(t, "v_proj")) return rows / key_parts(p);
    if (is_tensor_named(t, "qkv") && kv > 0 && rows > 2 * kv) return (rows - 2 * kv) / tp + 2 * kv / key_parts(p);
    return rows / tp;
}

/* The vocabulary is divided by rows, rounded up; tables of positions and types are on every GPU. */
static double table_rows(const struct plan *p, const struct model_tensor *t)
{
    uint64_t vocab = p->model->shape.vocab;

    if ((vocab && t->rows != vocab) || is_tensor_named(t, "position") || is_tensor_named(t, "type"))
        return (double)t->rows;
    return (double)((t->rows + p->tp - 1) / p->tp);
}

/* Biases of matrices that are divided by inputs stay whole, and so do norms'. */
static double bias_rows(const struct plan *p, const struct model_tensor *t)
{
    static const char *const divided[] = {"q_proj", "qkv", "gate", "up_proj", "fc1", "c_fc", "c_attn"};

    if (is_tensor_named(t, "k_proj") || is_tensor_named(t, "v_proj")) return (double)t->rows / key_parts(p);
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        if (is_tensor_named(t, divided[i])) return (double)t->rows / (double)p->tp;
    return is_tensor_named(t, "lm_head") ? table_rows(p, t) : (double)t->rows;
}

static void divide_shard(const struct plan *p, struct estimate_shard *s)
{
    const struct model_tensor *t = s->tensor;
    double tp = (double)p->tp;

    if (p->tp == 1) return;
    if (t->dims == 0) { /* a bare number: the small part that is not divided is unknown */
        s->rows = (double)t->rows / tp;
        return;
    }
    switch (t->role) {
    case TENSOR_ATTENTION: s->rows = attention_rows(p, t); break;
    case TENSOR_MLP: s->rows = (double)t->rows / tp; break;
    case TENSOR_EXPERT: s->rows = (double)t->rows / (double)plan_expert_tp(p); break;
    case TENSOR_EMBEDDING:
    case TENSOR_HEAD: s->rows = table_rows(p, t); break;
    case TENSOR_BIAS: s->rows = bias_rows(p, t); break;
    default: break;
    }
}

bool estimate_shard_of(const struct plan *p, uint64_t stage, const struct model_tensor *t, struct estimate_shard *s)
{
    *s = (struct estimate_shard){.tensor = t,
                                 .count = stage_count(p, stage, t),
                                 .rows = (double)t->rows,
                                 .cols = (double)t->cols,
                                 .expert = t->role == TENSOR_EXPERT};
    divide_shard(p, s);
    if (s->expert) s->count /= (double)p->ep;
    return s->count > 0 && s->rows > 0 && s->cols > 0;
}

double estimate_shard_group(const struct plan *p, bool expert)
{
    double group = (double)(plan_dp(p) * p->cp);

    return expert ? fmax(1, group * (double)p->tp / (double)(p->ep * plan_expert_tp(p))) : group;
}

bool estimate_shard_views_buckets(const struct plan *p)
{
    return p->bucket_view && p->sharding < PLAN_SHARDING_ZERO2 && estimate_shard_group(p, false) > 1;
}

bool estimate_shard_multiplied(const struct plan *p, const struct model_tensor *t)
{
    switch (t->role) {
    case TENSOR_NORM: return false;
    case TENSOR_EMBEDDING: return p->model->shape.tied && t->rows == p->model->shape.vocab;
    case TENSOR_BIAS: return !is_tensor_named(t, "norm");
    case TENSOR_OTHER: return t->dims != 1;
    default: return true;
    }
}

struct estimate_shard_sum estimate_shard_sum(const struct plan *p, uint64_t stage,
                                             bool (*keep)(const struct plan *, const struct model_tensor *))
{
    struct estimate_shard_sum sum = {0};
    struct estimate_shard s;

    EACH_IN (t, p->model->tensors) {
        double n;
        if ((keep && !keep(p, t)) || !estimate_shard_of(p, stage, t, &s)) continue;
        n = s.count * s.rows * s.cols;
        sum.all += n;
        sum.own += n / estimate_shard_group(p, s.expert);
        *(s.expert ? &sum.experts : &sum.dense) += n;
    }
    return sum;
}

/* Layers of different kinds have different tensors: the largest layer has those of all layers and those of the largest
 * kind. */
double estimate_shard_layer(const struct plan *p, uint64_t stage)
{
    enum { KINDS = MODEL_BLOCKS_MAX + 1 };
    double kinds[KINDS] = {0}, largest = 0;
    uint64_t layers = p->model->shape.layers;
    struct estimate_shard s;

    if (!layers) return 0;
    EACH_IN (t, p->model->tensors) {
        uint64_t have = t->layers && t->layers <= layers ? t->layers : layers;
        if (t->place != TENSOR_IN_LAYER || !estimate_shard_of(p, stage, t, &s)) continue;
        kinds[t->kind < KINDS ? t->kind : KINDS - 1] +=
            s.rows * s.cols * (double)t->count / (double)have / (s.expert ? (double)p->ep : 1);
    }
    for (int kind = 1; kind < KINDS; kind++) largest = fmax(largest, kinds[kind]);
    return kinds[0] + largest;
}

static bool is_outside_layers(const struct plan *p, const struct model_tensor *t)
{
    return t->place != TENSOR_IN_LAYER;
}

double estimate_shard_outside(const struct plan *p, uint64_t stage)
{
    return estimate_shard_sum(p, stage, is_outside_layers).all;
}

/* FSDP's SHARD_GRAD_OP divides weights too, but they are whole from a unit's forward until its backward is over. With
 * master weights they are whole all the time (DeepSpeed, Megatron-LM). */
bool estimate_shard_gathers_until_backward(const struct plan *p)
{
    if (p->master_weights || p->adapter != PLAN_ADAPTER_NONE || estimate_shard_group(p, false) <= 1) return false;
    /* torchtitan parallelize_llama.py: otherwise each micro-batch of a pipeline would gather them again */
    return p->sharding == PLAN_SHARDING_ZERO2 || (p->sharding == PLAN_SHARDING_ZERO3 && p->fsdp && p->pp > 1);
}

bool estimate_shard_gathers(const struct plan *p)
{
    return estimate_shard_gathers_until_backward(p) ||
           (p->sharding == PLAN_SHARDING_ZERO3 &&
            (estimate_shard_group(p, false) > 1 || p->offload == PLAN_OFFLOAD_ALL));
}
