/* Inference: bits of stored weights, KV caches, activations of prefill and decode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/answer.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/serving.h"

static struct model shaped(uint64_t layers, uint64_t hidden, uint64_t heads, uint64_t kv, uint64_t ffn, uint64_t vocab)
{
    struct model_shape s = {.family = MODEL_LLAMA,
                            .layers = layers,
                            .hidden = hidden,
                            .heads = heads,
                            .kv_heads = kv,
                            .head_dim = hidden / heads,
                            .ffn = ffn,
                            .vocab = vocab,
                            .gated = true,
                            .norms = 2,
                            .final_norm = true};
    struct model m;
    int exit_code;

    assert_true(model_from_shape("test", "test", &s, &m, &exit_code));
    return m;
}

/* Bits per weight of Llama-3.1-8B, from the table in llama.cpp's tools/quantize/README.md. */
static void gguf_mixtures(void **state)
{
    static const struct {
        const char *word;
        double bits;
    } rows[] = {
        {"q2_k_s", 2.9697}, {"q2_k", 3.1593},   {"q3_k_s", 3.6429}, {"q3_k_l", 4.2979},
        {"q4_k_s", 4.6672}, {"q4_k_m", 4.8944}, {"q5_k_s", 5.5704}, {"q5_k_m", 5.7036},
        {"q6_k", 6.5633},   {"q8_0", 8.5008},   {"iq4_xs", 4.4597}, {"iq4_nl", 4.6818},
    };
    struct model m = shaped(32, 4096, 32, 8, 14336, 128256);

    assert_int_equal(m.params, 8030261248);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct estimate_quantisation *q = estimate_quantisation_find(rows[i].word);
        double bits = 0;
        for (const struct model_tensor *t = m.tensors; t < m.tensors + m.tensors_n; t++)
            bits += estimate_quantisation_bits(q, &m, t, 16) * (double)(t->rows * t->cols * t->count);
        bits /= (double)m.params;
        if (fabs(bits - rows[i].bits) > 0.00005)
            fail_msg("%s: %.4f bits a weight, not %.4f", rows[i].word, bits, rows[i].bits);
    }
    model_free(&m);
}

#define MIB (1024.0 * 1024)

static struct plan serving(const struct model *m, uint64_t batch, uint64_t seq)
{
    struct plan p = PLAN_DEFAULT;

    p.model = m;
    p.inference = true;
    p.precision = estimate_precision("fp32"); /* the default, not requested: 16 bits */
    p.optimizer = estimate_optimizer("adam");
    p.batch = batch;
    p.seq = seq;
    return p;
}

static struct estimate_result r;

static double part(const struct plan *p, enum estimate_part which)
{
    assert_true(estimate_make(p, &r));
    return r.part[which].likely;
}

static bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void caches_of_known_models(void **state)
{
    static const struct {
        const char *what;
        uint64_t layers, hidden, heads, kv, seq;
        double mib;
    } rows[] = {
        {"Llama-2-7B", 32, 4096, 32, 32, 4096, 2048},   {"Llama-3-8B", 32, 4096, 32, 8, 8192, 1024},
        {"Llama-2-70B", 80, 8192, 64, 8, 4096, 1280},   {"Mistral-7B", 32, 4096, 32, 8, 32768, 4096},
        {"Qwen2.5-72B", 80, 8192, 64, 8, 32768, 10240}, {"Llama-3.1-405B", 126, 16384, 128, 8, 131072, 64512},
        {"GPT-2", 12, 768, 12, 12, 1024, 36},           {"OPT-13B", 40, 5120, 40, 40, 2048, 1600},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m = shaped(rows[i].layers, rows[i].hidden, rows[i].heads, rows[i].kv, 4 * rows[i].hidden, 32000);
        struct plan p = serving(&m, 1, rows[i].seq);
        if (part(&p, ESTIMATE_CACHE) != rows[i].mib * MIB)
            fail_msg("%s: %.3f MiB, not %.0f", rows[i].what, r.part[ESTIMATE_CACHE].likely / MIB, rows[i].mib);
        p.cache = estimate_quantisation_find("fp8");
        assert_true(part(&p, ESTIMATE_CACHE) == rows[i].mib * MIB / 2);
        p.batch = 3;
        assert_true(part(&p, ESTIMATE_CACHE) == rows[i].mib * MIB * 3 / 2);
        model_free(&m);
    }
}

