/* What serving a model needs besides its weights: the KV cache, and what a forward pass without gradients keeps at
 * once. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/base/arena.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/serving.h"

#define KIB 1024.0
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static double whole_up(double n)
{
    double down = (double)(uint64_t)n;
    return down < n ? down + 1 : down;
}

double estimate_serving_element(const struct plan *p);
static double mamba_taps(const struct plan *p);
static double mamba_state(const struct plan *p);

static double cache_bits(const struct plan *p)
{
    if (p->cache) return p->cache->bits;
    return p->precision && p->precision_given && p->precision->weights == 4 && !p->precision->cast_copy ? 32 : 16;
}

static bool is_decoder_shape(const struct model_shape *s)
{
    return s->layers &&
           (s->family == MODEL_GPT || s->family == MODEL_LLAMA || s->family == MODEL_T5 || s->family == MODEL_WHISPER);
}

bool estimate_serving_decodes(const struct plan *p)
{
    return p->inference && is_decoder_shape(&p->model->shape);
}

static double kv_heads_here(const struct plan *p)
{
    return whole_up((double)p->model->shape.kv_heads / (double)p->tp);
}

/* Elements per token that one layer of a group keeps. */
static double block_elements(const struct plan *p, const struct model_shape *one)
{
    const double heads = whole_up((double)one->kv_heads / (double)p->tp);

    if ((one->mixer != MODEL_MIXER_ATTENTION && !one->beside) || one->no_keys) return 0;
    if (one->o_groups) return (double)one->head_dim; /* one head, whose keys are the values */
    if (one->kv_rank) return (double)(one->kv_rank + one->rope_dim);
    return heads * (double)(one->head_dim + (one->v_dim ? one->v_dim : one->head_dim));
}

/* Elements per token in one layer: keys and values of the heads on this GPU, or the one latent vector (MLA). */
static double cache_elements(const struct plan *p)
{
    const struct model_shape *s = &p->model->shape;

    if (s->kv_rank) return (double)(s->kv_rank + s->rope_dim);
    return kv_heads_here(p) * (double)(s->head_dim + (s->v_dim ? s->v_dim : s->head_dim));
}

/* Tokens that one sequence holds; `window` 0: all. A window may begin within a block, so it needs one block more. */
static double tokens_held(const struct plan *p, double tokens, double window)
{
    double block = (double)p->cache_block;
    bool cut = window > 0 && tokens > window;

    tokens = cut ? window : whole_up(tokens / (double)p->cp);
    if (p->cache_block) tokens = (whole_up(tokens / block) + cut) * block;
    return tokens;
}

struct cached {
    double full, windowed; /* layers of the stage */
    double cross;          /* positions of Whisper's encoder, whose keys and values each of `full` keeps */
    double tokens, window_tokens;
    double bytes, whole; /* whole: if layers with a window kept all tokens */
};

/* The same for a model whose layers are grouped. */
static struct cached cached_of_blocks(const struct plan *p, uint64_t stage, uint64_t seq)
{
    const struct model_shape *s = &p->model->shape;
    const double share = (double)estimate_serving_layers(p, stage) / (double)s->layers,
                 element = (double)p->batch * cache_bits(p) / 8;
    const double tokens = tokens_held(p, (double)seq, 0);
    struct cached c = {.tokens = tokens, .window_tokens = tokens};

    for (unsigned i = 0; i < s->blocks_n; i++) {
        const struct model_shape one = model_block_shape(s, i);
        const double layers = share * (double)one.layers, each = block_elements(p, &one);
        const double held = tokens_held(p, (double)seq, (double)one.window);
        if (each <= 0) continue;
        if (one.window) c.window_tokens = held;
        *(one.window ? &c.windowed : &c.full) += layers;
        c.bytes += layers * held * each * element;
        c.whole += layers * c.tokens * each * element;
        if (one.compress) /* entries of several tokens, in addition to the window */
            c.bytes += layers * whole_up((double)seq / (double)one.compress) * element *
                       (each + (one.compress < 128 ? (double)one.index_dim : 0));
    }
    return c;
}

static struct cached cached_of_stage(const struct plan *p, uint64_t stage, uint64_t seq)
{
    const struct model_shape *s = &p->model->shape;
    double here = (double)estimate_serving_layers(p, stage);
    uint64_t window_layers = s->window ? s->window_layers : 0;
    struct cached c;

