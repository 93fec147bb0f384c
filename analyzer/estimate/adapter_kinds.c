/* Kinds of adapters. The formulas are those of peft 0.21.2, src/peft/tuners/KIND/layer.py, `update_layer`. */
#include "analyzer/estimate/adapter_kinds.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/estimate/estimate.h"

typedef void trained(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                     estimate_adapter_add *add, void *context);

static double adapter_size(const struct plan *p)
{
    return (double)p->rank;
}

static void add_lora(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                     estimate_adapter_add *add, void *context)
{
    add(context, adapter_size(p), cols);
    add(context, rows, adapter_size(p));
}

static void add_dora(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                     estimate_adapter_add *add, void *context)
{
    add_lora(p, t, rows, cols, add, context);
    add(context, rows, 1);
}

/* peft/optimizers/lorafa.py: only the second factor is trained */
static void lora_fa(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                    estimate_adapter_add *add, void *context)
{
    (void)t, (void)cols;
    add(context, rows, adapter_size(p));
}

static void add_adalora(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                        estimate_adapter_add *add, void *context)
{
    add_lora(p, t, rows, cols, add, context);
    add(context, adapter_size(p), 1);
    if (p->weights || p->precision->weights < 4)
        add(context, 1, 1); /* ranknum: moving it to 16 bits makes it trained */
}

static void add_loha(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                     estimate_adapter_add *add, void *context)
{
    add_lora(p, t, rows, cols, add, context);
    add_lora(p, t, rows, cols, add, context);
}

/* The larger of the two factors of n that are nearest to each other: lokr/layer.py, `factorization`. */
static double larger_factor(double n)
{
    uint64_t whole = (uint64_t)n, small = (uint64_t)sqrt(n);

    while (small > 1 && whole % small) small--;
    return small ? (double)(whole / small) : n;
}

static void add_lokr(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                     estimate_adapter_add *add, void *context)
{
    const double out = larger_factor(rows), in = larger_factor(cols);

    add(context, rows / out, cols / in);
    if (adapter_size(p) < fmax(out, in) / 2) {
        add(context, out, adapter_size(p));
        add(context, adapter_size(p), in);
    } else {
        add(context, out, in);
    }
}

static void add_vera(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                     estimate_adapter_add *add, void *context)
{
    (void)t, (void)cols;
    add(context, rows, 1);
    add(context, adapter_size(p), 1);
}

/* peft's adjust_oft_parameters: the divisor of `inputs` that is closest to the requested block size. */
static uint64_t estimate_adapter_block(uint64_t inputs, uint64_t block)
{
    uint64_t above = block, below = block;

    if (!inputs || !block || block >= inputs) return inputs;
    while (inputs % above) above++;
    while (inputs % below) below--;
    return block - below <= above - block ? below : above;
}

static void add_oft(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                    estimate_adapter_add *add, void *context)
{
    const double block = (double)estimate_adapter_block((uint64_t)cols, p->rank);

    (void)t, (void)rows;
    add(context, cols / block, block * (block - 1) / 2);
}

static void add_boft(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                     estimate_adapter_add *add, void *context)
{
    add(context, cols / adapter_size(p), adapter_size(p) * adapter_size(p));
    add(context, rows, 1);
}

/* A factor for each output of keys and values; for each input of the MLP's last matrix. */
static void add_ia3(const struct plan *p, const struct model_tensor *t, double rows, double cols,
                    estimate_adapter_add *add, void *context)
{
    add(context, t->role == TENSOR_ATTENTION ? rows : cols, 1);
}

