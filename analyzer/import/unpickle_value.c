/* What callers ask of the values that a pickle contains. */
#include <string.h>
#include "analyzer/import/unpickle.h"

const struct import_value *import_member(const struct import_value *dict, const char *key)
{
    if (!dict || dict->type != IMPORT_DICT) return NULL;
    size_t n = strlen(key);
    for (size_t i = dict->list->n; i >= 2; i -= 2) {
        const struct import_value *k = &dict->list->items[i - 2];
        if (k->type == IMPORT_TEXT && k->length == n && memcmp(k->text, key, n) == 0) return k + 1;
    }
    return NULL;
}

size_t import_count(const struct import_value *list)
{
    return list && list->type == IMPORT_LIST ? list->list->n : 0;
}

const struct import_value *import_item(const struct import_value *list, size_t i)
{
    return &list->list->items[i];
}

int64_t import_integer(const struct import_value *v, int64_t otherwise)
{
    return v && (v->type == IMPORT_INT || v->type == IMPORT_BOOL) ? v->integer : otherwise;
}

size_t import_taken(const struct import_value *dict)
{
    return dict && dict->type == IMPORT_DICT && !dict->list->n ? dict->list->cap : 0;
}

const char *import_text(const struct import_value *v)
{
    return v && v->type == IMPORT_TEXT ? v->text : NULL;
}
