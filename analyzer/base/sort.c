#include "analyzer/base/sort.h"

#include <stdint.h>
#include <string.h>

int sort_int64_up(const void *a, const void *b)
{
    return SORT_UP(*(const int64_t *)a, *(const int64_t *)b);
}

int sort_int64_down(const void *a, const void *b)
{
    return sort_int64_up(b, a);
}

int sort_uint32_up(const void *a, const void *b)
{
    return SORT_UP(*(const uint32_t *)a, *(const uint32_t *)b);
}

int sort_compare_texts(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

int sort_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}