    if (s->blocks_n) return cached_of_blocks(p, stage, seq);

    if (s->family == MODEL_T5) /* the decoder's layers: of its own tokens, and of the encoder's */
        here = 2 * here * (double)(s->layers - s->encoder_layers) / (double)s->layers;
    if (s->family == MODEL_WHISPER) /* of the decoder's tokens, and of sound, whose length is fixed */
        here = here * (double)(s->layers - s->encoder_layers) / (double)s->layers;
    here = here * (double)(s->layers - s->linear_layers) / (double)s->layers; /* the others have a state */
    c = (struct cached){.full = here, .cross = s->family == MODEL_WHISPER ? (double)s->sound : 0};

    if (window_layers > s->layers) window_layers = s->layers;
    if (window_layers) {
        c.full = whole_up((double)(s->layers - window_layers) * here / (double)s->layers);
        c.windowed = here - c.full;
    }
    c.tokens = tokens_held(p, (double)seq, 0);
    c.window_tokens = tokens_held(p, (double)seq, (double)s->window);
    const double global =
        s->global_head_dim ? 2 * (double)(s->global_kv_heads * s->global_head_dim) : cache_elements(p);
    const double full = c.full * (c.tokens + c.cross) * global, element = (double)p->batch * cache_bits(p) / 8;
    c.bytes = (full + c.windowed * c.window_tokens * cache_elements(p)) * element;
    c.whole = (full + c.windowed * c.tokens * cache_elements(p)) * element;
    return c;
}

static void explain_cache(const struct plan *p, const struct cached *c, struct estimate_line *line)
{
    const struct model_shape *s = &p->model->shape;
    char each[96], windowed[48] = "";

    if (s->kv_rank)
        snprintf(each, sizeof each, "(kv_rank %ju + rope %ju)", (uintmax_t)s->kv_rank, (uintmax_t)s->rope_dim);
    else
        snprintf(each, sizeof each, "2 · kv heads %.0f · head %ju", kv_heads_here(p), (uintmax_t)s->head_dim);
    if (s->global_head_dim)
        snprintf(each, sizeof each, "2 · kv heads %.0f · head %ju, without a window %ju · %ju", kv_heads_here(p),
                 (uintmax_t)s->head_dim, (uintmax_t)s->global_kv_heads, (uintmax_t)s->global_head_dim);
    if (c->cross > 0)
        snprintf(windowed, sizeof windowed, " and %.0f positions of audio", c->cross);
    else if (c->windowed > 0)
        snprintf(windowed, sizeof windowed, " + %.0f layers · %.0f", c->windowed, c->window_tokens);
    estimate_explain(line,
                     s->kv_rank ? "DeepSeek-V2 (2405.04434), section 2.1: one latent vector per token"
                                : "keys and values of every token and layer",
                     "(%.0f layers · %.0f tokens%s) · batch %ju · %s · %.4g B", c->full, c->tokens, windowed,
                     (uintmax_t)p->batch, each, cache_bits(p) / 8);
}

/* GLM-4's own code: for each layer torch.cat makes a larger tensor of the caches of all layers before, which no cached
 * segment holds. Of the prompt's cache: what is reserved beyond what is live when PyTorch's allocator gets the requests
 * of such a prompt (40 layers, 8,000 to 128,000 tokens). */
#define JOINED_SEGMENTS 2.8

static void add_joined_cache(struct estimate_result *r, double cache)
{
    const double segments = JOINED_SEGMENTS * cache;
    struct estimate_line *line = estimate_add(r, ESTIMATE_ALLOCATOR, IN_PHASE(PREFILL), "segments of the joined caches",
                                              (struct estimate_interval){0, segments, 1.5 * segments});

    line->why = "low: transformers' own class of the model (-hf); high: segments that no other tensor uses meanwhile";
    estimate_explain(line, "GLM-4's modeling_chatglm.py, its requests given to PyTorch's allocator",
                     "the prompt's cache · %.1f", JOINED_SEGMENTS);
}

#define WHY_VIEWS                                                                                               \
    "transformers truncates to the sliding window by views, which keep the whole prompt alive until the first " \
    "new token"

