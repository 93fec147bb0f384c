/* The operations of decoders and encoders as Hugging Face's modules run them: layers like GPT's, Llama's and BERT's, in
 * which every tensor is known. Sizes are in bytes of one pass. */
#include <math.h>
#include <string.h>
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/replay.h"

struct build {
    const struct plan *p;
    const struct model_shape *m;
    struct estimate_act_sizes z;
    struct estimate_act_habits h;
    struct estimate_replay_list *list;
    double tokens, c, stream; /* bytes per element of what products read, of the residual stream */
    unsigned adapted;         /* the matrices that have a LoRA; 0: all weights are trained */
    bool inside;              /* a layer, whose matrices --weights quantises */
};

enum { NO_ADAPTER };

/* Of a frozen weight that is not quantised. */
static double plain_bytes(const struct build *b)
{
    return b->p->prepared ? 4 : b->p->weights ? 2 : b->p->precision->weights;
}

static uint32_t put_node(struct build *b, struct estimate_replay_op op)
{
    if (b->adapted) { /* frozen; beside quantised weights in 16 bits, unless peft widens them */
        op.stored = (op.parameters[0] + op.parameters[1]) * plain_bytes(b);
        op.parameters[0] = op.parameters[1] = op.sums = 0;
    }
    return estimate_replay_put(b->list, op);
}

/* Marks the operations from `first` on as one checkpointed layer. */
static void close_checkpoint(struct build *b, uint64_t layer, size_t first)
{
    const bool remade = b->p->checkpoint == PLAN_CHECKPOINT_FULL && plan_remakes_layer(b->p, layer);

    for (size_t i = first; i < b->list->n && remade; i++) b->list->ops[i].checkpoint = (uint32_t)first + 1;
}

static double node_bytes(const struct build *b, uint32_t op)
{
    return b->list->ops[op - 1].bytes;
}

/* An operation with one input that keeps nothing, and whose output is as large as its input. */
static uint32_t put_map(struct build *b, uint32_t in, unsigned flags, double passing)
{
    return put_node(
        b, (struct estimate_replay_op){
               .flags = flags, .from = in, .bytes = node_bytes(b, in), .passing = passing * node_bytes(b, in)});
}

static uint32_t put_cast(struct build *b, uint32_t in, double element, double width)
{
    double bytes = b->tokens * width * element;

    return node_bytes(b, in) == bytes ? in : put_node(b, (struct estimate_replay_op){.from = in, .bytes = bytes});
}

/* x·rsqrt(mean of x²) in float32; backward needs x. `was`: what is multiplied instead of x, or 0. */
static uint32_t put_float_norm(struct build *b, uint32_t in, uint32_t was, double width)
{
    double wide = 4 * b->tokens * width;

    return put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS,
                                                   .from = put_cast(b, in, 4, width),
                                                   .others = {was},
                                                   .bytes = wide,
                                                   .extra = 4 * b->tokens,
                                                   .passing = wide,
                                                   .work = 2 * wide});
}

/* Gemma's: (1 + weight) is multiplied in float32, and the product is cast to the input's type. */
static uint32_t put_gemma_norm(struct build *b, uint32_t in, double width)
{
    double narrow = node_bytes(b, in), wide = 4 * b->tokens * width;
    uint32_t x = put_node(b, (struct estimate_replay_op){.flags = b->adapted ? 0 : REPLAY_KEEPS_INPUT,
                                                         .from = put_float_norm(b, in, 0, width),
                                                         .bytes = wide,
                                                         .work = b->adapted ? 0 : wide,
                                                         .parameters = {width}});

    return narrow < wide ? put_node(b, (struct estimate_replay_op){.from = x, .bytes = narrow}) : x;
}

static uint32_t put_norm_node(struct build *b, uint32_t in, double width)
{
    double narrow = node_bytes(b, in), wide = 4 * b->tokens * width;

    if (b->m->norm_bias || b->m->family == MODEL_GPT) /* autocast runs LayerNorm in float32 */
        return put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT,
                                                       .from = in,
                                                       .bytes = b->z.amp ? wide : narrow,
                                                       .extra = 8 * b->tokens,
                                                       .parameters = {width, b->m->norm_bias ? width : 0}});
    if (b->h.gemma) return put_gemma_norm(b, in, width);
    uint32_t was = narrow < wide && b->m->family == MODEL_T5 ? in : 0; /* it multiplies x itself */
    in = put_float_norm(b, in, was, width);
    in = narrow < wide ? put_node(b, (struct estimate_replay_op){.from = in, .bytes = narrow}) : in;
    return put_node(b, (struct estimate_replay_op){.flags = b->adapted ? 0 : REPLAY_KEEPS_INPUT,
                                                   .from = in,
                                                   .bytes = narrow,
                                                   .work = b->adapted ? 0 : narrow,
                                                   .parameters = {width}});
}

