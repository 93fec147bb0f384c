/* Weights of a served model on one GPU, and what the program that loads them makes besides. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/serving.h"
#include "analyzer/estimate/shard.h"

static bool is_stored_as(const struct plan *p, const char *words)
{
    const char *found = p->weights ? strstr(words, p->weights->word) : NULL;

    return found && found[strlen(p->weights->word)] == '|' && (found == words || found[-1] == '|');
}

static bool is_four_bit(const struct plan *p) /* bitsandbytes' */
{
    return is_stored_as(p, "nf4|fp4|nf4-double|");
}

/* Layers of a pipeline stage: the stages before the last get the remainder (vLLM's get_pp_indices,
 * distributed/utils.py). */
uint64_t estimate_serving_layers(const struct plan *p, uint64_t stage)
{
    const uint64_t layers = p->model->shape.layers, rest = layers % p->pp, before_last = p->pp - 1 - stage;

    return layers / p->pp + (before_last > 0 && before_last <= rest);
}

static double place_share(const struct plan *p, uint64_t stage, const struct model_tensor *t)
{
    const struct model_shape *s = &p->model->shape;
    bool last = stage == p->pp - 1;

    if (t->place != TENSOR_IN_LAYER && p->runtime == PLAN_RUNTIME_LITGPT) return stage == 0;
    if (t->place == TENSOR_IN_LAYER)
        return s->layers ? (double)estimate_serving_layers(p, stage) / (double)s->layers : 1.0 / (double)p->pp;
    if (t->role == TENSOR_EMBEDDING && s->tied && last) /* also the output layer */
        return 1;
    return t->place == TENSOR_BEFORE ? stage == 0 : last;
}

/* Divided as in vLLM and Megatron-LM: vocabulary, heads and the MLP's width; a key head is on several GPUs if there are
 * more GPUs than heads. Latent attention's down-projections, norms and routers are on every GPU.
 * litgpt's generate_sequentially has all that is not in a layer on the first GPU, its generate_tp on each. */
static double tensor_share(const struct plan *p, const struct model_tensor *t)
{
    const struct model_shape *s = &p->model->shape;
    double tp = (double)p->tp;

    if (p->runtime == PLAN_RUNTIME_LITGPT && t->place != TENSOR_IN_LAYER) return 1; /* generate/tp.py: only layers */
    switch (t->role) {
    case TENSOR_NORM:
    case TENSOR_ROUTER:
    case TENSOR_BIAS: return 1;
    case TENSOR_EXPERT: return 1 / (tp * (double)p->ep);
    case TENSOR_EMBEDDING: return strstr(t->name, "position") || strstr(t->name, "type") ? 1 : 1 / tp;
    case TENSOR_ATTENTION:
        if (s->kv_rank && (strstr(t->name, "q_a") || strstr(t->name, "kv_a"))) return 1;
        if (!s->kv_rank && s->kv_heads && (strstr(t->name, "k_proj") || strstr(t->name, "v_proj")))
            return 1 / fmin(tp, (double)s->kv_heads);
        return 1 / tp;
    default: return 1 / tp;
    }
}

/* Bits of weights that are not quantised. */
static double plain_bits(const struct plan *p)
{
    return p->precision && p->precision_given ? 8.0 * p->precision->weights : 16;
}

/* Whether weights are stored as in the model's file: the user chose no format, and the file has their size. */
static bool as_in_file(const struct plan *p)
{
    return !p->weights && !p->precision_given && p->model->stored_bytes > 0;
}

static double bits_of(const struct plan *p, const struct model_tensor *t, double plain)
{
    return p->weights ? estimate_quantisation_bits_in(p, t, plain) : plain;
}

struct sums {
    double params, bytes, plain_params, plain_bytes, unknown;
};

static struct sums weights_of(const struct plan *p, uint64_t stage)
{
    const struct model *m = p->model;
    double plain = p->weights ? 16 : plain_bits(p);
    struct sums sums = {0};

