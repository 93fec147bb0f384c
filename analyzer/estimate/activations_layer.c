/* What one layer keeps for backward, operation by operation. Bytes per token; q, k: elements of a token's queries and
 * keys; f: of the MLP. Read off autograd's saved tensors for GPT-2, OPT, Llama, Qwen, Gemma 2, Mixtral, BERT and ViT
 * (transformers 5.23, PyTorch 2.11) in float32, autocast and 16 bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/estimate/activations.h"
#include "analyzer/base/arena.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/shard.h"

static bool has_layernorm(const struct model_shape *m)
{
    return m->norm_bias || m->family == MODEL_GPT || m->family == MODEL_VIT || m->family == MODEL_BERT;
}

/* Autocast runs LayerNorm in float32, the type in which quantised layers then return. RMSNorms return that of their
 * input. */
static bool norms_widen(const struct plan *p)
{
    return p->precision->cast == PRECISION_CAST_AUTOCAST && has_layernorm(&p->model->shape);
}

/* peft's prepare_model_for_kbit_training makes embeddings float32, and quantised layers return the type of their input.
 * High: scripts with --adapter lora may call it too, except with FSDP's first version, which joins only parameters of
 * one type (_flat_param.py: "uniform dtype"). Low: they do not, or DeepSpeed converts embeddings back, which
 * computes the loss in 16 bits, too. */
static bool widens_stream(const struct plan *p, enum estimate_act_variant variant)
{
    return p->adapter == PLAN_ADAPTER_LORA && p->weights && !p->inference && !p->fused_loss && variant != ACT_FUSED &&
           (p->prepared || norms_widen(p) || (variant == ACT_PADDED && !(p->flat && estimate_shard_gathers(p))));
}

/* Trainers on FSDP give it 16-bit parameters (MixedPrecision, MixedPrecisionPolicy): embeddings are read in 16 bits,
 * and autocast has nothing to cast (accelerate dataclasses.py: set_mixed_precision). Both versions on simulated GPUs
 * are within 1.3 %. High: plain autocast, whose residual stream has the parameters' 32 bits. torchtitan's published
 * peaks of compiled layers contain as many bytes for each layer's input, although its stream has 16 bits
 * (parallelize.py): what keeps the other half is unknown. */
static bool computes_narrow(const struct plan *p, enum estimate_act_variant variant)
{
    return (p->flat || (p->fsdp && !plan_is_megatron(p))) && variant != ACT_PADDED &&
           p->precision->cast == PRECISION_CAST_AUTOCAST && estimate_shard_gathers(p);
}

/* Without autocast, no operation of a prepared model narrows its float32 stream: bitsandbytes' products return the type
 * of their input, and the output layer has float32 weights (nn/modules.py: Linear4bit.forward). */
static bool computes_wide(const struct plan *p, enum estimate_act_variant variant)
{
    return p->prepared && p->precision->cast == PRECISION_CAST_NONE && widens_stream(p, variant);
}

struct estimate_act_sizes estimate_act_sizes_of(const struct plan *p, enum estimate_act_variant variant)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_precision *precision = p->precision;
    const bool narrow = computes_narrow(p, variant);
    bool amp = precision->cast == PRECISION_CAST_AUTOCAST && !narrow, fp8 = precision->cast == PRECISION_CAST_FP8;
    bool divided = p->sharding == PLAN_SHARDING_ZERO2 || p->sharding == PLAN_SHARDING_ZERO3;
    double compute = computes_wide(p, variant) ? 4
                     : amp || narrow || fp8    ? 2
                                               : precision->weights,
           seq = (double)p->seq / (double)p->cp;

    if (m->family == MODEL_VIT && m->patch) seq = (double)model_image_tokens(m);
    if (p->adapter == PLAN_ADAPTER_PROMPT) seq += (double)p->rank; /* virtual tokens before each sequence */
    return (struct estimate_act_sizes){
        /* residual_in_fp32; peft's float32 embeddings, whose type bitsandbytes' products return */
        .stream = m->family == MODEL_MAMBA || widens_stream(p, variant)              ? 4
                  : narrow || (amp && p->weights && p->adapter == PLAN_ADAPTER_LORA) ? compute
                                                                                     : precision->weights,
        .compute = compute,
        /* Transformer Engine keeps only the transposed copy; the high variant counts both */
        .read = fp8 && variant != ACT_PADDED ? 1 : compute,
        .gradient = precision->gradients / (divided ? estimate_shard_group(p, false) : 1),
        .amp = amp,
        .softmax_input = p->keeps_softmax_input,
        .tokens = (double)p->batch * seq,
        .seq = seq,
        .keys = seq + (p->adapter == PLAN_ADAPTER_PREFIX ? (double)p->rank : 0),
        .batch = (double)p->batch,
        .variant = variant,
    };
}

struct estimate_act_sizes estimate_act_encoder_sizes(const struct plan *p, const struct estimate_act_sizes *z)
{
    struct estimate_act_sizes e = *z;

    if (p->model->shape.family != MODEL_WHISPER && p->model->shape.family != MODEL_CLIP) return e;
    e.seq = e.keys = (double)(p->model->shape.sound ? p->model->shape.sound : model_image_tokens(&p->model->shape));
    e.tokens = e.batch * e.seq;
    e.variant = z->variant == ACT_PADDED ? ACT_EAGER : z->variant; /* the encoder takes no mask */
    return e;
}