/* The flag of an output that the script holds until the model returns again. */
static unsigned held_flag(const struct build *b)
{
    return b->p->drop_outputs ? 0 : REPLAY_HELD;
}

static uint32_t put_dropout(struct build *b, uint32_t in, double width)
{
    if (!b->h.dropout && !b->h.opt) return in;
    return put_node(b, (struct estimate_replay_op){
                           .flags = REPLAY_MASKS, .from = in, .bytes = node_bytes(b, in), .extra = b->tokens * width});
}

static uint32_t put_add(struct build *b, uint32_t x, uint32_t y)
{
    double bytes = node_bytes(b, x) > node_bytes(b, y) ? node_bytes(b, x) : node_bytes(b, y);

    return put_node(b,
                    (struct estimate_replay_op){.flags = REPLAY_PASSES_ON, .from = x, .others = {y}, .bytes = bytes});
}

static uint32_t put_factor(struct build *b, uint32_t in, double width, double out, double element)
{
    return estimate_replay_put(b->list, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_PRODUCT,
                                                                    .from = in,
                                                                    .bytes = element * b->tokens * out,
                                                                    .parameters = {width * out},
                                                                    .cast = b->z.amp ? 2 * width * out : 0});
}

/* peft's LoRA of the product `base` of `in`: its factors are float32 unless they have the weights' 16 bits, so it casts
 * its input, and its result back. Autocast then casts that input once more, to multiply in 16 bits. */
static uint32_t with_lora(struct build *b, uint32_t base, uint32_t in, double width, double out)
{
    const double rank = (double)b->p->rank, factor = b->p->half_adapters ? 2 : 4, element = b->z.amp ? 2 : factor,
                 wide = element * b->tokens * out;
    uint32_t x = put_cast(b, in, factor, width);

    if (b->p->dropout == PLAN_DROPOUT_SOME)
        x = put_node(b, (struct estimate_replay_op){
                            .flags = REPLAY_MASKS, .from = x, .bytes = node_bytes(b, x), .extra = b->tokens * width});
    x = put_factor(b, put_factor(b, put_cast(b, x, element, width), width, rank, element), rank, out, element);
    x = put_map(b, x, 0, 0); /* times alpha / r */
    const double result = node_bytes(b, base) / (b->tokens * out);
    if (node_bytes(b, base) < wide)
        base = put_map(b, base, REPLAY_IN_PLACE, 0); /* its gradient is cast, its value is not */
    return put_cast(b, put_add(b, base, x), result, out);
}

/* A product with a quantised matrix, which forward and backward unpack to 16 bits. Its result has its input's type. */
static uint32_t unpacked_product(struct build *b, uint32_t product, uint32_t read, double width, double out)
{
    struct estimate_replay_op *op = &b->list->ops[product - 1];

    op->stored = width * out * b->p->weights->bits / 8 + out * b->p->weights->row_bits / 8;
    op->passing = op->work = 2 * width * out;
    op->cast = 0; /* autocast converts only float32 */
    return put_cast(b, product, fmax(b->c, node_bytes(b, read) / (b->tokens * width)), out);
}

static uint32_t put_linear(struct build *b, uint32_t in, double width, double out, bool bias, unsigned which)
{
    const bool quantised = b->adapted && b->p->weights && b->inside;
    const bool keeps = !b->adapted || (quantised && estimate_act_keeps_frozen(b->p, &b->z));
    const bool casts = b->z.amp && (!b->adapted || plain_bytes(b) == 4);
    uint32_t read = in;
    if (!quantised || strcmp(b->p->weights->word, "int8") != 0) in = put_cast(b, in, b->c, width); /* autocast's */
    uint32_t x = put_node(b, (struct estimate_replay_op){.flags = REPLAY_PRODUCT | (keeps ? REPLAY_KEEPS_INPUT : 0),
                                                         .from = in,
                                                         .bytes = b->tokens * out * b->c,
                                                         .parameters = {width * out, bias ? out : 0},
                                                         .sums = estimate_act_sum_buffer(b->p, b->tokens * out),
                                                         .cast = casts ? 2 * width * out : 0});
    if (quantised) x = unpacked_product(b, x, read, width, out);
    return which & b->adapted ? with_lora(b, x, read, width, out) : x;
}

