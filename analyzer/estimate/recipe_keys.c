/* The keys of configurations, and the tools that they are written for. */
#include "analyzer/estimate/recipe_values.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "analyzer/base/arena.h"
#include "analyzer/estimate/recipe_value.h"

enum { PATH_PARTS = 256, NAMES_MAX = 1000 };
enum kind { TEXT, COUNT, LARGEST, FLAG, UNFLAG, WORD, NOTHING };

/* `path`: "tool:key" is a key of the tools whose name begins so. */
static const struct key {
    const char *path;
    enum kind kind;
    size_t at;
    const char *word;
} keys[] = {
#define KEY(path, kind, field) {path, kind, offsetof(struct estimate_recipe_values, field), NULL},
#define MEANS(path, field, word) {path, WORD, offsetof(struct estimate_recipe_values, field), word},
#define SILENT(path) {path, NOTHING, 0, NULL},
#include "analyzer/estimate/recipe_keys.def"
#undef KEY
#undef MEANS
#undef SILENT
};

/* The short names that recipe_tools.def uses, and what several of its rows have. */
#define SHORT(name, does) name = RECIPE_##name,
enum {
    RECIPE_TRAITS(SHORT) TRAINER = ADAMW | DROPS,
    TRL = BF16 | REMADE | PADS | FOUR_BITS | ACCELERATE | PREFERENCES,
    SWIFT = TRAINER | TRL | FROZEN_TOWER,
    FACTORY = TRAINER | REMADE | PADS | FOUR_BITS | FROZEN_TOWER,
    TITAN = BF16 | FUSED | OPERATIONS | DROPS | SHARDS | FSDP2 | EXPANDS,
};
#undef SHORT

#define DEFAULT(tool, path, value)
static const struct estimate_recipe_tool tools[] = {
#define TOOL(mark, name, traits) {mark, name, NULL, traits},
#define UNREAD(mark, what, advice) {mark, what, advice, 0},
#include "analyzer/estimate/recipe_tools.def"
};

static const struct {
    const char *tool, *path, *value;
} defaults[] = {
#define TOOL(mark, name, traits)
#define UNREAD(mark, what, advice)
#define DEFAULT(tool, path, value) {tool, path, value},
#include "analyzer/estimate/recipe_tools.def"
};

/* The value of "a.b", a name or a name in a section. */
static const json_t *recipe_value_at(const json_t *root, const char *path)
{
    char part[PATH_PARTS];
    const json_t *whole = json_object_get(root, path);

    while (!whole && root && *path) {
        const size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        root = json_object_get(root, part);
        path += n + (path[n] == '.');
    }
    return whole ? whole : root;
}

static bool has_mark(const json_t *root, const char *mark)
{
    char key[PATH_PARTS];
    const char *both = strchr(mark, '&');

    if (both) {
        snprintf(key, sizeof key, "%.*s", (int)(both - mark), mark);
        return recipe_value_at(root, key) && recipe_value_at(root, both + 1);
    }
    const char *equals = *mark == '$' ? NULL : strchr(mark, '=');

    if (!equals) return *mark == '$' ? json_object_get(root, mark) != NULL : recipe_value_at(root, mark) != NULL;
    snprintf(key, sizeof key, "%.*s", (int)(equals - mark), mark);
    return value_has_word(recipe_value_at(root, key), equals + 1);
}

const struct estimate_recipe_tool *estimate_recipe_tool(const json_t *root)
{
    if (json_object_size(root) > NAMES_MAX) return NULL; /* a vocabulary */
    return FIND_OF(t, tools, COUNT_OF(tools), has_mark(root, t->mark));
}

void estimate_recipe_mark(json_t *root, const char *script)
{
    EACH (t, tools, COUNT_OF(tools))
        if (*t->mark == '$' && strstr(script, t->mark + 1)) json_object_set_new(root, t->mark, json_true());
    if (estimate_recipe_runs_transformers(script))
        json_object_set_new(root, "transformers_script", json_true());
    else if (strcasestr(script, "per_device_train_batch_size") || strstr(script, "per-device-train-batch-size"))
        json_object_set_new(root, "trl_script", json_true());
}