double estimate_act_table_width(const struct model_shape *m)
{
    return (double)(m->embedding ? m->embedding : m->hidden);
}

static void put_activation(struct estimate_act_tape *t, enum estimate_act_group group, double saved, double in,
                           double work, double params)
{
    if (t->n < ACT_OPS_MAX) t->ops[t->n++] = (struct estimate_act_op){group, saved, in, work, params, 0, false};
}

/* ModernBERT */
static bool is_rotary_encoder(const struct model_shape *m)
{
    return m->family == MODEL_BERT && !m->positions;
}

struct estimate_act_habits estimate_act_habits_of(const struct plan *p, const struct estimate_act_sizes *z)
{
    const struct model_shape *m = &p->model->shape;
    bool fused = z->variant == ACT_FUSED, gpt = m->family == MODEL_GPT;
    struct estimate_act_habits h = {.gemma = (m->norms == 4 && !m->norm_bias && !m->fused_gate) || m->linear_layers ||
                                             m->gated_attention};

    h.caps = h.gemma && !m->qk_norm;
    /* only OPT and GPT-Neo have learned positions and separate q, k, v */
    h.opt = gpt && m->positions && !m->fused_qkv && strncmp(p->model->name, "gpt", 3) != 0;
    /* rotary GPTs (NeoX, Falcon) and BLOOM have no dropout and one-kernel GELUs */
    h.dropout = !fused && !m->no_dropout &&
                (m->family == MODEL_T5 || m->family == MODEL_BERT || m->dropout || (gpt && m->positions));
    h.score_dropout = h.dropout && !h.opt && !m->no_score_dropout;
    h.inner_dropout = h.dropout && m->family == MODEL_T5 && (m->buckets || m->inner_dropout);
    h.python_gelu = !fused && !h.opt && (gpt && m->positions ? !m->one_kernel_gelu : m->new_gelu);
    /* Hugging Face's ViT has three matrices, torchvision's one */
    h.one_matrix = m->fused_qkv && !(m->family == MODEL_VIT && z->variant == ACT_PADDED);
    h.falcon = gpt && !m->positions && m->fused_qkv && !m->embedding_norm && m->norm_bias && !m->head_bias &&
               (m->norms == 1 || m->kv_heads < m->heads);
    h.one_key = h.falcon && m->kv_heads == 1 && !fused && p->attention == PLAN_ATTENTION_FLASH &&
                p->runtime != PLAN_RUNTIME_LITGPT;
    h.repeats_keys = p->repeats_keys || (h.falcon && m->kv_heads > 1); /* modeling_falcon.py: _split_heads */
    h.eager_only = gpt && (m->positions ? !m->fused_qkv && !h.opt
                                        : m->fused_qkv && (m->embedding_norm || !m->norm_bias) && !h.falcon);
    h.caches = !fused && z->variant != ACT_LEAN && !p->no_cache && p->gpus == 1 && gpt && m->positions &&
               m->fused_qkv && p->checkpoint == PLAN_CHECKPOINT_NONE;
    h.float_scores = m->family == MODEL_LLAMA || (m->family == MODEL_VIT && !m->mean_in_head) || h.opt ||
                     (gpt && !m->positions && !h.falcon) || is_rotary_encoder(m);
    return h;
}

/* How many of the linear layers that read the same input have an adapter (of `q, k, v`, `out` …). */
enum readers { READ_QKV, READ_OUT, READ_IN, READ_DOWN };

static double adapted_readers(const struct plan *p, enum readers which)
{
    static const unsigned readers[] = {PLAN_QKV, PLAN_OUTPUT, PLAN_GATE | PLAN_UP, PLAN_DOWN};
    unsigned targets = p->targets & readers[which];
    double n = 0;

    if (!estimate_adapter_kind(p)->trained) return 0;
    if (p->adapter == PLAN_ADAPTER_IA3) return which == READ_DOWN; /* IA3 scales this input, elsewhere outputs */
    for (; targets; targets &= targets - 1) n++;
    return which == READ_IN && !p->model->shape.gated && n > 1 ? 1 : n;
}

static bool is_base_frozen(const struct plan *p)
{
    return p->adapter != PLAN_ADAPTER_NONE;
}

/* bitsandbytes' MatMul8bitLt does (autograd/_functions.py: ctx.tensors = (CAt, subA, A)), MatMul4Bit did before 0.43.2
 * (pull request 1270: (None, B)). AutoGPTQ's QuantLinearFunction and torchao's NF4 save weights only. High: such a
 * bitsandbytes. */
bool estimate_act_keeps_frozen(const struct plan *p, const struct estimate_act_sizes *z)
{
    if (!p->weights || z->variant == ACT_FUSED) return false;
    if (strcmp(p->weights->word, "int8") == 0) return true;
    if (strncmp(p->weights->word, "nf4", 3) != 0 && strcmp(p->weights->word, "fp4") != 0) return false;
    return p->bitsandbytes ? p->bitsandbytes < 4302 : z->variant == ACT_PADDED;
}

/* How adapters read the input of a frozen product: how many of them, bytes per element of the input and of what they
 * multiply; whether each keeps a mask; whether they keep the input itself instead of copies. */
struct adapter_reads {
    double n, in, factor;
    bool masked, itself;
};