static void blocks_windows_and_divided_heads(void **state)
{
    struct model m = shaped(32, 4096, 32, 8, 14336, 32000);
    struct plan p = serving(&m, 2, 1000);
    double token = 2 * 8 * 128 * 2.0 * 32; /* bytes of all layers */

    assert_true(part(&p, ESTIMATE_CACHE) == 2 * 1000 * token);
    p.cache_block = 16; /* 63 blocks */
    assert_true(part(&p, ESTIMATE_CACHE) == 2 * 1008 * token);
    p.cache_block = 0;
    m.shape.window = 256;
    m.shape.window_layers = 16;
    assert_true(part(&p, ESTIMATE_CACHE) == 2 * 1000 * token); /* the prompt only, at the beginning */
    assert_true(r.part[ESTIMATE_CACHE].low == 2 * (1000 + 256) * token / 2);
    p.cache_block = 16; /* vLLM: one more block, because a window may begin within one */
    assert_true(part(&p, ESTIMATE_CACHE) == 2 * (1008 + 272) * token / 2);
    m.shape.window = m.shape.window_layers = 0;
    p.cache_block = 0;
    for (uint64_t tp = 2; tp <= 32; tp *= 2) { /* beyond 8, each GPU has one whole head */
        p.tp = p.gpus = tp;
        assert_true(part(&p, ESTIMATE_CACHE) == 2 * 1000 * token / (double)(tp < 8 ? tp : 8));
    }
    p.tp = 1, p.gpus = p.pp = 4;
    assert_true(part(&p, ESTIMATE_CACHE) == 2 * 1000 * token / 4);
    p.pp = 1, p.gpus = p.cp = 4;
    assert_true(part(&p, ESTIMATE_CACHE) == 2 * 250 * token);
    model_free(&m);
}

/* DeepSeek-V2: 512 + 64 elements a token and layer, without a factor of two, whatever tp is. */
static void latent_cache(void **state)
{
    struct model m = shaped(60, 5120, 128, 128, 12288, 102400);
    struct plan p = serving(&m, 1, 4096);

    m.shape.kv_rank = 512;
    m.shape.rope_dim = 64;
    m.shape.nope_dim = m.shape.v_dim = 128;
    assert_true(part(&p, ESTIMATE_CACHE) == 60 * 4096 * 576 * 2.0);
    p.tp = p.gpus = 8;
    assert_true(part(&p, ESTIMATE_CACHE) == 60 * 4096 * 576 * 2.0);
    model_free(&m);
}

static void weights_by_quantisation(void **state)
{
    struct model m = shaped(32, 4096, 32, 32, 11008, 32000);
    struct plan p = serving(&m, 1, 128);
    double kept = 2 * 32000 * 4096.0 + 65 * 4096, rest = (double)m.params - kept;

    assert_int_equal(m.params, 6738415616);
    assert_true(part(&p, ESTIMATE_WEIGHTS) == 2.0 * 6738415616);
    p.weights = estimate_quantisation_find("nf4");
    assert_true(is_close(part(&p, ESTIMATE_WEIGHTS), 2 * kept + rest * 4.5 / 8));
    p.weights = estimate_quantisation_find("nf4-double"); /* QLoRA (2305.14314): 0.127 bits for the scales */
    assert_true(fabs(p.weights->bits - 4.127) < 0.0005);
    p.weights = estimate_quantisation_find("awq");
    assert_true(is_close(part(&p, ESTIMATE_WEIGHTS), 2 * kept + rest * 4.15625 / 8));
    p.weights = estimate_quantisation_find("int8"); /* and a float32 for each output: q, k, v, o, gate, up, down */
    assert_true(is_close(part(&p, ESTIMATE_WEIGHTS), 2 * kept + rest + 4.0 * 32 * (5 * 4096 + 2 * 11008)));
    p.weights = NULL;
    p.precision_given = true;
    assert_true(part(&p, ESTIMATE_WEIGHTS) == 4.0 * 6738415616);
    p.precision_given = false;
    p.tp = p.gpus = 8; /* norms are on every GPU */
    assert_true(is_close(part(&p, ESTIMATE_WEIGHTS), 2 * ((6738415616 - 65 * 4096) / 8.0 + 65 * 4096)));
    model_free(&m);
}

static void a_number_of_parameters_is_an_interval(void **state)
{
    struct model m;
    struct plan p;

    model_from_count(7000000000, &m);
    p = serving(&m, 1, 1024);
    assert_true(part(&p, ESTIMATE_WEIGHTS) == 14e9);
    p.weights = estimate_quantisation_find("nf4");
    assert_true(part(&p, ESTIMATE_WEIGHTS) > 7e9 * 4.5 / 8);
    assert_true(r.part[ESTIMATE_WEIGHTS].low == 7e9 * 4.5 / 8);
    assert_true(r.part[ESTIMATE_WEIGHTS].high > r.part[ESTIMATE_WEIGHTS].likely);
    model_free(&m);
}

