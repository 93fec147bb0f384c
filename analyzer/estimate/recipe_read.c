/* Text in, JSON out: the four forms of configuration. */
#include "analyzer/base/arena.h"
#include "analyzer/estimate/recipe.h"
#include "analyzer/estimate/recipe_value.h"
#include "analyzer/estimate/recipe_values.h"
#include "analyzer/base/text.h"
#include "analyzer/model/model.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { BYTES_MAX = 1 << 20, DEPTH_MAX = 64, ANCHORS_MAX = 256, NAME = 128, VALUES_MAX = 4000, FILES_DEPTH = 4 };

static bool is_word_of(const char *text, const char *const *words, size_t n)
{
    return ANY_OF(w, words, n, strcasecmp(text, *w) == 0);
}

/* Text that is not UTF-8 becomes null. */
static json_t *string_json(const char *text)
{
    json_t *value = json_string(text);

    return value ? value : json_null();
}

/* What a plain scalar means: as in YAML 1.1; also numbers such as 2e-5, which Python's YAML reads as text. */
static json_t *scalar_json(const char *text)
{
    static const char *const nothing[] = {"", "~", "null", "none"}, *const yes[] = {"true", "yes", "on"},
                             *const no[] = {"false", "no", "off"};
    char digits[64], *end;
    size_t n = 0;

    if (is_word_of(text, nothing, COUNT_OF(nothing))) return json_null();
    if (is_word_of(text, yes, COUNT_OF(yes))) return json_true();
    if (is_word_of(text, no, COUNT_OF(no))) return json_false();
    if (isdigit((unsigned char)text[*text == '-' || *text == '+'])) {
        for (const char *c = text; *c && n < sizeof digits - 1; c++)
            if (*c != '_') digits[n++] = *c;
        digits[n] = 0;
        const long long whole = strtoll(digits, &end, 10);
        if (!*end) return json_integer(whole);
        const double real = strtod(digits, &end);
        if (!*end) return json_real(real);
    }
    return string_json(text);
}

struct yaml {
    yaml_parser_t parser;
    struct {
        char name[NAME];
        json_t *value; /* its own reference: a later key may remove the value from the document */
    } anchors[ANCHORS_MAX];
    size_t anchors_n;
    const char *why;
};

static json_t *yaml_value(struct yaml *y, const yaml_event_t *event, unsigned depth);

static void keep_anchor(struct yaml *y, const yaml_char_t *name, json_t *value)
{
    if (!name || y->anchors_n == ANCHORS_MAX) return;
    snprintf(y->anchors[y->anchors_n].name, NAME, "%s", (const char *)name);
    y->anchors[y->anchors_n++].value = json_incref(value);
}

static json_t *alias_of(const struct yaml *y, const yaml_char_t *name)
{
    for (size_t i = y->anchors_n; i > 0; i--)
        if (strcmp(y->anchors[i - 1].name, (const char *)name) == 0) return json_incref(y->anchors[i - 1].value);
    return json_null();
}

static bool next_event(struct yaml *y, yaml_event_t *event)
{
    if (yaml_parser_parse(&y->parser, event)) return true;
    y->why = y->parser.problem ? y->parser.problem : "not YAML";
    return false;
}

/* "<<: *base": adds the keys of the value that the map does not have. */
static void merge_into_map(json_t *map, const char *key, json_t *value)
{
    if (strcmp(key, "<<") == 0 && json_is_object(value))
        json_object_update_missing(map, value);
    else
        json_object_set(map, key, value);
}

static json_t *yaml_items(struct yaml *y, bool map, const yaml_char_t *anchor, unsigned depth)
{
    json_t *all = map ? json_object() : json_array();
    char key[NAME] = "";
    bool has_key = false;

    if (depth > DEPTH_MAX) y->why = "nested too deeply";
    while (!y->why) {
        yaml_event_t event;
        if (!next_event(y, &event)) break;
        const bool ends = event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT;
        if (!ends && map && !has_key && event.type == YAML_SCALAR_EVENT) {
            snprintf(key, sizeof key, "%s", (const char *)event.data.scalar.value);
            has_key = true;
        } else if (!ends) {
            json_t *value = yaml_value(y, &event, depth + 1);
            if (value && map && has_key)
                merge_into_map(all, key, value);
            else if (value && !map)
                json_array_append(all, value);
            json_decref(value);
            has_key = map && !has_key; /* a key that is not a scalar has a value too */
            if (map && has_key) key[0] = 0;
        }
        yaml_event_delete(&event);
        if (ends) break;
    }
    keep_anchor(y, anchor, all);
    return all;
}