static struct adapter_reads adapter_reads_of(const struct plan *p, const struct estimate_act_sizes *z,
                                             enum readers which, double readers)
{
    const bool drops = p->dropout == PLAN_DROPOUT_UNKNOWN ? z->variant == ACT_PADDED : p->dropout == PLAN_DROPOUT_SOME,
               wide = which != READ_OUT && widens_stream(p, z->variant);
    struct adapter_reads r = {.n = fmin(adapted_readers(p, which), readers),
                              .in = wide ? 4 : z->compute,
                              .factor = z->amp || p->half_adapters ? 2 : 4,
                              .masked = drops && estimate_adapter_has_dropout(p)};

    r.itself = r.n > 0 && z->variant != ACT_FUSED && !z->amp && !r.masked && r.factor == r.in;
    return r;
}

/* What linear layers keep of an input of `width` elements: the input, for the gradient of their weights. A frozen
 * weight does not need it, but its adapter does: peft's adapters are float32, and each casts the input for itself; with
 * dropout each also keeps a mask. `shared` 0: another operation keeps the input, too. */
static void put_reads(const struct plan *p, const struct estimate_act_sizes *z, enum readers which, double width,
                      double readers, double shared, struct estimate_act_tape *t)
{
    const struct estimate_adapter_kind *kind = estimate_adapter_kind(p);
    const double input = p->adapter == PLAN_ADAPTER_IA3 ? 1 : kind->input;

    if (!is_base_frozen(p)) {
        put_activation(t, which == READ_DOWN ? ACT_MLP : ACT_NORM, shared * z->read * width * (z->amp ? readers : 1), 0,
                       0, 0);
        return;
    }
    const struct adapter_reads r = adapter_reads_of(p, z, which, readers);
    const bool fused = z->variant == ACT_FUSED, int8 = p->weights && strcmp(p->weights->word, "int8") == 0,
               again = (which == READ_IN && p->model->shape.norms == 1) || shared <= 0; /* q, k and v read it, too */
    const double read = int8 ? r.in : z->compute;
    if (estimate_act_keeps_frozen(p, z) && !(r.itself && read == r.in) && !again)
        put_activation(t, which == READ_DOWN ? ACT_MLP : ACT_NORM, shared * read * width, 0, 0, 0);
    if (r.n <= 0) return;
    const double copies = fused      ? z->compute
                          : r.itself ? (again && (shared <= 0 || adapted_readers(p, READ_QKV) > 0) ? 0 : r.in)
                                     : r.factor * r.n,
                 beside = fused ? 0 : (r.masked ? r.n * width : 0) + kind->rank * r.n * r.factor * (double)p->rank;
    put_activation(t, ACT_ADAPTERS, input * copies * width + beside, 0, 0, 0);
}

/* Whether backward of a ReLU keeps its output beside what the frozen product that reads it keeps. */
static bool keeps_relu(const struct plan *p, const struct estimate_act_sizes *z)
{
    return is_base_frozen(p) && z->variant != ACT_FUSED && !adapter_reads_of(p, z, READ_DOWN, 1).itself &&
           !estimate_act_keeps_frozen(p, z);
}

/* peft's ParamWrapper, for stacked experts (transformers 5), adds the product of the factors to the weight: autograd
 * keeps the sum, as large as all experts of the layer, for the gradient of their inputs. Low: experts that are modules,
 * as before. */
static bool keeps_sums(const struct plan *p, const struct estimate_act_sizes *z)
{
    return p->adapter == PLAN_ADAPTER_LORA && !p->weights && z->variant != ACT_FUSED && z->variant != ACT_LEAN;
}

/* What adapters keep of their outputs, and what they keep at any number of tokens, in the layers that `moe` selects or
 * in the others. */
static void adapter_outputs(const struct plan *p, const struct estimate_act_sizes *z, bool moe,
                            struct estimate_act_tape *t)
{
    const struct estimate_adapter_kind *kind = estimate_adapter_kind(p);
    const struct model_shape *m = &p->model->shape;
    const double element = z->amp || p->half_adapters ? 2 : 4;
    double outputs = 0, kept = 0;

    EACH_IN (w, p->model->tensors) {
        const bool differ = m->moe_layers || m->linear_layers || m->global_head_dim || m->block,
                   expert = w->role == TENSOR_EXPERT;
        const bool other = m->block ? w->kind != m->block : differ && w->kind && (w->kind == 2) != moe;
        const uint64_t layers = differ && w->layers ? w->layers : m->layers;
        if (w->place != TENSOR_IN_LAYER || other || !layers || !estimate_adapter_is_target(p, w)) continue;
        const double n = (double)w->count / (double)layers, rows = (double)w->rows, cols = (double)w->cols;
        const double used = expert && m->experts ? (double)m->experts_used / (double)m->experts : 1;
        if (z->variant == ACT_FUSED) /* a compiled layer recomputes outputs; weights are made before it */
            outputs += 0;
        else if (p->adapter != PLAN_ADAPTER_IA3)
            outputs += n * used * rows * (kind->output * element + kind->output16 * z->compute);
        else if (w->role == TENSOR_ATTENTION)
            outputs += n * rows * z->compute;
        kept += n * (kind->weight * rows * cols * element + estimate_adapter_blocks(p, cols, z->amp));
        if (expert && keeps_sums(p, z)) kept += n * rows * cols * p->precision->weights / (double)p->ep;
    }
    if (outputs > 0 || kept > 0) put_activation(t, ACT_ADAPTERS, outputs + kept / z->tokens, 0, 0, 0);
}