/* A part of a joined product: a view, which the KV cache copies. */
static uint32_t put_part(struct build *b, uint32_t in, double width, double element)
{
    return put_node(
        b, (struct estimate_replay_op){.flags = REPLAY_PASSES_ON, .from = in, .bytes = b->tokens * width * element});
}

/* x·cos + rotated x·sin; autograd keeps nothing. */
static uint32_t put_rotated(struct build *b, uint32_t in)
{
    bool rotary = b->m->family == MODEL_LLAMA || (b->m->family == MODEL_GPT && !b->m->positions);

    return rotary ? put_map(b, in, 0, 3) : in;
}

/* The variables of a function that returns after operation `op` hold these outputs until then. */
static void hold_until(struct build *b, uint32_t op, uint32_t first, uint32_t second, uint32_t third)
{
    memcpy(b->list->ops[op - 1].lets_go, (uint32_t[]){first, second, third}, 3 * sizeof first);
}

/* `bias` is added to the scores in place (T5); 0: the scores are scaled and masked. */
static uint32_t put_score_nodes(struct build *b, uint32_t q, uint32_t k, uint32_t v, uint32_t bias)
{
    const double heads = (double)b->m->heads, bytes = b->tokens * heads * b->z.keys * b->c,
                 out =
                     b->tokens * heads * (double)b->m->head_dim * b->c; /* `q` may be the product that has all three */
    uint32_t s =
        put_node(b, (struct estimate_replay_op){
                        .flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS,
                        .from = put_node(b, (struct estimate_replay_op){.from = q, .bytes = out}), /* by head */
                        .others = {k},
                        .bytes = bytes});
    if (bias)
        s = put_node(b, (struct estimate_replay_op){
                            .flags = REPLAY_IN_PLACE | REPLAY_PASSES_ON, .from = s, .others = {bias}, .bytes = bytes});
    else
        s = put_map(b, put_map(b, s, 0, 0), REPLAY_PASSES_ON, 0);
    const double wide = b->h.float_scores || b->z.amp ? bytes / b->c * 4 : bytes, each = bytes / b->c / b->tokens;
    const uint32_t scores = b->m->family == MODEL_T5 ? s : 0;
    if (scores) s = put_cast(b, s, 4, each); /* softmax(scores.float()).type_as(scores) */
    s = put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_OUTPUT,
                                                .from = s,
                                                .bytes = wide,
                                                .extra = b->z.softmax_input ? wide : 0,
                                                .work = wide});
    if (scores) s = put_cast(b, s, b->c, each);
    if (b->h.score_dropout)
        s = put_node(
            b, (struct estimate_replay_op){.flags = REPLAY_MASKS, .from = s, .bytes = bytes, .extra = bytes / b->c});
    else if (node_bytes(b, s) > bytes)
        s = put_node(b, (struct estimate_replay_op){.from = s, .bytes = bytes});
    s = put_node(b, (struct estimate_replay_op){
                        .flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS, .from = s, .others = {v}, .bytes = out});
    s = put_map(b, s, 0, 0); /* ordered by token */
    if (scores) hold_until(b, s, scores, 0, 0);
    return s;
}

static uint32_t fused_attention(struct build *b, uint32_t q, uint32_t k, uint32_t v)
{
    double heads = (double)b->m->heads, out = b->tokens * heads * (double)b->m->head_dim * b->c;

    return put_node(b,
                    (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS | REPLAY_KEEPS_OUTPUT,
                                                .from = q,
                                                .others = {k == q ? 0 : k, v == q ? 0 : v},
                                                .bytes = out,
                                                .work = out,
                                                .extra = 4 * b->tokens * heads});
}

