/* Readers of model files: the JSON scanner, and shapes from the names of tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/exit_code.h"
#include "analyzer/model/files.h"
#include "analyzer/model/json_scan.h"

static bool skips(const char *text)
{
    char copy[2000];
    struct model_scan s = {copy, copy + strlen(text), NULL};

    assert_true(strlen(text) < sizeof copy);
    strcpy(copy, text);
    return model_scan_skip(&s) && model_scan_is_done(&s);
}

/* It accepts and refuses the same as jansson. */
static void json_is_what_jansson_takes(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "[1,2]",
        "{\"a\":1}",
        " { \"a\" : [ true , false , null , -1.5e+9 , \"x\" ] } ",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "[1 2]",
        "\"x\"",
        "\"\\u00e4\\n\\\"\\\\\\/\"",
        "\"\\x\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"a",
        "[",
        "{",
        "tru",
        "true",
        "nul",
        "",
        " ",
        "[[[[[]]]]]",
        "[]]",
        "{}{}",
        "\"\x01\"",
        "\"\\u00\"",
        "[--1]",
        "[.]",
        "[1.]",
        "[1e]",
        "[01]",
        "[-]",
        "[-0]",
        "[0.5e-3]",
        "[1E+2]",
        "[+1]",
        "[1e+]",
        "[-0.0]",
        "[0x1]",
        "[NaN]",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *json = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        if (skips(texts[i]) != (json != NULL)) fail_msg("%s", texts[i]);
        json_decref(json);
    }
    (void)state;
}

static void strings_are_decoded(void **state)
{
    char text[] = "\"a\\u00e4\\ud83d\\ude00\\n\\u0000z\" \"\"";
    struct model_scan s = {text, text + sizeof text - 1, NULL};
    const char *at;
    size_t n;

    assert_true(model_scan_string(&s, &at, &n));
    assert_int_equal(n, 10);
    assert_memory_equal(at, "a\xc3\xa4\xf0\x9f\x98\x80\n\0z", 10);
    assert_true(model_scan_string(&s, &at, &n));
    assert_int_equal(n, 0);
    assert_true(model_scan_is_done(&s));
    (void)state;
}

static void numbers_are_whole(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t n;
    } rows[] = {
        {"0", true, 0},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"-1", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"01", false, 0},
        {"", false, 0},
        {"x", false, 0},
        {"99999999999999999999999", false, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char copy[64];
        strcpy(copy, rows[i].text);
        struct model_scan s = {copy, copy + strlen(copy), NULL};
        uint64_t n;
        assert_int_equal(model_scan_uint(&s, &n), rows[i].ok);
        assert_int_equal(s.problem == NULL, rows[i].ok);
        if (rows[i].ok) assert_int_equal(n, rows[i].n);
    }
    (void)state;
}

