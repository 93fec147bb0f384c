/* What a diffusion pipeline needs: text encoders, the denoiser's steps and the VAE, each with or without the others on
 * the GPU; and in training what is on the GPU beside the denoiser. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/base/arena.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/replay.h"
#include "analyzer/estimate/serving.h"
#include "analyzer/model/denoisers.h"

static const char counted[] = "diffusers 0.38, transformers 4.57: parameters on the meta device";
static const char measured[] = "diffusers' modules on PyTorch 2.11, torch.cuda.max_memory_allocated()";

/* A model of the pipeline: the phases that need it, and bytes of its weights and of its largest layer. */
struct component {
    const char *name;
    unsigned when;
    double params;
    struct estimate_interval bytes;
    double layer;
};

static double element_bytes(const struct plan *p)
{
    return p->precision_given && p->precision->weights == 4 && !p->precision->cast_copy ? 4 : 2;
}

/* Embeddings are not quantised, nor is CLIP beside a large encoder. bitsandbytes keeps T5's `wo` in float32
 * (transformers' _keep_in_fp32_modules), other loaders in 16 bits. */
static struct estimate_interval quantised_text(const struct plan *p)
{
    const struct model_pipeline *around = model_pipeline_of(p->model);
    const struct model_tensor t = {.role = TENSOR_MLP, .dims = 2, .rows = 4096, .cols = 4096};
    const double bits = estimate_quantisation_bits(p->text_weights, p->model, &t, 16), wo = (double)around->wo;
    const bool four = strncmp(p->text_weights->word, "nf4", 3) == 0 || strcmp(p->text_weights->word, "fp4") == 0;
    const double others = (double)(around->text - around->plain - around->wo) * bits / 8 + 2 * (double)around->plain;

    if (bits >= 16) return EXACTLY((double)around->text * bits / 8);
    return (struct estimate_interval){others + wo * bits / 8, others + wo * (four ? 4 : 2), others + wo * 4};
}

static double denoiser_bytes(const struct plan *p, double *largest)
{
    const struct model *m = p->model;
    double sum = 0;

    *largest = 0;
    EACH_IN (t, m->tensors) {
        const double bits = p->weights ? estimate_quantisation_bits(p->weights, m, t, 16) : 8 * element_bytes(p);
        const double bytes = (double)t->rows * (double)t->cols * (double)t->count * bits / 8;
        sum += bytes;
        *largest = fmax(*largest, bytes / (double)t->count);
    }
    return sum;
}

static bool is_llm_int8(const struct estimate_quantisation *q)
{
    return q && strcmp(q->word, "int8") == 0;
}

/* The weights of a model in the phases in which they are on the GPU. With sequential offload only one layer is there,
 * and no other model. */
static void add_component(const struct plan *p, const struct component *c, const struct estimate_quantisation *q,
                          struct estimate_result *r)
{
    const unsigned when = c->when | (estimate_serving_loads_whole(p, q) ? IN_PHASE(LOAD) : 0);
    /* diffusers' enable_model_cpu_offload() leaves models of LLM.int8 on the GPU; those of torchao and quanto move */
    const bool one = p->offload == PLAN_OFFLOAD_MODEL && !is_llm_int8(q), layer = p->offload == PLAN_OFFLOAD_SEQUENTIAL;
    struct estimate_line *line =
        estimate_add(r, ESTIMATE_WEIGHTS, p->inference && (one || layer) ? when : estimate_phases(p), c->name,
                     layer ? EXACTLY(c->layer) : c->bytes);

    if (line->bytes.low < line->bytes.high)
        line->why = "depends on the loader: transformers keeps some matrices of T5 in 16 or 32 bits";
    estimate_explain(line, counted, "%s parameters · %.5g B%s", UNITS_COUNT(units_whole(c->params)),
                     c->bytes.likely / c->params,
                     layer ? ", of which the largest layer is on the GPU"
                     : one ? ", only while it runs"
                           : "");
}

static bool has_text(const struct plan *p)
{
    return p->resident == PLAN_RESIDENT_ALL || p->resident == PLAN_RESIDENT_TEXT;
}

static bool has_vae(const struct plan *p)
{
    return p->resident == PLAN_RESIDENT_ALL || p->resident == PLAN_RESIDENT_VAE;
}

static double vae_element(const struct plan *p)
{
    const bool fp16 = p->precision->weights == 2 && p->precision_given && p->precision->name[0] == 'f';

    return model_pipeline_of(p->model)->wide_vae && (fp16 || model_pipeline_of(p->model)->shrink_frames > 1)
               ? 4
               : element_bytes(p);
}

/* diffusers before 0.33 masked HunyuanVideo's text by a mask of all pairs of tokens, which a fused kernel reads in the
 * type of the queries; later versions have a mask of keys. */
