#include "analyzer/base/texts.h"

#include <stdlib.h>
#include <string.h>

uint32_t texts_number(struct texts *t, const char *text, size_t length)
{
    for (uint64_t key = map_hash_bytes(0, text, length);; key++) { /* another text may have the key */
        uint32_t *at = map_at(&t->numbers, key);
        if (*at == MAP_NEW) {
            char *copy = arena_alloc(&t->arena, length + 1);
            memcpy(copy, text, length);
            *at = (uint32_t)t->n;
            *ARENA_PUSH(t->list, t->n, t->cap) = copy;
            return *at;
        }
        if (strncmp(t->list[*at], text, length) == 0 && !t->list[*at][length]) return *at;
    }
}

void texts_free(struct texts *t)
{
    arena_free(&t->arena);
    map_free(&t->numbers);
    free(t->list);
    *t = (struct texts){0};
}
