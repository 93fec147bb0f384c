/* Words of the values of an enum, from the list of rows X(symbol, first text, second text) that defines it. */
#pragma once

#include "analyzer/base/each.h"

/* The texts of the rows, for a table: static const char *const keys[] = {RESULT_LEVELS(WORDS_FIRST)} */
#define WORDS_FIRST(symbol, first, ...) first,
#define WORDS_SECOND(symbol, first, second, ...) second,
/* Defines the function that returns a value's text; `otherwise` for a number that no row has. */
#define WORDS_FUNCTION(name, type, rows, text, otherwise)                  \
    const char *name(type value)                                           \
    {                                                                      \
        static const char *const words[] = {rows(text)};                   \
        return (size_t)value < COUNT_OF(words) ? words[value] : otherwise; \
    }