/* Reduce.cuh, setReduceConfig(): a block of 128 threads sums 16 to 256 values in each, and allocates 512 bytes for each
 * output. Between these two the number of blocks is what the GPU runs at once. PyTorch 2.11, simulated GPUs with 108
 * and 132 multiprocessors: 108 and 132 MiB. */
double estimate_act_sum_buffer(const struct plan *p, double elements)
{
    const bool known = p->gpu && p->gpu->simulated && p->gpu->multiprocessors > 0;
    const double capability = known ? atof(p->gpu->capability) : 9, n = known ? p->gpu->multiprocessors : 132;
    const double threads = capability == 7.5                                         ? 1024
                           : (capability > 8 && capability < 9) || capability > 11.5 ? 1536
                                                                                     : 2048;

    return fmax(fmin(8 * elements, n * threads * 512), elements / 2);
}

/* Bytes for each token for the gradient of a bias of `out` elements, which is a sum over all tokens. */
static double bias_bytes(const struct plan *p, const struct estimate_act_sizes *z, double out)
{
    const struct model_shape *m = &p->model->shape;

    if (!m->mlp_bias || z->variant == ACT_FUSED || is_base_frozen(p)) return 0;
    return estimate_act_sum_buffer(p, out * z->tokens) / z->tokens;
}

static double weight_bytes(const struct plan *p, double params)
{
    return is_base_frozen(p) ? 0 : params;
}

/* A norm over `width` elements of `input` bytes. */
static void put_norm(const struct plan *p, const struct estimate_act_sizes *z, const struct estimate_act_habits *h,
                     double width, double input, struct estimate_act_tape *t)
{
    double saved, inside = z->stream * width;

    if (has_layernorm(&p->model->shape)) { /* its input, mean and 1/deviation */
        saved = input * width + 8;
    } else if (z->variant == ACT_FUSED || p->fused_norms) {
        saved = input * width + 4;
    } else if (h->gemma || p->model->shape.wide_norms) { /* float32 input, normalised in float32 */
        saved = (is_base_frozen(p) ? 4 : 8) * width + 4;
        inside = 8 * width;
    } else { /* x in float32, and, for the gradient of the weight, x·rsqrt (cast back before) */
        saved = 4 * width + (is_base_frozen(p) ? 0 : input * width) + 4;
        if (p->model->shape.family == MODEL_T5 && input < 4) saved += input * width; /* T5 multiplies x itself */
        inside = 8 * width;
    }
    put_activation(t, ACT_NORM, saved, 0, inside, is_base_frozen(p) ? 0 : width);
}

/* RMSNorm in 16 bits does not keep its input: it keeps a float32 copy and a normalised one. */
bool estimate_act_keeps_input(const struct plan *p, const struct estimate_act_sizes *z)
{
    const struct model_shape *m = &p->model->shape;

    if (m->family == MODEL_MAMBA) return z->amp || z->compute == 4;
    return z->stream == 4 || z->variant == ACT_FUSED || p->fused_norms || has_layernorm(m) || m->family == MODEL_T5;
}

static void put_scores(const struct estimate_act_sizes *z, const struct estimate_act_habits *h, bool kept, double heads,
                       struct estimate_act_tape *t)
{
    double wide = h->float_scores || z->amp || z->compute == 4 ? 4 : z->compute;
    double saved = z->softmax_input ? 2 * wide : wide;

    if (h->caps) saved += z->compute; /* tanh */
    if (h->score_dropout)
        saved += 1 + z->compute; /* dropout's mask and its result */
    else if (wide != z->compute)
        saved += z->compute; /* cast for the product with v */
    /* scores that are not kept are computed again in backward */
    put_activation(t, ACT_SCORES, kept ? saved * heads * z->keys : 0, z->compute * heads * z->keys,
                   (2 * wide + (kept ? 0 : saved)) * heads * z->keys, 0);
}

/* Grouped queries without a mask and not in 16 bits fit none of PyTorch's fused kernels: the "math" kernel keeps the
 * scores as eager attention does. Keys that transformers repeats are no longer grouped; flash_attention_2 casts; a
 * prepared model in 16 bits may train under a trainer's autocast. */
bool estimate_act_falls_back(const struct plan *p, const struct estimate_act_sizes *z)
{
    const struct model_shape *m = &p->model->shape;
    bool wide = z->compute == 4 && !(p->prepared && p->precision->weights < 4);

    return m->family == MODEL_LLAMA && m->kv_heads < m->heads && wide && z->variant != ACT_FUSED && !p->repeats_keys &&
           !p->casts_queries && p->cp == 1; /* a ring of GPUs brings its own kernel */
}

bool estimate_act_bias_learns(const struct plan *p, bool cross)
{
    return p->model->shape.buckets && p->attention != PLAN_ATTENTION_EAGER && (!cross || plan_remakes_layers(p));
}

/* The KV cache in the outputs is in float32, beside 16-bit copies that attention reads. */
static bool caches_wide(const struct plan *p, const struct estimate_act_sizes *z)
{
    const enum model_family f = p->model->shape.family;

    return z->amp && widens_stream(p, z->variant) && !p->drop_outputs && p->checkpoint == PLAN_CHECKPOINT_NONE &&
           (f == MODEL_GPT || f == MODEL_LLAMA) && z->variant >= ACT_EAGER;
}