    EACH_IN (t, m->tensors) {
        double share = place_share(p, stage, t) * tensor_share(p, t);
        double params = (double)t->rows * (double)t->cols * (double)t->count * share;
        double bits = bits_of(p, t, plain);
        double bytes = as_in_file(p) && t->bytes > 0 ? t->bytes * share : params * bits / 8;

        if (p->weights && p->weights->scheme != QUANTISATION_ALL && t->dims == 0 && t->role == TENSOR_OTHER)
            sums.unknown += params;
        if (p->weights && bits != plain && bits != 32) {
            sums.params += params;
            sums.bytes += bytes;
        } else {
            sums.plain_params += params;
            sums.plain_bytes += bytes;
        }
    }
    return sums;
}

/* The share of embeddings and output layer, which keep 16 bits, in a bare number of parameters: 4 % of Llama-2-7B, 13 %
 * of Llama-3-8B. */
#define KEPT_LIKELY 0.04
#define KEPT_HIGH 0.14

static void add_served_weights(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    struct sums sums = weights_of(p, stage);
    char name[64];
    struct estimate_line *line;

    if (sums.bytes > 0) {
        double more = p->weights->bits < 16 ? sums.unknown * (16 - p->weights->bits) / 8 : 0;
        struct estimate_interval bytes = {sums.bytes, sums.bytes + KEPT_LIKELY * more, sums.bytes + KEPT_HIGH * more};
        snprintf(name, sizeof name, "weights, %s", p->weights->word);
        line = estimate_add(r, ESTIMATE_WEIGHTS, estimate_phases(p), name, bytes);
        estimate_explain(line, p->weights->source, "%s parameters · %.5g bits / 8",
                         UNITS_COUNT(units_whole(sums.params)), 8 * sums.bytes / sums.params);
        if (more > 0) line->why = "the number of embedding parameters, which keep 16 bits, is unknown";
    }
    if (sums.plain_bytes > 0) {
        const char *what = sums.bytes > 0 ? "embeddings, norms and other weights not quantised" : "weights";
        line = estimate_add(r, ESTIMATE_WEIGHTS, estimate_phases(p), what, EXACTLY(sums.plain_bytes));
        if (as_in_file(p))
            estimate_explain(line, "the file's header", "as stored in the file%s%s", *p->model->stored_as ? ": " : "",
                             p->model->stored_as);
        else
            estimate_explain(line, p->weights ? p->weights->source : "a number's size", "%s parameters · %.4g B",
                             UNITS_COUNT(units_whole(sums.plain_params)), sums.plain_bytes / sums.plain_params);
    }
}

/* Elements of the largest matrix that is quantised. */
static double largest_quantised(const struct plan *p)
{
    double most = 0;

    EACH_IN (t, p->model->tensors)
        if (t->dims >= 2 && bits_of(p, t, 16) != 16)
            most = fmax(most, (double)t->rows * (double)t->cols * tensor_share(p, t));
    if (p->runtime == PLAN_RUNTIME_LITGPT && p->model->shape.tied) /* its output layer is a matrix of its own */
        most = fmax(most, (double)p->model->shape.vocab * (double)p->model->shape.hidden);
    return most;
}

/* Published FP8 and AWQ checkpoints store the output layer. With FP8, loaders keep it in addition to the embedding to
 * which it was tied: transformers 4.51 on Qwen3 0.6B to 4B. With AWQ most only have it while weights are loaded:
 * Qwen2.5's peaks with long prompts are those of GPTQ, whose checkpoints lack it. litgpt ties no output layer.
 * accelerate before 0.27, of the time of transformers 4.38, copied tied weights for device_map (its pull request 2330):
 * published peaks of Qwen1.5 and Qwen2 in all formats contain both. */
