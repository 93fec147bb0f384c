/* Splits a Python program into statements by its lines, brackets and strings, without parsing it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "analyzer/base/arena.h"

/* A logical line; code after a `;` or a compound statement's `:` is a separate statement. */
struct site_statement {
    int line, last;   /* the first and the last line of text */
    int indent;       /* in columns; a statement after a `:` on the same line has one more than its header */
    const char *code; /* without comments; strings are "" (but "cpu"; "{}" if values are put into it), blanks single */
};
struct site_code {
    struct site_statement *list;
    size_t n;
};
/* Belongs to the arena. */
struct site_code site_code_of(struct arena *arena, const char *const *lines, size_t n);
/* The innermost statement that contains a line; n: none. */
size_t site_code_at(const struct site_code *c, int line);
/* The header of the block that statement i is in; n: none. */
size_t site_code_parent(const struct site_code *c, size_t i);
/* A letter (each byte of those outside ASCII), a digit or an underscore. */
bool site_is_name_character(char c);
/* One past the last statement of the block whose header is i. */
size_t site_code_end(const struct site_code *c, size_t i);
bool site_code_begins(const struct site_statement *s, const char *word);
/* Of a line of text without the comment at its end. */
size_t site_code_length(const char *line);
/* Does statement i store into the dictionary only if the key is missing? `if key not in cache: cache[key] = x`, `if key
 * in cache: return cache[key]` before it, x = cache.get(key) with `if x is None:`, `except KeyError:`. Reads the
 * function that begins at `from`. */
bool site_fills_if_missing(struct arena *arena, const struct site_code *code, size_t from, size_t i, const char *name);