static void put_attention(const struct plan *p, const struct estimate_act_sizes *z, const struct estimate_act_habits *h,
                          bool cross, struct estimate_act_tape *t)
{
    const struct model_shape *m = &p->model->shape;
    double heads = (double)m->heads, q = heads * (double)m->head_dim, k = (double)(m->kv_heads * m->head_dim);
    double v = k, out = q, width = (double)m->hidden, c = z->compute;
    const bool learns = estimate_act_bias_learns(p, cross),
               wide = (learns && p->attention == PLAN_ATTENTION_MATH) || h->one_key;
    bool eager = p->attention == PLAN_ATTENTION_EAGER || h->eager_only || wide || estimate_act_falls_back(p, z);
    struct estimate_act_sizes inside = *z;
    bool recomputed = p->checkpoint == PLAN_CHECKPOINT_SELECTIVE;
    double others = z->seq > 0 ? z->keys / z->seq : 1; /* keys and values per query token */

    if (m->kv_rank) { /* multi-head latent attention: the compressed vectors, and each head's parts */
        double latent = (double)(m->q_rank + m->kv_rank + m->rope_dim);
        q = k = heads * (double)(m->nope_dim + m->rope_dim);
        v = out = heads * (double)m->v_dim;
        put_activation(t, ACT_ATTENTION, 3 * c * latent, c * width, 0, weight_bytes(p, width * latent));
    }
    put_activation(t, ACT_ATTENTION, 0, c * width, bias_bytes(p, z, h->one_matrix ? 3 * q : q),
                   weight_bytes(p, width * (q + k + v)));
    k *= others;
    v *= others;
    if (wide) inside.compute = 4;
    if (m->qk_norm && !m->kv_rank) {
        put_norm(p, z, h, q, c, t);
        put_norm(p, z, h, k, c, t);
        t->ops[t->n - 1].group = t->ops[t->n - 2].group = ACT_ATTENTION;
    }
    /* the KV cache concatenates keys and values into new tensors, and the queries keep the joined product alive;
     * without fused attention the products would copy them anyway */
    if (h->caches && !cross && !eager) put_activation(t, ACT_ATTENTION, c * (k + v), 0, 0, 0);
    if (caches_wide(p, z)) put_activation(t, ACT_ATTENTION, 4 * (k + v), 0, 0, 0);
    if (eager || z->variant == ACT_PADDED || h->repeats_keys) /* keys and values repeated for each query head */
        put_activation(t, ACT_ATTENTION, inside.compute * (q + others * (q + out)), c * (q + k + v),
                       c * others * (q + out), 0);
    else
        put_activation(t, ACT_ATTENTION, c * (q + k + v), c * (q + k + v), 0, 0);
    /* one product makes q, k and v: rotation makes q and k anew, and the values are a part of the product, all of which
     * stays (PyTorch 2.11, eager and partitioned by torch.compile), unless they are copied, as by a KV cache */
    const bool cached = z->variant == ACT_EAGER && p->gpus == 1 && p->checkpoint == PLAN_CHECKPOINT_NONE &&
                        !p->fused_layers && p->runtime != PLAN_RUNTIME_LITGPT && m->family == MODEL_LLAMA;
    const bool copies = eager || cached || ((z->variant == ACT_PADDED || h->repeats_keys) && m->kv_heads < m->heads);
    if (m->fused_qkv && !copies &&
        (m->family == MODEL_LLAMA || is_rotary_encoder(m) || p->runtime == PLAN_RUNTIME_LITGPT))
        put_activation(t, ACT_ATTENTION, c * (q + k), 0, 0, 0);
    if (eager)
        put_scores(&inside, h, !recomputed, heads, t);
    else if (learns) /* the position bias, made for each layer; its gradient has one for each sequence */
        put_activation(t, ACT_SCORES, cross ? 0 : c * heads * z->seq / z->batch, c * out, c * heads * z->seq, 0);
    else if (z->variant == ACT_PADDED) /* a mask that every layer casts again */
        put_activation(t, ACT_SCORES, c * z->keys, c * out, 0, 0);
    /* Whisper makes its queries contiguous. cuDNN's kernel, which PyTorch uses in 16 bits from Hopper on, returns its
     * result in their layout, so the projection reads a copy. */
    if (m->family == MODEL_WHISPER && !eager && c < 4 && z->variant != ACT_FUSED)
        put_activation(t, ACT_ATTENTION, c * out, 0, c * out, 0);
    /* the projection reads attention's own output */
    if (!eager || !is_base_frozen(p))
        put_activation(t, ACT_ATTENTION, c * out + (eager ? 0 : 4 * heads), c * out, bias_bytes(p, z, width),
                       weight_bytes(p, out * width));
    if (m->gated_attention) /* the sigmoid of the gate, and the tensor that it scales */
        put_activation(t, ACT_ATTENTION, (is_base_frozen(p) ? c : 2 * c) * out, c * out, 0, weight_bytes(p, q * width));
    if (is_base_frozen(p)) put_reads(p, z, READ_OUT, out, 1, eager || m->gated_attention ? 1 : 0, t);
    if (h->dropout || (h->opt && z->variant != ACT_FUSED)) put_activation(t, ACT_MASKS, width, z->stream * width, 0, 0);
}