/* The input of the "math" kernel: float32, scaled, ordered by head. */
static uint32_t math_input(struct build *b, uint32_t in, double inner, bool scaled)
{
    in = put_cast(b, in, 4, inner);
    return put_map(b, scaled ? put_map(b, in, 0, 0) : in, 0, 0);
}

/* scaled_dot_product_attention for which PyTorch has no fused kernel: its mask has a gradient (`bias`), or one head of
 * keys serves all of a Falcon's queries (`bias` 0). */
static uint32_t math_attention(struct build *b, uint32_t q, uint32_t k, uint32_t v, uint32_t bias, double inner)
{
    double scores = b->tokens * (double)b->m->heads * b->z.keys, narrow = node_bytes(b, q);
    uint32_t one = bias ? put_map(b, bias, REPLAY_IN_PLACE, 0) : 0, s; /* of all sequences: its gradient is a sum */

    q = math_input(b, q, inner, true);
    k = math_input(b, k, inner, true);
    v = math_input(b, v, inner, false);
    s = put_node(b,
                 (struct estimate_replay_op){
                     .flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS, .from = q, .others = {k}, .bytes = 4 * scores});
    s = put_node(b, (struct estimate_replay_op){
                        .flags = REPLAY_IN_PLACE | REPLAY_PASSES_ON, .from = s, .others = {one}, .bytes = 4 * scores});
    s = put_map(b, s, REPLAY_KEEPS_OUTPUT, 0);
    if (b->h.dropout)
        s = put_node(
            b, (struct estimate_replay_op){.flags = REPLAY_MASKS, .from = s, .bytes = 4 * scores, .extra = scores});
    s = put_node(
        b, (struct estimate_replay_op){
               .flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS, .from = s, .others = {v}, .bytes = node_bytes(b, q)});
    return put_map(b, put_cast(b, s, narrow / b->tokens / inner, inner), 0, 0); /* ordered by token */
}

static uint32_t put_attention_nodes(struct build *b, uint32_t in)
{
    const struct model_shape *m = b->m;
    double heads = (double)m->heads, width = (double)m->hidden, q_width = heads * (double)m->head_dim,
           k_width = (double)(m->kv_heads * m->head_dim);
    bool eager = b->p->attention == PLAN_ATTENTION_EAGER || b->h.eager_only || estimate_act_falls_back(b->p, &b->z);
    bool cached = b->p->checkpoint == PLAN_CHECKPOINT_NONE && (m->family == MODEL_GPT || m->family == MODEL_LLAMA),
         joined = b->h.one_matrix, repeats = (eager || b->h.repeats_keys || b->h.one_key) && m->kv_heads < m->heads;
    uint32_t q, k, v;

    if (joined) {
        q = put_linear(b, in, width, q_width + 2 * k_width, m->qkv_bias, PLAN_QKV);
        q = put_node(b, (struct estimate_replay_op){.flags = REPLAY_PARTS, .from = q, .bytes = node_bytes(b, q)});
        k = v = q;
    } else {
        q = put_linear(b, in, width, q_width, m->qkv_bias, PLAN_QUERIES);
        k = put_linear(b, in, width, k_width, m->qkv_bias && !m->no_k_bias, PLAN_KEYS);
        v = put_linear(b, in, width, k_width, m->qkv_bias, PLAN_VALUES);
        if (b->h.opt) q = put_map(b, q, 0, 0); /* scaled before the product */
    }
    /* quantised layers return float32 of what LayerNorm made under autocast */
    const double element = b->z.amp ? node_bytes(b, q) / b->tokens / (joined ? q_width + 2 * k_width : q_width) : b->c;
    if (!joined && !b->z.amp) {
        q = put_cast(b, q, element, q_width);
        k = put_cast(b, k, element, k_width);
        v = put_cast(b, v, element, k_width);
    }
    if (!joined || m->family == MODEL_LLAMA || !m->positions) {
        q = joined ? put_part(b, q, q_width, element) : q;
        k = joined ? put_part(b, k, k_width, element) : k;
        if (m->qk_norm) {
            q = put_norm_node(b, q, q_width);
            k = put_norm_node(b, k, k_width);
        }
        q = put_rotated(b, q);
        k = put_rotated(b, k);
    }
    if (cached) { /* the model's output, which the script holds, contains the cache */
        k = put_part(b, k, k_width, element);
        v = put_part(b, v, k_width, element);
        b->list->ops[k - 1].flags |= held_flag(b);
        b->list->ops[v - 1].flags |= held_flag(b);
    }
    if (repeats) {
        k = put_node(b, (struct estimate_replay_op){.from = k, .bytes = b->tokens * q_width * element});
        v = put_node(b, (struct estimate_replay_op){.from = v, .bytes = b->tokens * q_width * element});
    }
    if (element > b->c) { /* attention reads 16 bits */
        q = put_part(b, q, q_width, b->c);
        k = put_part(b, k, repeats ? q_width : k_width, b->c);
        v = put_part(b, v, repeats ? q_width : k_width, b->c);
    }
    q = eager          ? put_score_nodes(b, q, k, v, 0)
        : b->h.one_key ? math_attention(b, q, k, v, 0, q_width)
                       : fused_attention(b, q, k, v);
    return put_dropout(b, put_linear(b, q, q_width, width, m->out_bias, PLAN_OUTPUT), width);
}