static void add_cache(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    struct cached c = cached_of_stage(p, stage, p->seq);
    bool cut = c.windowed > 0 && c.window_tokens < c.tokens;
    const double whole = cut ? c.whole : c.bytes;
    struct estimate_interval bytes = {c.bytes, p->cache_block ? c.bytes : whole, p->cache_block ? c.bytes : whole};
    /* The cache does not exist while the encoder runs. While a prompt is read that is shorter than the context, it has
     * only a part, except in blocks, which a server allocates at its start. */
    const bool whole_at_once = p->runtime >= PLAN_RUNTIME_AUTOAWQ; /* its caches are allocated with the model */
    const bool encodes = c.cross > 0 || (s->family == MODEL_T5 && !p->cache_block);
    const bool parts = p->prompt && p->prompt < p->seq && !p->cache_block && !encodes && !whole_at_once;
    unsigned when = encodes || parts ? IN_PHASE(DECODE) : whole_at_once ? estimate_phases(p) : IN_INFERENCE;
    struct estimate_line *line = estimate_add(r, ESTIMATE_CACHE, when, "KV cache", bytes);
    double layer, tokens;

    explain_cache(p, &c, line);
    if (parts) {
        const struct cached read = cached_of_stage(p, stage, p->prompt);
        const bool views = read.windowed > 0 && read.window_tokens < read.tokens;
        const double held = views ? read.whole : read.bytes;
        struct estimate_line *prompt = estimate_add(r, ESTIMATE_CACHE, IN_PHASE(PREFILL), "KV cache of the prompt",
                                                    (struct estimate_interval){read.bytes, held, held});
        explain_cache(p, &read, prompt);
        if (views) prompt->why = WHY_VIEWS;
    }
    if (s->kv_rank) {
        double expanded = (double)estimate_serving_layers(p, stage) * c.tokens * (double)p->batch *
                          whole_up((double)s->heads / (double)p->tp) * (double)(s->nope_dim + s->rope_dim + s->v_dim) *
                          cache_bits(p) / 8;
        estimate_note(r,
                      "KV cache: the latent vectors, as vLLM and SGLang keep them; transformers keeps expanded keys "
                      "and values: %s",
                      UNITS_BYTES(units_whole(expanded)));
    }
    if (cut && p->cache_block)
        estimate_note(r,
                      "KV cache: layers with a sliding window keep only its %ju tokens; a server that keeps all tokens "
                      "(vLLM without its hybrid cache manager) needs %s",
                      (uintmax_t)s->window, UNITS_BYTES(units_whole(whole)));
    else if (cut)
        line->why = WHY_VIEWS;
    if (p->cache_block || s->kv_rank || whole_at_once) return;
    if (s->joined_cache && p->prompt) add_joined_cache(r, c.bytes * (double)p->prompt / (double)p->seq);
    /* generate() holds the old tuple until the forward pass has returned a new one */
    if (s->tuple_cache && (!p->prompt || p->seq > p->prompt + 1)) {
        line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(DECODE), "the cache before the token that is generated",
                            (struct estimate_interval){0, c.bytes, c.bytes});
        line->why = "none with transformers 4.36 and later, whose DynamicCache copies one layer at a time";
        estimate_explain(line, "transformers before 4.36, and models' own code: past_key_values",
                         "as many bytes as the KV cache");
        return;
    }
    /* transformers' DynamicCache: torch.cat copies a layer's keys for each token */
    tokens = c.full > 0 ? c.tokens : c.window_tokens;
    layer = tokens * (double)p->batch * cache_elements(p) / 2 * cache_bits(p) / 8;
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(DECODE), "a layer's keys while the cache grows",
                        (struct estimate_interval){0, layer, layer});
    line->why = "none if the cache is allocated at full length (StaticCache)";
    estimate_explain(line, "transformers cache_utils.py, DynamicLayer.update: torch.cat of old and new keys",
                     "%.0f tokens · batch %ju · keys of one layer", tokens, (uintmax_t)p->batch);
}

double estimate_serving_element(const struct plan *p)
{
    return p->weights || !p->precision || !p->precision_given ? 2 : p->precision->cast_copy ? 2 : p->precision->weights;
}