/* Heads of other sizes count as so many heads of 128. */
static double share_of_head(uint64_t dim)
{
    return dim ? (double)dim / MODEL_LINEAR_HEAD : 1;
}

/* A gated delta net. With kernels, what they save: causal_conv1d its input; fla's chunk_gated_delta_rule q and k of
 * each head of values, v, a matrix of each chunk of 64 tokens, decays; then the gate and the norm's input. Without
 * kernels, measured on transformers 5.23.0: bytes per token for each head of values and of keys (a head is 128 wide),
 * in 16 bits and in float32. */
static void linear_attention(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *t)
{
    enum { CHUNK = 64 };
    const struct model_shape *m = &p->model->shape;
    const double keys = (double)m->linear_keys * share_of_head(m->linear_key_dim),
                 values = (double)m->linear_values * share_of_head(m->linear_value_dim), head = MODEL_LINEAR_HEAD;
    const double mixed = (2 * keys + values) * head, out = values * head, c = z->compute, width = (double)m->hidden;
    const double kept = p->attention != PLAN_ATTENTION_EAGER
                            ? c * (mixed + 5 * out + CHUNK * values) + 20 * values + (is_base_frozen(p) ? 0 : c * out)
                        : c < 4 && !z->amp ? (is_base_frozen(p) ? 10274 : 10790) * values + 1024 * keys
                                           : (is_base_frozen(p) ? 12580 : 13608) * values + 3072 * keys;

    put_activation(t, ACT_INNER, 0, c * width, 0, weight_bytes(p, width * (mixed + out + 2 * values)));
    put_activation(t, ACT_INNER, kept, c * (mixed + out), 2 * c * (mixed + out),
                   weight_bytes(p, (double)m->taps * mixed));
    put_activation(t, ACT_INNER, 0, c * out, 0, weight_bytes(p, out * width));
    if (is_base_frozen(p)) put_reads(p, z, READ_OUT, out, 1, 1, t);
}

static void put_mlp(const struct plan *p, const struct estimate_act_sizes *z, const struct estimate_act_habits *h,
                    double f, double share, struct estimate_act_tape *t)
{
    double width = (double)p->model->shape.hidden;
    const double c = widens_stream(p, z->variant) ? 4 : z->compute;

    if (p->model->shape.gated) {
        put_activation(t, ACT_MLP, 0, c * width, 0, weight_bytes(p, share * 2 * width * f));
        /* gate, up, activated gate; a fused kernel recomputes the activation, and those of LoRA (Unsloth's and
         * axolotl's LoRA_MLP) write both gradients over gate and up */
        const bool in_place = z->variant == ACT_FUSED && is_base_frozen(p);
        put_activation(t, ACT_MLP, share * (z->variant == ACT_FUSED ? 2 : 3) * c * f, in_place ? 0 : share * 2 * c * f,
                       0, 0);
        if (h->inner_dropout) t->ops[t->n - 1].saved += (1 + c) * f;
    } else {
        const bool is_t5 = p->model->shape.family == MODEL_T5 && p->model->shape.buckets;
        const bool relu = h->opt || p->model->shape.relu || is_t5;
        double kept = relu                                                    ? 0
                      : p->model->shape.quick_gelu && z->variant != ACT_FUSED ? 2 * c
                      : h->python_gelu                                        ? (z->amp ? 12 + c : 4 * c)
                                                                              : c;
        if (h->inner_dropout)
            kept += relu ? 1 + c : 1; /* the mask; a ReLU keeps its output, too */
        else if (relu && keeps_relu(p, z))
            kept = c;
        put_activation(t, ACT_MLP, 0, c * width, bias_bytes(p, z, f), weight_bytes(p, width * f));
        put_activation(t, ACT_MLP, kept * f, c * f, (h->python_gelu ? 2 * (z->amp ? 4 : c) : 0) * f, 0);
    }
    const size_t down = t->n;
    put_activation(t, ACT_MLP, 0, share * c * f, bias_bytes(p, z, width), weight_bytes(p, share * width * f));
    put_reads(p, z, READ_DOWN, f, 1, share, t);
    if (!is_base_frozen(p) && t->n == down + 2) { /* its input is freed only after the sum for its bias */
        t->ops[down].saved = t->ops[down + 1].saved;
        t->n = down + 1;
    }
    if (h->dropout || (h->opt && z->variant != ACT_FUSED)) put_activation(t, ACT_MASKS, width, z->stream * width, 0, 0);
}

/* Each token is copied for each expert that it uses. Each expert's result is kept, because it is weighted afterwards.
 */
static void put_experts(const struct plan *p, const struct estimate_act_sizes *z, const struct estimate_act_habits *h,
                        struct estimate_act_tape *t)
{
    const struct model_shape *m = &p->model->shape;
    double used = (double)m->experts_used, f = (double)m->expert_ffn, hidden = (double)m->hidden;
    struct model narrow = *p->model; /* a projection narrows what experts read, and another widens their sum */
    struct plan inner = *p;
    narrow.shape.hidden = m->latent_ffn ? m->latent_ffn : m->hidden;
    inner.model = &narrow;
    double width = (double)narrow.shape.hidden;
    /* autocast does not cover PyTorch's grouped product, which computes in the weights' precision */
    struct estimate_act_sizes wide = *z;
    bool divided = p->sharding == PLAN_SHARDING_ZERO2 || p->sharding == PLAN_SHARDING_ZERO3;
    /* experts of other GPUs have their gradients there. z->gradient is divided by dp, but an expert's gradient is
     * divided by dp / ep only */
    double here = (double)m->experts / (double)p->ep *
                  (divided ? estimate_shard_group(p, false) / estimate_shard_group(p, true) : 1);
    size_t first;

