/* The numbers and strings of all databases: each text is stored once, as valid UTF-8. */
#include "analyzer/run/run_internal.h"

#include <stdlib.h>
#include <string.h>
#include "schema/mask.h"
#include "schema/utf8.h"

void run_ids_set(struct run_ids *ids, int64_t id, uint32_t value)
{
    uint64_t n = ids->n;
    if (id < 0 || (uint64_t)id > n + n / 2 + 4096) {
        *map_at(&ids->sparse, (uint64_t)id) = value;
        return;
    }
    if ((uint64_t)id >= ids->cap) {
        ids->cap = (size_t)id * 2 + 4096;
        ids->dense = arena_realloc(ids->dense, ids->cap, sizeof *ids->dense);
    }
    while (ids->n <= (uint64_t)id) ids->dense[ids->n++] = RUN_NONE;
    ids->dense[id] = value;
}

/* A number that was added while it was far from the dense part stays in the map, even when the dense part covers it
 * later. */
uint32_t run_ids_get_sparse(const struct run_ids *ids, int64_t id)
{
    return map_get(&ids->sparse, (uint64_t)id); /* MAP_NEW is RUN_NONE */
}
_Static_assert(MAP_NEW == RUN_NONE, "not there");

void run_ids_free(struct run_ids *ids)
{
    free(ids->dense);
    map_free(&ids->sparse);
    *ids = (struct run_ids){0};
}

static void utf8_repair(char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t n = gs_utf8_decode(text + i, length - i, NULL);
        if (!n) text[i] = '?';
        i += n ? n : 1;
    }
}

const char *run_text(struct run *run, const char *text, size_t length)
{
    if (!text) return NULL;
    length = strnlen(text, length < RUN_TEXT_MAX ? length : RUN_TEXT_MAX);
    char stack_copy[512];
    char *copy = length < sizeof stack_copy ? stack_copy : arena_realloc(NULL, length + 1, 1);
    memcpy(copy, text, length);
    copy[length] = 0;
    utf8_repair(copy, length);
    const uint32_t number = texts_number(&run->strings, copy, length);
    if (copy != stack_copy) free(copy);
    return run->strings.list[number];
}

const char *run_column_text(struct run *run, sqlite3_stmt *st, int column)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    return run_text(run, text, (size_t)sqlite3_column_bytes(st, column));
}

const char *run_column_command(struct run *run, sqlite3_stmt *st, int column)
{
    enum { MOST = 8192 }; /* the recorder stores 2047 bytes */
    char masked[MOST];
    const char *text = (const char *)sqlite3_column_text(st, column);
    return text ? run_text(run, masked, gs_mask_arguments(masked, sizeof masked, text)) : NULL;
}
