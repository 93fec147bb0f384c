/* Reads Hugging Face's config.json: keys to a shape. For absent keys it uses the defaults of the type's own class
 * (configs.def). */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/base/options.h"
#include "analyzer/model/config_reading.h"
#include "analyzer/model/files.h"

static const struct model_config_type types[] = {
#define CONFIG(name, family, vocab, hidden, layers, heads, kv, head_dim, ffn, context, traits) \
    {name, MODEL_##family, vocab, hidden, layers, heads, kv, head_dim, ffn, context, traits},
#include "analyzer/model/configs.def"
};

static const char type_names[] =
#define CONFIG(name, ...) name "|"
#include "analyzer/model/configs.def"
    "";

/* Types whose language model is of another type. */
static const char *const aliases[][2] = {
    {"qwen2_vl", "qwen2"},
    {"qwen2_vl_text", "qwen2"},
    {"qwen2_5_vl", "qwen2"},
    {"qwen2_5_vl_text", "qwen2"},
    {"qwen3_vl_text", "qwen3"},
    {"qwen3_vl_moe_text", "qwen3_moe"},
    {"qwen3_5_moe_text", "qwen3_5_text"},
    {"qwen3_5", "qwen3_5_text"},
    {"qwen3_5_moe", "qwen3_5_text"},
    {"kimi_k25_text", "deepseek_v3"},
    {"kimi_k2", "deepseek_v3"},
    {"axk1", "deepseek_v3"},
    {"RefinedWebModel", "falcon"},
    {"RefinedWeb", "falcon"},
    {"ministral3", "ministral"},
    {"bitnet", "llama"},
    {"deepseek_v32", "glm_moe_dsa"},
    {"deepseek_ref", "deepseek_v4"},
    {"step3p5", "step3p7_text"},
    {"glm4v_text", "glm4"},
    {"glm4v_moe_text", "glm4_moe"},
    {"glm46v_text", "glm4"},
    {"youtu", "glm_moe_dsa"},
};

static const struct model_config_type *config_type_of(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(aliases); i++)
        if (strcmp(aliases[i][0], name) == 0) name = aliases[i][1];
    return FIND_OF(t, types, COUNT_OF(types), strcmp(t->name, name) == 0);
}

/* Whether all numbers of a decoder's shape are present, and none of encoders of text, sound and images (BERT, wav2vec2,
 * BEiT) or of RWKV. */
static bool like_decoder(json_t *json)
{
    static const char *const keys[] = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"};
    static const char *const others[] = {"type_vocab_size", "projection_dim", "conv_dim",
                                         "patch_size",      "image_size",     "attention_hidden_size"};
    const char *type = model_config_word(json, "model_type");
    const size_t n = strlen(type), end = strlen("_text_model");

    /* encoders beside images (SigLIP, BLIP, OWL-ViT) */
    if (n > end && strcmp(type + n - end, "_text_model") == 0 && strncmp(type, "mllama", 6) != 0) return false;
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (!json_is_number(json_object_get(json, keys[i]))) return false;
    return !ANY_OF(o, others, COUNT_OF(others), json_object_get(json, *o)) &&
           !json_is_true(json_object_get(json, "is_encoder_decoder"));
}

/* A type that is unknown has the form of a Llama, except for what its keys state. */
static void assume_type(struct model_reading *r)
{
    const char *activation = model_config_word(r->json, "hidden_act");

    r->own = *config_type_of("llama");
    r->own.traits |= MIXED | EXPERTS;
    if (json_is_true(json_object_get(r->json, "use_qk_norm")) || json_is_true(json_object_get(r->json, "qk_norm")) ||
        json_is_true(json_object_get(r->json, "qk_layernorm")))
        r->own.traits |= QK_NORM;
    if (strcmp(activation, "relu2") == 0 || strcmp(activation, "xielu") == 0) r->own.traits &= ~(unsigned)GATED;
    r->type = &r->own;
}