static void add_mask_of_pairs(const struct plan *p, struct estimate_result *r)
{
    size_t n = 0;
    struct model_op *ops = model_denoiser_ops(p->model, &n);
    struct estimate_line *line;
    uint64_t keys = 0;

    for (size_t i = 0; i < n; i++)
        if (ops[i].kind == MODEL_OP_ATTENTION && ops[i].keys > keys) keys = ops[i].keys;
    free(ops);
    if (!p->batch || !keys) return;
    const unsigned phases = p->inference ? IN_PHASE(DENOISE) : IN_PHASE(FORWARD) | IN_PHASE(BACKWARD);
    const double pairs = (double)p->batch * (p->guided ? 2 : 1) * (double)keys * (double)keys;
    line = estimate_add(
        r, ESTIMATE_TEMPORARIES, phases, "mask of all pairs of tokens",
        (struct estimate_interval){0, 0, pairs * (1 + (p->precision->weights == 4 && p->inference ? 4 : 2))});
    line->why = "high: diffusers before 0.33; later versions mask keys";
    estimate_explain(line, "diffusers 0.32 transformer_hunyuan_video.py: attention_mask; PyTorch's attention.cpp",
                     "%ju tokens, squared, as booleans and in the type of the queries", (uintmax_t)keys);
}

void estimate_serving_beside(const struct plan *p, struct estimate_result *r)
{
    const struct model_pipeline *around = model_pipeline_of(p->model);
    const unsigned all = IN_TRAINING | IN_DIFFUSION;
    const double e = p->inference ? element_bytes(p) : p->precision->weights == 4 && !p->precision->cast_copy ? 4 : 2;
    const struct component text = {"text encoders", IN_PHASE(TEXT) | (all & IN_TRAINING), (double)around->text,
                                   p->text_weights ? quantised_text(p) : EXACTLY((double)around->text * e),
                                   2 * 32128 * 4096.0},
                           vae = {"VAE", IN_PHASE(IMAGE) | (all & IN_TRAINING), (double)around->vae,
                                  EXACTLY((double)around->vae * (p->inference ? vae_element(p) : e)),
                                  9.0 * 512 * 512 * e};

    const double numbers = (double)p->model->shape.denoiser.table;
    const struct component table = {"table of positions", IN_PHASE(DENOISE) | (all & IN_TRAINING), numbers,
                                    EXACTLY(numbers * e), numbers * e};

    if (p->model->shape.denoiser.kind == MODEL_DENOISER_HUNYUAN) add_mask_of_pairs(p, r);
    if (numbers > 0) add_component(p, &table, NULL, r);
    if (has_text(p) && around->text) add_component(p, &text, p->text_weights, r);
    if (has_vae(p)) add_component(p, &vae, NULL, r);
}

double estimate_serving_beside_bytes(const struct plan *p)
{
    static struct estimate_result r;
    double sum = 0;

    r.lines_n = 0;
    if (p->model->shape.family == MODEL_DENOISER) estimate_serving_beside(p, &r);
    for (size_t i = 0; i < r.lines_n; i++) sum += r.lines[i].bytes.likely;
    return sum;
}

/* Pixels that the VAE decodes at once; `pixels`: of all images. */
static double pixels_at_once(const struct plan *p, double *pixels)
{
    const struct model_pipeline *around = model_pipeline_of(p->model);
    const struct model_shape *s = &p->model->shape;
    const double high = (double)(s->image ? s->image : around->image);
    const double wide = s->denoiser.width_pixels ? (double)s->denoiser.width_pixels : high;
    const double frames = (double)(s->denoiser.frames ? s->denoiser.frames : around->frames), tile = around->tile;
    const double images = p->decoding == PLAN_DECODING_WHOLE ? (double)p->batch : 1;
    double at_once = around->at_once ? fmin(around->at_once, frames) : frames;

    *pixels = (double)p->batch * high * wide * frames;
    if (p->decoding != PLAN_DECODING_TILED) return images * high * wide * at_once;
    return images * fmin(high, tile) * fmin(wide, tile) * at_once;
}

/* Low: other versions of diffusers. High: a workspace with copies of what the largest convolution reads and makes: 5/3.
 */
#define DECODE_LOW 0.75
#define DECODE_HIGH 1.75

static void add_decoding(const struct plan *p, struct estimate_result *r)
{
    const struct model_pipeline *around = model_pipeline_of(p->model);
    const double size = vae_element(p), each = around->decode / 10.0;
    const double likely = 1 + (double)around->workspace / (double)around->decode;
    double pixels, at_once = pixels_at_once(p, &pixels), bytes = at_once * each * size;
    struct estimate_line *line;

    /* the images themselves, and a second copy while they are put together */
    bytes += at_once < pixels ? 2 * 3 * pixels * size : 0;
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(IMAGE), "VAE, decoding",
                        (struct estimate_interval){DECODE_LOW * bytes, likely * bytes, DECODE_HIGH * bytes});
    line->why = "low: no workspaces, other versions of diffusers; high: cuDNN copies to channels last and back";
    estimate_explain(line, measured, "%.0f pixels at once · %.1f numbers · %.0f B · %.1f (cuDNN's workspaces)", at_once,
                     each, size, likely);
}

/* Per token of text: the MLP of T5 v1.1 XXL and what attention makes, in 16 bits; high: eager attention, several
 * encoders at once. */
