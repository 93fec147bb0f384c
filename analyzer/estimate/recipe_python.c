/* Trainings in Python: scripts and notebooks whose arguments are constants ("per_device_train_batch_size = 2"), as
 * those of Unsloth and TRL. Nothing is executed: of each name, the first constant that it is given counts; other
 * numbers and expressions that it is given are listed. */
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"

#include "analyzer/base/arena.h"
#include "analyzer/estimate/recipe.h"
#include "analyzer/estimate/recipe_value.h"
#include "analyzer/estimate/recipe_values.h"

enum { NAME_LONGEST = 100, NAMES_LIMIT = 900 };

/* The end of the string that begins at `at`, which may have three quotes on each side. */
static const char *string_end(const char *at)
{
    const char quote = *at;
    const bool three = at[1] == quote && at[2] == quote;

    for (at += three ? 3 : 1; *at; at++)
        if (*at == '\\' && at[1])
            at++;
        else if (three ? strncmp(at, (const char[]){quote, quote, quote, 0}, 3) == 0 : *at == quote)
            return at + (three ? 3 : 1);
        else if (!three && *at == '\n')
            return at;
    return at;
}

static const char *skip_python_blanks(const char *at)
{
    for (;; at++) {
        if (*at == '#') at += strcspn(at, "\n");
        if (!*at || !isspace((unsigned char)*at)) return at;
    }
}

static json_t *text_of_string(const char *at, const char *end)
{
    return end - at >= 2 && end[-1] == *at ? json_stringn(at + 1, (size_t)(end - at) - 2) : NULL;
}

/* A constant, or a name that has one; moves `at` past it. NULL: it is neither. */
static json_t *read_constant(const char **at, const json_t *known)
{
    const char *from = *at;
    char name[NAME_LONGEST], *end;

    if (*from == '"' || *from == '\'') {
        *at = string_end(from);
        return text_of_string(from, *at);
    }
    if (*from == '[') {
        json_t *list = json_array();
        for (from = skip_python_blanks(from + 1); *from == '"' || *from == '\'';
             from = skip_python_blanks(from + (*from == ','))) {
            const char *word = from;
            from = skip_python_blanks(string_end(word));
            json_array_append_new(list, text_of_string(word, string_end(word)));
        }
        *at = from + (*from == ']');
        if (*from == ']' && json_array_size(list)) return list;
        json_decref(list);
        return NULL;
    }
    if (isdigit((unsigned char)*from)) {
        double real = strtod(from, &end);
        for (const char *next = end + strspn(end, " \t");
             *next == '*' && isdigit((unsigned char)next[1 + (next[1] == ' ')]); next = end + strspn(end, " \t"))
            real *= strtod(next + 1, &end); /* "5 * 8" */
        const bool whole = !memchr(from, '.', (size_t)(end - from)) && !memchr(from, 'e', (size_t)(end - from));
        *at = end;
        return whole && real < 1e15 ? json_integer((json_int_t)real) : json_real(real);
    }
    size_t n = 0;
    while (text_is_name_character(from[n]) || from[n] == '.') n++;
    *at = from + n;
    if (n == 0 || n >= sizeof name) return NULL;
    memcpy(name, from, n);
    name[n] = 0;
    if (strcmp(name, "True") == 0 || strcmp(name, "False") == 0) return json_boolean(*name == 'T');
    if (strcmp(name, "None") == 0) return json_null();
    if (strncmp(name, "torch.", 6) == 0) return json_string(name + 6);
    return json_incref(json_object_get(known, name));
}

static void set_first(json_t *root, const char *name, json_t *value)
{
    char later[NAME_LONGEST + sizeof "later "];
    const json_t *first = json_object_get(root, name);

    snprintf(later, sizeof later, "later %s", name);
    if (json_object_size(root) > NAMES_LIMIT || (first && json_equal(first, value)))
        json_decref(value);
    else if (!first || json_is_null(first) || recipe_expression_of(first))
        json_object_set_new(root, name, value);
    else if (json_is_integer(value) && json_is_integer(first))
        json_object_set_new(root, later, value);
    else
        json_decref(value);
}