static const struct estimate_adapter_kind kinds[] = {
    /* size, default, trained; kept: input, rank, output, output in 16 bits, weight */
    [PLAN_ADAPTER_NONE] = {0},
    [PLAN_ADAPTER_LORA] = {ADAPTER_HAS_RANK, PLAN_RANK, add_lora, 1, 1, 0, 0, 0,
                           "peft lora/layer.py: r (in + out) per matrix; autocast_adapter_dtype"},
    [PLAN_ADAPTER_DORA] = {ADAPTER_HAS_RANK, PLAN_RANK, add_dora, 1, 1, 1, 1, 0,
                           "peft lora/dora.py: r (in + out) + out per matrix; autocast_adapter_dtype"},
    [PLAN_ADAPTER_LORA_FA] = {ADAPTER_HAS_RANK, PLAN_RANK, lora_fa, 0, 1, 0, 0, 0,
                              "peft optimizers/lorafa.py: r · out per matrix, the other factor is frozen"},
    [PLAN_ADAPTER_ADALORA] = {ADAPTER_HAS_RANK, 12, add_adalora, 1, 1, 1, 0, 0,
                              "peft adalora/layer.py: init_r (in + out + 1) per matrix"},
    [PLAN_ADAPTER_LOHA] = {ADAPTER_HAS_RANK, 8, add_loha, 1, 0, 0, 0, 1,
                           "peft loha/layer.py: 2 r (in + out) per matrix"},
    [PLAN_ADAPTER_LOKR] = {ADAPTER_HAS_RANK, 8, add_lokr, 1, 0, 0, 0, 1,
                           "peft lokr/layer.py: a Kronecker product, its larger factor of rank r"},
    [PLAN_ADAPTER_VERA] = {ADAPTER_HAS_RANK, 256, add_vera, 0, 1, 1, 0, 0, "peft vera/layer.py: out + r per matrix"},
    [PLAN_ADAPTER_OFT] = {ADAPTER_HAS_BLOCKS, 32, add_oft, 1, 0, 0, 0, 0,
                          "peft oft/layer.py: in / b blocks of b (b - 1) / 2 per matrix"},
    [PLAN_ADAPTER_BOFT] = {ADAPTER_HAS_BLOCKS, 4, add_boft, 0, 0, 0, 1, 0,
                           "peft boft/layer.py: in · b + out per matrix, one butterfly factor"},
    [PLAN_ADAPTER_IA3] = {ADAPTER_HAS_NO_SIZE, 0, add_ia3, 0, 0, 0, 0, 0,
                          "peft ia3/layer.py: out of keys and values, in of the MLP's last matrix"},
    [PLAN_ADAPTER_PROMPT] = {ADAPTER_HAS_TOKENS, 0, NULL, 0, 0, 0, 0, 0,
                             "peft prompt_tuning/model.py: an embedding of each virtual token"},
    [PLAN_ADAPTER_PREFIX] = {ADAPTER_HAS_TOKENS, 0, NULL, 0, 0, 0, 0, 0,
                             "peft prefix_tuning/model.py: keys and values of each layer and virtual token"},
};

const struct estimate_adapter_kind *estimate_adapter_kind(const struct plan *p)
{
    return &kinds[p->adapter];
}

/* Words of --target, and what other models and tools call the same modules. */
static const struct {
    const char *word;
    unsigned matrices;
} modules[] = {
#define WORD(word, matrices) {word, matrices},
    PLAN_TARGETS(WORD)
#undef WORD
        {"c_attn", PLAN_QKV},
    {"query_key_value", PLAN_QKV},
    {"Wqkv", PLAN_QKV},
    {"wqkv", PLAN_QKV},
    {"W_pack", PLAN_QKV},
    {"linear_qkv", PLAN_QKV},
    {"q", PLAN_QUERIES},
    {"query", PLAN_QUERIES},
    {"wq", PLAN_QUERIES},
    {"k", PLAN_KEYS},
    {"key", PLAN_KEYS},
    {"wk", PLAN_KEYS},
    {"v", PLAN_VALUES},
    {"value", PLAN_VALUES},
    {"wv", PLAN_VALUES},
    {"o", PLAN_OUTPUT},
    {"output_proj", PLAN_OUTPUT},
    {"out_proj", PLAN_OUTPUT},
    {"wo", PLAN_OUTPUT},
    {"dense", PLAN_OUTPUT},
    {"linear_proj", PLAN_OUTPUT},
    {"w1", PLAN_GATE},
    {"w3", PLAN_UP},
    {"w2", PLAN_DOWN},
    {"fc1", PLAN_UP},
    {"c_fc", PLAN_UP},
    {"dense_h_to_4h", PLAN_UP},
    {"fc2", PLAN_DOWN},
    {"dense_4h_to_h", PLAN_DOWN},
    {"linear_fc2", PLAN_DOWN},
    {"wi_0", PLAN_GATE},
    {"wi_1", PLAN_UP},
    {"linear_fc1", PLAN_GATE | PLAN_UP},
    {"c_proj", PLAN_OUTPUT | PLAN_DOWN},
    {"all", PLAN_LINEAR},
    {"linear", PLAN_LINEAR},
};