    if (z->variant != ACT_FUSED && z->amp) wide.compute = z->stream;
    put_activation(t, ACT_MLP, 4 * (double)m->experts + 40 * used, wide.compute * hidden, 0,
                   weight_bytes(p, hidden * (double)m->experts));
    if (m->latent_ffn) put_activation(t, ACT_MLP, 0, wide.compute * width, 0, weight_bytes(p, hidden * width));
    put_activation(t, ACT_MLP, used * wide.compute * width, wide.compute * width, 0, 0);
    first = t->n;
    put_mlp(&inner, &wide, h, f, used, t);
    /* before transformers 5 experts are modules, and backward has the gradients of one expert at a time */
    const double at_once = p->transformers && p->transformers < 500 ? 1 / (double)m->experts : 1;
    for (size_t i = first; i < t->n; i++) {
        /* all experts on this GPU have gradients, not only those that a token uses */
        t->ops[i].params *= here / (used > 0 ? used : 1);
        t->ops[i].in *= at_once;
        t->ops[i].work *= at_once;
        t->ops[i].uncast = true;
    }
    put_activation(t, ACT_MLP, used * wide.compute * width, at_once * used * wide.compute * width, 0, 0);
    if (m->latent_ffn)
        put_activation(t, ACT_MLP, wide.compute * width, wide.compute * hidden, 0, weight_bytes(p, hidden * width));
    if (m->shared_experts)
        put_mlp(p, z, h, m->shared_ffn ? (double)m->shared_ffn : f * (double)m->shared_experts, 1, t);
}

/* Whisper's cross-attention has many more keys than queries. Its keys and values are products of the encoder's output,
 * which is kept once for all layers; under autocast each of the products casts it again. */
static void cross_attention(const struct plan *p, const struct estimate_act_sizes *z,
                            const struct estimate_act_habits *h, struct estimate_act_tape *t)
{
    double width = (double)p->model->shape.hidden;
    struct estimate_act_sizes cross = *z;

    cross.keys = (double)p->model->shape.sound;
    put_norm(p, z, h, width, z->stream, t);
    put_reads(p, z, READ_QKV, width, 1, 1, t);
    double sound = z->seq > 0 ? cross.keys / z->seq * width : 0;
    put_activation(t, ACT_ATTENTION, z->amp && !is_base_frozen(p) ? 2 * z->compute * sound : 0, 0, z->stream * sound,
                   0);
    put_attention(p, &cross, h, true, t);
}

/* Gemma 4's layers without a window: attention with other heads. */
static void global_attention(const struct plan *p, const struct estimate_act_sizes *z,
                             const struct estimate_act_habits *h, struct estimate_act_tape *t)
{
    struct model model = *p->model;
    struct plan other = *p;

    model.shape.head_dim = model.shape.global_head_dim;
    model.shape.kv_heads = model.shape.global_kv_heads;
    other.model = &model;
    put_attention(&other, z, h, false, t);
}

/* DINOv2, BEiT: a product with a vector, whose gradient needs what it multiplies. */
static void scale_output(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *t)
{
    const double width = (double)p->model->shape.hidden;

    if (p->model->shape.layer_scale && z->variant != ACT_FUSED && !is_base_frozen(p))
        put_activation(t, ACT_NORM, z->compute * width, z->compute * width, z->stream * width, width);
}

static void append_share(struct estimate_act_tape *t, const struct estimate_act_op *op, double share)
{
    if (t->n < ACT_OPS_MAX)
        t->ops[t->n++] =
            (struct estimate_act_op){op->group,          op->saved * share,  op->in * share, op->work * share,
                                     op->params * share, op->around * share, op->uncast};
}

void estimate_act_group_layer(const struct plan *p, const struct estimate_act_sizes *z, unsigned group,
                              struct estimate_act_tape *t)
{
    struct model model = *p->model;
    struct plan one = *p;

    one.model = &model;
    model.shape = model_block_shape(&p->model->shape, group);
    estimate_act_layer(&one, z, model.shape.experts > 0, t);
}

/* A layer of a model whose layers are grouped: one of the last group, or the mean of the others. */
static void block_layer(const struct plan *p, const struct estimate_act_sizes *z, bool last,
                        struct estimate_act_tape *t)
{
    const struct model_shape *m = &p->model->shape;
    const unsigned from = last ? m->blocks_n - 1 : 0, to = last || m->blocks_n == 1 ? m->blocks_n : m->blocks_n - 1;
    static struct estimate_act_tape tape;
    double layers = 0;

    t->n = 0;
    for (unsigned i = from; i < to; i++) layers += m->blocks[i].layers;
    for (unsigned i = from; i < to; i++) {
        if (!m->blocks[i].layers) continue; /* a group that --solve layers leaves out */
        estimate_act_group_layer(p, z, i, &tape);
        for (size_t k = 0; k < tape.n; k++) append_share(t, &tape.ops[k], (double)m->blocks[i].layers / layers);
    }
}