void estimate_recipe_clear(struct estimate_recipe_values *values)
{
    memset(values, 0, sizeof *values);
    EACH (k, keys, COUNT_OF(keys))
        if (k->kind != TEXT && k->kind != WORD && k->kind != NOTHING)
            memcpy((char *)values + k->at, &(int64_t){RECIPE_UNSET}, sizeof(int64_t));
}

static bool is_tool_called(const struct estimate_recipe_tool *tool, const char *name, size_t n)
{
    return tool && strncmp(tool->name, name, n) == 0;
}

/* A tool's own row precedes the one for all. */
static const struct key *recipe_key_of(const struct estimate_recipe_tool *tool, const char *path)
{
    const struct key *of_all = NULL;

    EACH (k, keys, COUNT_OF(keys)) {
        const char *colon = strchr(k->path, ':');
        if (!recipe_pattern_matches(colon ? colon + 1 : k->path, path)) continue;
        if (colon && is_tool_called(tool, k->path, (size_t)(colon - k->path))) return k;
        if (!colon && !of_all) of_all = k;
    }
    return of_all;
}

/* "int4" is 4, as AutoTrain spells it, and "ZERO_3" is oumi's stage 3. */
static int64_t count_of(const json_t *value)
{
    char *end;
    const char *text = recipe_text_of(value);

    if (json_is_integer(value)) return json_integer_value(value) >= 0 ? json_integer_value(value) : RECIPE_UNSET;
    if (json_is_real(value) && json_real_value(value) >= 0 && json_real_value(value) < 1e15)
        return (int64_t)json_real_value(value);
    text += strncmp(text, "int", 3) == 0 ? 3 : strncmp(text, "ZERO_", 5) == 0 ? 5 : 0;
    const long long n = strtoll(text, &end, 10);
    return *text && !*end && n >= 0 ? n : RECIPE_UNSET;
}

/* The largest number of a list, or of a text such as "768,512". */
static int64_t largest_of(const json_t *value)
{
    int64_t most = count_of(value), n;
    size_t i;
    json_t *item;

    for (const char *at = recipe_text_of(value); *at; at += strcspn(at, ",x") + 1) {
        if ((n = atoll(at)) > most) most = n;
        if (!at[strcspn(at, ",x")]) break;
    }
    json_array_foreach((json_t *)value, i, item) if ((n = count_of(item)) > most) most = n;
    return most;
}

static bool is_set(const struct estimate_recipe_values *values, const struct key *key)
{
    const char *field = (const char *)values + key->at;
    int64_t n;
    const json_t *value;

    if (key->kind == WORD) return *field != 0;
    if (key->kind == TEXT) {
        memcpy(&value, field, sizeof value);
        return value != NULL;
    }
    memcpy(&n, field, sizeof n);
    return n != RECIPE_UNSET;
}

static void keep_value(struct estimate_recipe_values *values, const struct key *key, const json_t *value)
{
    char *field = (char *)values + key->at;

    if (json_is_null(value) || key->kind == NOTHING) return;
    if (key->kind == TEXT)
        memcpy(field, &value, sizeof value);
    else if (key->kind == WORD) {
        const size_t n = strlen(field);
        if (says_yes(value)) snprintf(field + n, RECIPE_WORDS - n, "%s%s", n ? "," : "", key->word);
    } else {
        const int64_t n = key->kind == COUNT     ? count_of(value)
                          : key->kind == LARGEST ? largest_of(value)
                                                 : says_yes(value) == (key->kind == FLAG);
        memcpy(field, &n, sizeof n);
    }
}

static void add_recipe_text(char **list, size_t *n, size_t max, size_t *more, const char *format, va_list arguments)
{
    char text[400];

    vsnprintf(text, sizeof text, format, arguments);
    for (size_t i = 0; i < *n; i++)
        if (strcmp(list[i], text) == 0) return;
    if (*n < max)
        list[(*n)++] = arena_copy(text);
    else if (more)
        ++*more;
}

void estimate_recipe_add(struct estimate_recipe *r, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_recipe_text(r->option, &r->options_n, RECIPE_OPTIONS_MAX, NULL, format, arguments);
    va_end(arguments);
}

