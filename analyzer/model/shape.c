/* From the numbers of a configuration to the tensors. */
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/command/command.h"
#include "analyzer/model/model.h"

static const char *const words[] = {
#define FAMILY(id, word, what) word,
    MODEL_FAMILIES(FAMILY)
#undef FAMILY
};

const char *model_family_word(enum model_family family)
{
    return words[family];
}

static void add_decoder(const struct model_shape *s, struct model *m)
{
    uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, n = s->layers;

    model_add(m, "embedding", TENSOR_EMBEDDING, TENSOR_BEFORE, s->vocab, s->hidden, 1);
    if (s->positions)
        model_add(m, "positions", TENSOR_EMBEDDING, TENSOR_BEFORE, s->positions, s->hidden, 1);
    model_add(m, "q_proj", TENSOR_ATTENTION, TENSOR_IN_LAYER, q, s->hidden, n);
    model_add(m, "k_proj", TENSOR_ATTENTION, TENSOR_IN_LAYER, kv, s->hidden, n);
    model_add(m, "v_proj", TENSOR_ATTENTION, TENSOR_IN_LAYER, kv, s->hidden, n);
    model_add(m, "o_proj", TENSOR_ATTENTION, TENSOR_IN_LAYER, s->hidden, q, n);
    model_add(m, "mlp in", TENSOR_MLP, TENSOR_IN_LAYER, s->ffn, s->hidden, n * (s->gated ? 2 : 1));
    model_add(m, "mlp out", TENSOR_MLP, TENSOR_IN_LAYER, s->hidden, s->ffn, n);
    model_add(m, "norms", TENSOR_NORM, TENSOR_IN_LAYER, s->hidden, 1, n * s->norms * (s->norm_bias ? 2 : 1));
    model_add(m, "norm", TENSOR_NORM, TENSOR_AFTER, s->hidden, 1, s->norm_bias ? 2 : 1);
    if (!s->tied)
        model_add(m, "lm_head", TENSOR_HEAD, TENSOR_AFTER, s->vocab, s->hidden, 1);
}

bool model_shaped(const char *command, const char *what, const struct model_shape *shape,
                  struct model *m, int *exit_code)
{
    *m = (struct model){.source = "options", .shape = *shape};
    if (!shape->heads || shape->hidden % shape->heads) {
        complain("%s: %s: %ju heads do not divide a hidden size of %ju", command, what,
                 (uintmax_t)shape->heads, (uintmax_t)shape->hidden);
        *exit_code = EXIT_USAGE;
        return false;
    }
    add_decoder(&m->shape, m);
    return true;
}
