/* Models: their tensors, names and outputs, and which shapes must be refused. Counts: test_model_counts.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/model/convnets.h"
#include "analyzer/model/model.h"

typedef void each_name(const char *name);

static void all_names(each_name *each)
{
    char name[64];

    for (const char *p = model_names; *p; p += strcspn(p, "|") + 1) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "|"), p);
        each(name);
    }
}

static struct model made(const char *name)
{
    struct model m = {0};
    int exit_code = -1;

    if (!model_from_name("test", name, &m, &exit_code)) fail_msg("%s is unknown (%d)", name, exit_code);
    return m;
}

/* --- the list of tensors ---------------------------------------------------------------------- */

static uint64_t in_place(const struct model *m, enum model_tensor_place place)
{
    uint64_t params = 0;

    for (size_t i = 0; i < m->tensors_n; i++)
        if (m->tensors[i].place == place) params += m->tensors[i].rows * m->tensors[i].cols * m->tensors[i].count;
    return params;
}

/* Sums up layers of every kind, each with its own tensors and those of all kinds. */
static uint64_t layer_by_layer(const struct model *m)
{
    uint64_t params = 0;

    for (size_t i = 0; i < m->tensors_n; i++) {
        const struct model_tensor *t = &m->tensors[i];

        if (t->place != TENSOR_IN_LAYER) continue;
        assert_true(t->layers >= 1 && t->layers <= m->shape.layers);
        if (t->kind == 0) assert_int_equal(t->layers, m->shape.layers);
        if (!m->shape.shared) assert_int_equal(t->count % t->layers, 0);
        params += t->rows * t->cols * t->count;
    }
    return params;
}

static void adds_up(const char *name)
{
    struct model m = made(name);
    uint64_t in_layers = in_place(&m, TENSOR_IN_LAYER);

    assert_int_equal(in_place(&m, TENSOR_BEFORE) + in_layers + in_place(&m, TENSOR_AFTER), m.params);
    assert_int_equal(layer_by_layer(&m), in_layers);
    assert_true(m.shape.layers > 0 && in_layers > 0);
    assert_true(model_active_params(&m) <= m.params && model_active_params(&m) > 0);
    if (m.shape.experts == 0) assert_int_equal(model_active_params(&m), m.params);
    for (size_t i = 0; i < m.tensors_n; i++) {
        assert_true(strlen(m.tensors[i].name) > 0);
        assert_true(m.tensors[i].dims == 1 || m.tensors[i].dims == 2 || m.tensors[i].dims == 4);
        assert_true(m.tensors[i].dims > 1 || m.tensors[i].cols == 1);
    }
    model_free(&m);
}

static void tensors_add_up(void **state)
{
    (void)state;
    all_names(adds_up);
}

/* From the models' papers: the parameters that one token uses, in billions. */
static void tokens_use_what_the_papers_state(void **state)
{
    static const struct {
        const char *name;
        double low, high;
    } rows[] = {
        {"mixtral-8x7b", 12.8, 13.0},  /* "uses 13B active parameters", Jiang et al. 2024 */
        {"mixtral-8x22b", 38.5, 39.5}, /* "39B active" */
        {"deepseek-v2", 20.5, 21.5},   /* "21B are activated", DeepSeek-AI 2024 */
        {"deepseek-v3", 36.5, 37.6},   /* "37B activated" */
        {"qwen3-30b-a3b", 3.25, 3.4},  /* 3.3B activated */
        {"qwen3-235b-a22b", 21.5, 22.5}, {"qwen1.5-moe-a2.7b", 2.6, 2.75},
        {"olmoe-1b-7b", 1.25, 1.35}, /* "1.3B active", Muennighoff et al. 2024 */
        {"kimi-k2", 31.5, 33.0},     /* "32 billion activated" */
        {"phi-3.5-moe", 6.5, 6.7},   /* "6.6B active" */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m = made(rows[i].name);
        double active = (double)model_active_params(&m) / 1e9;

        if (active < rows[i].low || active > rows[i].high) fail_msg("%s: %f", rows[i].name, active);
        model_free(&m);
    }
}

static const struct model_tensor *tensor_of(const struct model *m, const char *name, enum model_tensor_role role)
{
    for (size_t i = 0; i < m->tensors_n; i++)
        if (strcmp(m->tensors[i].name, name) == 0 && m->tensors[i].role == role) return &m->tensors[i];
    fail_msg("%s has no %s", m->name, name);
    return NULL;
}