static void unknown_type(struct model_reading *r, const char *name)
{
    char near[64], clean[64];

    r->unknown = true;
    terminal_clean(clean, sizeof clean, name, true);
    if (!*name)
        model_config_reject(r, "has no model_type; gpuspy knows llama, gpt2, mixtral, bert, vit … (docs/estimate.md)");
    else if (options_nearest(name, type_names, near, sizeof near))
        model_config_reject(r, "model_type '%s' is unknown; did you mean '%s'?", clean, near);
    else
        model_config_reject(
            r, "model_type '%s' is unknown; give the model's .safetensors, or its shape with --layers, --hidden …",
            clean);
}

/* A class of diffusers that is unknown, perhaps a VAE or a whole pipeline. */
static void unknown_class(struct model_reading *r)
{
    char clean[64];

    r->unknown = true;
    terminal_clean(clean, sizeof clean, model_config_word(r->json, "_class_name"), true);
    model_config_reject(r,
                        "_class_name '%s' is unknown; gpuspy knows denoisers such as UNet2DConditionModel and "
                        "FluxTransformer2DModel (docs/estimate.md)",
                        clean);
}

static bool has_vision_number(json_t *vision, const char *key, const char *other, uint64_t expected)
{
    uint64_t n;

    return (model_config_read_count(json_object_get(vision, key), &n) ||
            model_config_read_count(json_object_get(vision, other), &n)) &&
           n == expected;
}

/* The tower of towers.def whose numbers vision_config states. */
static enum model_tower tower_of(json_t *root)
{
    static const struct {
        const char *type;
        uint64_t hidden, layers, ffn;
        enum model_tower tower;
    } rows[] = {
        {"gemma3", 1152, 27, 4304, MODEL_TOWER_GEMMA3},
        {"gemma4", 1152, 27, 4304, MODEL_TOWER_GEMMA4},
        {"gemma4", 768, 16, 3072, MODEL_TOWER_GEMMA4E},
        {"mistral3", 1024, 24, 4096, MODEL_TOWER_MISTRAL3},
        {"llava", 1024, 24, 4096, MODEL_TOWER_LLAVA},
        {"qwen2_vl", 1280, 32, 0, MODEL_TOWER_QWEN2VL},
        {"qwen2_5_vl", 1280, 32, 3420, MODEL_TOWER_QWEN25VL},
        {"qwen2_5_vl", 1280, 32, 3456, MODEL_TOWER_QWEN25VL_LARGE},
        {"qwen3_vl", 1024, 24, 4096, MODEL_TOWER_QWEN3VL},
        {"qwen3_vl", 1152, 27, 4304, MODEL_TOWER_QWEN3VL_LARGE},
        {"qwen3_vl_moe", 1152, 27, 4304, MODEL_TOWER_QWEN3VL_LARGE},
        {"qwen3_5", 768, 12, 3072, MODEL_TOWER_QWEN35_TINY},
        {"qwen3_5", 1024, 24, 4096, MODEL_TOWER_QWEN35_SMALL},
        {"qwen3_5", 1152, 27, 4304, MODEL_TOWER_QWEN35},
        {"qwen3_5_moe", 1152, 27, 4304, MODEL_TOWER_QWEN35},
        {"llama4", 1408, 34, 5632, MODEL_TOWER_LLAMA4},
        {"paddleocr_vl", 1152, 27, 4304, MODEL_TOWER_PADDLEOCR},
    };
    json_t *vision = json_object_get(root, "vision_config");
    const bool sound = json_is_object(json_object_get(root, "audio_config"));

    if (json_is_object(vision) && sound && strcmp(model_config_word(root, "model_type"), "gemma4_unified") == 0)
        return MODEL_TOWER_GEMMA4U;
    for (size_t i = 0; vision && i < COUNT_OF(rows); i++)
        if (strcmp(model_config_word(root, "model_type"), rows[i].type) == 0 &&
            sound == (rows[i].tower == MODEL_TOWER_GEMMA4E) &&
            has_vision_number(vision, "embed_dim", "hidden_size", rows[i].hidden) &&
            has_vision_number(vision, "depth", "num_hidden_layers", rows[i].layers) &&
            (!rows[i].ffn || has_vision_number(vision, "intermediate_size", "", rows[i].ffn)))
            return rows[i].tower;
    return MODEL_TOWER_NONE;
}

