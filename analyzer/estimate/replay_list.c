/* Which trainings have known operations, and the list of these operations. */
#include "analyzer/base/arena.h"
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/replay.h"

uint32_t estimate_replay_put(struct estimate_replay_list *list, struct estimate_replay_op op)
{
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 1024;
        list->ops = arena_realloc(list->ops, list->cap, sizeof *list->ops);
    }
    list->ops[list->n++] = op;
    return (uint32_t)list->n;
}

/* Known norms: two per layer; one that attention and MLP both read (Phi, GPT-J); Gemma's four, unless eager attention
 * caps scores. */
static bool norms_are_known(const struct plan *p)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_act_sizes z = estimate_act_sizes_of(p, ACT_EAGER);
    const struct estimate_act_habits h = estimate_act_habits_of(p, &z);

    return m->norms == 2 || (m->norms == 1 && m->new_gelu) ||
           (h.gemma && !(h.caps && (p->attention == PLAN_ATTENTION_EAGER || estimate_act_falls_back(p, &z))));
}

/* A replay of 2,000 layers takes 3 s. The deepest published model that is known, DeepNet, has 1,000. */
#define REPLAYED_LAYERS_MAX 2000

/* Layers that estimate_replay_layers() can list. */
static bool layers_have_a_list(const struct plan *p)
{
    const struct model_shape *m = &p->model->shape;
    const bool images = m->family == MODEL_VIT && m->patch;

    return (m->family == MODEL_GPT || m->family == MODEL_LLAMA || m->family == MODEL_BERT || m->family == MODEL_T5 ||
            images) &&
           m->layers && m->layers <= REPLAYED_LAYERS_MAX && (m->vocab || images) && !m->experts && !m->kv_rank &&
           !m->linear_layers && !m->global_head_dim && !m->blocks_n && !m->layer_width && !m->v_dim && !m->head_gate &&
           !m->gated_attention && !m->tower && !m->shared &&
           (p->checkpoint == PLAN_CHECKPOINT_NONE || p->checkpoint == PLAN_CHECKPOINT_FULL) && !p->by_module &&
           p->precision->cast != PRECISION_CAST_FP8 && !(p->fused_loss && p->weights) && !p->chunked_loss &&
           !p->fused_layers;
}

/* Layers whose list has every tensor. */
static bool layers_are_known(const struct plan *p)
{
    const struct model_shape *m = &p->model->shape;

    return layers_have_a_list(p) && !p->fused_norms && m->family != MODEL_VIT &&
           (m->gated || m->family != MODEL_LLAMA) && !(m->family == MODEL_BERT && (m->embedding || !m->positions)) &&
           (m->family != MODEL_T5 || m->buckets) && norms_are_known(p);
}

/* LoRA; beside quantised weights those of formats that one matrix has alone. */
static bool adapters_are_known(const struct plan *p)
{
    const enum model_family family = p->model->shape.family;

    return p->adapter == PLAN_ADAPTER_NONE ||
           (p->adapter == PLAN_ADAPTER_LORA && (family == MODEL_GPT || family == MODEL_LLAMA) &&
            (!p->weights || p->weights->scheme == QUANTISATION_LINEAR) && p->saved == PLAN_SAVED_NONE &&
            p->precision->cast != PRECISION_CAST_FP8);
}

static bool is_whole_training(const struct plan *p)
{
    return !p->inference && p->batch && p->gpus == 1 && adapters_are_known(p) && p->offload == PLAN_OFFLOAD_NONE &&
           !p->away && p->frozen == PLAN_FROZEN_NONE && !p->master_weights;
}

bool estimate_replay_knows(const struct plan *p)
{
    if (p->model->shape.family == MODEL_DENOISER)
        return !p->inference && p->batch && p->gpus == 1 && !p->master_weights && p->frozen == PLAN_FROZEN_NONE &&
               (p->adapter == PLAN_ADAPTER_NONE || p->adapter == PLAN_ADAPTER_LORA) &&
               p->precision->cast != PRECISION_CAST_FP8;
    return is_whole_training(p) && (p->model->shape.family == MODEL_CONV || layers_are_known(p));
}

/* One token's share of experts as a plain MLP, and latent attention as a plain one. */
static void simplify_shape(struct model_shape *m)
{
    const uint64_t shared = m->shared_ffn ? m->shared_ffn : m->shared_experts * m->expert_ffn;

    if (m->experts) m->ffn = m->experts_used * m->expert_ffn + shared;
    if (m->kv_rank) {
        m->head_dim = m->nope_dim + m->rope_dim;
        m->kv_heads = m->heads;
    }
    m->experts = m->kv_rank = m->v_dim = m->global_head_dim = m->layer_width = 0;
    m->head_gate = m->gated_attention = false;
    m->tower = m->shared = 0;
    if (m->family == MODEL_BERT) m->embedding = 0;
    if (m->norms != 1 && m->norms != 4) m->norms = 2;
}

bool estimate_replay_likeness(const struct plan *p, struct plan *like, struct model *model)
{
    const struct model_shape *m = &p->model->shape;

    /* delta nets and their kernels, and matrices of experts that are unpacked, are like nothing plain */
    if (m->blocks_n || m->linear_layers || (p->weights && (m->experts || m->tower))) return false;
    *model = *p->model;
    *like = *p;
    simplify_shape(&model->shape);
    like->model = model;
    like->frozen = PLAN_FROZEN_NONE;
    like->saved = PLAN_SAVED_NONE;
    if (like->adapter == PLAN_ADAPTER_DORA) like->adapter = PLAN_ADAPTER_LORA;
    return is_whole_training(like) && layers_have_a_list(like);
}