/* A new reference; NULL if the event begins no value. */
static json_t *yaml_value(struct yaml *y, const yaml_event_t *event, unsigned depth)
{
    json_t *value = NULL;

    switch (event->type) {
    case YAML_SCALAR_EVENT: {
        const char *text = (const char *)event->data.scalar.value;
        const bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        value = plain ? scalar_json(text) : string_json(text);
        keep_anchor(y, event->data.scalar.anchor, value);
        return value;
    }
    case YAML_ALIAS_EVENT: return alias_of(y, event->data.alias.anchor);
    case YAML_MAPPING_START_EVENT: return yaml_items(y, true, event->data.mapping_start.anchor, depth);
    case YAML_SEQUENCE_START_EVENT: return yaml_items(y, false, event->data.sequence_start.anchor, depth);
    default: return NULL;
    }
}

static json_t *read_yaml(const char *text, size_t n, char *why, size_t why_size)
{
    struct yaml *y = arena_zeroed(1, sizeof *y);
    json_t *root = NULL;
    bool more = true;

    if (!yaml_parser_initialize(&y->parser)) {
        snprintf(why, why_size, "out of memory");
        free(y);
        return NULL;
    }
    yaml_parser_set_input_string(&y->parser, (const unsigned char *)text, n);
    while (more && !root && !y->why) { /* the first document */
        yaml_event_t event;
        if (!next_event(y, &event)) break;
        root = yaml_value(y, &event, 0);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    if (y->why) snprintf(why, why_size, "line %zu: %s", y->parser.problem_mark.line + 1, y->why);
    if (y->why && root) {
        json_decref(root);
        root = NULL;
    }
    for (size_t i = 0; i < y->anchors_n; i++) json_decref(y->anchors[i].value);
    yaml_parser_delete(&y->parser);
    free(y);
    return root;
}

static char *trim_line(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    for (size_t n = strlen(text); n && isspace((unsigned char)text[n - 1]); n--) text[n - 1] = 0;
    return text;
}

/* Ends the line at a comment outside of quotes. */
static void drop_comment(char *line)
{
    char quote = 0;

    for (; *line; line++) {
        if (quote)
            quote = *line == quote ? 0 : quote;
        else if (*line == '"' || *line == '\'')
            quote = *line;
        else if (*line == '#')
            *line = 0;
        if (!*line) return;
    }
}

static json_t *toml_value(char *text)
{
    size_t n = strlen(text);

    if (n >= 2 && (*text == '"' || *text == '\'') && text[n - 1] == *text) {
        text[n - 1] = 0;
        return string_json(text + 1);
    }
    if (*text == '[' || *text == '{') return json_array(); /* lists do not matter for memory */
    return scalar_json(text);
}

/* The table of "a.b.c"; makes it if it is missing. */
static json_t *toml_table(json_t *root, char *name)
{
    char *rest = NULL;

    for (char *part = strtok_r(name, ".", &rest); part; part = strtok_r(NULL, ".", &rest)) {
        json_t *next = json_object_get(root, trim_line(part));
        if (!json_is_object(next)) {
            next = json_object();
            if (json_object_set_new(root, trim_line(part), next) != 0) return root;
        }
        root = next;
    }
    return root;
}

static json_t *read_toml(char *text)
{
    json_t *root = json_object(), *table = root;
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        drop_comment(line);
        line = trim_line(line);
        char *equals = strchr(line, '='), *end = strchr(line, ']');
        if (*line == '[' && end && line[1] != '[') {
            *end = 0;
            table = toml_table(root, line + 1);
        } else if (equals) {
            *equals = 0;
            json_object_set_new(table, trim_line(line), toml_value(trim_line(equals + 1)));
        }
    }
    return root;
}

static void strip_quotes(char *word)
{
    size_t n = strlen(word);

    if (n >= 2 && (*word == '"' || *word == '\'') && word[n - 1] == *word) {
        memmove(word, word + 1, n - 2);
        word[n - 2] = 0;
    }
}