/* The language model's object in the config.json of a model with images or sound. */
static json_t *inner_config(struct model_reading *r, json_t *root)
{
    static const char *const keys[] = {"text_config", "llm_config", "language_config"};
    char clean[64];

    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        json_t *object = json_object_get(root, keys[i]);
        if (json_is_object(object) && r->tower) return object;
        if (json_is_object(object)) {
            terminal_clean(clean, sizeof clean, model_config_word(root, "model_type"), true);
            model_config_note(r, "only the language model of '%s' (%s) is counted, not its vision and audio parts",
                              clean, keys[i]);
            return object;
        }
    }
    return root;
}

/* CLIP's relatives, whose text_config is an encoder. */
static bool is_pair(const char *type)
{
    return strstr(type, "clip") || strncmp(type, "siglip", 6) == 0 || strncmp(type, "owl", 3) == 0 ||
           strncmp(type, "blip", 4) == 0 || strcmp(type, "groupvit") == 0 || strcmp(type, "align") == 0 ||
           strcmp(type, "flava") == 0;
}

/* A class that has only a part of the model's tensors. */
static void reject_class(struct model_reading *r, const char *architecture)
{
    char clean[64];

    terminal_clean(clean, sizeof clean, architecture, true);
    model_config_reject(r, "gpuspy does not know the tensors of %s; give the model's .safetensors", clean);
}

static void choose_type(struct model_reading *r, json_t *root)
{
    const char *outer = model_config_word(root, "model_type"), *name;
    char clean[64];

    r->type = config_type_of(outer);
    if (r->type && r->type->family == MODEL_CLIP) {
        const char *architecture = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
        r->json = json_object_get(root, json_is_object(json_object_get(root, "text_config_dict")) ? "text_config_dict"
                                                                                                  : "text_config");
        r->outer = root;
        if (!json_is_object(r->json) || !json_is_object(json_object_get(root, "vision_config")))
            model_config_reject(r, "has no text_config and vision_config, which a %s needs", r->type->name);
        else if (architecture && strcmp(architecture, "CLIPModel") != 0 && strcmp(architecture, "SiglipModel") != 0)
            reject_class(r, architecture);
        return;
    }
    if (r->whole) r->tower = tower_of(root);
    r->json =
        config_type_of(outer) && !json_is_object(json_object_get(root, "text_config")) ? root : inner_config(r, root);
    if (r->json == root && !r->tower && json_is_object(json_object_get(root, "vision_config")))
        model_config_note(r, "only its language model is counted, not its vision part");
    r->outer = r->json == root ? NULL : root;
    name = model_config_word(r->json, "model_type");
    if (r->outer && !*name && is_pair(outer)) {
        unknown_type(r, outer);
        return;
    }
    if (r->outer && !*name) /* the default of the outer type's class */
        name = strcmp(outer, "gemma3") == 0     ? "gemma3_text"
               : strcmp(outer, "gemma3n") == 0  ? "gemma3n_text"
               : strcmp(outer, "gemma4") == 0   ? "gemma4_text"
               : strcmp(outer, "mistral3") == 0 ? "mistral"
               : strcmp(outer, "llama4") == 0   ? "llama4_text"
                                                : "llama";
    r->type = config_type_of(name);
    if (r->type || !*name || !like_decoder(r->json)) {
        if (!r->type) unknown_type(r, name);
        return;
    }
    assume_type(r);
    terminal_clean(clean, sizeof clean, name, true);
    r->assumed = true;
    *r->note = 0;
    model_config_note(r, "model_type '%s' is unknown; gpuspy reads it as a Llama, plus the parts that its keys add",
                      clean);
}

static void note_type_of_numbers(json_t *root, struct model *m)
{
    static const char *const words[][2] = {
        {"float32", "F32"},
        {"float16", "F16"},
        {"bfloat16", "BF16"},
        {"float64", "F64"},
    };
    const char *text = model_config_word(root, "dtype");

    if (!*text) text = model_config_word(root, "torch_dtype");
    if (strncmp(text, "torch.", 6) == 0) text += 6;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strcmp(text, words[i][0]) == 0) snprintf(m->stored_as, sizeof m->stored_as, "%s", words[i][1]);
}