static void utf8_is_strict(void **state)
{
    assert_true(model_scan_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    assert_true(model_scan_utf8("", 0));
    static const char *const wrong[] = {
        "\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(model_scan_utf8(wrong[i], strlen(wrong[i])));
    (void)state;
}

/* ---------------------------------------------------------------- tensors */

static const struct model_file file = {"estimate", "here", NULL, -1, 0};

static bool add(struct model_stored *s, const char *name, const char *type, unsigned bits, unsigned rank,
                uint64_t first, uint64_t second, uint64_t rest)
{
    const struct model_stored_tensor t = {
        name, strlen(name), type, bits, rank, first, second, first * second * rest, first * second * rest * bits / 8};
    return model_stored_add(s, &file, &t);
}

static const struct model_tensor *row(const struct model *m, const char *name)
{
    for (size_t i = 0; i < m->tensors_n; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return &m->tensors[i];
    fail_msg("no %s", name);
    return NULL;
}

static void tensors_are_gathered_by_form(void **state)
{
    struct model_stored *s = model_stored_new();
    struct model m = {.source = "test"};
    struct model_stored_hints hints = {NULL, 0};
    char name[100];

    for (int layer = 0; layer < 3; layer++) {
        snprintf(name, sizeof name, "model.layers.%d.self_attn.q_proj.weight", layer);
        assert_true(add(s, name, layer ? "Q4" : "Q6", layer ? 4 : 6, 2, 64, 32, 1));
        snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", layer);
        assert_true(add(s, name, "F32", 32, 1, 64, 1, 1));
        for (int e = 0; e < 4 && layer; e++) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight", layer, e);
            assert_true(add(s, name, "BF16", 16, 2, 16, 64, 1));
        }
    }
    assert_true(add(s, "model.embed_tokens.weight", "BF16", 16, 2, 100, 64, 1));
    assert_true(add(s, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 32, 1, 8, 1, 1));
    assert_true(model_stored_has(s, "model.embed_tokens.weight", 25));
    assert_false(model_stored_has(s, "model.embed_tokens.weigh", 24));
    assert_true(model_build_stored(s, &file, &hints, &m));

    const struct model_tensor *q = row(&m, "q_proj"), *up = row(&m, "up_proj");
    assert_int_equal(q->count, 3); /* both types are one matrix */
    assert_int_equal(q->layers, 3);
    assert_int_equal(q->kind, 0);
    assert_int_equal((int)q->bytes, 64 * 32 * (6 + 4 + 4) / 8);
    assert_int_equal(up->count, 8);
    assert_int_equal(up->layers, 2);
    assert_int_equal(up->kind, 2);
    assert_int_equal(up->role, TENSOR_EXPERT);
    assert_int_equal(row(&m, "embed_tokens")->place, TENSOR_BEFORE);
    assert_int_equal(m.params, 3 * 64 * 32 + 3 * 64 + 8 * 16 * 64 + 6400);
    assert_int_equal((int)m.other_bytes, 32);
    assert_int_equal(m.shape.layers, 3);
    assert_int_equal(m.shape.vocab, 100);
    assert_int_equal(m.shape.hidden, 64);
    assert_int_equal(m.shape.family, MODEL_UNKNOWN);
    model_free(&m);
    model_stored_free(s);
    (void)state;
}

static void roles_follow_from_names(void **state)
{
    static const struct {
        const char *name;
        unsigned rank;
        enum model_tensor_role role;
        const char *called; /* NULL: as in the file */
    } rows[] = {
        {"transformer.h.0.attn.c_attn.weight", 2, TENSOR_ATTENTION, "qkv_proj"},
        {"transformer.h.0.mlp.c_proj.weight", 2, TENSOR_MLP, "down_proj"},
        {"transformer.h.0.attn.c_attn.bias", 1, TENSOR_BIAS, "qkv_proj bias"},
        {"transformer.h.0.ln_1.bias", 1, TENSOR_BIAS, "norm bias"},
        {"transformer.wpe.weight", 2, TENSOR_EMBEDDING, "embed_positions"},
        {"lm_head.weight", 2, TENSOR_HEAD, "lm_head"},
        {"encoder.layer.0.attention.output.dense.weight", 2, TENSOR_ATTENTION, "o_proj"},
        {"encoder.layer.0.output.dense.weight", 2, TENSOR_MLP, "down_proj"},
        {"embeddings.LayerNorm.weight", 1, TENSOR_NORM, NULL},
        {"blk.0.ffn_gate_inp.weight", 2, TENSOR_ROUTER, NULL},
        {"blk.0.ffn_down_exps.weight", 3, TENSOR_EXPERT, "down_proj"},
        {"blk.0.ffn_up_shexp.weight", 2, TENSOR_MLP, "up_proj"},
        {"output.weight", 2, TENSOR_HEAD, "lm_head"},
        {"layer1.0.conv1.weight", 4, TENSOR_CONV, NULL},
        {"bn1.weight", 1, TENSOR_NORM, NULL},
        {"model.layers.0.mlp.shared_experts.down_proj.weight", 2, TENSOR_MLP, "down_proj"},
        {"x.y", 2, TENSOR_OTHER, NULL},
        {"model.layers.0.mlp.gate.weight", 2, TENSOR_ROUTER, NULL},
        {"model.layers.0.mlp.gate_proj.weight", 2, TENSOR_MLP, "gate_proj"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_stored *s = model_stored_new();
        struct model m = {.source = "test"};
        struct model_stored_hints hints = {NULL, 0};
        assert_true(
            add(s, rows[i].name, "F32", 32, rows[i].rank, 4, rows[i].rank > 1 ? 6 : 1, rows[i].rank > 2 ? 2 : 1));
        assert_true(model_build_stored(s, &file, &hints, &m));
        if (m.tensors[0].role != rows[i].role || (rows[i].called && strcmp(m.tensors[0].name, rows[i].called) != 0))
            fail_msg("%s: %d, %s", rows[i].name, m.tensors[0].role, m.tensors[0].name);
        model_free(&m);
        model_stored_free(s);
    }
    (void)state;
}

static void names_are_those_of_folders(void **state)
{
    static const char *const rows[][2] = {
        {"a/b/config.json", "b"},
        {"config.json", "config.json"},
        {"./config.json", "config.json"},
        {"/config.json", "config.json"},
        {"a/model.safetensors", "a"},
        {"x.gguf", "x.gguf"},
        {"a/x.gguf", "x.gguf"},
        {"a/../config.json", "config.json"},
#define COMMIT "0123456789abcdef0123456789abcdef01234567"
        {"h/models--a--b-c/snapshots/" COMMIT "/config.json", "a/b-c"},
        {"models--gpt2/snapshots/" COMMIT "/model.safetensors", "gpt2"},
        {"h/models--/snapshots/" COMMIT "/config.json", COMMIT},
        {"/snapshots/" COMMIT "/config.json", COMMIT},
        {"snapshots/" COMMIT "/config.json", COMMIT},
        {"models--a--/snapshots/" COMMIT "/config.json", "a/"},
#undef COMMIT
        {"a/\x1b[1m.gguf", "?[1m.gguf"},
    };
    char name[64];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_name_of(rows[i][0], name, sizeof name);
        assert_string_equal(name, rows[i][1]);
    }
    (void)state;
}

/* However many files there are, and even if they contain no tensor. */
static void headers_have_an_end(void **state)
{
    int exit_code = 0;
    const struct model_file f = {"test", "a.safetensors", &exit_code, -1, 0};
    struct model_stored *s = model_stored_new();

    for (int i = 0; i < 10; i++) assert_true(model_stored_header(s, &f, 100000000));
    assert_false(model_stored_header(s, &f, 1));
    assert_int_equal(exit_code, EXIT_INPUT);
    model_stored_free(s);
    (void)state;
}

/* 16 stacks of 2^60 experts are 2^64 experts, which is 0 in 64 bits. */
static void stacks_do_not_overflow(void **state)
{
    int exit_code = 0;
    const struct model_file f = {"test", "a.safetensors", &exit_code, -1, 0};
    const struct model_stored_hints hints = {NULL, 0};
    struct model m = {.source = "safetensors"};
    struct model_stored *s = model_stored_new();
    char name[64];

    for (int i = 0; i < 16; i++) {
        int n = snprintf(name, sizeof name, "layers.%d.experts.w1", i);
        const struct model_stored_tensor t = {
            name, (size_t)n, "F4", 4, 3, (uint64_t)1 << 60, 1, (uint64_t)1 << 60, (uint64_t)1 << 59};
        assert_true(model_stored_add(s, &f, &t));
    }
    assert_false(model_build_stored(s, &f, &hints, &m));
    assert_int_equal(exit_code, EXIT_INPUT);
    model_free(&m);
    model_stored_free(s);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_what_jansson_takes),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(numbers_are_whole),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(tensors_are_gathered_by_form),
        cmocka_unit_test(roles_follow_from_names),
        cmocka_unit_test(names_are_those_of_folders),
        cmocka_unit_test(headers_have_an_end),
        cmocka_unit_test(stacks_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