/* Comments, and the quotes around options, become blanks: ARGS="--num-layers 24", ("--vocab-size 32000"). */
static void clear_comments_and_quotes(char *text)
{
    for (char *c = text; *c; c++) {
        if (*c == '#' && (c == text || isspace((unsigned char)c[-1]))) {
            for (; *c && *c != '\n'; c++) *c = ' ';
            if (!*c) return;
        }
        char *end = *c == '"' || *c == '\'' ? strchr(c + 1, *c) : NULL;
        if (!end) continue;
        if (strncmp(c + 1 + strspn(c + 1, " \t\r\n\\"), "--", 2) == 0)
            *c = *end = ' ';
        else if (!memchr(c, '\n', (size_t)(end - c)))
            c = end;
    }
}

/* The value assigned to $NAME or ${NAME}, else the default of ${NAME:-default}, else the word itself. */
static const char *resolve_variable(const json_t *variables, char *word)
{
    char name[NAME], *other = strstr(word, ":-");
    const char *value;

    if (*word != '$') return word;
    snprintf(name, sizeof name, "%s", word + 1 + (word[1] == '{'));
    name[strcspn(name, "}:")] = 0;
    const char *end = strchr(word, '}');
    if (end && end[1] && !other) return word; /* a part of a path: its last name is a model's */
    value = json_string_value(json_object_get(variables, name));
    if (value || !other || word[1] != '{') return value ? value : word;
    other += 2;
    char *close = strrchr(other, '}'); /* the default may have a variable of its own */
    if (close) *close = 0;
    strip_quotes(other);
    return other;
}

static bool is_configuration_named(const char *name)
{
    static const char *const endings[] = {".yaml", ".yml", ".json", ".toml"};

    return name && ANY_OF(e, endings, COUNT_OF(endings), text_ends_with(name, *e));
}

/* `name`: the option before, which waits for its value. */
static void take_argument(json_t *root, json_t *variables, char *word, char name[NAME])
{
    char *equals = strchr(word, '=');

    strip_quotes(word);
    const bool is_short = word[0] == '-' && isalpha((unsigned char)word[1]) && isalpha((unsigned char)word[2]);
    if (strncmp(word, "--", 2) == 0 || is_short) { /* vLLM's -tp 8 */
        snprintf(name, NAME, "%s", word + (is_short ? 1 : 2));
        char *value = strchr(name, '=');
        if (value) *value++ = 0;
        if (value) strip_quotes(value);
        json_object_set_new(root, name, value ? scalar_json(resolve_variable(variables, value)) : json_true());
        if (value) *name = 0;
    } else if (*name) {
        json_object_set_new(root, name, scalar_json(resolve_variable(variables, word)));
        *name = 0;
    } else if (equals && memchr(word, '.', (size_t)(equals - word)) &&
               isalpha((unsigned char)word[strspn(word, "+")])) {
        *equals = 0; /* Hydra's "section.key=value" */
        strip_quotes(equals + 1);
        char *key = strrchr(word, '.');
        *key++ = 0;
        json_object_set_new(toml_table(root, word + strspn(word, "+")), key,
                            scalar_json(resolve_variable(variables, equals + 1)));
    } else if (is_configuration_named(word) && !text_ends_with(word, ".json")) {
        if (!json_object_get(root, "config_file")) json_object_set_new(root, "config_file", json_string(word));
    } else if (equals) {
        *equals = 0;
        strip_quotes(equals + 1);
        const char *value = resolve_variable(variables, equals + 1);
        if (json_object_get(root, "config_file")) /* "llamafactory-cli train FILE lora_rank=32" */
            json_object_set_new(root, word, scalar_json(value));
        else if (*value != '$' || !json_object_get(variables, word)) /* "MODEL=$1" keeps the default before it */
            json_object_set_new(variables, word, json_string(value));
    }
}

/* The two words before, the last one first: "vllm serve MODEL". */
static bool is_served_model(const char *const before[2], const char *word)
{
    return strcmp(before[0], "serve") == 0 && text_ends_with(before[1], "vllm") && *word != '-';
}

