/* Walks over the elements of a list: `p` points to each of them. The list may be NULL if it has none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* How many elements a table has. */
#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

/* for (p = &list[0], &list[1], … of n elements); EACH_IN: of list_n elements */
#define EACH(p, list, n) for (__typeof__(&*(list)) p = (list); (n) && p < (list) + (n); p++)
#define EACH_IN(p, list) EACH (p, list, list##_n)

/* The first element for which a condition on `p` is true; NULL if there is none: FIND_IN (p, run->processes, p->rank ==
 * 0) */
#define FIND_OF(p, list, n, ...)            \
    ({                                      \
        __typeof__(&*(list)) found_ = NULL; \
        EACH (p, list, n)                   \
            if (__VA_ARGS__) {              \
                found_ = p;                 \
                break;                      \
            }                               \
        found_;                             \
    })
#define FIND_IN(p, list, ...) FIND_OF(p, list, list##_n, __VA_ARGS__)
/* Is the condition true for an element? */
#define ANY_OF(p, list, n, ...) (FIND_OF(p, list, n, __VA_ARGS__) != NULL)
#define ANY_IN(p, list, ...) ANY_OF(p, list, list##_n, __VA_ARGS__)
