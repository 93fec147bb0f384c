/* Which tensor is stored with how many bits.
 *
 * The mixtures of GGUF files ("Q4_K_M") give more bits to some tensors of some layers: the rules follow
 * llama.cpp's quantizer (src/llama-quant.cpp), without an importance matrix. */
#include "analyzer/estimate/quantisation.h"

#include <string.h>
#include "analyzer/base/text.h"

static const struct estimate_quantisation quantisations[] = {
#define QUANTISATION(word, bits, row_bits, scheme, source) {word, bits, row_bits, QUANTISATION_##scheme, source},
#include "analyzer/base/each.h"
#include "analyzer/estimate/quantisations.def"
};
const char plan_quantisations[] =
#define QUANTISATION(word, bits, row_bits, scheme, source) word "|"
#include "analyzer/estimate/quantisations.def"
    "";

const struct estimate_quantisation *estimate_quantisation_find(const char *word)
{
    return FIND_OF(q, quantisations, COUNT_OF(quantisations), strcmp(q->word, word) == 0);
}

/* TYPE(id, bytes of a block, weights in it, type if rows are not a multiple of that). ggml-common.h;
 * tensor_type_fallback in llama-quant.cpp. */
#define TYPES(TYPE)            \
    TYPE(F16, 2, 1, F16)       \
    TYPE(Q4_0, 18, 32, F16)    \
    TYPE(Q4_1, 20, 32, F16)    \
    TYPE(Q5_0, 22, 32, F16)    \
    TYPE(Q5_1, 24, 32, F16)    \
    TYPE(Q8_0, 34, 32, F16)    \
    TYPE(IQ4_NL, 18, 32, F16)  \
    TYPE(MXFP4, 17, 32, F16)   \
    TYPE(Q2_K, 84, 256, Q4_0)  \
    TYPE(Q3_K, 110, 256, Q4_0) \
    TYPE(Q4_K, 144, 256, Q5_0) \
    TYPE(Q5_K, 176, 256, Q5_1) \
    TYPE(Q6_K, 210, 256, Q8_0) \
    TYPE(IQ4_XS, 136, 256, IQ4_NL)

#define TYPE(id, bytes, weights, fallback) id,
enum type { TYPES(TYPE) };
#undef TYPE

static const struct {
    unsigned bytes, weights;
    enum type fallback;
#define TYPE(id, bytes, weights, fallback) {bytes, weights, fallback},
} types[] = {TYPES(TYPE)};
#undef TYPE

enum kind { EMBEDDING, OUTPUT, Q, K, V, O, DOWN, EXPERT, OTHER, ANY };

enum when {
    ALWAYS,
    GQA,   /* four or more query heads share a key head */
    EIGHT, /* of experts: as Mixtral */
    NOT_EIGHT,
    FIRST_2,
    FIRST_4,
    FIRST_EIGHTH,
    FIRST_SIXTEENTH, /* of the layers */
    SOME,            /* the first and last eighth, and every third between */
    WIDE_70B,        /* models of 80 layers that share key heads, such as Llama's 70B */
};

static const struct {
    const char *word;
    enum type base;
} mixtures[] = {
    {"q4_0", Q4_0},   {"q4_1", Q4_1},   {"q5_0", Q5_0},   {"q5_1", Q5_1},     {"q8_0", Q8_0},     {"q2_k", Q2_K},
    {"q2_k_s", Q2_K}, {"q3_k_s", Q3_K}, {"q3_k_m", Q3_K}, {"q3_k_l", Q3_K},   {"q4_k_s", Q4_K},   {"q4_k_m", Q4_K},
    {"q5_k_s", Q5_K}, {"q5_k_m", Q5_K}, {"q6_k", Q6_K},   {"iq4_nl", IQ4_NL}, {"iq4_xs", IQ4_XS}, {"mxfp4_moe", Q8_0},
};