static void add_untied_copy(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    const struct model_tensor matrix = {
        .role = TENSOR_HEAD, .dims = 2, .rows = s->vocab, .cols = s->hidden, .count = 1};
    const bool litgpt = p->runtime == PLAN_RUNTIME_LITGPT, old = p->transformers && p->transformers < 439,
               kept = old || (p->weights && !strncmp(p->weights->word, "fp8", 3));
    const double bytes =
        (double)(s->vocab * s->hidden) * tensor_share(p, &matrix) * bits_of(p, &matrix, plain_bits(p)) / 8;
    struct estimate_line *line;

    if (!s->tied || (!kept && !litgpt && !is_stored_as(p, "awq|")) || stage != (litgpt ? 0 : p->pp - 1)) return;
    line = estimate_add(r, ESTIMATE_WEIGHTS, estimate_phases(p),
                        litgpt || old ? "output layer, not tied" : "output layer, untied by quantization",
                        (struct estimate_interval){litgpt ? bytes : 0, kept || litgpt ? bytes : 0, bytes});
    line->why = kept ? "none if the loader ties it to the embedding again" : "stored in some files, and tied again";
    estimate_explain(line,
                     litgpt ? "litgpt/model.py: lm_head"
                     : old  ? "accelerate before 0.27: dispatch_model copies tied weights"
                            : "published peaks of Qwen3's FP8 and Qwen2.5's AWQ models",
                     "vocabulary %ju · hidden %ju · %.3g B", (uintmax_t)s->vocab, (uintmax_t)s->hidden,
                     bytes / ((double)(s->vocab * s->hidden)));
}

/* Bytes of AWQ's queries, keys and values: AutoAWQ's fuse_layers joins them layer by layer into one matrix, and drops
 * the separate ones after the last layer (awq/utils/fused_utils.py, fuse_qkv). */
static double joined_by_awq(const struct plan *p, uint64_t stage)
{
    const struct model *m = p->model;
    double bytes = 0;

    for (size_t i = 0; is_stored_as(p, "awq|") && !m->shape.fused_qkv && i < m->tensors_n; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->role != TENSOR_ATTENTION || t->dims < 2 ||
            !(strstr(t->name, "q_proj") || strstr(t->name, "k_proj") || strstr(t->name, "v_proj")))
            continue;
        bytes += (double)t->rows * (double)t->cols * (double)t->count * place_share(p, stage, t) * tensor_share(p, t) *
                 bits_of(p, t, 16) / 8;
    }
    return bytes;
}

/* LLM.int8 is quantised on the GPU, matrix by matrix; all others are there when it is the last one's turn. */
static bool makes_more_while_loading(const struct plan *p)
{
    return p->inference && !p->cache_block && is_stored_as(p, "int8|awq|");
}

/* llama.cpp and ExLlama, which read prompts in chunks, have their own formats. */
bool estimate_serving_reads_in_chunks(const struct plan *p)
{
    return p->weights && (p->weights->scheme == QUANTISATION_GGUF || is_stored_as(p, "gptq|int4|"));
}

bool estimate_serving_loads_whole(const struct plan *p, const struct estimate_quantisation *q)
{
    return p->offload == PLAN_OFFLOAD_MODEL && q && (strncmp(q->word, "nf4", 3) == 0 || strcmp(q->word, "fp4") == 0);
}

unsigned estimate_phases(const struct plan *p)
{
    if (!p->inference) return IN_TRAINING;
    if (p->model->shape.family == MODEL_DENOISER)
        return IN_DIFFUSION |
               (estimate_serving_loads_whole(p, p->weights) || estimate_serving_loads_whole(p, p->text_weights)
                    ? IN_PHASE(LOAD)
                    : 0);
    return IN_INFERENCE | (makes_more_while_loading(p) ? IN_PHASE(LOAD) : 0);
}

static void add_loading(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const double matrix = largest_quantised(p), joined = joined_by_awq(p, stage);
    struct estimate_line *line;

    if (!makes_more_while_loading(p)) return;
    if (is_stored_as(p, "int8|")) { /* litgpt's plugin quantises empty weights first, and keeps them until then */
        const double least = p->runtime == PLAN_RUNTIME_LITGPT ? 4 * matrix : 2 * matrix;
        line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(LOAD), "a matrix while it is quantised",
                            (struct estimate_interval){least, least, fmax(least, 3 * matrix)});
        line->why = "bitsandbytes before 0.45 also makes it in 8 bits transposed";
        estimate_explain(line, "bitsandbytes functional.py: double_quant, int8_vectorwise_quant",
                         "%.0f elements of the largest matrix · %.0f B", matrix, least / matrix);
    } else if (joined > 0 && p->runtime != PLAN_RUNTIME_TRANSFORMERS) {
        line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(LOAD), "queries, keys, values: joined and separate",
                            (struct estimate_interval){p->runtime == PLAN_RUNTIME_AUTOAWQ ? joined : 0,
                                                       p->runtime == PLAN_RUNTIME_AUTOAWQ ? joined : 0, joined});
        line->why = "only AutoAWQ's fuse_layers joins them (--runtime autoawq)";
        estimate_explain(line, "awq/utils/fused_utils.py: fuse_qkv", "their bytes, once more");
    }
}