unsigned estimate_adapter_find_matrices(const char *name, size_t length)
{
    for (size_t i = length; i > 0; i--)
        if (name[i - 1] == '.' || name[i - 1] == '*') {
            name += i;
            length -= i;
            break;
        }
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strlen(modules[i].word) == length && strncmp(modules[i].word, name, length) == 0)
            return modules[i].matrices;
    return 0;
}

unsigned estimate_adapter_usual_matrices(const struct plan *p)
{
    return p->adapter == PLAN_ADAPTER_IA3 ? PLAN_KEYS | PLAN_VALUES : PLAN_LINEAR;
}

const char *estimate_adapter_name_matrices(unsigned matrices, char out[ESTIMATE_MATRICES_TEXT])
{
    size_t at = 0;

    *out = 0;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const unsigned each = modules[i].matrices;
        if (!strstr(modules[i].word, "_proj")) {
            if (each == matrices && !at) return modules[i].word;
        } else if (!(each & (each - 1)) && (each & matrices)) {
            at += (size_t)snprintf(out + at, ESTIMATE_MATRICES_TEXT - at, "%s%s", at ? "," : "", modules[i].word);
            matrices &= ~each;
        }
    }
    return out;
}

/* Which of PLAN_QUERIES … a matrix is; latent attention's first factors count as its output. */
static unsigned matrices_of(const struct model_tensor *t)
{
    static const char *const joined[] = {"qkv", "c_attn", "Wqkv", "W_pack", NULL},
                             *const queries[] = {"q_proj", "q_b_proj", "query", "q_lin", "to_q", NULL},
                             *const keys[] = {"k_proj", "key", "k_lin", "to_k", "kv_b_proj", NULL},
                             *const values[] = {"v_proj", "value", "v_lin", "to_v", "kv_b_proj", NULL},
                             *const last[] = {"down", "fc2", "w2", "wo", "4h_to_h", "c_proj", NULL};
    unsigned found = 0;

    if (t->role == TENSOR_ATTENTION) {
        if (text_has_one_of(t->name, joined)) return PLAN_QKV;
        if (text_has_one_of(t->name, queries)) found |= PLAN_QUERIES;
        if (text_has_one_of(t->name, keys)) found |= PLAN_KEYS;
        if (text_has_one_of(t->name, values)) found |= PLAN_VALUES;
        return found ? found : PLAN_OUTPUT;
    }
    if (t->role != TENSOR_MLP && t->role != TENSOR_EXPERT) return 0;
    if (text_has_one_of(t->name, last)) return PLAN_DOWN;
    return strstr(t->name, "gate_up") ? PLAN_GATE | PLAN_UP : strstr(t->name, "gate") ? PLAN_GATE : PLAN_UP;
}

bool estimate_adapter_is_target(const struct plan *p, const struct model_tensor *t)
{
    const unsigned matrices = matrices_of(t);

    if (t->dims < 2 || t->tower || !estimate_adapter_kind(p)->trained) return false;
    if (t->role == TENSOR_EXPERT && p->model->shape.bare_experts) return false;
    if (p->adapter == PLAN_ADAPTER_IA3 && (matrices & PLAN_MLP)) return matrices == PLAN_DOWN;
    return (matrices & p->targets) != 0;
}

double estimate_adapter_frozen(const struct plan *p, double rows, double cols)
{
    return p->adapter == PLAN_ADAPTER_LORA_FA ? adapter_size(p) * cols /* the first factor */
           : p->adapter == PLAN_ADAPTER_BOFT  ? cols * cols
                                              : 0; /* boft_P, a permutation */
}

double estimate_adapter_blocks(const struct plan *p, double cols, bool amp)
{
    const double block = (double)estimate_adapter_block((uint64_t)cols, p->rank);

    /* powers of the rotations; under autocast copies of them, too */
    if (p->adapter == PLAN_ADAPTER_OFT) return block * cols * (amp ? 7 * 2 : 4 * 4);
    if (p->adapter == PLAN_ADAPTER_BOFT) return 3 * 2 * cols * cols;
    return 0;
}

bool estimate_adapter_has_dropout(const struct plan *p)
{
    return kinds[p->adapter].rank > 0;
}

const char *estimate_adapter_option(const struct plan *p)
{
    static const char *const options[] = {NULL, "lora-rank", "block-size", "virtual-tokens"};

    return options[kinds[p->adapter].size_is];
}
