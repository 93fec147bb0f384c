/* The table of allocations of one database as lifetimes, in order of id. For replay.c. */
#pragma once

#include "analyzer/run/run_internal.h"

struct run_stored {
    struct run_lifetime life; /* as stored: bytes and times are not checked; free_ns is not before alloc_ns */
    uint32_t free_stack;      /* RUN_NONE */
    bool backwards;           /* the row stated a free before the allocation */
};

/* Which columns are read; the others are 0 and RUN_NONE. */
enum run_rows_columns { RUN_ROWS_SHORT, RUN_ROWS_ADDRESSES, RUN_ROWS_WHOLE };

/* Called with a batch of at least one row, on the caller's thread. */
typedef void (*run_rows_fn)(void *self, const struct run_stored *rows, size_t n);

enum { RUN_ROWS_MANY = 1 << 16 }; /* from this number of rows on, a thread pays off */

/* All rows, or fewer once *stop is set; `about`: how many are expected. Nothing else may use the database meanwhile.
 * Each of these functions returns false with a line in `error` if the table could not be read to its end. */
bool run_rows_scan(struct run_database *db, enum run_rows_columns what, uint64_t about, const _Atomic bool *stop,
                   run_rows_fn each, void *self, char *error, size_t error_size);
/* Whole rows, including all that are live at one of n > 0 moments (ns, ascending). */
bool run_rows_live(struct run_database *db, const int64_t *moments, size_t n, run_rows_fn each, void *self, char *error,
                   size_t error_size);
/* Whole rows with the last `rows_n` ids. */
bool run_rows_last(struct run_database *db, int64_t rows_n, run_rows_fn each, void *self, char *error,
                   size_t error_size);