/* gelu_new: x · 0.5 · (1 + tanh(√(2/π) · (x + 0.044715 · x³))). Autocast computes powers, and so all of it, in float32.
 */
static uint32_t new_gelu(struct build *b, uint32_t in)
{
    uint32_t half = put_map(b, in, 0, 0), cube, sum;

    cube = put_map(b, b->z.amp ? put_cast(b, in, 4, (double)b->m->ffn) : in, REPLAY_KEEPS_INPUT, 0);
    b->list->ops[cube - 1].chain = node_bytes(b, cube); /* x², 3 · x² */
    sum = put_add(b, in, put_map(b, cube, 0, 0));
    sum = put_map(b, put_map(b, sum, 0, 0), REPLAY_KEEPS_OUTPUT, 0);
    sum = put_map(b, sum, REPLAY_PASSES_ON, 0); /* 1 + … */
    return put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS,
                                                   .from = half,
                                                   .others = {sum},
                                                   .bytes = node_bytes(b, sum)});
}

static uint32_t put_mlp_nodes(struct build *b, uint32_t in)
{
    const struct model_shape *m = b->m;
    double width = (double)m->hidden, f = (double)m->ffn;
    uint32_t x = put_linear(b, in, width, f, m->mlp_bias, m->gated ? PLAN_GATE : PLAN_UP), y;

    if (m->gated) {
        y = put_linear(b, in, width, f, m->mlp_bias, m->fused_gate ? NO_ADAPTER : PLAN_UP); /* one adapter for both */
        x = put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS,
                                                    .from = put_map(b, x, REPLAY_KEEPS_INPUT, 0),
                                                    .others = {y},
                                                    .bytes = node_bytes(b, x)});
    } else if (b->h.python_gelu) {
        x = new_gelu(b, x);
    } else {
        x = put_map(b, x, b->h.opt ? REPLAY_KEEPS_OUTPUT : REPLAY_KEEPS_INPUT, 0);
    }
    return put_dropout(b, put_linear(b, x, f, width, m->mlp_bias, PLAN_DOWN), width);
}

/* The same with a contiguous mask, which a fused kernel accepts: the mask's gradient has one for each sequence. */
static uint32_t masked_attention(struct build *b, uint32_t q, uint32_t k, uint32_t v, uint32_t bias)
{
    uint32_t mask = put_map(b, bias, 0, 0), y = fused_attention(b, q, k, v);

    b->list->ops[y - 1].work += b->tokens * (double)b->m->heads * b->z.keys * b->c;
    return put_node(b, (struct estimate_replay_op){.flags = REPLAY_IN_PLACE | REPLAY_PASSES_ON | REPLAY_KEEPS_OTHERS,
                                                   .from = y,
                                                   .others = {mask},
                                                   .bytes = node_bytes(b, y)});
}

/* Keys or values. The decoder caches them, unless layers are checkpointed, and kernels that are not fused copy them. */
static uint32_t t5_part(struct build *b, uint32_t in, double inner, bool caches)
{
    const bool fused = b->p->attention == PLAN_ATTENTION_FLASH, cached = caches && !plan_remakes_layers(b->p);
    uint32_t x = put_linear(b, in, (double)b->m->hidden, inner, false, NO_ADAPTER);

    return fused && !cached ? x : put_map(b, x, REPLAY_PASSES_ON | (cached ? held_flag(b) : 0), 0);
}