/* The first rule that holds applies; if none holds, the mixture's base type. "" matches every mixture. */
static const struct {
    const char *word;
    enum kind kind;
    enum when when;
    enum type type;
} rules[] = {
    {"mxfp4_moe", EXPERT, ALWAYS, MXFP4},
    {"mxfp4_moe", ANY, ALWAYS, Q8_0},
    {"q8_0", ANY, ALWAYS, Q8_0},
    {"", OUTPUT, ALWAYS, Q6_K},
    {"", V, EIGHT, Q8_0},
    {"", K, EIGHT, Q8_0},
    {"q2_k", V, WIDE_70B, Q5_K},
    {"q2_k", V, GQA, Q4_K},
    {"q2_k", V, ALWAYS, Q3_K},
    {"q2_k_s", V, WIDE_70B, Q5_K},
    {"q2_k_s", V, GQA, Q4_K},
    {"q3_k_s", V, WIDE_70B, Q5_K},
    {"q3_k_m", V, FIRST_2, Q5_K},
    {"q3_k_m", V, WIDE_70B, Q5_K},
    {"q3_k_m", V, ALWAYS, Q4_K},
    {"q3_k_l", V, ALWAYS, Q5_K},
    {"iq4_nl", V, GQA, Q5_K},
    {"iq4_xs", V, GQA, Q5_K},
    {"q4_k_m", V, SOME, Q6_K},
    {"q5_k_m", V, SOME, Q6_K},
    {"q4_k_s", V, FIRST_4, Q5_K},
    {"q4_k_s", V, WIDE_70B, Q5_K},
    {"q4_k_m", V, WIDE_70B, Q5_K},
    {"q2_k", DOWN, ALWAYS, Q3_K},
    {"q2_k_s", DOWN, FIRST_EIGHTH, Q4_K},
    {"q3_k_m", DOWN, FIRST_SIXTEENTH, Q5_K},
    {"q3_k_m", DOWN, ALWAYS, Q4_K},
    {"q3_k_l", DOWN, ALWAYS, Q5_K},
    {"q4_k_s", DOWN, FIRST_EIGHTH, Q5_K},
    {"q4_k_m", DOWN, SOME, Q6_K},
    {"q5_k_m", DOWN, SOME, Q6_K},
    {"iq4_nl", DOWN, FIRST_EIGHTH, Q5_K},
    {"iq4_xs", DOWN, FIRST_EIGHTH, Q5_K},
    {"q2_k", O, EIGHT, Q5_K},
    {"q3_k_s", O, EIGHT, Q5_K},
    {"q3_k_m", O, EIGHT, Q5_K},
    {"q4_k_s", O, EIGHT, Q5_K},
    {"q4_k_m", O, EIGHT, Q5_K},
    {"iq4_nl", O, EIGHT, Q5_K},
    {"iq4_xs", O, EIGHT, Q5_K},
    {"q2_k", O, NOT_EIGHT, Q3_K},
    {"q3_k_m", O, NOT_EIGHT, Q4_K},
    {"q3_k_l", O, NOT_EIGHT, Q5_K},
};

/* The kind of a tensor, from the names that presets, safetensors files and GGUF files use. */
static enum kind quantised_kind_of(const struct model *m, const struct model_tensor *t)
{
    static const char *const v[] = {"v_proj",          "attn_v", ".wv",   "qkv", "c_attn",
                                    "query_key_value", "kv_b",   "value", NULL};
    static const char *const k[] = {"k_proj", "attn_k", ".wk", "key", NULL};
    static const char *const q[] = {"q_proj", "attn_q", ".wq", "query", NULL};
    static const char *const o[] = {"o_proj", "attn_output", ".wo", "c_proj", "dense", "out", NULL};
    static const char *const down[] = {"down", "mlp out", "w2", "c_proj", "fc2", "dense_4h_to_h", " out", NULL};

    switch (t->role) {
    case TENSOR_EMBEDDING: return m->shape.tied ? OUTPUT : EMBEDDING;
    case TENSOR_HEAD: return OUTPUT;
    case TENSOR_ATTENTION:
        return text_has_one_of(t->name, v)   ? V
               : text_has_one_of(t->name, k) ? K
               : text_has_one_of(t->name, q) ? Q
               : text_has_one_of(t->name, o) ? O
                                             : OTHER;
    case TENSOR_EXPERT: return text_has_one_of(t->name, down) ? DOWN : EXPERT;
    case TENSOR_MLP: return text_has_one_of(t->name, down) ? DOWN : OTHER;
    default: return OTHER;
    }
}

static bool does_rule_hold(enum when when, const struct model_shape *s, uint64_t layer, uint64_t layers)
{
    uint64_t share = s->kv_heads ? s->heads / s->kv_heads : 1;

    switch (when) {
    case GQA: return share >= 4;
    case EIGHT: return s->experts == 8;
    case NOT_EIGHT: return s->experts != 8;
    case FIRST_2: return layer < 2;
    case FIRST_4: return layer < 4;
    case FIRST_EIGHTH: return layer < layers / 8;
    case FIRST_SIXTEENTH: return layer < layers / 16;
    case SOME: return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
    case WIDE_70B: return layers == 80 && share > 1;
    default: return true;
    }
}

static enum type quantised_type_of(const char *word, enum type base, enum kind kind, const struct model *m,
                                   const struct model_tensor *t, uint64_t layer, uint64_t layers)
{
    bool expert = t->role == TENSOR_EXPERT;

    for (size_t i = 0; i < COUNT_OF(rules); i++)
        if ((!*rules[i].word || strcmp(rules[i].word, word) == 0) &&
            (rules[i].kind == ANY || rules[i].kind == kind || (rules[i].kind == EXPERT && expert)) &&
            does_rule_hold(rules[i].when, &m->shape, layer, layers))
            return rules[i].type;
    return base;
}

