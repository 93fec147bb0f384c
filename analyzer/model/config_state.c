/* Reads the sizes of mixers other than ordinary attention, and of what some families add to each layer. */
#include <math.h>
#include <string.h>
#include "analyzer/model/config_reading.h"

/* Mamba in a model with other layers: Jamba, Nemotron-H, Falcon-H1, Bamba, Granite 4. */
static void read_inner_mamba(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    char name[64];
    json_t *rank = model_config_find(r, "mamba_dt_rank", name), *size = model_config_find(r, "mamba_d_head", name);
    uint64_t n;

    s->inner = s->hidden * model_config_count(r, "mamba_expand|expand", 2);
    s->state = model_config_count(r, "mamba_d_state|ssm_state_size|state_size", 16);
    s->taps = model_config_count(r, "mamba_d_conv|conv_kernel", 4);
    s->chunk =
        model_config_count(r, "mamba_chunk_size|chunk_size", strcmp(r->type->name, "nemotron_h") == 0 ? 128 : 256);
    s->groups = model_config_count(r, "mamba_n_groups|n_groups|mamba_ngroups", 1);
    s->conv_bias = model_config_flag(r, "mamba_conv_bias|use_conv_bias", true);
    s->inner_bias = model_config_flag(r, "mamba_proj_bias|use_bias", false);
    s->state_heads = model_config_count(r, "mamba_n_heads|mamba_num_heads|n_mamba_heads", 0);
    if (s->state_heads) {
        s->state_head_dim =
            model_config_read_count(size, &n) ? n : model_config_count(r, "mamba_head_dim|mamba_headdim", 0);
        if (!s->state_head_dim) s->state_head_dim = s->inner / s->state_heads;
        s->inner = s->state_heads * s->state_head_dim;
        s->no_inner_norm = !model_config_flag(r, "mamba_rms_norm", strcmp(r->type->name, "falcon_h1") != 0);
    } else {
        s->groups = 0;
        s->step_rank = model_config_read_count(rank, &n) ? n : (s->hidden + 15) / 16;
        s->state_norms = true;
    }
}

static void read_linear_attention(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    char name[64];
    json_t *own = model_config_find(r, "linear_attn_config", name);
    uint64_t n;

    s->taps = model_config_count(r, "linear_conv_kernel_dim|short_conv_kernel_size|conv_L_cache", 4);
    s->linear_keys = model_config_count(r, "linear_num_key_heads|linear_num_heads", s->heads);
    s->linear_values = model_config_count(r, "linear_num_value_heads", s->linear_keys);
    s->linear_key_dim = model_config_count(r, "linear_key_head_dim|linear_head_dim", 128);
    s->linear_value_dim = model_config_count(r, "linear_value_head_dim", s->linear_key_dim);
    if (model_config_read_count(json_object_get(own, "num_heads"), &n)) s->linear_keys = n;
    if (model_config_read_count(json_object_get(own, "head_dim"), &n)) s->linear_key_dim = n;
    if (model_config_read_count(json_object_get(own, "short_conv_kernel_size"), &n)) s->taps = n;
    s->full_rank_gates =
        json_is_true(json_object_get(own, "use_full_rank_gate")) || strcmp(r->type->name, "bailing_hybrid") == 0;
}

/* LFM2: intermediate_size is a start value; two thirds of it are rounded up. */
static void read_short_conv(struct model_reading *r)
{
    struct model_shape *s = &r->s;
    const uint64_t multiple = model_config_count(r, "block_multiple_of", 256);
    char name[64];
    json_t *factor = model_config_find(r, "block_ffn_dim_multiplier", name);

    s->taps = model_config_count(r, "conv_L_cache", 3);
    s->conv_bias = model_config_flag(r, "conv_bias", false);
    if (strcmp(r->type->name, "lfm2") != 0) return;
    s->ffn = model_config_count(r, "block_ff_dim|intermediate_size", 12288);
    if (!model_config_flag(r, "block_auto_adjust_ff_dim", true)) return;
    s->ffn = 2 * s->ffn / 3;
    if (json_is_number(factor)) { /* the result may be any number; its range is checked later */
        const double ffn = json_number_value(factor) * (double)s->ffn;
        s->ffn = ffn > 0 ? (uint64_t)fmin(ffn, 1e15) : 0;
    }
    if (multiple) s->ffn = (s->ffn + multiple - 1) / multiple * multiple;
}

/* Gemma 3n and Gemma 4: embeddings of each layer. */
static void read_layer_inputs(struct model_reading *r)
{
    struct model_shape *s = &r->s;

    s->layer_width =
        model_config_count(r, "hidden_size_per_layer_input", strncmp(r->type->name, "gemma", 5) == 0 ? 256 : 0);
    if (!s->layer_width) return;
    s->layer_vocab = model_config_count(r, "vocab_size_per_layer_input", 262144);
    s->streams = model_config_count(r, "altup_num_inputs", strcmp(r->type->name, "gemma3n_text") == 0 ? 4 : 0);
    s->laurel_rank = model_config_count(r, "laurel_rank", strcmp(r->type->name, "gemma3n_text") == 0 ? 64 : 0);
}

void model_config_read_states(struct model_reading *r)
{
    struct model_shape *s = &r->s;

    if (strcmp(r->type->name, "falcon_h1") == 0 ||
        model_config_has(r,
                         "mamba_d_state|ssm_state_size|mamba_n_heads|mamba_num_heads|attn_layer_period|mamba_expand"))
        read_inner_mamba(r);
    else if (model_config_has(r, "linear_num_value_heads|linear_num_key_heads|linear_attn_config|linear_num_heads|"
                                 "short_conv_kernel_size"))
        read_linear_attention(r);
    else if (model_config_has(r, "conv_L_cache") || strncmp(r->type->name, "lfm2", 4) == 0)
        read_short_conv(r);
    s->index_heads = model_config_count(r, "index_n_heads", 0);
    s->index_dim = model_config_count(r, "index_head_dim", 128);
    s->latent_ffn = model_config_count(r, "moe_latent_size|routed_expert_hidden_size", 0);
    s->o_groups = model_config_count(r, "o_groups", 0);
    s->o_rank = model_config_count(r, "o_lora_rank", 0);
    s->hyper = model_config_count(r, "hc_mult", 0);
    if (s->o_groups) s->q_rank = model_config_count(r, "q_lora_rank", 1024);
    if (!s->kv_rank && !s->o_groups) s->v_dim = model_config_count(r, "v_head_dim", 0);
    if (s->v_dim == s->head_dim && !s->kv_rank) s->v_dim = 0;
    s->gated_attention =
        model_config_flag(r, "attn_output_gate", strncmp(r->type->name, "qwen3_", 6) == 0 && s->linear_values);
    s->head_gate = model_config_flag(r, "use_head_wise_attn_gate|gating", strcmp(r->type->name, "laguna") == 0);
    s->wide_gate = model_config_flag(r, "mla_use_output_gate", false);
    read_layer_inputs(r);
}