static bool is_setting(const char *name)
{
    return estimate_recipe_may_matter(name) || strcmp(name, "bf16") == 0 || strcmp(name, "fp16") == 0 ||
           strcmp(name, "r") == 0;
}

/* "per_device_train_batch_size=args.batch_size": not known without executing the script. */
static void note_expression(json_t *root, const char *name, const char *from)
{
    const char *end = from;

    for (int depth = 0; *end && !strchr("\r\n#", *end) && (depth > 0 || !strchr(",)]}", *end)); end++)
        depth += strchr("([{", *end) != NULL ? 1 : strchr(")]}", *end) != NULL ? -1 : 0;
    if (!is_setting(name) || strcmp(name, "optimizer") == 0 || strcmp(name, "batch_size") == 0) return; /* of a loop */
    if (json_object_get(root, name) || json_object_size(root) > NAMES_LIMIT) return;
    json_object_set_new(root, name, json_pack("{s:s%}", "expression in Python", from, (size_t)(end - from)));
}

/* Takes the value of a key in a dictionary: "per_device_train_batch_size": 2. Returns the end of the key. */
static const char *take_dictionary_key(json_t *root, const char *at)
{
    char name[NAME_LONGEST];
    const char *end = string_end(at), *value = end + strspn(end, " \t");
    const size_t n = (size_t)(end - at);

    if (*value != ':' || n < 3 || n >= sizeof name) return end;
    snprintf(name, sizeof name, "%.*s", (int)n - 2, at + 1);
    value = skip_python_blanks(value + 1);
    json_t *constant = is_setting(name) ? read_constant(&value, root) : NULL;
    if (constant && strchr(",}\n\r", *skip_python_blanks(value)))
        set_first(root, name, constant);
    else
        json_decref(constant);
    return end;
}

/* "AutoModelForCausalLM.from_pretrained("NAME", …)". */
static void take_model(json_t *root, const char *text, const char *at)
{
    const char *name = skip_python_blanks(at + strlen("from_pretrained")), *class = at;

    while (class > text && (text_is_name_character(class[-1]) || class[-1] == '.')) class --;
    const size_t n = (size_t)(at - class);
    if (*name != '(' || memmem(class, n, "Token", 5) || memmem(class, n, "Processor", 9)) return;
    name = skip_python_blanks(name + 1);
    json_t *value = isdigit((unsigned char)*name) || *name == '[' ? NULL : read_constant(&name, root);
    if (json_is_string(value) && *skip_python_blanks(name) != '=')
        set_first(root, "model_name_or_path", value);
    else
        json_decref(value);
}

static void take_arguments(json_t *root, const char *text)
{
    char name[NAME_LONGEST];

    for (const char *at = text; *at;) {
        if (*at == '#')
            at += strcspn(at, "\n");
        else if (*at == '"' || *at == '\'')
            at = take_dictionary_key(root, at);
        else if (isalpha((unsigned char)*at) || *at == '_') {
            size_t n = 0;
            while (text_is_name_character(at[n])) n++;
            if (n == strlen("from_pretrained") && strncmp(at, "from_pretrained", n) == 0) take_model(root, text, at);
            const char *value = at + n + strspn(at + n, " \t");
            if (*value == '=' && value[1] != '=' && n < sizeof name && (at == text || at[-1] != '.')) {
                memcpy(name, at, n);
                name[n] = 0;
                value = skip_python_blanks(value + 1);
                const char *from = value;
                json_t *constant = read_constant(&value, root);
                value += strspn(value, " \t");
                if (constant && (!*value || strchr(",)\n\r;#", *value)))
                    set_first(root, strcmp(name, "model_name") == 0 ? "model_name_or_path" : name, constant);
                else {
                    json_decref(constant);
                    note_expression(root, name, from);
                }
            }
            at += n;
        } else
            at++;
    }
}

static bool imports_library(const char *text, const char *library)
{
    char words[32];

    snprintf(words, sizeof words, "import %s", library);
    if (strstr(text, words)) return true;
    snprintf(words, sizeof words, "from %s", library);
    return strstr(text, words) != NULL;
}

