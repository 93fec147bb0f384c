/* Derives a shape from GGUF's metadata and the names of its tensors. */
#include <stdio.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/model/gguf.h"
#include "analyzer/base/words.h"

/* Architectures that are not decoders with a gated MLP; those are recognised by their tensors. */
static const struct {
    const char *name;
    enum model_family family;
} others[] = {
    {"gpt2", MODEL_GPT},  {"gptneox", MODEL_GPT},  {"gptj", MODEL_GPT},      {"falcon", MODEL_GPT},
    {"bloom", MODEL_GPT}, {"mpt", MODEL_GPT},      {"starcoder", MODEL_GPT}, {"starcoder2", MODEL_GPT},
    {"phi2", MODEL_GPT},  {"nemotron", MODEL_GPT}, {"codeshell", MODEL_GPT}, {"opt", MODEL_GPT},
    {"bert", MODEL_BERT},
};

struct telling {
    const struct model_gguf_metadata *d;
    const struct model_stored *s;
    const struct model_file *f;
    bool failed;
};

static bool has_tensor(const struct telling *t, const char *tensor)
{
    return model_stored_find(t->s, tensor) != NULL;
}

/* The number of a key; `absent` if it is missing. */
static uint64_t gguf_uint_of(struct telling *t, enum model_gguf_key key, uint64_t absent)
{
    static const char *const names[] = {GGUF_KEYS(WORDS_FIRST)};
    char clean[64];

    if (!t->d->keys[key].present || strcmp(t->d->keys[key].prefix, t->d->architecture) != 0) return absent;
    if (t->d->keys[key].number <= 1000000000) return t->d->keys[key].number;
    if (!t->failed)
        model_file_reject(t->f, "%s.%s is not a number from 0 to 1e9",
                          terminal_clean(clean, sizeof clean, t->d->architecture, true), names[key]);
    t->failed = true;
    return 0;
}

static uint64_t gguf_tensor_rows(const struct telling *t, const char *tensor)
{
    const struct model_stored_form *form = model_stored_find(t->s, tensor);

    return form ? form->first : 0;
}

static enum model_family family_of(const struct telling *t)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, t->d->architecture) == 0) return others[i].family;
    const bool attention = has_tensor(t, "blk.*.attn_qkv.weight") || has_tensor(t, "blk.*.attn_k.weight") ||
                           has_tensor(t, "blk.*.attn_kv_a_mqa.weight");
    const bool gated = has_tensor(t, "blk.*.ffn_gate.weight") || has_tensor(t, "blk.*.ffn_gate_exps.weight") ||
                       has_tensor(t, "blk.*.ffn_gate.*.weight") || has_tensor(t, "blk.*.ffn_gate_up_exps.weight") ||
                       strcmp(t->d->architecture, "phi3") == 0 || strcmp(t->d->architecture, "glm4") == 0;
    const bool recurrent = has_tensor(t, "blk.*.ssm_in.weight") || has_tensor(t, "blk.*.ssm_a") ||
                           has_tensor(t, "blk.*.time_mix_key.weight");
    return attention && gated && !recurrent ? MODEL_LLAMA : MODEL_UNKNOWN;
}

static void read_biases_and_norms(struct telling *t, struct model_shape *s)
{
    static const char *const norms[] = {
        "blk.*.attn_norm.weight",           "blk.*.attn_norm_2.weight",   "blk.*.ffn_norm.weight",
        "blk.*.post_attention_norm.weight", "blk.*.post_ffw_norm.weight", "blk.*.attn_output_norm.weight",
        "blk.*.layer_output_norm.weight",
    };
    const uint64_t q_norm = gguf_tensor_rows(t, "blk.*.attn_q_norm.weight");

    s->fused_qkv = has_tensor(t, "blk.*.attn_qkv.weight");
    s->qkv_bias = has_tensor(t, "blk.*.attn_qkv.bias") || has_tensor(t, "blk.*.attn_q.bias");
    s->out_bias = has_tensor(t, "blk.*.attn_output.bias");
    s->mlp_bias = has_tensor(t, "blk.*.ffn_up.bias");
    s->head_bias = has_tensor(t, "output.bias");
    s->norm_bias = has_tensor(t, "blk.*.attn_norm.bias") || has_tensor(t, "blk.*.attn_output_norm.bias");
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) s->norms += has_tensor(t, norms[i]);
    s->final_norm = has_tensor(t, "output_norm.weight");
    s->embedding_norm = has_tensor(t, "token_embd_norm.weight");
    s->qk_norm = q_norm > 0;
    s->qk_norm_wide = q_norm && q_norm != s->head_dim;
    s->sinks = has_tensor(t, "blk.*.attn_sinks.weight");
}

static void read_gguf_latent(struct telling *t, struct model_shape *s)
{
    s->kv_rank = gguf_uint_of(t, GGUF_KV_RANK, 0);
    if (!s->kv_rank) return;
    s->q_rank = gguf_uint_of(t, GGUF_Q_RANK, 0);
    s->rope_dim = gguf_uint_of(t, GGUF_ROPE, 0);
    s->head_dim = gguf_uint_of(t, GGUF_KEY_LENGTH_MLA, gguf_uint_of(t, GGUF_KEY_LENGTH, 0));
    s->v_dim = gguf_uint_of(t, GGUF_VALUE_LENGTH_MLA, gguf_uint_of(t, GGUF_VALUE_LENGTH, 0));
    s->nope_dim = s->head_dim > s->rope_dim ? s->head_dim - s->rope_dim : 0;
    s->kv_heads = s->heads; /* newer files have 1 here, because they store products of matrices */
}