static void is(const struct model *m, const char *name, enum model_tensor_role role, uint64_t rows, uint64_t cols,
               uint64_t count)
{
    const struct model_tensor *t = tensor_of(m, name, role);

    assert_int_equal(t->rows, rows);
    assert_int_equal(t->cols, cols);
    assert_int_equal(t->count, count);
}

static void tensors_are_those_of_the_published_files(void **state)
{
    struct model m = made("llama-3-8b");

    (void)state;
    is(&m, "embed_tokens", TENSOR_EMBEDDING, 128256, 4096, 1);
    is(&m, "q_proj", TENSOR_ATTENTION, 4096, 4096, 32);
    is(&m, "k_proj", TENSOR_ATTENTION, 1024, 4096, 32);
    is(&m, "o_proj", TENSOR_ATTENTION, 4096, 4096, 32);
    is(&m, "gate_proj", TENSOR_MLP, 14336, 4096, 32);
    is(&m, "down_proj", TENSOR_MLP, 4096, 14336, 32);
    is(&m, "norm", TENSOR_NORM, 4096, 1, 64);
    is(&m, "lm_head", TENSOR_HEAD, 128256, 4096, 1);
    model_free(&m);
    m = made("gpt2");
    is(&m, "qkv_proj", TENSOR_ATTENTION, 2304, 768, 12);
    is(&m, "embed_positions", TENSOR_EMBEDDING, 1024, 768, 1);
    model_free(&m);
    m = made("deepseek-v3");
    is(&m, "q_a_proj", TENSOR_ATTENTION, 1536, 7168, 61);
    is(&m, "q_b_proj", TENSOR_ATTENTION, 24576, 1536, 61);
    is(&m, "kv_a_proj", TENSOR_ATTENTION, 576, 7168, 61);
    is(&m, "kv_b_proj", TENSOR_ATTENTION, 32768, 512, 61);
    is(&m, "o_proj", TENSOR_ATTENTION, 7168, 16384, 61);
    is(&m, "down_proj", TENSOR_EXPERT, 7168, 2048, 58 * 256);
    is(&m, "down_proj", TENSOR_MLP, 7168, 18432, 3);
    is(&m, "router", TENSOR_ROUTER, 256, 7168, 58);
    model_free(&m);
    m = made("phi-4");
    is(&m, "gate_up_proj", TENSOR_MLP, 35840, 5120, 40);
    model_free(&m);
    m = made("t5-3b"); /* twice in each of the decoder's layers */
    is(&m, "q_proj", TENSOR_ATTENTION, 4096, 1024, 24);
    is(&m, "up_proj", TENSOR_MLP, 16384, 1024, 48);
    assert_int_equal(m.shape.encoder_layers, 24);
    model_free(&m);
    m = made("openai/whisper-large-v3"); /* its file: conv1 [1280, 128, 3], no bias of keys, sinusoids */
    is(&m, "conv1", TENSOR_CONV, 1280, 128 * 3, 1);
    is(&m, "k_proj", TENSOR_ATTENTION, 1280, 1280, 32); /* the encoder's */
    is(&m, "q_proj bias", TENSOR_BIAS, 1280, 1, 32);
    is(&m, "encoder embed_positions", TENSOR_EMBEDDING, 1500, 1280, 1);
    assert_true(tensor_of(&m, "encoder embed_positions", TENSOR_EMBEDDING)->fixed);
    assert_false(tensor_of(&m, "embed_positions", TENSOR_EMBEDDING)->fixed);
    for (size_t i = 0; i < m.tensors_n; i++) assert_string_not_equal(m.tensors[i].name, "k_proj bias");
    model_free(&m);
}

/* LoRA's Σ r(rows + cols), as published for these three. */
static void matrices_are_there_for_adapters(void **state)
{
    static const struct {
        const char *name, *targets;
        uint64_t rank, params;
    } rows[] = {
        {"llama-2-7b", "q_proj v_proj", 8, 4194304},
        {"llama-2-13b", "q_proj v_proj", 8, 6553600},
        {"llama-3-8b", "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj", 16, 41943040},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m = made(rows[i].name);
        uint64_t params = 0;

        for (size_t t = 0; t < m.tensors_n; t++)
            if (m.tensors[t].dims == 2 && strstr(rows[i].targets, m.tensors[t].name))
                params += rows[i].rank * (m.tensors[t].rows + m.tensors[t].cols) * m.tensors[t].count;
        assert_int_equal(params, rows[i].params);
        model_free(&m);
    }
}

