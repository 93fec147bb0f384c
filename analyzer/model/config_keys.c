/* Looks up keys of a config.json, and keeps the first problem and the notes. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/model/config_reading.h"

#define NUMBER_MAX 1000000000u

void model_config_reject(struct model_reading *r, const char *format, ...)
{
    if (*r->problem) return;
    TEXT_FORMAT(r->problem, sizeof r->problem, format);
}

void model_config_note(struct model_reading *r, const char *format, ...)
{
    const size_t n = strlen(r->note);

    if (n + 32 > sizeof r->note) return;
    if (n) strcpy(r->note + n, "; ");
    TEXT_FORMAT(r->note + n + (n ? 2 : 0), sizeof r->note - n - (n ? 2 : 0), format);
}

json_t *model_config_find(struct model_reading *r, const char *keys, char name[64])
{
    while (*keys) {
        size_t n = strcspn(keys, "|");
        snprintf(name, 64, "%.*s", (int)n, keys);
        json_t *value = json_object_get(r->json, name);
        if (r->asked && value) json_object_set_new(r->asked, name, json_true());
        if (value && !json_is_null(value)) return value;
        keys += n + (keys[n] == '|');
    }
    return NULL;
}

bool model_config_has(struct model_reading *r, const char *keys)
{
    char name[64];

    return model_config_find(r, keys, name) != NULL;
}

bool model_config_read_count(const json_t *value, uint64_t *out)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return *out <= NUMBER_MAX;
    }
    double real = json_is_real(value) ? json_real_value(value) : -1;
    if (!(real >= 0 && real <= (double)NUMBER_MAX && real == floor(real))) return false;
    *out = (uint64_t)real;
    return true;
}

uint64_t model_config_count(struct model_reading *r, const char *keys, uint64_t absent)
{
    char name[64];
    json_t *value = model_config_find(r, keys, name);
    uint64_t n = absent;

    if (!value) return absent;
    if (!model_config_read_count(value, &n)) model_config_reject(r, "%s is not a whole number from 0 to 1e9", name);
    return n;
}

bool model_config_flag(struct model_reading *r, const char *keys, bool absent)
{
    char name[64];
    json_t *value = model_config_find(r, keys, name);

    if (!value) return absent;
    if (!json_is_boolean(value)) model_config_reject(r, "%s is neither true nor false", name);
    return json_is_true(value);
}

const char *model_config_word(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}