/* GPT-2's gelu_new is written in Python and makes three temporaries. */
static bool gelu_in_pieces(const struct model_shape *s)
{
    return s->new_gelu || (s->family == MODEL_GPT && s->positions && s->fused_qkv && !s->one_kernel_gelu);
}

/* Elements per token that one layer keeps at once: its norm, its attention and its MLP run one after the other. Low:
 * fused kernels, as in vLLM. Likely: transformers, as tests/torch/serve.py measures it: model and caller still hold the
 * embeddings and the layer's input, rotary positions make queries and keys from three temporaries, RMSNorm computes in
 * float32. Keys and values are in the cache and are not counted again. */
static struct estimate_interval layer_token_elements(const struct plan *p)
{
    const struct model_shape *s = &p->model->shape;
    double tp = (double)p->tp, h = (double)s->hidden, f = (double)s->ffn / tp, size = estimate_serving_element(p);
    double q = (double)s->heads * (double)s->head_dim / tp, kv = cache_elements(p) / 2;
    double held = p->cache_block ? 2 * h : 4 * h;  /* in addition to what the MLP makes */
    double early = p->cache_block ? 2 * h : 3 * h; /* in addition to what attention and norms make */
    struct estimate_interval attention, mlp, norm = {3 * h, early + 8 * h / size, early + 8 * h / size};

    if (s->kv_rank) { /* expanded for prefill: queries and keys of nope + rope, values */
        q = (double)s->heads * (double)(s->nope_dim + s->rope_dim) / tp;
        kv = q;
    }
    if (s->mixer != MODEL_MIXER_ATTENTION) { /* the projections into and out of the state, and the convolution */
        q = fmax(s->mixer == MODEL_MIXER_MAMBA ? 2 * (double)(s->inner + s->groups * s->state) : 0,
                 s->mixer == MODEL_MIXER_CONV ? 1.5 * h : (double)(s->linear_values * s->linear_value_dim)) /
            tp;
        kv = 0;
    }
    attention.low = 2 * h + 2 * q + 2 * kv;
    attention.likely = fmax(attention.low, early + fmax(4 * q, 2 * q + 3 * kv));
    attention.high = attention.likely + q + 2 * kv;
    if (s->gated) /* act(gate), up, and their product */
        mlp = (struct estimate_interval){2 * h + 3 * f, held + 3 * f, held + 4 * f};
    else /* before and after the activation */
        mlp = (struct estimate_interval){2 * h + 2 * f,
                                         held + (gelu_in_pieces(s) ? 4
                                                 : s->quick_gelu   ? 3
                                                                   : 2) *
                                                    f,
                                         held + 5 * f};
    if (s->experts && s->experts_used) {
        double used = (double)s->experts_used, e = (double)s->expert_ffn / tp;
        double shared = 3 * (s->shared_ffn ? (double)s->shared_ffn / tp : (double)s->shared_experts * e);
        double fused = used * (fmax(2 * e, h) + e) + 3 * h; /* vLLM's two caches */
        mlp.low = fmin(fused, 3 * h + 3 * e * used * 2 / (double)s->experts) + shared;
        mlp.likely = (p->cache_block ? fused : used * (h + 4 * e) + held) + shared;
        mlp.high = used * (2 * h + 4 * e) + 4 * h + shared;
    }
    return (struct estimate_interval){fmax(norm.low, fmax(attention.low, mlp.low)),
                                      fmax(norm.likely, fmax(attention.likely, mlp.likely)),
                                      fmax(norm.high, fmax(attention.high, mlp.high))};
}

/* Of the layers of a group that needs most. */
struct estimate_interval estimate_serving_token_elements(const struct plan *p)
{
    struct estimate_interval most = {0, 0, 0};
    struct model model = *p->model;
    struct plan one = *p;

    if (!p->model->shape.blocks_n) return layer_token_elements(p);
    one.model = &model;
    for (unsigned i = 0; i < p->model->shape.blocks_n; i++) {
        model.shape = model_block_shape(&p->model->shape, i);
        const struct estimate_interval e = layer_token_elements(&one);
        most = (struct estimate_interval){fmax(most.low, e.low), fmax(most.likely, e.likely), fmax(most.high, e.high)};
    }
    return most;
}