/* Peaks that Qwen publishes for Qwen2.5 and Qwen3 (transformers 4.46 and 4.51, bfloat16 and quantised, allocated) are
 * up to 2.2 % of the weights above the sum of the other lines. */
#define KEPT_BY_PROGRAM 0.05
/* torchao's four published peaks (reserved, Llama-2-7B and Llama-3-8B, 4 and 8 bits) are 0.7 to 1.9 GB above the sum:
 * quantize_() frees 16-bit matrices of many sizes, whose segments stay cached. */
#define KEPT_BY_TORCHAO 1.6e9

/* ExLlamaV2's kernels, which AutoGPTQ 0.5 prefers and transformers 4.35 offers, have one buffer for eight sequences of
 * 2048 tokens as the widest matrix makes them, in 32 bits (auto_gptq qlinear_exllamav2.py: scratch_space_fixed). */
#define EXLLAMAV2_BYTES (8.0 * 2048 * 4)

/* Of some sixty published figures whose version is not stated, none has it. */
static bool may_be_exllamav2(const struct plan *p)
{
    return p->share <= 0 && p->transformers >= 435 && p->runtime != PLAN_RUNTIME_LITGPT;
}

/* What kernels unpack. AutoGPTQ's 4-bit kernels have a buffer for the largest matrix in 16 bits, and one for 2048
 * tokens of its wider side; its 8-bit ones unpack, as AutoAWQ's do for 1024 tokens and more. bitsandbytes unpacks a
 * 4-bit matrix for each product with more than one token: in the type that it had when it was quantised, and from that
 * in the product's: float16 in litgpt's plugin, whatever the product has. */
static void add_unpacked(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const struct sums sums = weights_of(p, stage);
    const bool gptq = is_stored_as(p, "gptq|"), others = is_stored_as(p, "awq|gptq-8bit|int8wo|int4wo|"),
               four = is_four_bit(p), litgpt = p->runtime == PLAN_RUNTIME_LITGPT;
    const bool converts = litgpt && !(p->precision && p->precision_given && strcmp(p->precision->name, "fp16") == 0);
    const double matrix = gptq || four || others ? largest_quantised(p) : 0,
                 kept = KEPT_BY_PROGRAM * (sums.bytes + sums.plain_bytes) +
                        (is_stored_as(p, "int8wo|int4wo|") ? KEPT_BY_TORCHAO : 0);
    double wide = 0, made = 0;
    struct estimate_line *line;

    EACH_IN (t, p->model->tensors)
        if (gptq && t->dims >= 2 && bits_of(p, t, 16) != 16) {
            made = fmax(made, (double)t->rows);
            wide = fmax(wide, (double)(t->rows > t->cols ? t->rows : t->cols));
        }
    const double buffer = fmax(2 * 2048 * wide, may_be_exllamav2(p) ? EXLLAMAV2_BYTES * made : 0);
    if (four) {
        line = estimate_add(
            r, ESTIMATE_TEMPORARIES, IN_PHASE(PREFILL) | (p->batch > 1 ? IN_PHASE(DECODE) : 0),
            "the largest matrix, unpacked",
            (struct estimate_interval){2 * matrix, (converts ? 4 : 2) * matrix, (litgpt ? 4 : 6) * matrix});
        line->why = "bnb_4bit_compute_dtype float32, the default, makes a copy in float32";
        estimate_explain(line, "bitsandbytes autograd/_functions.py: MatMul4Bit, dequantize_4bit(…).to(A.dtype)",
                         "%.0f elements · %d B", matrix, converts ? 4 : 2);
    }
    line = estimate_add(
        r, ESTIMATE_WORKSPACE, estimate_phases(p), "what loaders and kernels keep",
        (struct estimate_interval){0, gptq ? 2 * matrix : 0, ceil((gptq || others ? 2 * matrix : 0) + buffer + kept)});
    estimate_explain(line, gptq ? "AutoGPTQ's exllama kernels: prepare_buffers" : "published peaks of Qwen2.5, Qwen3",
                     "%.0f B for the largest matrix in 16 bits; high: and %.0f B for its tokens, %.2g %% of weights%s",
                     gptq ? 2 * matrix : 0, buffer, 100 * KEPT_BY_PROGRAM,
                     is_stored_as(p, "int8wo|int4wo|") ? ", 1.6 GB of torchao's segments" : "");
    line->why = gptq ? "low: other kernels unpack in registers; high: ExLlamaV2's have a larger buffer"
                     : "depends on loaders and kernels";
}

