/* Sorting, what functions that compare consist of, and searching in what is sorted. */
#pragma once

#include <stddef.h>
#include <stdlib.h>

/* qsort of `n` elements; of none, `list` may be NULL, which qsort does not allow. */
#define SORT(list, n, order) sort_elements((list), (n), sizeof *(list), (order))
static inline void sort_elements(void *list, size_t n, size_t size, int (*order)(const void *a, const void *b))
{
    if (n > 1) qsort(list, n, size, order);
}

/* Smaller or larger values first. One key after another: SORT_UP(x->device, y->device) ?: SORT_DOWN(x->bytes, …) */
#define SORT_UP(a, b) (((a) > (b)) - ((a) < (b)))
#define SORT_DOWN(a, b) SORT_UP(b, a)

/* Defines a function for SORT that compares two elements of `type`, `x` and `y`:
 * SORT_ORDER(order_rows, struct row, SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->device, y->device)) */
#define SORT_ORDER(name, type, order)                      \
    static int name(const void *left_, const void *right_) \
    {                                                      \
        const type *x = left_, *y = right_;                \
        return order;                                      \
    }
/* The same for a list of pointers to elements. */
#define SORT_ORDER_OF_POINTERS(name, type, order)                                       \
    static int name(const void *left_, const void *right_)                              \
    {                                                                                   \
        const type *x = *(const type *const *)left_, *y = *(const type *const *)right_; \
        return order;                                                                   \
    }

/* Orders of int64_t, from the smallest or from the largest; of uint32_t; of char *. */
int sort_int64_up(const void *a, const void *b);
int sort_int64_down(const void *a, const void *b);
int sort_uint32_up(const void *a, const void *b);
int sort_texts(const void *a, const void *b);
/* As strcmp; NULL comes first. */
int sort_compare_texts(const char *a, const char *b);

/* How many of `n` elements come first for which `condition` is true, a condition on the element `i`: it is true up to
 * some element, and false from there on. */
#define SORT_COUNT(n, i, condition)                     \
    ({                                                  \
        size_t low_ = 0, high_ = (n);                   \
        while (low_ < high_) {                          \
            const size_t i = low_ + (high_ - low_) / 2; \
            if (condition)                              \
                low_ = i + 1;                           \
            else                                        \
                high_ = i;                              \
        }                                               \
        low_;                                           \
    })