static double type_bits(enum type type, uint64_t row)
{
    while (row % types[type].weights) type = types[type].fallback;
    return 8.0 * types[type].bytes / types[type].weights;
}

static double gguf_bits(const struct estimate_quantisation *q, const struct model *m, const struct model_tensor *t)
{
    enum kind kind = quantised_kind_of(m, t);
    uint64_t layers = m->shape.layers ? m->shape.layers : t->count;
    uint64_t row = t->dims == 2 ? t->cols : 256;
    double bits = 0;
    enum type base = Q8_0;

    for (size_t i = 0; i < COUNT_OF(mixtures); i++)
        if (strcmp(mixtures[i].word, q->word) == 0) base = mixtures[i].base;
    /* an output layer whose rows are not a multiple of a block becomes Q8_0 */
    if (kind == OUTPUT && row % types[base].weights) return type_bits(Q8_0, row);
    if (t->place != TENSOR_IN_LAYER || layers < 1 || layers > 10000)
        return type_bits(quantised_type_of(q->word, base, kind, m, t, 0, layers), row);
    for (uint64_t layer = 0; layer < layers; layer++)
        bits += type_bits(quantised_type_of(q->word, base, kind, m, t, layer, layers), row);
    return bits / (double)layers;
}

/* Matrices in the layers that a token is multiplied with. A bare number of parameters counts as such, because nearly
 * all of them are. */
static bool is_linear_tensor(const struct model_tensor *t)
{
    switch (t->role) {
    case TENSOR_ATTENTION:
    case TENSOR_MLP:
    case TENSOR_EXPERT: return t->dims != 1;
    case TENSOR_OTHER: return t->dims == 0 || (t->dims >= 2 && t->place == TENSOR_IN_LAYER);
    default: return false;
    }
}

static bool matrix_in_gguf(const struct model_tensor *t)
{
    if (t->role == TENSOR_EMBEDDING) /* the tables of positions and token types are not quantised */
        return !strstr(t->name, "position") && !strstr(t->name, "type");
    return is_linear_tensor(t) || (t->role == TENSOR_HEAD && t->dims != 1);
}

/* Published checkpoints of Qwen3-Next and later in 4 bits leave the gated delta nets in 16 (Qwen's GPTQ, the AWQ and
 * NVFP4 of others: "linear_attn" among the modules that are ignored). bitsandbytes quantises them while it loads. */
static bool is_left_in_files(const struct estimate_quantisation *q, const struct model_tensor *t)
{
    static const char words[] = "awq|gptq|int4|nvfp4|";
    const char *found = strstr(words, q->word);

    return found && found[strlen(q->word)] == '|' && (found == words || found[-1] == '|') &&
           strncmp(t->name, "linear ", 7) == 0 && t->role == TENSOR_ATTENTION;
}

double estimate_quantisation_bits(const struct estimate_quantisation *q, const struct model *m,
                                  const struct model_tensor *t, double plain)
{
    bool experts = m->shape.experts > 0;
    bool has_it = q->scheme == QUANTISATION_ALL || (q->scheme == QUANTISATION_LINEAR && is_linear_tensor(t)) ||
                  (q->scheme == QUANTISATION_EXPERTS && (experts ? t->role == TENSOR_EXPERT : is_linear_tensor(t)));

    if (q->scheme == QUANTISATION_GGUF) return matrix_in_gguf(t) ? gguf_bits(q, m, t) : 32;
    if (!has_it || is_left_in_files(q, t)) return plain;
    return q->bits + (t->dims == 2 && t->cols ? q->row_bits / (double)t->cols : 0);
}

/* Fabric's BitsandbytesPrecision replaces each torch.nn.Linear. */
double estimate_quantisation_bits_in(const struct plan *p, const struct model_tensor *t, double plain)
{
    struct model_tensor matrix = *t;

    if (p->runtime == PLAN_RUNTIME_LITGPT && t->role == TENSOR_HEAD) matrix.role = TENSOR_MLP;
    return estimate_quantisation_bits(p->weights, p->model, &matrix, plain);
}

/* bitsandbytes replaces each torch.nn.Linear. */
bool estimate_quantisation_skips_experts(const struct plan *p)
{
    static const char *const words[] = {"int8", "nf4", "fp4", "nf4-double"};

    return p->adapter != PLAN_ADAPTER_NONE && p->weights && p->model->shape.experts &&
           p->runtime != PLAN_RUNTIME_LITGPT && ANY_OF(w, words, COUNT_OF(words), strcmp(*w, p->weights->word) == 0);
}
