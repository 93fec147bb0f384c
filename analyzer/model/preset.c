/* Models that are known by name, and the entry point for names and paths. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "analyzer/base/text.h"
#include "analyzer/base/each.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/base/options.h"
#include "analyzer/model/convnets.h"
#include "analyzer/model/families.h"
#include "analyzer/model/model.h"

/* A row may override its family's values. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"

static const struct preset {
    const char *name;
    struct model_shape shape; /* or */
    const char *config;       /* its config.json */
} presets[] = {
#define MODEL(name, ...) {name, {__VA_ARGS__}, NULL},
#define PUBLISHED(name, ...) {name, {.family = MODEL_UNKNOWN}, #__VA_ARGS__},
#define ALIAS(name, of)
#define NET(name, ...) {name, {.family = MODEL_CONV}, NULL},
#include "analyzer/model/models.def"
#include "analyzer/model/published.def"
#include "analyzer/model/convnets.def"
#undef MODEL
#undef PUBLISHED
#undef ALIAS
#undef NET
};

#pragma GCC diagnostic pop

static const struct {
    const char *name, *of;
} aliases[] = {
#define MODEL(name, ...)
#define PUBLISHED(name, ...)
#define ALIAS(name, of) {name, of},
#include "analyzer/model/models.def"
#include "analyzer/model/published.def"
#undef MODEL
#undef PUBLISHED
#undef ALIAS
};

enum { NAME_MAX_BYTES = 96 };

/* Words of a published name that describe how a model was tuned, which does not change its shape. */
static bool says_only_how_tuned(const char *word, size_t n)
{
    static const char *const words[] = {"instruct", "chat", "it", "hf", "pt", "meta", "thinking", "think", "reasoning"};

    return ANY_OF(w, words, COUNT_OF(words), strlen(*w) == n && memcmp(*w, word, n) == 0);
}

/* Words at the end of a name that describe an edition: further training, or weights of 16 bits. Its shape is the same.
 * That is not assumed of a later edition (2507), nor of quantised weights. */
static bool says_which_edition(const char *word)
{
    static const char *const words[] = {"base",    "sft",         "dpo", "rl",  "bf16",  "fp16",
                                        "deduped", "dequantized", "1k",  "22k", "in22k", "224"};

    return ANY_OF(w, words, COUNT_OF(words), strcmp(*w, word) == 0);
}

/* "meta-llama/Meta-Llama-3-8B-Instruct" → "llama-3-8b"; with `points` "phi-1_5" → "phi-1.5". */
static void plain_preset_name(char out[NAME_MAX_BYTES], const char *text, bool points)
{
    const char *slash = strrchr(text, '/');
    char lower[NAME_MAX_BYTES];
    size_t n = 0;

    text = slash ? slash + 1 : text;
    snprintf(lower, sizeof lower, "%s", text);
    for (char *c = lower; *c; c++) {
        const bool point =
            points && *c == '_' && c > lower && isdigit((unsigned char)c[-1]) && isdigit((unsigned char)c[1]);
        *c = point ? '.' : *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    }
    out[0] = 0;
    for (const char *word = lower; *word;) {
        size_t length = strcspn(word, "-");

        if (length && !says_only_how_tuned(word, length))
            n += (size_t)snprintf(out + n, NAME_MAX_BYTES - n, "%s%.*s", n ? "-" : "", (int)length, word);
        word += length + (word[length] == '-');
    }
}

/* The next character of a name that is compared. A dash counts only between two digits: regnet_y_1_6gf is not
 * regnet_y_16gf. */
static const char *next_letter(const char *text, const char *at)
{
    const char *end = at + strspn(at, "-");

    return end > at && at > text && text_is_digit(at[-1]) && text_is_digit(*end) ? end - 1 : end;
}

/* Whether two names are equal except for dashes: "vit_b_16" and "resnet50" are torchvision's. */
static bool same_name(const char *a, const char *b)
{
    const char *at_a = a, *at_b = b;

    for (;; at_a++, at_b++) {
        at_a = next_letter(a, at_a);
        at_b = next_letter(b, at_b);
        if (*at_a != *at_b || !*at_a) return *at_a == *at_b;
    }
}

static const struct preset *preset_called(const char *name, bool (*same)(const char *, const char *))
{
    for (size_t i = 0; i < COUNT_OF(aliases); i++)
        if (same(aliases[i].name, name)) name = aliases[i].of;
    return FIND_OF(p, presets, COUNT_OF(presets), same(p->name, name));
}