/* vLLM reads prompts in chunks: max_num_batched_tokens is 2048 … 16384 by GPU and use (EngineArgs. get_batch_defaults).
 * Without blocks the whole batch is computed at once, as in model.generate(); with its prefill_chunk_size it is
 * computed in chunks, and published peaks of Qwen3 (allocated, 6144 to 30720 tokens) do not contain a whole prompt. */
static struct estimate_interval prefill_tokens(const struct plan *p, double a_sequence)
{
    double all = (double)p->batch * whole_up(a_sequence / (double)p->cp);

    if (!p->cache_block)
        return (struct estimate_interval){estimate_serving_reads_in_chunks(p) ? fmin(all, 256) : all, all, all};
    return (struct estimate_interval){fmin(all, 2048), fmin(all, 8192), fmin(all, 16384)};
}

/* Bytes per score at softmax's peak. */
static double score_bytes(const struct plan *p)
{
    bool float16 = p->precision && strstr(p->precision->name, "fp16");

    if (p->model->shape.family == MODEL_GPT || p->model->shape.family == MODEL_WHISPER ||
        (p->model->shape.family == MODEL_T5 && p->model->shape.norm_bias)) /* softmax of the scores in their own type */
        return 2 * estimate_serving_element(p);
    /* AutoAWQ's fused attention makes the float32 copy itself (awq/modules/fused/attn.py) */
    return estimate_serving_element(p) == 4 || (float16 && p->runtime != PLAN_RUNTIME_AUTOAWQ) ? 8 : 10;
}

/* Eager attention of `queries` tokens to `keys` tokens of each sequence: a matrix of scores. Softmax runs in float32:
 * PyTorch first makes a float32 copy of bfloat16 scores (aten's softmax reads float16 itself), and the scores stay
 * until its result is cast back. In addition: the mask, the queries, and keys and values once for each query head. */
static struct estimate_interval eager_scores(const struct plan *p, double queries, double keys)
{
    const struct model_shape *s = &p->model->shape;
    double heads = whole_up((double)s->heads / (double)p->tp), size = estimate_serving_element(p),
           batch = (double)p->batch;
    double score = score_bytes(p);
    double all = batch * queries * keys, head = heads * (double)s->head_dim;
    double rest = batch * size * (queries * (3 * (double)s->hidden + head) + 2 * keys * head);

    if (p->attention != PLAN_ATTENTION_EAGER) return EXACTLY(0);
    return (struct estimate_interval){all * heads * 2 * size, all * (heads * score + size) + rest,
                                      all * (heads * (score + size) + size) + rest};
}

/* Does transformers make the logits of a whole prompt? Before 4.45, which brought num_logits_to_keep, it does. */
static bool makes_all_logits(const struct plan *p)
{
    return p->transformers && p->transformers < 445 && !p->cache_block && p->model->shape.family != MODEL_T5;
}

/* The larger of a layer and the logits: the layers' tensors are freed before the logits are made. */
static void add_pass(const struct plan *p, struct estimate_result *r, unsigned phase, const char *word,
                     struct estimate_interval tokens, struct estimate_interval scores)
{
    const struct model_shape *s = &p->model->shape;
    /* transformers as old as tuples of keys and values made the logits of the whole prompt */
    const bool own = s->masked_lm || (s->tuple_cache && !s->joined_cache && p->prompt && phase == IN_PHASE(PREFILL));
    const bool all = own || (phase == IN_PHASE(PREFILL) && makes_all_logits(p));
    double size = estimate_serving_element(p), rows = all ? tokens.likely : (double)p->batch, vocab = (double)s->vocab;
    struct estimate_interval each = estimate_serving_token_elements(p);
    struct estimate_interval layer = {fmax(scores.low, tokens.low * each.low * size),
                                      fmax(scores.likely, tokens.likely * each.likely * size),
                                      fmax(scores.high, tokens.high * each.high * size)};
    bool by_scores = scores.likely > 0 && layer.likely == scores.likely;
    /* as computed, and in float32; high: with softmax, and of the last tokens with a sort for top-p */
    const double wide = s->masked_lm ? 0 : 4, last = all && !own ? rows * (double)s->hidden * size : 0;
    /* beside those of a whole prompt, the outputs hold the last layer's result; high: and what the norm reads */
    struct estimate_interval logits = {rows * vocab * (size + wide) + last, rows * vocab * (size + wide) + last,
                                       rows * vocab * (size + 4) + 3 * last +
                                           (own ? 4 * rows * vocab : (double)p->batch * vocab * 16)};
    struct estimate_line *line;
    char name[56];