/* A file's own form counts, unless another form is requested. */
static void stored_weights(void **state)
{
    struct model m = shaped(2, 256, 4, 4, 512, 1000);
    struct plan p;
    double bytes = 0;

    for (size_t i = 0; i < m.tensors_n; i++)
        bytes += m.tensors[i].bytes = 5.0 * (double)(m.tensors[i].rows * m.tensors[i].cols * m.tensors[i].count);
    m.stored_bytes = bytes;
    p = serving(&m, 1, 16);
    assert_true(part(&p, ESTIMATE_WEIGHTS) == bytes);
    p.weights = estimate_quantisation_find("bf16");
    assert_true(part(&p, ESTIMATE_WEIGHTS) == 2.0 * (double)m.params);
    model_free(&m);
}

static void passes(void **state)
{
    struct model m = shaped(32, 4096, 32, 8, 14336, 128256);
    struct plan p = serving(&m, 1, 8192);
    double flash;

    assert_true(estimate_make(&p, &r));
    assert_true(is_close(r.part[ESTIMATE_ACTIVATIONS].likely, 8192 * (4 * 4096 + 3 * 14336) * 2.0));
    flash = r.phase[PHASE_PREFILL].likely;
    assert_true(r.phase[PHASE_DECODE].likely < flash);
    p.attention = PLAN_ATTENTION_EAGER;
    assert_true(estimate_make(&p, &r));
    assert_true(r.phase[PHASE_PREFILL].likely > flash + 32 * 8192.0 * 8192 * 5);
    p.attention = PLAN_ATTENTION_FLASH;
    p.cache_block = 16;
    p.batch = 64; /* read in pieces */
    assert_true(part(&p, ESTIMATE_ACTIVATIONS) == 8192 * (2 * 4096 + 3 * 14336) * 2.0);
    model_free(&m);
}

/* Bytes on one GPU for a model with that name. */
static double named(const char *name, const char *word)
{
    struct model m;
    struct plan p;
    int exit_code;
    double bytes;

    assert_true(model_from_name("test", name, &m, &exit_code));
    p = serving(&m, 1, 128);
    p.weights = estimate_quantisation_find(word);
    bytes = part(&p, ESTIMATE_WEIGHTS);
    model_free(&m);
    return bytes;
}

/* Files that are published. */
static void published_files(void **state)
{
    static const struct {
        const char *word;
        double gb;
    } mixtral[] = {
        /* the model card of bartowski/Mixtral-8x22B-v0.1-GGUF */
        {"q5_k_m", 99.96}, {"q5_k_s", 96.97}, {"q4_k_m", 85.58}, {"q4_k_s", 80.47}, {"iq4_nl", 80.47},
        {"iq4_xs", 76.35}, {"q3_k_l", 72.57}, {"q3_k_m", 67.78}, {"q3_k_s", 61.49}, {"q2_k", 52.10},
    };

    for (size_t i = 0; i < sizeof mixtral / sizeof *mixtral; i++) {
        double gb = named("mixtral-8x22b", mixtral[i].word) / 1e9;
        if (fabs(gb - mixtral[i].gb) > 0.0005 * mixtral[i].gb)
            fail_msg("mixtral-8x22b %s: %.2f GB, not %.2f", mixtral[i].word, gb, mixtral[i].gb);
    }
    assert_true(named("gpt-oss-20b", "mxfp4") == 13761264768); /* model.safetensors.index.json: total_size */
    assert_true(fabs(named("llama-2-7b", "awq") / 1e9 - 3.89) < 0.005);
    assert_true(fabs(named("llama-2-7b", "q4_k_m") / 1e9 - 4.08) < 0.005);
    assert_true(fabs(named("llama-2-70b", "q4_k_m") / 1e9 - 41.42) < 0.005);
}

/* T5: the decoder's layers store keys and values of their own tokens and of the encoder's. */
static void encoder_and_decoder(void **state)
{
    struct model m = shaped(48, 1024, 16, 16, 4096, 32128);
    struct plan p = serving(&m, 2, 512);

    m.shape.family = MODEL_T5;
    m.shape.encoder_layers = 24;
    assert_true(part(&p, ESTIMATE_CACHE) == 24.0 * 2 * 512 * 2 * 2 * 1024 * 2);
    model_free(&m);
}

/* torchvision 0.26 on PyTorch 2.11, model.eval() under inference_mode() on the simulated H100, whose cuDNN is the real
 * one: max_memory_allocated() minus the memory that was allocated before the second call, and minus the images.
 * PyTorch's blocks are up to 1 MiB larger than the request. */