#define TEXT_TOKEN (96 * 1024.0)
#define TEXT_HIGH 6

static void add_reading(const struct plan *p, struct estimate_result *r)
{
    const uint64_t given = p->model->shape.denoiser.text_tokens;
    const double tokens = (double)(given ? given : model_pipeline_of(p->model)->text_tokens);
    const double bytes = (double)p->batch * (p->guided ? 2 : 1) * tokens * TEXT_TOKEN;
    struct estimate_line *line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(TEXT), "activations, text encoders",
                                              (struct estimate_interval){0, bytes, TEXT_HIGH * bytes});

    line->why = "low: embeddings are computed elsewhere; high: eager attention";
    estimate_explain(line, "transformers modeling_t5.py, FLUX's published peaks with offload",
                     "batch %ju%s · %.0f tokens · 96 KiB", (uintmax_t)p->batch, p->guided ? " · 2 (guidance)" : "",
                     tokens);
}

/* LLM.int8 converts what a product reads to float16 and to 8 bits, and its result is in 32 bits at first. */
static void add_int8_product(const struct plan *p, struct estimate_result *r)
{
    size_t n = 0;
    struct model_op *ops = model_denoiser_ops(p->model, &n);
    struct estimate_line *line;
    double most = 0;

    for (size_t i = 0; i < n; i++)
        if (ops[i].kind == MODEL_OP_LINEAR)
            most = fmax(most, (double)ops[i].places * (3 * (double)ops[i].cols + 4 * (double)ops[i].rows));
    free(ops);
    most *= (double)p->batch * (p->guided ? 2 : 1);
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(DENOISE), "an int8 product",
                        (struct estimate_interval){0, most, most});
    line->why = "less if kernels need no copy of what they read";
    estimate_explain(line, "bitsandbytes MatMul8bitLt", "tokens · (3 B · inputs + 4 B · outputs), the largest");
}

static void add_steps(const struct plan *p, struct estimate_result *r)
{
    struct plan one = *p;
    struct estimate_line *line;
    double bytes;

    one.precision = estimate_precision(element_bytes(p) == 4 ? "fp32" : "bf16");
    bytes = estimate_replay_forward(&one);
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(DENOISE), "activations, denoising step",
                        (struct estimate_interval){0.9 * bytes, bytes, 1.6 * bytes});
    line->why = "high: cuDNN's workspaces, and what a scheduler keeps";
    estimate_explain(line, measured, "the most that is live in the operations of a forward pass, batch %ju%s",
                     (uintmax_t)p->batch, p->guided ? " · 2 (guidance)" : "");
    if (p->weights && p->weights->bits < 16) {
        double largest;
        denoiser_bytes(p, &largest);
        largest *= 16 / p->weights->bits;
        line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(DENOISE), "one matrix in 16 bits",
                            (struct estimate_interval){0, largest, largest});
        line->why = "none if a kernel multiplies by quantised weights";
        estimate_explain(line, "bitsandbytes, torchao: weights are unpacked for their product", "the largest matrix");
        if (is_llm_int8(p->weights)) add_int8_product(p, r);
    }
}

/* diffusers' enable_layerwise_casting() replaces each layer's weights twice per step, in 16 bits and in 8: blocks of
 * the two sizes do not fit into each other's holes. FLUX's two published peaks (reserved) are 28 and 31 % of its fp8
 * weights above the other lines. */
#define LAYERWISE_HOLES 0.35

static void add_casting_holes(const struct plan *p, double weights, struct estimate_result *r)
{
    struct estimate_line *line;

    if (!p->inference || !p->weights || strcmp(p->weights->word, "fp8") != 0) return;
    line = estimate_add(r, ESTIMATE_ALLOCATOR, IN_PHASE(DENOISE) | IN_PHASE(IMAGE), "holes of layerwise casting",
                        (struct estimate_interval){0, 0, ceil(LAYERWISE_HOLES * weights)});
    line->why = "none if kernels multiply fp8 weights";
    estimate_explain(line, "diffusers hooks/layerwise_casting.py; published peaks of FLUX", "%.0f %% of %.2f GiB",
                     100 * LAYERWISE_HOLES, weights / 0x1p30);
}

bool estimate_serving_denoiser(const struct plan *p, struct estimate_result *r)
{
    double largest;
    const double bytes = denoiser_bytes(p, &largest);
    const struct component denoiser = {p->weights ? "denoiser, quantised" : "denoiser", IN_PHASE(DENOISE),
                                       (double)p->model->params, EXACTLY(bytes), largest};

    if (p->model->shape.family != MODEL_DENOISER) return false;
    add_component(p, &denoiser, p->weights, r);
    estimate_serving_beside(p, r);
    if (!p->batch) {
        estimate_note(r, "no --batch: activations are left out");
        return true;
    }
    add_steps(p, r);
    add_casting_holes(p, bytes, r);
    if (has_vae(p)) add_decoding(p, r);
    if (has_text(p)) add_reading(p, r);
    return true;
}