static bool is_class(const char *architecture, const char *end)
{
    const size_t n = strlen(architecture), most = strlen(end);

    return n >= most && strcmp(architecture + n - most, end) == 0;
}

/* Rows of the head that the class of a task adds: to decoders transformers' modeling_layers.py, to others their
 * modeling_TYPE.py. 0: the class is none of these. */
static uint64_t task_rows(struct model_reading *r, const char *architecture)
{
    const size_t named = json_object_size(json_object_get(r->json, "id2label"));
    const bool three = r->type->family == MODEL_T5 && (r->type->traits & LAYERNORM); /* BART's default */

    if (is_class(architecture, "ForSequenceClassification") || is_class(architecture, "ForTokenClassification"))
        return named ? named : model_config_count(r, "num_labels|_num_labels", three ? 3 : 2);
    return is_class(architecture, "ForQuestionAnswering") ? 2 : is_class(architecture, "ForMultipleChoice");
}

/* Pooler and dense layer before the head of an encoder of text; no part of these classes is a head over words. */
static void read_encoder_head(struct model_reading *r, const char *architecture)
{
    const char *type = r->type->name;
    const bool roberta = strstr(type, "roberta") || strcmp(type, "camembert") == 0, pooler = r->type->traits & POOLER;
    const bool whole = is_class(architecture, "ForSequenceClassification"),
               choice = is_class(architecture, "ForMultipleChoice");

    r->s.pooler = pooler && (choice || (whole && !roberta));
    r->s.label_dense = strcmp(type, "modernbert") == 0 || ((whole || choice) && !pooler) || (whole && roberta);
}

static void reject_half(struct model_reading *r, const char *architecture, const char *half)
{
    char clean[64];

    terminal_clean(clean, sizeof clean, architecture, true);
    model_config_reject(r, "has only %s (%s), which gpuspy does not support for a %s; give the model's .safetensors",
                        half, clean, r->type->name);
}

/* What the class of the architecture has instead of the output layer over the vocabulary. */
static void read_head(struct model_reading *r)
{
    const char *architecture = json_string_value(json_array_get(json_object_get(r->json, "architectures"), 0));
    const enum model_family f = r->type->family;
    const bool both = f == MODEL_T5 || f == MODEL_WHISPER,
               decoder = f == MODEL_GPT || f == MODEL_LLAMA || f == MODEL_MAMBA;
    char clean[64];

    if (!architecture || r->outer || r->assumed) return;
    if (both && is_class(architecture, "ForCausalLM")) reject_half(r, architecture, "a decoder");
    if (both && (is_class(architecture, "EncoderModel") || is_class(architecture, "ForTokenClassification") ||
                 is_class(architecture, "ForAudioClassification")))
        reject_half(r, architecture, "an encoder");
    const uint64_t rows = f == MODEL_VIT || f == MODEL_CLIP || f == MODEL_WHISPER ? 0 : task_rows(r, architecture);
    const bool bare = (decoder || both) && is_class(architecture, "Model") && !is_class(architecture, "HeadModel") &&
                      !is_class(architecture, "HeadsModel") && !is_class(architecture, "MTModel");
    r->s.headless = rows || bare;
    if (r->s.headless) r->s.tied = r->s.head_bias = false;
    r->s.labels = rows;
    r->s.label_bias = rows && (!decoder || !is_class(architecture, "ForSequenceClassification"));
    if (f == MODEL_BERT && rows) read_encoder_head(r, architecture);
    if (f == MODEL_T5) r->s.label_dense = rows && is_class(architecture, "ForSequenceClassification");
    if (r->s.headless || r->s.classes || !strstr(architecture, "For") || is_class(architecture, "ForCausalLM") ||
        is_class(architecture, "ForConditionalGeneration") ||
        (!decoder && f != MODEL_BERT && f != MODEL_VIT && f != MODEL_T5))
        return;
    terminal_clean(clean, sizeof clean, architecture, true);
    model_config_note(r,
                      decoder ? "counted with an output layer over the vocabulary, whether or not %s has one"
                              : "counted without the head of %s",
                      clean);
}

