/* What the values of a configuration mean. Each function accepts NULL, which no value is. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

static inline const char *recipe_text_of(const json_t *value)
{
    const char *text = json_string_value(value);

    return text ? text : "";
}

static inline bool is_recipe_word(const json_t *value, const char *word)
{
    return strcasecmp(recipe_text_of(value), word) == 0;
}

/* Not null, not false and not empty. */
static inline bool is_value_given(const json_t *value)
{
    if (!value || json_is_null(value) || json_is_false(value)) return false;
    if (json_is_string(value)) return *recipe_text_of(value) != 0;
    return !(json_is_array(value) && json_array_size(value) == 0);
}

static inline bool says_yes(const json_t *value)
{
    return json_is_true(value) || json_integer_value(value) > 0 || is_recipe_word(value, "auto") ||
           is_recipe_word(value, "true") || is_recipe_word(value, "full") || is_recipe_word(value, "yes");
}

/* Whether the text, or a text of the list, contains the word. */
static inline bool value_has_word(const json_t *value, const char *word)
{
    size_t i;
    json_t *item;

    if (strcasestr(recipe_text_of(value), word)) return true;
    json_array_foreach((json_t *)value, i, item) if (strcasestr(recipe_text_of(item), word)) return true;
    return false;
}

/* Whether the word is all that a text or a list has; "[word]" of a command line is a list. */
static inline bool is_only_word(const json_t *value, const char *word)
{
    const char *text = recipe_text_of(json_is_array(value) ? json_array_get(value, 0) : value);
    size_t n;

    text += strspn(text, "[ ");
    n = strcspn(text, " ,]");
    return n == strlen(word) && strncasecmp(text, word, n) == 0 && !text[n + strspn(text + n, " ]")] &&
           json_array_size(value) < 2;
}

/* DeepSpeed's device of what is offloaded. */
static inline bool is_on_host(const json_t *device)
{
    return json_is_true(device) || is_recipe_word(device, "cpu") || is_recipe_word(device, "nvme");
}

static inline int64_t count_or_one(int64_t n)
{
    return n > 1 ? n : 1;
}

/* The product of two counts, each at least 1; INT64_MAX if it is larger. */
static inline int64_t count_product(int64_t a, int64_t b)
{
    int64_t n;
    return __builtin_mul_overflow(count_or_one(a), count_or_one(b), &n) ? INT64_MAX : n;
}

/* "section.*" matches any key of a section. */
static inline bool recipe_pattern_matches(const char *pattern, const char *path)
{
    const size_t n = strlen(pattern);

    if (n > 1 && strcmp(pattern + n - 2, ".*") == 0) return strncasecmp(path, pattern, n - 1) == 0;
    return strcasecmp(path, pattern) == 0;
}

/* The expression in Python that a setting is given instead of a constant; NULL: the value is known. */
static inline const json_t *recipe_expression_of(const json_t *value)
{
    return json_object_get(value, "expression in Python");
}