static bool are_names_equal(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Also finds the name under which a model is published. */
static const struct preset *preset_of(const char *text)
{
    char name[NAME_MAX_BYTES];
    const struct preset *p = preset_called(text, are_names_equal);

    if (p || strlen(text) >= NAME_MAX_BYTES) return p;
    for (int points = 0; !p && points < 2; points++) {
        plain_preset_name(name, text, points);
        p = preset_called(name, same_name);
        for (char *word; !p && (word = strrchr(name, '-')) && says_which_edition(word + 1);) {
            *word = 0;
            p = preset_called(name, same_name);
        }
    }
    return p;
}

bool model_has_tower(const char *name)
{
    const struct preset *p = preset_of(name);

    return p && p->shape.tower != MODEL_TOWER_NONE;
}

static bool name_preset(const struct preset *p, struct model *m)
{
    m->source = "preset";
    snprintf(m->name, sizeof m->name, "%s", p->name);
    return true;
}

static bool of_preset(const char *command, const struct preset *p, struct model *m, int *exit_code)
{
    if (p->shape.family == MODEL_CONV) {
        const unsigned row = model_convnet_called(p->name);
        const struct model_shape shape = {
            .family = MODEL_CONV, .image = model_convnet_image(row), .channels = 3, .classes = 1000, .conv_net = row};
        return model_from_shape(command, p->name, &shape, m, exit_code) && name_preset(p, m);
    }
    if (p->config) {
        const bool ok = model_from_config(command, p->name, p->config, strlen(p->config), m, exit_code);
        name_preset(p, m);
        *m->stored_as = 0;
        return ok;
    }
    return model_from_shape(command, p->name, &p->shape, m, exit_code) && name_preset(p, m);
}

uint64_t model_words(const char *name)
{
    const struct preset *p = preset_of(name);
    uint64_t words = p ? p->shape.vocab : 0;
    struct model m;
    int ignored;

    if (!p || !p->config) return words;
    if (of_preset("estimate", p, &m, &ignored)) words = m.shape.vocab;
    model_free(&m);
    return words;
}

/* Whether the text has the form "owner/name", as published models. */
static bool published_name(const char *text)
{
    const char *slash = strchr(text, '/');

    return slash && slash != text && slash[1] && !strchr(slash + 1, '/') && text[0] != '.' && text[0] != '~';
}

/* Whether a part of the name states a size, as in "-0528-qwen3-8b". */
static bool says_a_size(const char *rest)
{
    for (const char *word = rest + 1; *word; word += strcspn(word, "-"), word += *word == '-') {
        const size_t n = strcspn(word, "-"), digits = strspn(word, "0123456789.x");
        if (digits > 0 && digits + 1 == n && (word[digits] == 'b' || word[digits] == 'm')) return true;
    }
    return false;
}

/* Words of a name after which the shape is not that of the model whose name it contains: other inputs, another head,
 * more or fewer layers, or weights in a form that gpuspy does not know. */
static bool changes_shape(const char *name)
{
    static const char *const words[] = {
        "vl",    "v",         "vision",   "llava",      "audio",     "omni",       "moe",   "pro",       "draft",
        "eagle", "eagle3",    "medusa",   "mtp",        "pruned",    "reap",       "merge", "reward",    "rm",
        "prm",   "embedding", "reranker", "classifier", "expanded",  "minitron",   "aqlm",  "gguf",      "exl2",
        "hqq",   "gptq",      "awq",      "bnb",        "nf4",       "4bit",       "8bit",  "int4",      "int8",
        "fp8",   "nvfp4",     "mxfp4",    "w4a16",      "w8a8",      "speculator", "fp4",   "quantized", "w8a16",
        "w4a8",  "2bit",      "3bit",     "6bit",       "autoround", "mlx",        "onnx"};

    for (const char *word = name; *word; word += strcspn(word, "-."), word += *word != 0)
        for (size_t i = 0; i < COUNT_OF(words); i++)
            if (strcspn(word, "-.") == strlen(words[i]) && strncmp(word, words[i], strlen(words[i])) == 0) return true;
    return false;
}

/* A published model that others trained further keeps the name of its base within its own: "dolphin-2.9-llama3-8b". The
 * longest run of words that is a known name with a size; no other word may state a size. */
static const struct preset *preset_within(const char *name)
{
    char run[NAME_MAX_BYTES + 1] = "-";
    const struct preset *found = NULL;
    size_t longest = 0;

    if (changes_shape(name)) return NULL;
    for (const char *from = name; *from; from += strcspn(from, "-"), from += *from == '-')
        for (const char *end = from; *end;) {
            const struct preset *p;
            end += *end == '-';
            end += strcspn(end, "-");
            snprintf(run + 1, sizeof run - 1, "%.*s", (int)(end - from), from);
            if (strlen(run) <= longest || !says_a_size(run) || (*end && says_a_size(end)) ||
                !(p = preset_called(run + 1, same_name)))
                continue;
            longest = strlen(run);
            found = p;
        }
    return found && found->shape.family == MODEL_LLAMA && found->shape.tower == MODEL_TOWER_NONE ? found : NULL;
}

/* The longest known name with which `name` begins: the rest describes how it is stored (-awq, -fp8) or its date. */
static bool longest_beginning(const char *name, char *near, size_t size)
{
    size_t longest = 0;

    for (const char *p = model_names; *p; p += strcspn(p, "|") + 1) {
        const size_t n = strcspn(p, "|");
        if (n > longest && strncmp(p, name, n) == 0 && name[n] == '-' && !says_a_size(name + n)) {
            snprintf(near, size, "%.*s", (int)n, p);
            longest = n;
        }
    }
    return longest > 0;
}

/* Letters, or digits with points: "llama", "3.1". */
static size_t piece_length(const char *name)
{
    return isdigit((unsigned char)*name) ? strspn(name, "0123456789.") : strcspn(name, "0123456789.-|_ ");
}

/* Its pieces are the first of `known`: "phi3" of "phi-3-mini"; with gaps, others between: "llama70b" of "llama-3-70b".
 */
static bool has_pieces_of(const char *known, const char *name, bool gaps)
{
    const char *const start = known;

    for (;;) {
        name += strspn(name, "-._ ");
        const size_t n = piece_length(name);
        if (!n) return known > start;
        for (;; known += piece_length(known)) {
            known += strspn(known, "-.");
            const size_t length = piece_length(known);
            if (!length) return false;
            if (length == n && strncmp(known, name, n) == 0) break;
            if (known == start || !gaps) return false;
        }
        known += n;
        name += n;
    }
}

/* "'qwen3-0.6b', 'qwen3-1.7b', …": known names that continue `name`. */
static bool list_continuations(const char *name, bool gaps, char *out, size_t size)
{
    enum { LISTED = 4 };
    size_t found = 0, at = 0;

    for (const char *p = model_names; *p && found <= LISTED && at < size; p += strcspn(p, "|"), p += *p == '|') {
        if (!has_pieces_of(p, name, gaps)) continue;
        if (++found <= LISTED)
            at += (size_t)snprintf(out + at, size - at, "%s'%.*s'", at ? ", " : "", (int)strcspn(p, "|"), p);
        else
            snprintf(out + at, size - at, ", …");
    }
    return found > 0;
}

/* Known names, quoted: those that continue `name`, one that differs by a typing error, or one with which `name` begins.
 */
static bool nearest_names(const char *name, char *near, size_t size)
{
    char one[64];

    if (list_continuations(name, false, near, size) || list_continuations(name, true, near, size)) return true;
    if (!options_nearest(name, model_names, one, sizeof one) && !longest_beginning(name, one, sizeof one)) return false;
    snprintf(near, size, "'%s'", one);
    return true;
}

/* "https://huggingface.co/OWNER/NAME/tree/main" and "OWNER/NAME@main" are OWNER/NAME. */
static const char *repository_name(char *out, size_t size, const char *text)
{
    const char *host = strstr(text, "huggingface.co/"), *start = host ? host : strstr(text, "hf.co/"), *at = text;

    if (start) at = strchr(start, '/') + 1;
    const char *slash = strchr(at, '/'), *end = slash ? slash + 1 + strcspn(slash + 1, "/?#@") : at;
    struct stat st;
    if (stat(text, &st) == 0 || (!start && (*end != '@' || strchr(end, '/'))) || end == at ||
        (size_t)(end - at) >= size)
        return text;
    snprintf(out, size, "%.*s", (int)(end - at), at);
    return out;
}

bool model_from_name(const char *command, const char *text, struct model *m, int *exit_code)
{
    char near[192], name[NAME_MAX_BYTES] = "", repository[NAME_MAX_BYTES], why[UNITS_WHY];
    struct stat st;
    uint64_t count;

    text = repository_name(repository, sizeof repository, text);
    const struct preset *p = preset_called(text, are_names_equal);

    /* An existing file or folder has precedence over a published name of the same form. */
    if (!p && !(strchr(text, '/') && stat(text, &st) == 0)) p = preset_of(text);
    if (p) return of_preset(command, p, m, exit_code);
    *m = (struct model){.source = "preset"};
    if (strlen(text) < NAME_MAX_BYTES) plain_preset_name(name, text, false);
    if (published_name(text) && stat(text, &st) != 0 && (p = preset_within(name))) {
        const bool ok = of_preset(command, p, m, exit_code);
        snprintf(m->note, sizeof m->note, "%s is read as a %s, whose name it contains", text, p->name);
        return ok;
    }
    if (model_is_path(text) &&
        !(published_name(text) && stat(text, &st) != 0 && nearest_names(name, near, sizeof near)))
        return model_from_path(command, text, m, exit_code);
    *exit_code = EXIT_USAGE;
    for (char *c = name; *c; c++) *c = *c == ':' ? '-' : *c; /* Ollama's llama3.1:8b */
    if (units_parse_count(text, &count, why) && count >= 1000000)
        complain("%s: --model: '%s' is a number of parameters, not a name; did you mean --params %s?", command, text,
                 text);
    else if (nearest_names(name, near, sizeof near))
        complain("%s: --model: '%s' is unknown; did you mean %s?", command, text, near);
    else
        complain("%s: --model: '%s' is unknown; 'gpuspy estimate --models' lists them", command, text);
    return false;
}

/* Makes `m` again with another shape, and keeps its name. */
static bool reshape_preset(const char *command, const char *what, const struct model_shape *shape, struct model *m,
                           int *exit_code)
{
    struct model old = *m;
    bool ok = model_from_shape(command, what, shape, m, exit_code);

    m->source = old.source;
    memcpy(m->name, old.name, sizeof m->name);
    memcpy(m->note, old.note, sizeof m->note);
    memcpy(m->stored_as, old.stored_as, sizeof m->stored_as);
    model_free(&old);
    return ok;
}

bool model_set_masked_lm(const char *command, struct model *m, int *exit_code)
{
    struct model_shape shape = m->shape;

    *exit_code = EXIT_USAGE;
    if (shape.family != MODEL_BERT || m->stored_bytes > 0) {
        return complain_with(false, "%s: --masked-lm: %s", command,
                             m->stored_bytes > 0
                                 ? "the model's file states which head it has"
                                 : "only encoders of text, such as BERT, have a head for masked tokens");
    }
    shape.pooler = shape.headless = shape.label_dense = false;
    shape.labels = 0;
    shape.masked_lm = true;
    if (!m->source || strcmp(m->source, "config.json") != 0) shape.tied = true; /* only some configs untie it */
    return reshape_preset(command, "--masked-lm", &shape, m, exit_code);
}

bool model_untie(const char *command, struct model *m, int *exit_code)
{
    struct model_shape shape = m->shape;

    if (!shape.tied || m->stored_bytes > 0 || (shape.family != MODEL_GPT && shape.family != MODEL_LLAMA)) return true;
    shape.tied = false;
    return reshape_preset(command, "--runtime", &shape, m, exit_code);
}

bool model_set_image(const char *command, uint64_t side, struct model *m, int *exit_code)
{
    struct model_shape shape = m->shape;
    const char *what = "--image";
    bool ok;

    *exit_code = EXIT_USAGE;
    if (m->shape.family == MODEL_DENOISER) {
        m->shape.image = side;
        return true;
    }
    if (m->shape.family == MODEL_CONV && m->shape.conv_net) {
        ok = model_conv_maps(m, side, side, NULL, 0) > 0;
        if (ok)
            m->shape.image = side;
        else
            complain("%s: %s: images of %ju x %ju pixels are too small or too large for %s", command, what,
                     (uintmax_t)side, (uintmax_t)side, m->name);
        return ok;
    }
    if ((m->shape.family != MODEL_VIT && m->shape.family != MODEL_CLIP) || m->stored_bytes > 0) {
        return complain_with(false, "%s: %s: %s", command, what,
                             m->stored_bytes > 0 ? "the model's file states the size of its images"
                                                 : "by its shape, it is not an image model");
    }
    shape.image = side;
    if (shape.family == MODEL_VIT && !shape.fixed_positions) shape.positions = 0;
    return reshape_preset(command, what, &shape, m, exit_code);
}