/* Autocast keeps its 16-bit copy of a float32 matrix that requires a gradient until the pass ends, also where no
 * gradients are computed (ATen/autocast_mode.cpp, cached_cast). litgpt's bf16-mixed generation takes just that. */
static void add_casts(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    double elements = 0, most = 0;
    struct estimate_line *line;

    if (p->weights || !p->precision || !p->precision_given || p->precision->cast != PRECISION_CAST_AUTOCAST) return;
    EACH_IN (t, p->model->tensors) {
        const double one = (double)t->rows * (double)t->cols * tensor_share(p, t);
        const bool tied = t->role == TENSOR_EMBEDDING && p->model->shape.tied && t->rows == p->model->shape.vocab;
        if (t->dims < 2 || t->role == TENSOR_NORM || (t->role == TENSOR_EMBEDDING && !tied)) continue;
        elements += one * (double)t->count * place_share(p, stage, t);
        most = fmax(most, one);
    }
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_INFERENCE, "16-bit copies of the weights, by autocast",
                        (struct estimate_interval){2 * most, 2 * elements, 2 * elements});
    line->why = "one matrix at a time if the weights do not require gradients";
    estimate_explain(line, "ATen/autocast_mode.cpp: cached_cast", "%.0f elements of matrices · 2 B", elements);
}

/* vLLM's --enable-lora: zeros for so many adapters beside each matrix of a layer (lora/layers), those of its inputs
 * whole on each GPU if tensor parallelism divides the outputs, and the other way round. Classes with embedding_modules
 * also have adapters of both tables; experts have them since version 0.11, in some classes. */
static void add_adapter_slots(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const double each = 2.0 * (double)(p->lora_slots * p->rank);
    double low = 0, experts = 0, tables = 0;
    struct estimate_shard s;

    EACH_IN (t, p->model->tensors) {
        const bool table = t->role == TENSOR_EMBEDDING || t->role == TENSOR_HEAD;
        if (t->dims < 2 || t->tower || t->role == TENSOR_ROUTER || !estimate_shard_of(p, stage, t, &s)) continue;
        const bool inputs_divided = strncmp(t->name, "o_proj", 6) == 0 || strncmp(t->name, "down_proj", 9) == 0;
        const double outputs = inputs_divided ? (double)t->rows : s.rows,
                     inputs = inputs_divided ? s.cols * s.rows / (double)t->rows : s.cols;
        *(table ? &tables : t->role == TENSOR_EXPERT ? &experts : &low) += each * s.count * (outputs + inputs);
    }
    const double likely = low + (p->vllm && p->vllm < 11 ? 0 : experts);
    struct estimate_line *line = estimate_add(r, ESTIMATE_ADAPTERS, IN_INFERENCE, "slots for adapters",
                                              (struct estimate_interval){low, likely, low + experts + tables});
    line->why = "classes of models differ in whether experts, the embedding and the output layer have adapters";
    estimate_explain(line, "vLLM lora/layers: max_loras of max_lora_rank beside each matrix",
                     "%ju adapters of rank %ju · 2 B", (uintmax_t)p->lora_slots, (uintmax_t)p->rank);
}

void estimate_serving_weights(const struct plan *p, uint64_t stage, bool decodes, struct estimate_result *r)
{
    add_served_weights(p, stage, r);
    add_untied_copy(p, stage, r);
    if (!p->cache_block && decodes && !(p->weights && p->weights->scheme == QUANTISATION_GGUF)) {
        add_loading(p, stage, r);
        add_unpacked(p, stage, r);
    }
    add_casts(p, stage, r);
    if (p->lora_slots) add_adapter_slots(p, stage, r);
}