static unsigned bits_in(json_t *object, const char *key)
{
    uint64_t n;

    return model_config_read_count(json_object_get(object, key), &n) && n >= 1 && n <= 8 ? (unsigned)n : 0;
}

static json_t *first_group(json_t *config)
{
    json_t *groups = json_object_get(config, "config_groups");

    return json_object_iter_value(json_object_iter(groups));
}

/* GPTQ and AWQ: quantization_config.bits; MLX: quantization.bits; compressed-tensors: that of the first group. */
static unsigned packed_bits(json_t *root)
{
    json_t *config = json_object_get(root, "quantization_config");
    unsigned bits = bits_in(config, "bits");

    if (!bits) bits = bits_in(json_object_get(root, "quantization"), "bits");
    return bits ? bits : bits_in(json_object_get(first_group(config), "weights"), "num_bits");
}

/* The word of --weights for a group of compressed-tensors. */
static const char *form_of_group(json_t *group)
{
    json_t *weights = json_object_get(group, "weights");
    const unsigned bits = bits_in(weights, "num_bits");
    const bool block = strcmp(model_config_word(weights, "strategy"), "block") == 0,
               inputs = json_is_object(json_object_get(group, "input_activations"));

    if (strcmp(model_config_word(weights, "type"), "float") == 0)
        return bits == 4 ? "nvfp4" : bits != 8 ? NULL : block ? "fp8-block" : "fp8";
    return bits == 4 ? "int4" : bits != 8 ? NULL : inputs ? "w8a8" : "gptq-8bit";
}

/* That of all groups, NULL: they differ. */
static const char *form_of_groups(json_t *groups)
{
    const char *all = NULL, *key;
    json_t *group;

    json_object_foreach(groups, key, group)
    {
        const char *form = form_of_group(group);

        if (!form || (all && strcmp(all, form) != 0)) return NULL;
        all = form;
    }
    return all;
}

/* The word of --weights for a quantization_config of transformers, NULL: gpuspy does not know it. */
static const char *packed_form(json_t *config)
{
    const char *method = model_config_word(config, "quant_method"),
               *algorithm = model_config_word(config, "quant_algo");
    const unsigned bits = bits_in(config, "bits");

    if (json_is_true(json_object_get(config, "load_in_8bit"))) return "int8";
    if (json_is_true(json_object_get(config, "load_in_4bit"))) { /* BitsAndBytesConfig's default is fp4 */
        if (strcmp(model_config_word(config, "bnb_4bit_quant_type"), "nf4") != 0) return "fp4";
        return json_is_true(json_object_get(config, "bnb_4bit_use_double_quant")) ? "nf4-double" : "nf4";
    }
    if (strcmp(method, "awq") == 0) return bits == 4 ? "awq" : NULL;
    if (strcmp(method, "gptq") == 0) return bits == 4 ? "gptq" : bits == 8 ? "gptq-8bit" : NULL;
    if (strcmp(method, "compressed-tensors") == 0) return form_of_groups(json_object_get(config, "config_groups"));
    if (strcmp(method, "mxfp4") == 0) return "mxfp4";
    if (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0 || strcmp(algorithm, "FP8") == 0)
        return json_is_array(json_object_get(config, "weight_block_size")) ? "fp8-block" : "fp8";
    return strcmp(algorithm, "NVFP4") == 0 ? "nvfp4" : NULL;
}

static void note_packing(struct model_reading *r, json_t *root, struct model *m)
{
    json_t *config = json_object_get(root, "quantization_config");
    char clean[48];

    if (!json_is_object(config)) config = json_object_get(r->json, "quantization_config");
    if (!json_object_size(config)) return; /* an empty one too */
    m->packed = packed_form(config);
    terminal_clean(clean, sizeof clean, model_config_word(config, "quant_method"), true);
    if (m->packed)
        model_config_note(r, "served weights, and those frozen beside adapters, are %s (quantization_config)",
                          m->packed);
    else
        model_config_note(r, "quantization_config ('%s') is not considered; give --weights", clean);
}

