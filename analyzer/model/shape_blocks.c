/* Groups of equal layers in a model whose layers differ. */
#include "analyzer/model/model.h"
#include "analyzer/base/words.h"

struct model_shape model_block_shape(const struct model_shape *s, unsigned i)
{
    struct model_shape one = *s;

    if (i >= s->blocks_n) return one;
    const struct model_block *b = &s->blocks[i];
    one.blocks_n = 0;
    one.block = i + 1;
    one.layers = b->layers;
    one.mixer = (enum model_mixer)b->mixer;
    one.beside = b->beside;
    one.no_mlp = b->no_mlp;
    one.no_keys = b->no_keys;
    one.keys_are_values = b->keys_are_values;
    if (b->heads) one.heads = one.kv_heads = b->heads;
    if (b->heads || b->kv_heads) one.kv_heads = b->kv_heads ? b->kv_heads : s->kv_heads;
    if (b->head_dim) one.head_dim = b->head_dim;
    if (b->v_dim) one.v_dim = b->v_dim;
    if (b->ffn) one.ffn = b->ffn;
    one.window = b->window;
    one.compress = b->compress;
    one.window_layers = b->window ? b->layers : 0;
    one.sinks = b->sinks;
    if (!b->index) one.index_heads = 0;
    one.moe_layers = b->experts ? b->layers : 0;
    if (!b->experts) one.experts = one.experts_used = one.shared_experts = one.shared_ffn = 0;
    return one;
}

bool model_has_mixer(const struct model_shape *s, enum model_mixer mixer)
{
    for (unsigned i = 0; i < s->blocks_n; i++)
        if (s->blocks[i].mixer == mixer) return true;
    return !s->blocks_n && s->mixer == mixer;
}

WORDS_FUNCTION(model_mixer_word, enum model_mixer, MODEL_MIXERS, WORDS_FIRST, NULL)
