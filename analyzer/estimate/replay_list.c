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

/* Known norms: two per layer; one that attention and MLP both read (Phi); Gemma's four, unless eager attention caps
 * scores. */
static bool norms_are_known(const struct plan *p)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_act_sizes z = estimate_act_sizes_of(p, ACT_EAGER);
    const struct estimate_act_habits h = estimate_act_habits_of(p, &z);

    return m->norms == 2 || (m->norms == 1 && m->new_gelu && m->qkv_bias) ||
           (h.gemma && !(h.caps && (p->attention == PLAN_ATTENTION_EAGER || estimate_act_falls_back(p, &z))));
}

static bool layers_are_known(const struct plan *p)
{
    const struct model_shape *m = &p->model->shape;

    return (m->family == MODEL_GPT || m->family == MODEL_LLAMA || m->family == MODEL_BERT || m->family == MODEL_T5) &&
           m->layers && m->vocab && !m->experts && !m->kv_rank && !m->linear_layers && !m->global_head_dim &&
           !m->blocks_n && !m->layer_width && !m->v_dim && (m->gated || m->family != MODEL_LLAMA) && !m->head_gate &&
           !m->gated_attention && !m->tower && norms_are_known(p) &&
           (p->checkpoint == PLAN_CHECKPOINT_NONE || p->checkpoint == PLAN_CHECKPOINT_FULL) &&
           p->precision->cast != PRECISION_CAST_FP8 && !p->fused_loss && !p->chunked_loss && !p->fused_layers;
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

bool estimate_replay_knows(const struct plan *p)
{
    if (p->model->shape.family == MODEL_DENOISER)
        return !p->inference && p->batch && p->gpus == 1 && !p->master_weights && p->frozen == PLAN_FROZEN_NONE &&
               (p->adapter == PLAN_ADAPTER_NONE || p->adapter == PLAN_ADAPTER_LORA) &&
               p->precision->cast != PRECISION_CAST_FP8;
    return !p->inference && p->batch && p->gpus == 1 && adapters_are_known(p) && p->offload == PLAN_OFFLOAD_NONE &&
           !p->away && p->frozen == PLAN_FROZEN_NONE && !p->master_weights &&
           (p->model->shape.family == MODEL_CONV || layers_are_known(p));
}