    if (layer.likely >= logits.likely) {
        snprintf(name, sizeof name, "activations, %s", word);
        layer.low = fmax(layer.low, logits.low);
        layer.high = fmax(layer.high, logits.high);
        line = estimate_add(r, ESTIMATE_ACTIVATIONS, phase, name, layer);
        line->why =
            is_decoder_shape(s)
                ? "the code determines which copies of one layer are live at once; servers read prompts in chunks"
                : "the code determines which copies of one layer are live at once";
        if (by_scores)
            estimate_explain(line, "eager attention: scores, their float32 softmax, the mask",
                             "batch %ju · %ju heads / tp %ju · queries · keys · %.0f B", (uintmax_t)p->batch,
                             (uintmax_t)s->heads, (uintmax_t)p->tp, score_bytes(p));
        else
            estimate_explain(line, "the largest of a layer's norm, attention and MLP, without gradients",
                             "%.0f tokens · %.0f elements · %.0f B", tokens.likely, each.likely, size);
    } else {
        snprintf(name, sizeof name, "logits, %s", word);
        logits.low = fmax(logits.low, layer.low);
        logits.high = fmax(logits.high, layer.high);
        line = estimate_add(r, ESTIMATE_LOGITS, phase, name, logits);
        line->why = own ? "high: the softmax of all of them" : "high: top-p sampling sorts the probabilities";
        estimate_explain(line, all ? "logits of all tokens" : "logits of the last token of each sequence",
                         "%s %.0f · vocabulary %ju · (%.0f + %.0f) B", all ? "tokens" : "batch", rows,
                         (uintmax_t)s->vocab, size, wide);
    }
}

static void add_encoder_output(const struct plan *p, struct estimate_result *r, double length)
{
    const double width = (double)p->model->shape.hidden, size = estimate_serving_element(p);
    struct estimate_line *line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(DECODE), "the encoder's output",
                                              EXACTLY((double)p->batch * length * width * size));

    estimate_explain(line, "transformers generate(): encoder_outputs are kept", "%ju · %.0f positions · %.0f · %.0f B",
                     (uintmax_t)p->batch, length, width, size);
}

/* generate() accepts up to half of the positions as a prompt of earlier text. */
static void add_encoder_decoder(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    double sound = (double)s->sound, batch = (double)p->batch;
    double prompt = fmin((double)p->seq, fmax(1, (double)s->positions / 2));

    add_pass(p, r, IN_PHASE(PREFILL), "encoder", EXACTLY(batch * sound), eager_scores(p, sound, sound));
    add_encoder_output(p, r, sound);
    add_pass(p, r, IN_PHASE(DECODE), "decode", (struct estimate_interval){batch, batch, batch * prompt},
             eager_scores(p, 1, sound));
}

/* A forward pass reads them, and its caller holds them. */
static void add_images(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    const double pixels = (double)s->channels * (double)s->image * (double)s->image, size = estimate_serving_element(p);
    struct estimate_line *line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(PREFILL), "the images",
                                              EXACTLY((double)p->batch * pixels * size));

    estimate_explain(line, "pixel_values of the batch", "%ju · %.0f pixels · %.0f B", (uintmax_t)p->batch, pixels,
                     size);
}