/* Attention whose keys and values are computed from `of`, or from `x` if it is 0; the decoder caches them. */
static uint32_t t5_attention(struct build *b, uint32_t x, uint32_t of, uint32_t bias, bool caches)
{
    double width = (double)b->m->hidden, inner = (double)(b->m->heads * b->m->head_dim);
    uint32_t in = put_norm_node(b, x, width), q = put_linear(b, in, width, inner, false, NO_ADAPTER),
             k = t5_part(b, of ? of : in, inner, caches), v = t5_part(b, of ? of : in, inner, caches), y;

    if (b->p->attention == PLAN_ATTENTION_EAGER)
        y = put_score_nodes(b, q, k, v, bias);
    else if (estimate_act_bias_learns(b->p, of > 0))
        y = b->p->attention == PLAN_ATTENTION_MATH ? math_attention(b, q, k, v, bias, inner)
                                                   : masked_attention(b, q, k, v, bias);
    else
        y = fused_attention(b, q, k, v);
    y = put_linear(b, y, inner, width, false, NO_ADAPTER);
    hold_until(b, y, q, k, v);
    y = put_dropout(b, y, width);
    hold_until(b, y, in, 0, 0);
    return put_add(b, y, x);
}

static uint32_t t5_mlp(struct build *b, uint32_t x)
{
    double width = (double)b->m->hidden, f = (double)b->m->ffn;
    uint32_t in = put_norm_node(b, x, width), y = put_linear(b, in, width, f, false, NO_ADAPTER);

    if (b->m->gated)
        y = put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_KEEPS_OTHERS,
                                                    .from = new_gelu(b, y),
                                                    .others = {put_linear(b, in, width, f, false, NO_ADAPTER)},
                                                    .bytes = node_bytes(b, y)});
    else
        y = put_map(b, y, REPLAY_KEEPS_OUTPUT, 0);
    y = b->h.inner_dropout ? put_dropout(b, y, f) : y;
    if (b->z.amp) y = put_cast(b, y, 4, f); /* to the type of wo's weight, and back */
    y = put_linear(b, y, f, width, false, NO_ADAPTER);
    hold_until(b, y, in, 0, 0);
    return put_add(b, put_dropout(b, y, width), x);
}

/* The position bias and the mask, which all layers of a stack add. */
static uint32_t t5_bias(struct build *b)
{
    double heads = (double)b->m->heads, bytes = b->tokens * heads * b->z.seq * (b->z.amp ? 4 : b->c);
    uint32_t table = put_node(
        b, (struct estimate_replay_op){.bytes = bytes / b->z.batch, .parameters = {(double)b->m->buckets * heads}});

    if (b->p->attention != PLAN_ATTENTION_EAGER) return put_map(b, table, 0, 0); /* one for all sequences */
    return put_node(b, (struct estimate_replay_op){.flags = REPLAY_PASSES_ON, .from = table, .bytes = bytes});
}

/* A stack of layers: the encoder's, or, with `encoded`, the decoder's. */
static uint32_t t5_stack(struct build *b, uint64_t layers, uint32_t encoded, uint32_t *tokens)
{
    double width = (double)b->m->hidden;
    struct estimate_replay_op table = {.bytes = b->tokens * width * b->stream, .again = *tokens};
    uint32_t x, bias;

    if (!*tokens) table.parameters[0] = (double)b->m->vocab * width;
    x = put_node(b, table);
    *tokens = *tokens ? *tokens : x;
    x = put_dropout(b, x, width);
    bias = t5_bias(b);
    for (uint64_t i = 0; i < layers; i++) {
        size_t first = b->list->n;
        x = t5_attention(b, x, 0, bias, encoded > 0);
        if (encoded) x = t5_attention(b, x, encoded, t5_bias(b), true);
        x = t5_mlp(b, x);
        close_checkpoint(b, i, first);
    }
    return put_dropout(b, put_norm_node(b, x, width), width);
}