/* --- shapes ------------------------------------------------------------------------------------- */

static struct model_shape small(enum model_family family)
{
    struct model_shape s = model_family_shape(family);

    s.layers = 2;
    s.hidden = 64;
    s.heads = 4;
    s.vocab = 100;
    s.context = 32;
    if (family == MODEL_LLAMA || family == MODEL_T5) s.ffn = 128;
    if (family == MODEL_MAMBA) s.heads = 0;
    return s;
}

static bool taken(const struct model_shape *s, struct model *m)
{
    int exit_code = -1;
    bool ok = model_from_shape("test", "--layers", s, m, &exit_code);

    if (!ok) assert_int_equal(exit_code, 2);
    return ok;
}

static uint64_t params_of(const struct model_shape *s)
{
    struct model m = {0};
    uint64_t params;

    assert_true(taken(s, &m));
    params = m.params;
    model_free(&m);
    return params;
}

static void families_have_defaults(void **state)
{
    struct model_shape gpt = small(MODEL_GPT), bert = small(MODEL_BERT), vit = small(MODEL_VIT),
                       llama = small(MODEL_LLAMA), whisper = small(MODEL_WHISPER);

    (void)state;
    assert_int_equal(params_of(&gpt), (100 + 32) * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64);
    assert_int_equal(params_of(&bert), (100 + 32 + 2) * 64 + 2 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 64 * 64 + 64);
    vit.vocab = 0;
    assert_int_equal(params_of(&vit),
                     3 * 16 * 16 * 64 + 64 + 64 + 197 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + 1000 * 64 + 1000);
    assert_int_equal(params_of(&llama), 2 * 100 * 64 + 2 * (4 * 64 * 64 + 3 * 128 * 64 + 2 * 64) + 64);
    /* h²(3·80/h + 3) of the convolutions and 2h of their biases; sinusoids; words and places; in each layer
     * attention of 4h² + 3h, the decoder's twice, an MLP of 8h² + 5h, norms of 2h; the last norms */
    assert_int_equal(params_of(&whisper), 3 * 80 * 64 + 3 * 64 * 64 + 2 * 64 + 1500 * 64 + (100 + 32) * 64 +
                                              3 * (4 * 64 * 64 + 3 * 64) + 2 * (8 * 64 * 64 + 5 * 64) + 5 * 2 * 64 +
                                              2 * 2 * 64);
    llama.kv_heads = 1;
    assert_int_equal(params_of(&llama), 2 * 100 * 64 + 2 * (2 * 64 * 64 + 2 * 16 * 64 + 3 * 128 * 64 + 2 * 64) + 64);
    llama.experts = 4;
    llama.experts_used = 2;
    assert_int_equal(params_of(&llama),
                     2 * 100 * 64 + 2 * (2 * 64 * 64 + 2 * 16 * 64 + 4 * 3 * 128 * 64 + 4 * 64 + 2 * 64) + 64);
}

#define REFUSES(family, field, value)          \
    do {                                       \
        struct model_shape s_ = small(family); \
        struct model m_ = {0};                 \
        s_.field = (value);                    \
        assert_false(taken(&s_, &m_));         \
        model_free(&m_);                       \
    } while (0)

