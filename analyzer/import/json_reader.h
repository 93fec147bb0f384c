/* Reads JSON from a file, also packed by gzip, one token at a time. Keeps in memory one buffer, one text of at most
 * IMPORT_JSON_TEXT bytes (the rest of a longer one is dropped) and one byte per open object or list. Accepts what
 * profilers write: NaN, inf, unknown escapes and a comma before a closing bracket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IMPORT_JSON_TEXT = 1 << 16, IMPORT_JSON_DEPTH = 512 };

enum import_json_token {
    IMPORT_JSON_END, /* the document is complete */
    IMPORT_JSON_OBJECT,
    IMPORT_JSON_OBJECT_END,
    IMPORT_JSON_LIST,
    IMPORT_JSON_LIST_END,
    IMPORT_JSON_KEY,
    IMPORT_JSON_STRING,
    IMPORT_JSON_NUMBER,
    IMPORT_JSON_WORD, /* true, false, null, NaN, inf */
    IMPORT_JSON_BROKEN
};

struct import_json;

/* Returns NULL and a line in `error` if the file cannot be read. */
struct import_json *import_json_open(const char *path, void (*progress)(void *, uint64_t), void *self, char *error,
                                     size_t error_size);
void import_json_close(struct import_json *j);

enum import_json_token import_json_next(struct import_json *j);
/* The text of the last key, string, number or word; valid until the next call. */
const char *import_json_text(const struct import_json *j);
/* Reads to the end of the value whose first token was `token`. False: the JSON is broken. */
bool import_json_skip(struct import_json *j, enum import_json_token token);
/* After IMPORT_JSON_BROKEN in a list at depth `depth`: continues at its next object that begins a line. False: there is
 * none. */
bool import_json_resume(struct import_json *j, size_t depth);
/* After IMPORT_JSON_END: whether the file continues. */
bool import_json_more(struct import_json *j);
size_t import_json_depth(const struct import_json *j);
/* Unpacked bytes read so far. */
uint64_t import_json_bytes(const struct import_json *j);
/* After IMPORT_JSON_BROKEN: the reason, such as "it ends inside a value". */
const char *import_json_problem(const struct import_json *j);