void estimate_recipe_leave_out(struct estimate_recipe *r, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_recipe_text(r->unused, &r->unused_n, RECIPE_UNUSED_MAX, &r->unused_more, format, arguments);
    va_end(arguments);
}

/* Lists a number that cannot be read, for which the tool's default is then assumed. "auto" and -1 leave a number to the
 * tool, and "none" turns it off. Remains of shell expressions are not listed. */
static void note_unread_number(struct estimate_recipe *r, const char *path, const struct key *key, const json_t *value)
{
    const char *text = recipe_text_of(value);
    const json_int_t n = json_integer_value(value);

    if (key->kind == COUNT ? count_of(value) >= 0 : key->kind != LARGEST || largest_of(value) > 0) return;
    if (isalnum((unsigned char)*text) && !strpbrk(text, "$\"'`()<>{}") && !is_recipe_word(value, "auto") &&
        !is_recipe_word(value, "none") && !is_recipe_word(value, "null"))
        estimate_recipe_leave_out(r, "%s=%.60s: not a number", path, text);
    else if (n < -1)
        estimate_recipe_leave_out(r, "%s=%" JSON_INTEGER_FORMAT ": negative", path, n);
}

/* Lists a key without a row. Null, false and "none" are not listed: they turn something off. */
static void note_unknown_key(struct estimate_recipe *r, const char *path, const json_t *value)
{
    if (json_is_null(value) || json_is_false(value) || json_is_object(value) || is_recipe_word(value, "none") ||
        !estimate_recipe_may_matter(path))
        return;
    if (json_is_string(value))
        estimate_recipe_leave_out(r, "%s=%.60s", path, recipe_text_of(value));
    else if (json_is_integer(value))
        estimate_recipe_leave_out(r, "%s=%" JSON_INTEGER_FORMAT, path, json_integer_value(value));
    else if (json_is_real(value))
        estimate_recipe_leave_out(r, "%s=%g", path, json_real_value(value));
    else
        estimate_recipe_leave_out(r, "%s", path);
}

/* Reads the keys, those of sections as "section.key". */
static void walk_section(struct estimate_recipe *r, struct estimate_recipe_values *values,
                         const struct estimate_recipe_tool *tool, const json_t *object, const char *before,
                         unsigned *left)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)object, name, value)
    {
        char path[PATH_PARTS];
        if (*name == '$') continue; /* a mark */
        if (!*left || snprintf(path, sizeof path, "%s%s%s", before, *before ? "." : "", name) >= (int)sizeof path)
            return;
        --*left;
        for (char *c = path; *c; c++) *c = *c == '-' ? '_' : *c;
        const struct key *key = recipe_key_of(tool, path);
        const json_t *expression = recipe_expression_of(value);
        if (key && key->kind != NOTHING && expression)
            estimate_recipe_leave_out(r, "%s=%.60s", path, recipe_text_of(expression));
        if (expression) continue;
        if (key) {
            keep_value(values, key, value);
            note_unread_number(r, path, key, value);
        } else
            note_unknown_key(r, path, value);
        const bool first = json_is_array(value) && tool && (tool->traits & DENOISER); /* ai-toolkit's `process` */
        const json_t *section = first ? json_array_get(value, 0) : value;
        if (json_is_object(section) && !(key && key->kind == NOTHING))
            walk_section(r, values, tool, section, path, left);
    }
}

void estimate_recipe_walk(struct estimate_recipe *r, struct estimate_recipe_values *values,
                          const struct estimate_recipe_tool *tool, const json_t *root, unsigned *left)
{
    walk_section(r, values, tool, root, "", left);
}

void estimate_recipe_fill(struct estimate_recipe_values *values, const struct estimate_recipe_tool *tool, json_t *kept)
{
    EACH (d, defaults, COUNT_OF(defaults)) {
        const struct key *key = is_tool_called(tool, d->tool, strlen(d->tool)) ? recipe_key_of(tool, d->path) : NULL;
        if (!key || is_set(values, key)) continue;
        json_t *value = json_loads(d->value, JSON_DECODE_ANY, NULL);
        json_array_append_new(kept, value);
        keep_value(values, key, value);
    }
}