static void convolutional_nets(void **state)
{
    static const struct {
        const char *name;
        int size;
        unsigned batch, side;
        double measured;
    } rows[] = {
        {"resnet18", 2, 32, 224, 127336448},
        {"resnext50-32x4d", 2, 32, 224, 179767296},
        {"wide-resnet50-2", 2, 32, 224, 179767296},
        {"alexnet", 2, 32, 224, 37961728},
        {"vgg11", 2, 32, 224, 473104384},
        {"densenet161", 2, 32, 224, 250478592},
        {"mobilenet-v3-small", 2, 32, 224, 41747456},
        {"efficientnet-b7", 2, 32, 224, 343607296},
        {"convnext-base", 2, 32, 224, 266534912},
        {"resnet50", 4, 64, 224, 706478080},
        {"vgg16", 4, 64, 224, 1682702336},
        {"densenet121", 4, 64, 224, 680787968},
        {"mobilenet-v3-large", 4, 64, 224, 500957184},
        {"efficientnet-b0", 4, 64, 224, 706478080},
        {"convnext-tiny", 4, 64, 224, 809238528},
        {"resnet50", 2, 8, 512, 230688768},
        {"vgg16-bn", 2, 8, 512, 616562688},
        {"densenet201", 2, 8, 512, 222298112},
        {"mobilenet-v2", 2, 8, 512, 230687744},
        {"efficientnet-b4", 2, 8, 512, 339740672},
        {"convnext-small", 2, 8, 512, 264241152},
        {"swin-tiny-patch4-window7-224", 4, 16, 224, 338846208},
        {"convnextv2-tiny", 4, 16, 224, 280477696},
        {"convnextv2-nano", 4, 64, 224, 941785088},
        {"resnet50", 2, 256, 224, 1412958208},
        {"resnet18", 2, 256, 224, 1001914368},
        {"vgg16", 2, 256, 224, 3776446464},
        {"alexnet", 2, 256, 224, 295632896},
    };
    struct plan p = PLAN_DEFAULT;
    struct model m;
    int exit_code;

    p.inference = p.precision_given = true;
    p.model = &m;
    p.optimizer = estimate_optimizer("adamw");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned activations = 0;
        assert_true(model_from_name("test", rows[i].name, &m, &exit_code));
        m.shape.image = rows[i].side;
        p.precision = estimate_precision(rows[i].size == 2 ? "bf16" : "fp32");
        p.batch = rows[i].batch;
        assert_true(estimate_make(&p, &r));
        for (size_t l = 0; l < r.lines_n; l++)
            if (r.lines[l].part == ESTIMATE_ACTIVATIONS) {
                const struct estimate_interval *b = &r.lines[l].bytes;
                double blocks = rows[i].measured - b->likely;
                if (blocks < -1024 || blocks > 4 << 20)
                    fail_msg("%s: %.0f bytes, measured %.0f", rows[i].name, b->likely, rows[i].measured);
                assert_true(b->low <= b->likely && b->likely <= b->high);
                activations++;
            }
        assert_int_equal(activations, 1);
        assert_int_equal(r.notes_n, 0);
        model_free(&m);
    }
}

/* Whisper: the decoder's layers store keys and values of the text's tokens and of 1500 audio positions. */
static void sound_and_text(void **state)
{
    struct model m = {0};
    int exit_code = 0;

    (void)state;
    assert_true(model_from_name("test", "whisper-large-v3-turbo", &m, &exit_code));
    struct plan p = serving(&m, 8, 448);
    unsigned phases;
    assert_true(estimate_make(&p, &r));
    assert_true(estimate_answer_part(&r, ESTIMATE_CACHE, &phases).likely ==
                8.0 * 4 * (448 + 1500) * 2 * 1280 * 2); /* like transformers' cache */
    assert_true(plan_possible(&p));
    p.gpus = p.tp = 2;
    assert_false(plan_possible(&p));
    model_free(&m);
}

/* As transformers 5.23 holds them on the simulated GPU: 4 sequences in bfloat16, the scan's state in float32. */
static void states_do_not_grow(void **state)
{
    static const struct {
        const char *name;
        double bytes;
    } rows[] = {{"mamba-130m", 10616832}, {"mamba2-130m", 76873728}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct model m = {0};
        int exit_code = 0;

        assert_true(model_from_name("test", rows[i].name, &m, &exit_code));
        struct plan few = serving(&m, 4, 128), many = serving(&m, 4, 100000);
        assert_true(part(&few, ESTIMATE_CACHE) == rows[i].bytes);
        assert_true(part(&many, ESTIMATE_CACHE) == rows[i].bytes);
        model_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_mixtures),
        cmocka_unit_test(caches_of_known_models),
        cmocka_unit_test(blocks_windows_and_divided_heads),
        cmocka_unit_test(latent_cache),
        cmocka_unit_test(weights_by_quantisation),
        cmocka_unit_test(a_number_of_parameters_is_an_interval),
        cmocka_unit_test(stored_weights),
        cmocka_unit_test(passes),
        cmocka_unit_test(published_files),
        cmocka_unit_test(encoder_and_decoder),
        cmocka_unit_test(convolutional_nets),
        cmocka_unit_test(sound_and_text),
        cmocka_unit_test(states_do_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