static json_t *read_arguments(char *text)
{
    json_t *root = json_object(), *variables = json_object();
    char *lines = NULL, *words = NULL;
    const char *before[2] = {"", ""};

    estimate_recipe_mark(root, text); /* before it is taken apart */
    clear_comments_and_quotes(text);
    for (char *line = strtok_r(text, "\n", &lines); line; line = strtok_r(NULL, "\n", &lines)) {
        char name[NAME] = ""; /* a value is on its option's line */
        for (char *word = strtok_r(line, " \t\r\\()", &words); word; word = strtok_r(NULL, " \t\r\\()", &words)) {
            if (is_served_model(before, word)) {
                json_object_set_new(root, "vllm serve", json_true());
                snprintf(name, sizeof name, "model");
            }
            take_argument(root, variables, word, name);
            before[1] = before[0];
            before[0] = word;
        }
    }
    static const char *const counts[][2] = {{"NPROC_PER_NODE", "nproc_per_node"},
                                            {"NNODES", "nnodes"},
                                            {"NGPU", "nproc_per_node"}, /* torchtitan's run_train.sh */
                                            {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"},
                                            {"PYTORCH_ALLOC_CONF", "PYTORCH_ALLOC_CONF"},
                                            {"CONFIG", "config"},
                                            {"ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size"}};
    for (size_t i = 0; i < COUNT_OF(counts); i++) { /* of torchrun, where a program calls it itself */
        const char *value = json_string_value(json_object_get(variables, counts[i][0]));
        if (value && !json_object_get(root, counts[i][1])) json_object_set_new(root, counts[i][1], scalar_json(value));
    }
    json_decref(variables);
    return root;
}

/* The options of a program that a list has, or a command in one text; NULL: none. */
static json_t *arguments_of(const json_t *value)
{
    char *text = NULL;
    json_t *item, *found = NULL;
    size_t i, n;

    if (!json_is_string(value) && !json_is_array(value)) return NULL;
    FILE *words = arena_stream(&text, &n);
    if (json_is_string(value)) fputs(json_string_value(value), words);
    json_array_foreach((json_t *)value, i, item)
    {
        if (i) fputc(' ', words);
        if (json_is_string(item)) fputs(json_string_value(item), words);
        if (json_is_number(item)) json_dumpf(item, words, JSON_ENCODE_ANY);
    }
    fclose(words);
    const char *option = strstr(text, "--");
    if (option && isalpha((unsigned char)option[2]) && (option == text || isspace((unsigned char)option[-1])))
        found = read_arguments(text);
    free(text);
    return found;
}

/* How much there is to look at in a value: long texts count more than once. */
static unsigned bulk_of(const json_t *value)
{
    size_t n = json_string_length(value) / 256 + 1, i;
    json_t *item;

    json_array_foreach((json_t *)value, i, item) n += json_string_length(item) / 256 + 1;
    return n < VALUES_MAX ? (unsigned)n : VALUES_MAX;
}

/* Adds to `all` the options that a section states as keys ("--num-layers: 12"), as a list ("args: [--model, NAME]") or
 * as a command. `left` limits the values that are looked at, as aliases of YAML can repeat a section without end. */
static void gather_arguments(json_t *all, json_t *section, unsigned depth, unsigned *left)
{
    const char *key;
    json_t *value, *item;
    size_t i;
    void *next;

    json_object_foreach_safe(section, next, key, value)
    {
        if (*left < bulk_of(value)) return;
        *left -= bulk_of(value);
        json_t *found = arguments_of(value);
        if (found) json_object_update_missing(all, found);
        json_decref(found);
        if (depth < DEPTH_MAX && json_is_object(value)) gather_arguments(all, value, depth + 1, left);
        json_array_foreach(value, i, item) if (depth < DEPTH_MAX && json_is_object(item))
            gather_arguments(all, item, depth + 1, left);
        if (strncmp(key, "--", 2) == 0) {
            json_object_set(all, key + 2, value);
            json_object_del(section, key);
        }
    }
}

/* Files for other programs, which state a tool's options somewhere: Megatron-LM's test cases, manifests of Kubernetes
 * and Docker Compose. The options become names at the top. */
static void lift_arguments(json_t *root)
{
    json_t *all = json_object();
    unsigned left = VALUES_MAX;

    gather_arguments(all, root, 0, &left);
    json_object_update(root, all);
    json_decref(all);
}

/* A recipe of vLLM's: a model and its options. The variants, features and commands beside them are for other choices.
 */
static bool keep_served_model(json_t *root)
{
    json_t *model = json_object_get(root, "model"), *name = json_object_get(model, "model_id"),
           *form = json_object_get(json_object_get(json_object_get(root, "variants"), "default"), "precision");

    if (!json_is_string(name)) return false;
    json_t *all = arguments_of(json_object_get(model, "base_args"));
    if (!all) all = json_object();
    json_object_set(all, "model", name);
    json_object_set_new(all, "vllm serve", json_true());
    json_object_set_new(all, "variants.default.precision", form ? json_incref(form) : json_string("bf16"));
    json_object_clear(root);
    json_object_update(root, all);
    json_decref(all);
    return true;
}

/* Spells "llama3_1_8b" as models are named: "llama-3.1-8b". */
static void spell_model_name(char *out, size_t size, const char *name)
{
    size_t n = 0;

    for (const char *c = name; *c && n + 2 < size; c++) {
        const bool digit = isdigit((unsigned char)*c), after_digit = c > name && isdigit((unsigned char)c[-1]);
        const bool between = *c == '_' && after_digit && isdigit((unsigned char)c[1]) &&
                             !isdigit((unsigned char)c[2]) && (c[2] == '_' || !c[2]);
        if (digit && c > name && isalpha((unsigned char)c[-1]) && strncasecmp(name, "qwen", 4) != 0 && n < 8)
            out[n++] = '-';
        out[n++] = between ? '.' : *c == '_' ? '-' : *c;
    }
    out[n] = 0;
}

/* The last part, without "/original"; shortens the path. */
static const char *recipe_last_part(char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    if (n > 9 && strcmp(path + n - 9, "/original") == 0) path[n - 9] = 0;
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void estimate_recipe_torchtune_model(const char *folder, const char *component, char *out, size_t size)
{
    char path[PATH_MAX];
    const char *last = strrchr(component, '.');

    snprintf(path, sizeof path, "%s", folder);
    folder = recipe_last_part(path);
    last = last ? last + 1 : component;
    if (strncmp(last, "qlora_", 6) == 0 || strncmp(last, "lora_", 5) == 0) last = strchr(last, '_') + 1;
    if (strpbrk(folder, "0123456789") && !strchr(folder, '$'))
        snprintf(out, size, "%s", folder);
    else
        spell_model_name(out, size, last);
}

void estimate_recipe_titan_model(const char *name, const char *flavor, char *out, size_t size)
{
    char family[64];

    spell_model_name(family, sizeof family, name);
    snprintf(out, size, "%s%s-%s", family, !strcasecmp(name, "llama3") && !strcasecmp(flavor, "405B") ? ".1" : "",
             flavor);
    for (char *c = out; *c; c++) *c = (char)tolower((unsigned char)*c);
}

/* Optimizers by the last part of their names in lower case ("bitsandbytes.optim.PagedAdamW8bit": "pagedadamw8bit"). */
static const struct {
    const char *theirs, *ours;
    bool fused;
} optimizers[] = {
    {"adamw_torch_fused", "adamw", true},
    {"adamw_torch_8bit", "adamw8bit", false},
    {"adamw_torch_4bit", "adamw4bit", false},
    {"adamw_torch", "adamw", false},
    {"adamw_hf", "adamw", false},
    {"adamw_apex_fused", "adamw", true},
    {"adamw_bnb_8bit", "adamw8bit", false},
    {"adamw_8bit", "adamw8bit", false},
    {"paged_adamw_8bit", "paged-adamw8bit", false},
    {"paged_adamw_32bit", "paged-adamw", false},
    {"paged_adamw", "paged-adamw", false},
    {"pagedadamw8bit", "paged-adamw8bit", false},
    {"pagedadamw", "paged-adamw", false},
    {"adamw8bit", "adamw8bit", false},
    {"distributed_fused_adam", "adam", true},
    {"fused_adam", "adam", true},
    {"fusedadam", "adam", true},
    {"deepspeedcpuadam", "adam", false},
    {"galore_adamw", "galore", false},
    {"galore_adamw_8bit", "galore8bit", false},
    {"lion_32bit", "lion", false},
    {"dist_muon", "muon", false},
    {"lion_pytorch", "lion", false},
    {"schedule_free_adamw", "adamw-schedulefree", false},
    {"schedule_free_sgd", "sgd-schedulefree", false},
    {"came_pytorch", "adafactor", false},
};

const char *estimate_recipe_optimizer(const char *name, char *lower, size_t size, bool *fused)
{
    const char *last = strrchr(name, '.');

    snprintf(lower, size, "%s", last ? last + 1 : name);
    for (char *c = lower; *c; c++) *c = (char)tolower((unsigned char)*c);
    for (size_t i = 0; i < COUNT_OF(optimizers); i++) {
        *fused = optimizers[i].fused;
        if (strcmp(lower, optimizers[i].theirs) == 0) return optimizers[i].ours;
    }
    *fused = false;
    return NULL;
}

/* What tokenizers are called, and a model that has the same words. */
static const struct {
    const char *part, *model;
} tokenizers[] = {
    {"gpt-oss", "gpt-oss-20b"},     {"gpt2", "gpt2"},        {"bert", "bert-base-uncased"}, {"llama3", "llama-3-8b"},
    {"llama-3", "llama-3-8b"},      {"llama", "llama-2-7b"}, {"mistral", "mistral-7b"},     {"mixtral", "mixtral-8x7b"},
    {"deepseek-v3", "deepseek-v3"}, {"qwen", "qwen3-8b"},    {"gemma", "gemma-2-2b"},       {"tiktoken", "llama-3-8b"}};

int64_t estimate_recipe_vocab(const char *type, const char *model, const char *file)
{
    for (size_t i = 0; i < COUNT_OF(tokenizers); i++)
        if (strcasestr(model, tokenizers[i].part) || strcasestr(type, tokenizers[i].part) ||
            strcasestr(file, tokenizers[i].part))
            return (int64_t)model_words(tokenizers[i].model);
    return (int64_t)model_words("gpt2");
}

static char *read_recipe_text(const char *path, size_t *n, char *why, size_t why_size)
{
    FILE *file = fopen(path, "re");
    char *text = arena_realloc(NULL, BYTES_MAX + 1, 1);

    *n = file ? fread(text, 1, BYTES_MAX + 1, file) : 0;
    if (!file || ferror(file))
        snprintf(why, why_size, "%s", strerror(errno));
    else if (*n > BYTES_MAX)
        snprintf(why, why_size, "it is larger than 1 MiB, so it is not a configuration");
    else if (memchr(text, 0, *n))
        snprintf(why, why_size, "it is not a text file");
    else {
        text[*n] = 0;
        fclose(file);
        return text;
    }
    if (file) fclose(file);
    free(text);
    return NULL;
}

static bool begins_with_an_option(const char *text)
{
    text += strspn(text, " \t\r\n");
    return strncmp(text, "--", 2) == 0 && isalpha((unsigned char)text[2]);
}

/* The value that "${model.seq_length}" names from the top, or "${.seq_length}" from the section `here`. NULL: none, or
 * a whole section. */
static json_t *referred_value(json_t *root, json_t *here, const char *reference)
{
    char part[128];
    json_t *at = *reference == '.' ? here : root;

    reference += *reference == '.';
    while (at && *reference && *reference != '}') {
        const size_t n = strcspn(reference, ".}");
        snprintf(part, sizeof part, "%.*s", (int)n, reference);
        at = json_object_get(at, part);
        reference += n + (reference[n] == '.');
    }
    return json_is_object(at) || json_is_array(at) ? NULL : at;
}

/* Replaces values that are references (OmegaConf's, in configurations of NeMo and torchtune). `left`: values that are
 * still looked at, because aliases of YAML can repeat a section without end. */
static void follow_references(json_t *root, json_t *section, unsigned *left)
{
    const char *key;
    json_t *value;

    json_object_foreach(section, key, value)
    {
        const char *text = json_string_value(value);
        if (*left == 0) return;
        --*left;
        if (json_is_object(value)) follow_references(root, value, left);
        for (int hops = 0; text && strncmp(text, "${", 2) == 0 && text[strlen(text) - 1] == '}' && hops < 8; hops++) {
            value = referred_value(root, section, text + 2);
            if (value) json_object_set(section, key, value);
            text = json_string_value(value);
        }
    }
}

static json_t *load_named_recipe(const char *from, const char *name, unsigned depth);

/* The file that a script names ("accelerate launch --config_file FILE", "llamafactory-cli train FILE") adds what the
 * script does not state. The name of a missing one may state a stage of ZeRO. */
static void add_named_file(json_t *root, const char *path, unsigned depth)
{
    const char *key =
        is_configuration_named(recipe_text_of(json_object_get(root, "config_file"))) ? "config_file" : "config";
    json_t *file = json_object_get(root, key);
    const char *name = json_string_value(file);

    if (!is_configuration_named(name)) return;
    json_t *named = load_named_recipe(path, name, depth);
    if (json_is_object(named))
        json_object_update_missing(root, named);
    else if (estimate_recipe_stage_named(name) >= 0 && !json_object_get(root, "deepspeed"))
        json_object_set(root, "deepspeed", file);
    else
        return; /* listed, as it may matter */
    json_object_del(root, key);
    json_decref(named);
}

/* Lines around what people paste: "```yaml", "%%writefile train.yaml". */
static void clear_pasted_lines(char *text)
{
    for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, "```", 3) == 0 || (line == text && strncmp(line, "%%", 2) == 0))
            memset(line, ' ', strcspn(line, "\n"));
}