static void read_gguf_experts(struct telling *t, struct model_shape *s)
{
    s->experts = gguf_uint_of(t, GGUF_EXPERTS, 0);
    if (s->experts <= 1) {
        s->experts = 0;
        return;
    }
    uint64_t dense = gguf_uint_of(t, GGUF_DENSE_LAYERS, 0);
    s->experts_used = gguf_uint_of(t, GGUF_EXPERTS_USED, 0);
    s->expert_ffn = gguf_uint_of(t, GGUF_EXPERT_FFN, s->ffn);
    s->shared_ffn = gguf_tensor_rows(t, "blk.*.ffn_up_shexp.weight");
    s->shared_experts = gguf_uint_of(t, GGUF_EXPERTS_SHARED, s->shared_ffn ? 1 : 0);
    s->shared_gate = has_tensor(t, "blk.*.ffn_gate_inp_shexp.weight");
    s->router_bias = has_tensor(t, "blk.*.ffn_gate_inp.bias");
    s->expert_bias = has_tensor(t, "blk.*.ffn_up_exps.bias");
    s->moe_layers = dense < s->layers ? s->layers - dense : s->layers;
    if (!s->ffn) s->ffn = s->expert_ffn;
}

static void read_gguf_window(struct telling *t, struct model_shape *s)
{
    const char *a = t->d->architecture;
    const uint64_t every = strcmp(a, "gemma2") == 0 || strcmp(a, "gpt-oss") == 0 ? 2 : strcmp(a, "gemma3") == 0 ? 6 : 0;

    s->window = gguf_uint_of(t, GGUF_WINDOW, 0);
    if (s->window) s->window_layers = every ? s->layers - s->layers / every : s->layers;
}

static void read_sizes(struct telling *t, struct model_shape *s)
{
    s->layers = gguf_uint_of(t, GGUF_LAYERS, 0);
    s->hidden = gguf_uint_of(t, GGUF_HIDDEN, 0);
    s->context = gguf_uint_of(t, GGUF_CONTEXT, 0);
    s->ffn = gguf_uint_of(t, GGUF_FFN, 0);
    s->heads = gguf_uint_of(t, GGUF_HEADS, 0);
    s->kv_heads = gguf_uint_of(t, GGUF_KV_HEADS, s->heads);
    s->head_dim = gguf_uint_of(t, GGUF_KEY_LENGTH, 0);
    if (!s->head_dim && s->heads && s->hidden % s->heads == 0) s->head_dim = s->hidden / s->heads;
    s->vocab = gguf_tensor_rows(t, "token_embd.weight");
    s->positions = gguf_tensor_rows(t, "position_embd.weight");
    s->token_types = gguf_tensor_rows(t, "token_types.weight");
    s->tied = !has_tensor(t, "output.weight");
    s->gated = s->family == MODEL_LLAMA;
    s->fused_gate = s->gated && !has_tensor(t, "blk.*.ffn_gate.weight") && has_tensor(t, "blk.*.ffn_up.weight");
}

/* Whether tensors and keys agree. */
static bool do_shapes_agree(struct telling *t, const struct model_shape *s)
{
    const struct model_stored_form *table = model_stored_find(t->s, "token_embd.weight");

    if (s->hidden && table && table->second != s->hidden)
        return model_file_reject(t->f, "embedding_length is %ju, but token_embd.weight has rows of %ju",
                                 (uintmax_t)s->hidden, (uintmax_t)table->second);
    if (s->layers > MODEL_LAYERS_MAX)
        return model_file_reject(t->f, "block_count is %ju; no model has more than %u", (uintmax_t)s->layers,
                                 MODEL_LAYERS_MAX);
    if (s->layers && t->s->layers > s->layers)
        return model_file_reject(t->f, "block_count is %ju, but there are tensors of layer %ju", (uintmax_t)s->layers,
                                 (uintmax_t)(t->s->layers - 1));
    return true;
}

bool model_gguf_shape(const struct model_gguf_metadata *d, const struct model_stored *s, const struct model_file *f,
                      struct model_shape *shape, char *note, size_t note_size)
{
    struct telling t = {d, s, f, false};
    struct model ideal = {0};
    char clean[64];
    int usage;
    bool ok;

    *shape = (struct model_shape){.family = family_of(&t)};
    read_sizes(&t, shape);
    read_biases_and_norms(&t, shape);
    read_gguf_latent(&t, shape);
    read_gguf_experts(&t, shape);
    read_gguf_window(&t, shape);
    if (t.failed || !do_shapes_agree(&t, shape)) return false;
    terminal_clean(clean, sizeof clean, d->architecture, true);
    if (shape->family == MODEL_UNKNOWN || !shape->heads || !shape->layers || !shape->hidden || !shape->vocab) {
        shape->family = MODEL_UNKNOWN;
        if (*clean)
            snprintf(note, note_size, "architecture '%s' is unknown: its tensors are counted, activations are not",
                     clean);
        return true;
    }
    if (d->keys[GGUF_FFN].varies || d->keys[GGUF_HEADS].varies || d->keys[GGUF_KV_HEADS].varies)
        snprintf(note, note_size,
                 "its layers differ in heads or MLP: activations are computed as if all were like the largest");
    ok = model_from_shape(f->command, f->path, shape, &ideal, &usage);
    *f->exit_code = EXIT_INPUT;
    if (ok) *shape = ideal.shape;
    model_free(&ideal);
    return ok;
}