static void add_activations(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    double sequence = s->family == MODEL_VIT && s->patch ? (double)model_image_tokens(s) : (double)p->seq;
    const double prompt = p->prompt && (double)p->prompt < sequence ? (double)p->prompt : sequence;
    char text[UNITS_TEXT];

    if (sequence < 1) return;
    if (s->family == MODEL_CLIP) { /* the larger tower */
        const bool image = (double)(s->image_hidden * model_image_tokens(s)) >= (double)s->hidden * sequence;
        struct model model = *p->model;
        struct plan one = *p;
        one.model = &model;
        model.shape = model_tower_shape(s, image);
        add_activations(&one, r);
        add_images(p, r);
        return;
    }
    if (s->family == MODEL_WHISPER) {
        add_encoder_decoder(p, r);
        return;
    }
    add_pass(p, r, IN_PHASE(PREFILL), is_decoder_shape(s) ? "prefill" : "forward", prefill_tokens(p, prompt),
             eager_scores(p, prefill_tokens(p, prompt).likely / (double)p->batch, prompt));
    if (s->family == MODEL_VIT && s->patch) add_images(p, r);
    if (!is_decoder_shape(s)) return;
    if (s->family == MODEL_T5 && !p->cache_block) add_encoder_output(p, r, prompt);
    add_pass(p, r, IN_PHASE(DECODE), "decode", EXACTLY((double)p->batch), eager_scores(p, 1, sequence));
    if (!p->cache_block && !makes_all_logits(p))
        estimate_note(
            r,
            "logits: only of each sequence's last token, as in generate(); model(input_ids) computes those of all "
            "tokens: %s",
            units_format_bytes(
                text, units_whole((double)p->batch * sequence * (double)s->vocab * estimate_serving_element(p))));
}

/* A layer's state for one sequence: bytes of the inputs that the convolution still reads, in the model's type; below,
 * elements of the scan's state. */
static double mamba_taps(const struct plan *p)
{
    const struct model_shape *s = &p->model->shape;

    return (double)((s->inner + 2 * s->groups * s->state) * s->taps) * estimate_serving_element(p);
}

static double mamba_state(const struct plan *p)
{
    return (double)p->model->shape.inner * (double)p->model->shape.state; /* elements */
}

/* transformers keeps the scan's state in float32, mamba_ssm in the model's type. */
static void add_mamba_state(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    double all = (double)s->layers * (double)p->batch, size = estimate_serving_element(p);
    double likely = all * (mamba_taps(p) + 4 * mamba_state(p)), low = all * (mamba_taps(p) + size * mamba_state(p));
    struct estimate_line *line = estimate_add(r, ESTIMATE_CACHE, IN_INFERENCE, "state, the same at any length",
                                              (struct estimate_interval){low, likely, likely});

    line->why = "transformers keeps the scan's state in float32, mamba_ssm in the model's type";
    estimate_explain(line, "transformers cache_utils.py; mamba_ssm modules/mamba2.py: allocate_inference_cache",
                     "%ju layers · batch %ju · (%ju · %ju taps · %.0f B + %ju · %ju of state · 4 B)",
                     (uintmax_t)s->layers, (uintmax_t)p->batch, (uintmax_t)(s->inner + 2 * s->groups * s->state),
                     (uintmax_t)s->taps, size, (uintmax_t)s->inner, (uintmax_t)s->state);
}

/* Bytes per token of a layer's pass over the prompt. Without kernels, as measured: Mamba's discretised A, B and inputs
 * for each token and state dimension, Mamba-2's matrices of a chunk and its B and C for each head. */
static double mamba_token(const struct plan *p)
{
    const struct model_shape *s = &p->model->shape;
    double i = (double)s->inner, n = (double)s->state, size = estimate_serving_element(p), heads = (double)s->heads;
    double mixed = i + 2 * (double)s->groups * n;

    if (p->attention == PLAN_ATTENTION_EAGER)
        return heads > 0 ? 4 * 4 * heads * 256 + 2 * 4 * heads * n + (size < 4 ? 34 : 42) * i
                         : 12 * i * n + (size < 4 ? 28 : 36) * i;
    if (heads > 0) /* results of the projection, the convolution, the scan and its norm; states of chunks */
        return size * (i + 2 * mixed + heads + 2 * i + 3 * (double)s->hidden) + 2 * 4 * i * n / 256;
    return size * (6 * i + 3 * (double)s->hidden);
}