void estimate_act_layer(const struct plan *p, const struct estimate_act_sizes *z, bool moe, struct estimate_act_tape *t)
{
    const struct model_shape *m = &p->model->shape;
    struct estimate_act_habits h = estimate_act_habits_of(p, z);
    double width = (double)m->hidden;
    const bool second = moe;

    if (m->family == MODEL_MAMBA) {
        estimate_act_mamba_layer(p, z, t);
        return;
    }
    if (m->blocks_n) {
        block_layer(p, z, moe, t);
        return;
    }
    if (m->family == MODEL_CLIP) {
        struct model model = *p->model;
        struct plan one = *p;
        one.model = &model;
        model.shape = model_tower_shape(m, !moe);
        estimate_act_layer(&one, z, false, t);
        return;
    }
    t->n = 0;
    if (m->mixer != MODEL_MIXER_NONE) {
        put_norm(p, z, &h, width, z->stream, t);
        put_reads(p, z, READ_QKV, width, h.one_matrix || m->mixer ? 1 : 3, 1, t);
    }
    if (m->mixer == MODEL_MIXER_MAMBA || m->mixer == MODEL_MIXER_CONV) estimate_act_mixer(p, z, t);
    if ((m->linear_layers && !moe) || m->mixer == MODEL_MIXER_DELTA || m->mixer == MODEL_MIXER_KDA ||
        m->mixer == MODEL_MIXER_LIGHTNING)
        linear_attention(p, z, t);
    else if (m->mixer != MODEL_MIXER_ATTENTION && !m->beside)
        ;
    else if (m->global_head_dim && moe)
        global_attention(p, z, &h, t);
    else
        put_attention(p, z, &h, false, t);
    if (m->linear_layers || m->global_head_dim) moe = m->experts > 0;
    if (m->family == MODEL_T5 && moe) { /* the decoder also attends to the encoder's output */
        put_norm(p, z, &h, width, z->stream, t);
        put_reads(p, z, READ_QKV, width, 3, 1, t);
        put_attention(p, z, &h, true, t);
        moe = false;
    }
    if (m->family == MODEL_WHISPER && moe) {
        cross_attention(p, z, &h, t);
        moe = false;
    }
    if (m->norms == 4) put_norm(p, z, &h, width, z->compute, t);
    scale_output(p, z, t);
    if (m->no_mlp) moe = false;
    t->mlp = t->n;
    if ((m->norms != 1 && !m->no_mlp) || m->mixer == MODEL_MIXER_NONE) /* Falcon's MLP reads attention's norm */
        put_norm(p, z, &h, width, z->stream, t);
    if ((m->norms != 1 || z->amp || is_base_frozen(p) || m->mixer == MODEL_MIXER_NONE) && !m->no_mlp)
        put_reads(p, z, READ_IN, width, m->gated && !moe && !m->fused_gate ? 2 : 1, 1, t);
    if (moe)
        put_experts(p, z, &h, t);
    else if (!m->no_mlp)
        put_mlp(p, z, &h, (double)m->ffn, 1, t);
    if (m->norms == 4) put_norm(p, z, &h, width, z->compute, t);
    scale_output(p, z, t);
    if (is_base_frozen(p)) adapter_outputs(p, z, second, t);
    for (size_t i = 0; i < t->n; i++) {
        t->ops[i].saved *= z->tokens;
        t->ops[i].in *= z->tokens;
        t->ops[i].work *= z->tokens;
        t->ops[i].around *= z->tokens;
        if (m->shared) t->ops[i].params /= (double)m->shared;
    }
}

void estimate_act_last_norm(const struct plan *p, const struct estimate_act_sizes *z, struct estimate_act_tape *t)
{
    struct estimate_act_habits h = estimate_act_habits_of(p, z);

    double width = (double)p->model->shape.hidden, c = z->compute;

    t->n = 0;
    const double narrow = estimate_act_table_width(&p->model->shape);

    if (p->model->shape.masked_lm) /* a linear layer, GELU */
        put_activation(t, ACT_NORM, c * (width + narrow), c * width, c * width, weight_bytes(p, width * narrow));
    put_norm(p, z, &h, width, z->stream, t);
    if (!is_base_frozen(p)) t->ops[t->n - 1].saved += c * width;
    for (size_t i = 0; i < t->n; i++) {
        t->ops[i].saved *= z->tokens;
        t->ops[i].in *= z->tokens;
        t->ops[i].work *= z->tokens;
    }
}

bool estimate_act_caps_logits(const struct plan *p, const struct estimate_act_sizes *z)
{
    return estimate_act_habits_of(p, z).caps || p->model->shape.global_head_dim; /* Gemma 2, Gemma 4 */
}

bool estimate_act_embedding_dropout(const struct plan *p, const struct estimate_act_sizes *z)
{
    return estimate_act_habits_of(p, z).dropout && !estimate_act_habits_of(p, z).opt;
}

double estimate_act_group_saved(const struct estimate_act_tape *tape, enum estimate_act_group group)
{
    double sum = 0;

    for (size_t i = 0; i < tape->n; i++) sum += tape->ops[i].group == group ? tape->ops[i].saved : 0;
    return sum;
}

double estimate_act_saved(const struct estimate_act_tape *tape)
{
    double sum = 0;

    for (size_t i = 0; i < tape->n; i++) sum += tape->ops[i].saved;
    return sum;
}