static uint32_t put_layer(struct build *b, uint32_t x)
{
    double width = (double)b->m->hidden;

    if (b->m->family == MODEL_BERT || b->m->embedding) { /* norms after the sums */
        x = put_norm_node(b, put_add(b, put_attention_nodes(b, x), x), width);
        return put_norm_node(b, put_add(b, put_mlp_nodes(b, x), x), width);
    }
    uint32_t read = put_norm_node(b, x, width), attended = put_attention_nodes(b, read);
    if (b->m->norms == 1) { /* attention and MLP read the same; variables hold all three until the layer returns */
        uint32_t made = put_mlp_nodes(b, read);
        x = put_add(b, put_add(b, attended, made), x);
        memcpy(b->list->ops[x - 1].lets_go, (uint32_t[]){read, attended, made}, 3 * sizeof read);
        return x;
    }
    if (b->m->norms == 4) attended = put_norm_node(b, attended, width);
    x = put_add(b, attended, x);
    uint32_t made = put_mlp_nodes(b, put_norm_node(b, x, width));
    x = put_add(b, b->m->norms == 4 ? put_norm_node(b, made, width) : made, x);
    if (b->m->family == MODEL_GPT && b->m->fused_qkv) b->list->ops[x - 1].lets_go[0] = attended; /* attn_output */
    return x;
}

/* The logits and losses of pieces of the sequences, as litgpt computes them beside adapters: first all logits, which
 * Fabric returns in float32. The loop holds them, but no longer than until the next pass has made its own, before the
 * losses: here they are free with their loss. */
static void put_loss_in_pieces(struct build *b, uint32_t x, unsigned pieces)
{
    const double vocab = (double)b->m->vocab, tokens = b->tokens;
    const uint32_t first = (uint32_t)b->list->n + 1;
    uint32_t sum = 0;

    b->tokens = tokens / pieces;
    for (unsigned i = 0; i < pieces; i++) {
        const uint32_t logits = put_linear(b, x, (double)b->m->hidden, vocab, b->m->head_bias, NO_ADAPTER);
        if (i > 0) b->list->ops[logits - 1].parameters[0] = b->list->ops[logits - 1].stored = 0; /* one matrix */
        put_cast(b, logits, 4, vocab);
    }
    const uint32_t each = ((uint32_t)b->list->n + 1 - first) / pieces;
    for (unsigned i = 0; i < pieces; i++) {
        const uint32_t known = put_map(b, first + (i + 1) * each - 1, REPLAY_KEEPS_OUTPUT, 0);
        const uint32_t loss = put_node(
            b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT, .from = known, .bytes = 4 * b->tokens});
        sum = sum ? put_add(b, sum, loss) : loss;
    }
    b->tokens = tokens;
}

static void put_loss(struct build *b, uint32_t x, uint32_t embedding)
{
    const struct model_shape *m = b->m;
    double vocab = (double)m->vocab;

    if (estimate_act_loss_pieces(b->p) > 1) {
        put_loss_in_pieces(b, x, estimate_act_loss_pieces(b->p));
        return;
    }
    b->inside = true;
    if (m->embedding) x = put_linear(b, x, (double)m->hidden, (double)m->embedding, false, NO_ADAPTER);
    b->inside = false;
    if (m->masked_lm) {
        x = put_linear(b, x, (double)m->hidden, (double)m->hidden, true, NO_ADAPTER);
        x = put_norm_node(b, put_map(b, x, REPLAY_KEEPS_INPUT, 0), (double)m->hidden);
    }
    x = put_linear(b, x, m->embedding ? (double)m->embedding : (double)m->hidden, vocab, m->head_bias || m->masked_lm,
                   NO_ADAPTER);
    struct estimate_replay_op *head = &b->list->ops[x - 1];
    head->flags |= held_flag(b);
    head->sums = 0; /* with so many outputs, a bias's gradient is summed in place */
    if (m->tied) {
        head->parameters[0] = head->stored = 0;
        head->again = embedding;
    }
    if (estimate_act_caps_logits(b->p, &b->z)) { /* tanh(logits / cap) · cap */
        head->flags &= ~held_flag(b);
        x = put_map(b, put_map(b, put_map(b, x, 0, 0), REPLAY_KEEPS_OUTPUT, 0), held_flag(b), 0);
    }
    const uint32_t narrow = x;
    const bool bare = b->p->fused_loss || estimate_act_bare_loss(m);
    if (!bare) x = put_cast(b, x, 4, vocab);
    const uint32_t wide = x;
    const bool shifted = !bare && b->p->transformers && b->p->transformers < 449 && b->p->batch > 1;
    if (shifted) /* a copy without each sequence's last token, which the loss reads */
        x = put_node(b, (struct estimate_replay_op){.from = x, .bytes = node_bytes(b, x) * (1 - 1 / b->z.seq)});
    x = put_map(b, x, REPLAY_KEEPS_OUTPUT, 0);
    if (b->z.amp) x = put_cast(b, x, 4, vocab);
    x = put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT, .from = x, .bytes = 4});
    if (shifted) hold_until(b, x, wide, b->p->transformers >= 446 && narrow != wide ? narrow : 0, 0);
}