static void scan_and_go_on(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    bool eager = p->attention == PLAN_ATTENTION_EAGER;
    double far = eager ? 0.1 : 0.2, batch = (double)p->batch, seq = (double)p->seq;
    double tokens = batch * (s->heads && eager ? whole_up(seq / 256) * 256 : seq);
    double prompt = tokens * mamba_token(p), logits = batch * (double)s->vocab * (estimate_serving_element(p) + 4);
    double step = batch * (eager ? 6 * 4 * mamba_state(p) : 0) + logits;
    struct estimate_line *line;

    add_mamba_state(p, r);
    prompt = fmax(prompt, logits);
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(PREFILL), "activations, prefill",
                        (struct estimate_interval){prompt * (1 - far), prompt, prompt * (1 + far)});
    line->why = eager ? "transformers' modules without kernels, measured: ±10 %"
                      : "derived from what mamba_ssm's kernels allocate, not measured: ±20 %";
    estimate_explain(
        line, eager ? "transformers modeling_mamba.py, modeling_mamba2.py" : "mamba_ssm: what one layer allocates",
        "%.0f tokens · %.0f B", tokens, mamba_token(p));
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(DECODE), "logits and one layer's step",
                        (struct estimate_interval){logits, step, step * (1 + far)});
    line->why = "the code determines which copies of a state are live at once";
    estimate_explain(line, "logits of each sequence's last token", "batch %ju · vocabulary %ju · (%.0f + 4) B%s",
                     (uintmax_t)p->batch, (uintmax_t)s->vocab, estimate_serving_element(p),
                     eager ? ", six copies of a state" : "");
    estimate_note(r, "a Mamba has no KV cache but a state, which has the same size at any length");
    if (!eager)
        estimate_note(r, "computed for mamba_ssm's kernels; without them (--attention eager), transformers allocates a "
                         "state for each token of the prompt");
}

/* Gated delta nets: transformers cache_utils.py, LinearAttentionLayer. */
static void add_linear_state(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    const double head = MODEL_LINEAR_HEAD, mixed = head * (double)(2 * s->linear_keys + s->linear_values);
    const double each =
        mixed * (double)s->taps * estimate_serving_element(p) + (double)s->linear_values * head * head * 4;
    struct estimate_line *line;

    line = estimate_add(r, ESTIMATE_CACHE, IN_INFERENCE, "states of gated delta nets",
                        EXACTLY((double)(s->linear_layers * p->batch) * each / (double)p->tp));
    estimate_explain(
        line, "transformers modeling_qwen3_5.py: a float32 matrix for each head of values, and the convolution's taps",
        "%ju layers · batch %ju · %.0f B / tp %ju, at any length", (uintmax_t)s->linear_layers, (uintmax_t)p->batch,
        each, (uintmax_t)p->tp);
}

void estimate_serving(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    struct estimate_line *line;

    if (!p->inference || estimate_serving_denoiser(p, r)) return;
    estimate_serving_weights(p, stage, is_decoder_shape(s), r);
    if (s->family == MODEL_CONV && p->batch && estimate_serving_conv(p, estimate_serving_element(p), r)) return;
    if (s->family == MODEL_UNKNOWN || !s->layers || s->family == MODEL_CONV) {
        estimate_note(r, s->family == MODEL_CONV
                             ? "no --batch: activations are left out"
                             : "the model's shape is unknown: KV cache and activations are left out");
        return;
    }
    if (!p->batch || (!p->seq && s->family != MODEL_VIT)) {
        estimate_note(r, "no --batch and --seq: KV cache and activations are left out");
        return;
    }
    if (s->family == MODEL_MAMBA) {
        scan_and_go_on(p, r);
        return;
    }
    if (is_decoder_shape(s)) add_cache(p, stage, r);
    if (s->linear_layers) add_linear_state(p, r);
    if (s->blocks_n) estimate_serving_states(p, estimate_serving_element(p), r);
    add_activations(p, r);
    if (p->cache_block && is_decoder_shape(s)) {
        line = estimate_add(r, ESTIMATE_WORKSPACE, IN_INFERENCE, "CUDA graphs",
                            (struct estimate_interval){0.2 * GIB, 0.8 * GIB, 1.9 * GIB});
        line->why = "depends on the model and the captured batch sizes; none with --enforce-eager";
        estimate_explain(line,
                         "vLLM's logs: 0.51 to 1.85 GiB on an H100 (57 runs of 0.19), 0.13 to 0.62 GiB on smaller GPUs",
                         "measured");
        estimate_note(
            r, "servers such as vLLM reserve a fixed share of the GPU (gpu_memory_utilization); the figures here "
               "are what that share must hold");
    }
}