static void contradictions_are_refused(void **state)
{
    struct model_shape s = small(MODEL_LLAMA);
    struct model m = {0};

    (void)state;
    REFUSES(MODEL_LLAMA, layers, 0);
    REFUSES(MODEL_LLAMA, hidden, 0);
    REFUSES(MODEL_LLAMA, heads, 0);
    REFUSES(MODEL_LLAMA, vocab, 0);
    REFUSES(MODEL_LLAMA, ffn, 0);
    REFUSES(MODEL_LLAMA, heads, 3);
    REFUSES(MODEL_LLAMA, kv_heads, 3);
    REFUSES(MODEL_LLAMA, kv_heads, 8);
    REFUSES(MODEL_LLAMA, experts, 4);      /* how many does a token use? */
    REFUSES(MODEL_LLAMA, experts_used, 2); /* of none */
    REFUSES(MODEL_LLAMA, window_layers, 3);
    REFUSES(MODEL_LLAMA, family, MODEL_UNKNOWN);
    REFUSES(MODEL_LLAMA, family, MODEL_CONV);
    REFUSES(MODEL_LLAMA, family, MODEL_FAMILIES_N);
    REFUSES(MODEL_GPT, context, 0); /* rows of its table of positions */
    REFUSES(MODEL_VIT, patch, 0);
    REFUSES(MODEL_VIT, patch, 15);
    REFUSES(MODEL_VIT, patch, 448);
    REFUSES(MODEL_VIT, image, 0);
    REFUSES(MODEL_T5, layers, 3);
    REFUSES(MODEL_T5, encoder_layers, 3);
    REFUSES(MODEL_WHISPER, layers, 3);
    REFUSES(MODEL_WHISPER, encoder_layers, 3);
    REFUSES(MODEL_WHISPER, channels, 0);
    REFUSES(MODEL_WHISPER, sound, 0);
    REFUSES(MODEL_WHISPER, kv_rank, 4);
    REFUSES(MODEL_MAMBA, taps, 0);
    REFUSES(MODEL_MAMBA, heads, 3); /* of an inner size of 128 */
    REFUSES(MODEL_MAMBA, window, 8);
    s.experts = 4;
    s.experts_used = 5;
    assert_false(taken(&s, &m));
    s.experts_used = 2;
    s.moe_layers = 3;
    assert_false(taken(&s, &m));
    s = small(MODEL_LLAMA);
    s.kv_rank = 16; /* latent attention without the parts of its heads */
    assert_false(taken(&s, &m));
}

/* 64 * 2^29 * 2^29 is 0 in 64 bits. */
static void a_patch_does_not_overflow(void **state)
{
    struct model_shape s = model_family_shape(MODEL_VIT);
    struct model m = {0};
    int exit_code = 0;

    (void)state;
    s.layers = s.heads = 1;
    s.hidden = 64;
    s.image = s.patch = 1u << 29;
    s.channels = 64;
    assert_false(model_from_shape("test", "--layers", &s, &m, &exit_code));
    assert_int_equal(exit_code, 2);
    model_free(&m);
}

/* Every number in turn gets every size up to 64 bits: it is refused or in bounds, and never overflows. */
static void no_number_overflows(void **state)
{
    static const uint64_t values[] = {1,
                                      2,
                                      3,
                                      1000000000,
                                      1000000001,
                                      UINT32_MAX,
                                      1000000000000,
                                      INT64_MAX,
                                      UINT64_MAX - 1,
                                      UINT64_MAX,
                                      UINT64_MAX / 2 + 1,
                                      UINT64_MAX / 64};
    static const size_t at[] = {
#define AT(field) offsetof(struct model_shape, field)
        AT(layers),         AT(hidden),        AT(heads),        AT(kv_heads),       AT(head_dim),   AT(ffn),
        AT(encoder_layers), AT(vocab),         AT(embedding),    AT(context),        AT(positions),  AT(buckets),
        AT(token_types),    AT(experts),       AT(experts_used), AT(shared_experts), AT(expert_ffn), AT(shared_ffn),
        AT(moe_layers),     AT(q_rank),        AT(kv_rank),      AT(rope_dim),       AT(nope_dim),   AT(v_dim),
        AT(window),         AT(window_layers), AT(image),        AT(patch),          AT(channels),   AT(classes),
        AT(sound),          AT(inner),         AT(state),        AT(taps),           AT(step_rank),  AT(groups),
#undef AT
    };
    const size_t n = sizeof at / sizeof *at, each = sizeof values / sizeof *values;
    int stderr_copy = dup(2), nowhere = open("/dev/null", O_WRONLY); /* hundreds of thousands of error messages */

    (void)state;
    assert_true(stderr_copy >= 0 && nowhere >= 0 && dup2(nowhere, 2) == 2);
    for (int family = MODEL_GPT; family < MODEL_FAMILIES_N; family++) {
        for (size_t i = 0; i < n * each * n * each; i++) {
            struct model_shape s = small((enum model_family)family);
            struct model m = {0};
            size_t one = i % n, other = i / (n * each) % n;

            memcpy((char *)&s + at[one], &values[i / n % each], sizeof *values);
            memcpy((char *)&s + at[other], &values[i / (n * each * n)], sizeof *values);
            if (taken(&s, &m)) {
                assert_true(m.params > 0 && m.params <= MODEL_PARAMS_MAX);
                assert_true(model_active_params(&m) <= m.params);
            }
            model_free(&m);
        }
    }
    dup2(stderr_copy, 2);
    close(stderr_copy);
    close(nowhere);
}