static bool read_json(struct model_reading *r, json_t *root, const struct model_file *f, struct model *m)
{
    int ignored;

    if (!json_is_object(root)) {
        model_config_reject(r, "is not a JSON object");
        return false;
    }
    if (json_object_get(root, "peft_type")) {
        model_config_reject(r, "describes an adapter; give the config.json of its base model, and --adapter");
        return false;
    }
    r->json = root;
    r->asked = json_object();
    if (*model_config_word(root, "_class_name")) {
        if (!model_config_read_denoiser(r)) unknown_class(r);
    } else if (!model_config_read_convnet(r)) {
        choose_type(r, root);
        if (r->type && !*r->problem) model_config_read_shape(r);
        if (r->type && !*r->problem) read_head(r);
        r->s.tower = r->tower;
    }
    if (*r->problem) return false;
    if (!model_from_shape(f->command, f->path, &r->s, m, &ignored)) {
        model_config_reject(r, "%s", ""); /* model_from_shape has printed the problem */
        return false;
    }
    note_type_of_numbers(root, m);
    note_packing(r, root, m);
    m->source = "config.json";
    model_name_of(f->path, m->name, sizeof m->name);
    snprintf(m->note, sizeof m->note, "%s", r->note);
    return true;
}

/* Python writes NaN and Infinity, which JSON does not allow (Mamba's time_step_limit). Replaces them by strings of the
 * same length, because the shape needs none of them. */
static void quote_no_numbers(char *text, size_t n)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted)
            i += text[i] == '\\';
        else
            for (size_t k = 0; k < COUNT_OF(words); k++) {
                const size_t length = strlen(words[k]);
                if (n - i >= length && memcmp(text + i, words[k], length) == 0) {
                    text[i] = text[i + length - 1] = '"';
                    i += length - 1;
                    break;
                }
            }
    }
}

static json_t *load_config(const struct model_file *f, const char *bytes, size_t n)
{
    json_error_t error;
    char *copy;

    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) { /* the byte order mark, which some editors add */
        bytes += 3;
        n -= 3;
    }
    copy = arena_realloc(NULL, n + 1, 1);
    if (n) memcpy(copy, bytes, n);
    quote_no_numbers(copy, n);
    json_t *root = json_loadb(copy, n, JSON_REJECT_DUPLICATES, &error);
    free(copy);
    if (!root) model_file_reject(f, "is not JSON: line %d: %s", error.line, error.text);
    return root;
}

bool model_from_config(const char *command, const char *path, const char *bytes, size_t n, struct model *m,
                       int *exit_code)
{
    const struct model_file f = {command, path, exit_code, -1, n};
    struct model_reading r = {.whole = true};
    json_t *root;
    bool ok;

    *m = (struct model){.source = "config.json"};
    *exit_code = EXIT_INPUT;
    root = load_config(&f, bytes, n);
    if (!root) return false;
    ok = read_json(&r, root, &f, m);
    json_decref(r.asked);
    json_decref(root);
    if (!ok && *r.problem) model_file_reject(&f, "%s", r.problem);
    return ok;
}

bool model_config_read_beside(const struct model_file *weights, struct model_config_beside *c)
{
    struct model_reading r = {0};
    struct model_file f;
    char *path = model_config_beside(weights->path), *bytes = NULL;
    size_t n;
    json_t *root = NULL;
    bool ok = true;

    *c = (struct model_config_beside){.model = {.source = "config.json"}};
    if (!path) return true;
    ok = model_file_open(&f, weights->command, path, weights->exit_code) &&
         (bytes = model_file_all(&f, CONFIG_BYTES_MAX, &n)) && (root = load_config(&f, bytes, n));
    if (ok) {
        c->bits = packed_bits(root);
        c->found = read_json(&r, root, &f, &c->model);
        json_decref(r.asked);
        c->inside = c->found && r.outer;
        c->assumed = c->found && r.assumed;
        snprintf(c->problem, sizeof c->problem, "%s", r.problem);
        ok = c->found || r.unknown || model_file_reject(&f, "%s", r.problem);
    }
    model_file_close(&f);
    json_decref(root);
    ARENA_RELEASE(bytes, path);
    return ok;
}