/* Python, or the command line of a training that a cell starts: "!torchrun …". */
static json_t *read_notebook(char *code)
{
    if (!strstr(code, "--per_device_train_batch_size ")) return estimate_recipe_read_python(code);
    return read_arguments(code);
}

/* `depth`: how many files name the next one, until this one: two can name each other. */
static json_t *load_recipe(const char *path, unsigned depth, char *why, size_t why_size)
{
    size_t n;
    char *text = read_recipe_text(path, &n, why, why_size);
    unsigned left = VALUES_MAX;
    json_t *root = NULL;
    bool verl = false;
    json_error_t error;

    if (!text) return NULL;
    clear_pasted_lines(text);
    if (text[strspn(text, " \t\r\n")] == '{') {
        root = json_loads(text, 0, &error);
        if (!root) snprintf(why, why_size, "line %d: %s", error.line, error.text);
        char *code = estimate_recipe_notebook_code(root);
        if (code) {
            json_decref(root);
            root = read_notebook(code);
            free(code);
        }
    } else if (text_ends_with(path, ".py") && strstr(text, "subprocess") && strstr(text, "\"--")) {
        for (char *c = text; *c; c++) /* a command in a list: ["accelerate", "launch", "--network_dim=32"] */
            if (strchr("\"[],", *c) && !(*c == ',' && isdigit((unsigned char)c[1]))) *c = ' ';
        root = read_arguments(text);
    } else if (text_ends_with(path, ".py")) {
        root = estimate_recipe_read_python(text);
    } else if (text_ends_with(path, ".toml"))
        root = read_toml(text);
    else if (text_ends_with(path, ".sh") || strncmp(text, "#!", 2) == 0 || begins_with_an_option(text)) {
        verl = strstr(text, "verl.trainer") && strstr(text, "sft_trainer");
        estimate_recipe_add_up(text);
        root = read_arguments(text);
    } else
        root = read_yaml(text, n, why, why_size);
    follow_references(root, root, &left);
    if (json_is_object(root) && depth < FILES_DEPTH) add_named_file(root, path, depth + 1);
    if (json_is_object(root)) estimate_recipe_fill_verl(root, verl);
    if (json_is_object(root) && !estimate_recipe_tool(root) && !keep_served_model(root)) lift_arguments(root);
    if (root && !json_is_object(root)) {
        json_decref(root);
        root = NULL;
        snprintf(why, why_size, "it has no keys and values, as a configuration has");
    } else if (!root && !*why)
        snprintf(why, why_size, "it is empty");
    free(text);
    return root;
}

static json_t *load_named_recipe(const char *from, const char *name, unsigned depth)
{
    char folder[PATH_MAX], path[2 * PATH_MAX], why[200];
    json_t *root = *name == '/' ? load_recipe(name, depth, why, sizeof why) : NULL;

    if (!realpath(from, folder)) return root;
    for (char *slash; !root && *name != '/' && (slash = strrchr(folder, '/'));) {
        *slash = 0;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        root = load_recipe(path, depth, why, sizeof why);
    }
    return root;
}

json_t *estimate_recipe_load(const char *path, char *why, size_t why_size)
{
    return load_recipe(path, 0, why, why_size);
}

json_t *estimate_recipe_load_named(const char *from, const char *name)
{
    return load_named_recipe(from, name, 0);
}