static uint64_t tower_params(const struct model *m)
{
    uint64_t n = 0;

    for (size_t i = 0; i < m->tensors_n; i++)
        if (m->tensors[i].tower) n += m->tensors[i].rows * m->tensors[i].cols * m->tensors[i].count;
    return n;
}

/* "gemma-3-4b" is "gemma-3-4b-text" plus its image tower. */
static void towers_come_on_top(void **state)
{
    static const char *const names[][2] = {{"gemma-3-4b", "gemma-3-4b-text"},
                                           {"gemma-3-12b", "gemma-3-12b-text"},
                                           {"gemma-3-27b", "gemma-3-27b-text"},
                                           {"llama-4-scout", "llama-4-scout-text"},
                                           {"llama-4-maverick", "llama-4-maverick-text"},
                                           {"qwen2.5-vl-7b", "qwen2.5-7b"},
                                           {"qwen3-vl-8b", "qwen3-8b"}};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model both = made(names[i][0]), text = made(names[i][1]);
        assert_true(model_has_tower(names[i][0]) && !model_has_tower(names[i][1]));
        assert_int_equal(tower_params(&text), 0);
        assert_int_equal(both.params, text.params + tower_params(&both));
        model_free(&both);
        model_free(&text);
    }
    assert_false(model_has_tower("nothing"));
}

/* --- names ------------------------------------------------------------------------------------ */

