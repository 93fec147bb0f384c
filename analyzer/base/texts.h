/* Texts without NULs, each stored once and numbered in the order in which they were added. Zero-initialise. */
#pragma once

#include "analyzer/base/arena.h"

struct texts {
    struct arena arena;
    struct map numbers; /* by hash */
    const char **list;
    size_t n, cap;
};

/* The number of a text of `length` bytes; a new one is copied and has the number that `n` was. */
uint32_t texts_number(struct texts *t, const char *text, size_t length);
void texts_free(struct texts *t);