/* Images: patches by a convolution, with a class token and positions. */
static uint32_t put_patches(struct build *b)
{
    const struct model_shape *m = b->m;
    const double width = (double)m->hidden, patch = (double)(m->channels * m->patch * m->patch);
    const double patches = b->tokens - b->z.batch * (double)(m->class_tokens + m->registers);
    uint32_t x = put_node(b, (struct estimate_replay_op){.flags = REPLAY_KEEPS_INPUT | REPLAY_PRODUCT,
                                                         .bytes = patches * width * b->c,
                                                         .parameters = {patch * width, width},
                                                         .cast = b->z.amp ? 2 * patch * width : 0});

    x = put_node(b, (struct estimate_replay_op){.from = x, .bytes = b->tokens * width * b->c});
    return put_add(b, x,
                   put_node(b, (struct estimate_replay_op){.bytes = b->z.seq * width * b->stream,
                                                           .parameters = {b->z.seq * width}}));
}

static uint32_t put_embeddings(struct build *b, uint32_t *tokens)
{
    const struct model_shape *m = b->m;
    double width = (double)m->hidden, bytes = b->tokens * width * b->stream;
    double table = m->embedding ? (double)m->embedding : width;
    uint32_t x = put_node(b, (struct estimate_replay_op){.bytes = b->tokens * table * b->stream,
                                                         .parameters = {(double)m->vocab * table}});

    *tokens = x;
    if (b->h.gemma) x = put_map(b, x, 0, 0); /* scaled */
    b->inside = true;
    if (m->embedding) x = put_linear(b, x, table, width, false, NO_ADAPTER);
    b->inside = false;
    if (m->positions) {
        uint32_t positions =
            put_node(b, (struct estimate_replay_op){.bytes = m->family == MODEL_BERT ? bytes : bytes / b->z.batch,
                                                    .parameters = {(double)m->positions * width}});
        x = put_add(b, x, positions);
    }
    if (m->embedding_norm) x = put_norm_node(b, x, width);
    return b->h.opt ? x : put_dropout(b, x, width);
}

void estimate_replay_layers(const struct plan *p, struct estimate_replay_list *list)
{
    struct build b = {.p = p, .m = &p->model->shape, .z = estimate_act_sizes_of(p, ACT_EAGER), .list = list};
    uint32_t x, tokens;

    b.h = estimate_act_habits_of(p, &b.z);
    b.adapted = p->adapter == PLAN_ADAPTER_NONE ? 0 : p->targets;
    b.tokens = b.z.tokens;
    b.c = b.z.compute;
    b.stream = b.z.stream;
    list->input = 8 * b.tokens;
    if (b.m->family == MODEL_T5) {
        tokens = 0;
        x = t5_stack(&b, b.m->encoder_layers, 0, &tokens);
        x = t5_stack(&b, b.m->layers - b.m->encoder_layers, x, &tokens);
        put_loss(&b, b.m->tied ? put_map(&b, x, 0, 0) : x, tokens);
        return;
    }
    const bool images = b.m->family == MODEL_VIT;
    if (images) list->input = 4 * b.z.batch * (double)(b.m->channels * b.m->image * b.m->image);
    x = images ? put_patches(&b) : put_embeddings(&b, &tokens);
    b.inside = true;
    for (uint64_t i = 0; i < b.m->layers; i++) {
        size_t first = list->n;
        x = put_layer(&b, x);
        close_checkpoint(&b, i, first);
    }
    b.inside = false;
    if (b.m->final_norm) x = put_norm_node(&b, x, (double)b.m->hidden);
    if (!images) b.list->ops[x - 1].lets_go[0] = tokens + b.h.gemma; /* inputs_embeds */
    if (estimate_act_has_logits(b.m)) put_loss(&b, x, tokens);
}