static void published_names_are_found(void **state)
{
    static const struct {
        const char *published, *name;
    } rows[] = {
        {"meta-llama/Llama-3.1-8B", "llama-3.1-8b"},
        {"meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"},
        {"meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"},
        {"meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"},
        {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
        {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
        {"mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"},
        {"Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"},
        {"Qwen/Qwen3-8B-Base", "qwen3-8b"},
        {"google/gemma-2-9b-it", "gemma-2-9b"},
        {"google/gemma-3-1b-pt", "gemma-3-1b"},
        {"google/gemma-3-12b-it", "gemma-3-12b"},
        {"google/gemma-4-26B-A4B", "gemma-4-26b-a4b"},
        {"databricks/dbrx-instruct", "dbrx"},
        {"Qwen/Qwen3-VL-4B-Thinking", "qwen3-vl-4b"},
        {"Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b"},
        {"microsoft/Phi-4-reasoning", "phi-4"},
        {"mistralai/Ministral-3-3B-Reasoning-2512", "ministral-3-3b"},
        {"mistralai/Devstral-Small-2507", "mistral-small-24b"},
        {"mistralai/Magistral-Small-2509", "mistral-small-3.1-24b"},
        {"axolotl-quants/Llama-4-Scout-17B-16E-Linearized", "llama-4-scout"},
        {"zai-org/GLM-4.5-Air-Base", "glm-4.5-air"},
        {"Qwen/Qwen3.5-35B-A3B-Base", "qwen3.5-35b-a3b"},
        {"Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"},
        {"allenai/Olmo-3-7B-Instruct-SFT", "olmo-3-7b"},
        {"microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"},
        {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
        {"openai-community/gpt2", "gpt2"},
        {"HuggingFaceTB/SmolLM2-360M-Instruct", "smollm2-360m"},
        {"facebook/opt-125m", "opt-125m"},
        {"bigscience/bloom-560m", "bloom-560m"},
        {"EleutherAI/pythia-1.4b", "pythia-1.4b"},
        {"tiiuae/falcon-7b-instruct", "falcon-7b"},
        {"google/flan-t5-base", "flan-t5-base"},
        {"google/vit-base-patch16-224", "vit-b-16"},
        {"FacebookAI/roberta-base", "roberta-base"},
        {"BERT-base-uncased", "bert-base-uncased"},
        {"vit_b_16", "vit-b-16"},
        {"resnet50", "resnet-50"},
        {"wide_resnet50_2", "wide-resnet-50-2"},
        {"vgg16_bn", "vgg-16-bn"},
        {"efficientnet_b0", "efficientnet-b0"},
        {"regnet_y_1_6gf", "regnet-y-1-6gf"},
        {"regnet_y_16gf", "regnet-y-16gf"},
        {"regnet_x_400mf", "regnet-x-400mf"},
        {"mnasnet1_0", "mnasnet-1.0"},
        {"mnasnet0_75", "mnasnet-0.75"},
        {"cognitivecomputations/dolphin-2.9-llama3-8b", "llama-3-8b"},
        {"NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO", "mixtral-8x7b"},
        {"gradientai/Llama-3-8B-Instruct-262k", "llama-3-8b"},
        {"deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3-8b"},
        {"baichuan-inc/Baichuan2-7B-Chat", "baichuan2-7b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m = made(rows[i].published);

        assert_string_equal(m.name, rows[i].name);
        assert_string_equal(m.source, "preset");
        model_free(&m);
    }
}

static void unknown_names_are_refused(void **state)
{
    static const char *const names[] = {
        "gpt3",
        "llama",
        "",
        "-",
        "---",
        "_",
        "llama-3-9b",
        "TencentARC/LLaMA-3-8B-Pro", /* more layers */
        "llava-hf/llava-v1.6-mistral-7b-hf",
        "ISTA-DASLab/Meta-Llama-3-8B-Instruct-AQLM-2Bit-1x16",
        "yuhuili/EAGLE-LLaMA3-Instruct-8B",
        "TheBloke/Llama-2-7B-GPTQ",
        "someone/Llama-3-8B-11B-merge",
        "nobody/nothing",
        "instruct",
        "a/b/c",
        "/",
        "\x1b[31m",
        "gpt2\n",
        "llama-3-8bllama-3-8bllama-3-8bllama-3-8bllama-3-8bllama-3-8bllama-3-8bllama-3-8bllama-3-8bllama-3-8b",
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model m = {0};
        int exit_code = -1;

        if (model_from_name("test", names[i], &m, &exit_code)) fail_msg("'%s' is taken for %s", names[i], m.name);
        assert_true(exit_code == 2 || exit_code == 3);
        model_free(&m);
    }
}

/* --- convolutional networks ------------------------------------------------------------------- */

static struct model_conv_map maps[CONV_MAPS_MAX];

static uint64_t outputs_of(const char *name, uint64_t height, uint64_t width, size_t *n)
{
    struct model m = made(name);
    uint64_t elements = 0;

    *n = model_conv_maps(&m, height, width, maps, CONV_MAPS_MAX);
    for (size_t i = 0; i < *n; i++) {
        assert_int_equal(maps[i].elements, maps[i].channels * maps[i].height * maps[i].width);
        elements +=
            maps[i].op == CONV_ADD || maps[i].op == CONV_MULTIPLY || maps[i].op == CONV_JOIN ? 0 : maps[i].elements;
    }
    model_free(&m);
    return elements;
}

/* The sum over all modules' outputs, from forward hooks on torchvision 0.26.0 (meta device, training). */
/* Elements of all modules' outputs, for an image of 224 x 224 and one of 301 x 263. */
static const struct {
    const char *name;
    uint64_t usual, odd;
} outputs_of_torchvision[] = {
    {"resnet-18", 7477736, 12051688},
    {"resnet-34", 11240936, 18164968},
    {"resnet-50", 32040424, 51861736},
    {"resnet-101", 47394280, 77164264},
    {"resnet-152", 66360808, 108070120},
    {"resnext-50-32x4d", 41900008, 67816168},
    {"resnext-101-32x8d", 92326888, 150330088},
    {"resnext-101-64x4d", 92326888, 150330088},
    {"wide-resnet-50-2", 41900008, 67816168},
    {"wide-resnet-101-2", 62371816, 101552872},
    {"alexnet", 1098216, 1691944},
    {"vgg-11", 16433128, 25589608},
    {"vgg-13", 26066920, 40752872},
    {"vgg-16", 28676072, 44756200},
    {"vgg-19", 31285224, 48759528},
    {"vgg-11-bn", 23859176, 37174568},
    {"vgg-13-bn", 38309864, 59919464},
    {"vgg-16-bn", 42223592, 65924456},
    {"vgg-19-bn", 46137320, 71929448},
    {"densenet-121", 38612456, 61115368},
    {"densenet-161", 70473832, 110955400},
    {"densenet-169", 45731816, 71930472},
    {"densenet-201", 57661416, 90364776},
    {"mobilenet-v2", 19465576, 31534920},
    {"mobilenet-v3-large", 12643984, 20506048},
    {"mobilenet-v3-small", 4106768, 6729408},
    {"efficientnet-b0", 19874240, 32323104},
    {"efficientnet-b1", 27697144, 45117800},
    {"efficientnet-b2", 29044092, 47350892},
    {"efficientnet-b3", 38507328, 62745944},
    {"efficientnet-b4", 50604432, 82643792},
    {"efficientnet-b5", 69687176, 113837640},
    {"efficientnet-b6", 89202512, 145766216},
    {"efficientnet-b7", 119538152, 195530056},
    /* with their mean over positions, which is not a module */
    {"mnasnet-0.5", 8823560, 14388680},
    {"mnasnet-0.75", 13691416, 22289096},
    {"mnasnet-1.0", 15714920, 25642952},
    {"mnasnet-1.3", 21146472, 34466952},
    {"regnet-x-400mf", 9320808, 15485544},
    {"regnet-x-800mf", 15054472, 24572968},
    {"regnet-x-1-6gf", 23317288, 37804624},
    {"regnet-x-3-2gf", 33515656, 54333928},
    {"regnet-x-8gf", 41504744, 67490152},
    {"regnet-x-16gf", 75066344, 121188200},
    {"regnet-x-32gf", 106939552, 172688152},
    {"regnet-y-400mf", 11380576, 18550144},
    {"regnet-y-800mf", 15845768, 25689704},
    {"regnet-y-1-6gf", 23777492, 38667860},
    {"regnet-y-3-2gf", 33205460, 53866556},
    {"regnet-y-8gf", 57844760, 93394296},
    {"regnet-y-16gf", 67677408, 109621360},
    {"regnet-y-32gf", 89053316, 144148468},
    {"convnext-tiny", 26834152, 40636072},
    {"convnext-small", 43091176, 64523944},
    {"convnext-base", 57454568, 86031592},
    {"convnext-large", 86181352, 129046888},
};

static void expect_outputs(const char *name, uint64_t height, uint64_t width, uint64_t expected)
{
    size_t n;
    uint64_t elements = outputs_of(name, height, width, &n);

    if (elements != expected)
        fail_msg("%s at %jux%ju: %ju, not %ju", name, (uintmax_t)height, (uintmax_t)width, (uintmax_t)elements,
                 (uintmax_t)expected);
}

static void outputs_are_those_of_torchvision(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof outputs_of_torchvision / sizeof *outputs_of_torchvision; i++) {
        expect_outputs(outputs_of_torchvision[i].name, 224, 224, outputs_of_torchvision[i].usual);
        expect_outputs(outputs_of_torchvision[i].name, 301, 263, outputs_of_torchvision[i].odd);
    }
}

static void few_maps_of_odd_images(void **state)
{
    struct model m = made("resnet-50"), gpt2 = made("gpt2");
    struct model_conv_map few[3];

    (void)state;
    assert_int_equal(model_conv_maps(&m, 224, 224, few, 3), 174);
    assert_int_equal(few[0].elements, 64 * 112 * 112);
    assert_int_equal(few[0].inputs, 3 * 224 * 224);
    assert_true(few[2].op == CONV_RELU && few[2].in_place);
    assert_string_equal(model_conv_op_word(few[0].op), "conv");
    assert_int_equal(model_conv_maps(&m, 0, 224, few, 3), 0);
    assert_int_equal(model_conv_maps(&m, UINT64_MAX, 224, few, 3), 0);
    assert_int_equal(model_conv_maps(&m, 1, 1, few, 0), 174); /* its kernels are padded */
    assert_int_equal(model_conv_maps(&gpt2, 224, 224, few, 3), 0);
    model_free(&m);
    model_free(&gpt2);
    m = made("alexnet");
    assert_int_equal(model_conv_maps(&m, 16, 16, few, 3), 0);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_add_up),
        cmocka_unit_test(tokens_use_what_the_papers_state),
        cmocka_unit_test(tensors_are_those_of_the_published_files),
        cmocka_unit_test(matrices_are_there_for_adapters),
        cmocka_unit_test(families_have_defaults),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(a_patch_does_not_overflow),
        cmocka_unit_test(no_number_overflows),
        cmocka_unit_test(towers_come_on_top),
        cmocka_unit_test(published_names_are_found),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(outputs_are_those_of_torchvision),
        cmocka_unit_test(few_maps_of_odd_images),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