/* What calls, not arguments, state: the kind of training, and adapters with the defaults of both libraries. */
static void take_calls(json_t *root, const char *text, bool unsloth)
{
    static const char *const trainers[][2] = {
        {"DPOTrainer(", "dpo"}, {"ORPOTrainer(", "orpo"}, {"GRPOTrainer(", "grpo"}, {"KTOTrainer(", "kto"}};
    const char *first = strstr(text, "SFTTrainer(");
    const bool whole = unsloth && says_yes(json_object_get(root, "full_finetuning")); /* get_peft_model does nothing */

    for (size_t i = 0; i < sizeof trainers / sizeof *trainers; i++)
        if (strstr(text, trainers[i][0]))
            json_object_set_new(
                root, "rl",
                first && first < strstr(text, trainers[i][0])
                    ? json_pack("{s:s+}", "expression in Python", trainers[i][1], " of a second training")
                    : json_string(trainers[i][1]));
    if (strstr(text, "gradient_checkpointing_enable(") && !json_object_get(root, "gradient_checkpointing"))
        json_object_set_new(root, "gradient_checkpointing", json_true());
    if (whole)
        json_object_del(root, "use_peft");
    else if (strstr(text, "get_peft_model(") || strstr(text, "LoraConfig("))
        json_object_set_new(root, "use_peft", json_true());
    if (!json_object_get(root, "use_peft")) {
        json_object_del(root, "r");
        return;
    }
    if (!json_object_get(root, "lora_dropout")) json_object_set_new(root, "lora_dropout", json_integer(0));
    if (!json_object_get(root, "r")) json_object_set_new(root, "r", json_integer(unsloth ? 16 : 8));
}

json_t *estimate_recipe_read_python(const char *text)
{
    json_t *root = json_object();
    const bool unsloth = imports_library(text, "unsloth"),
               trains = strstr(text, "per_device_train_batch_size") || strstr(text, "SFTTrainer(");

    estimate_recipe_mark(root, text);
    take_arguments(root, text);
    take_calls(root, text, unsloth);
    if (trains) json_object_del(root, "max_model_len"); /* of a server that the result is tried on */
    json_object_del(root, "transformers_script");
    json_object_del(root, "trl_script");
    if (!unsloth) {
        const char *mark = imports_library(text, "trl") ? "trl_script" : "transformers_script";
        if (trains) json_object_set_new(root, mark, json_true());
        return root;
    }
    if (trains) json_object_set_new(root, "unsloth", json_true());
    json_object_set_new(root, "bf16", json_true()); /* the GPU's 16 bits, also of a model that is trained whole */
    set_first(root, "dtype", json_string("bfloat16"));
    json_object_del(root, "fp16");
    if (!says_yes(json_object_get(root, "full_finetuning")) && !says_yes(json_object_get(root, "load_in_8bit")) &&
        !says_yes(json_object_get(root, "load_in_16bit")))
        set_first(root, "load_in_4bit", json_true());
    /* Kernels of its own for layers, and a compiled loss: its pieces take half of the free memory (unsloth_zoo's
     * fused_losses), so that most often all logits are one piece. */
    json_object_set_new(root, "torch_compile", json_true());
    json_t *checkpointing = json_object_get(root, "use_gradient_checkpointing");
    if (checkpointing) json_object_set(root, "gradient_checkpointing", checkpointing);
    json_object_del(root, "use_gradient_checkpointing");
    return root;
}

/* The code of a notebook. NULL: the JSON is something else. */
char *estimate_recipe_notebook_code(const json_t *root)
{
    const json_t *cells = json_object_get(root, "cells");
    json_t *cell, *line;
    size_t i, j, n;
    char *text = NULL;

    if (!json_is_array(cells)) return NULL;
    FILE *code = arena_stream(&text, &n);
    json_array_foreach((json_t *)cells, i, cell)
    {
        if (!is_recipe_word(json_object_get(cell, "cell_type"), "code")) continue;
        const json_t *source = json_object_get(cell, "source");
        fputs(recipe_text_of(source), code);
        json_array_foreach((json_t *)source, j, line) fputs(recipe_text_of(line), code);
        fputc('\n', code);
    }
    fclose(code);
    return text;
}
