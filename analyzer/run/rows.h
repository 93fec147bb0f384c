/* The table of allocations of one process as lifetimes, in order of id. For replay.c. Rows are checked (run_row_check);
 * those of devices that were not asked for are left out. */
#pragma once

#include "analyzer/run/order.h"

/* Which columns are read; the others are 0 and RUN_NONE. */
enum run_rows_columns { RUN_ROWS_SHORT, RUN_ROWS_ADDRESSES, RUN_ROWS_WHOLE };

/* Called with a batch on the caller's thread, which may change it. */
typedef void (*run_rows_fn)(void *self, struct run_rows *batch);

enum { RUN_ROWS_MANY = 1 << 16 }; /* from this number of rows on, a thread pays off */

/* All rows, whole. Nothing else may use the database meanwhile.
 * Each of these functions returns false with a line in `error` if the table could not be read to its end. */
bool run_rows_scan(struct run *run, uint32_t process, run_rows_fn each, void *self, char *error, size_t error_size);
/* Only those that are live at one of the moments (ns, ascending), left out before they are passed. */
bool run_rows_lasting(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_rows_fn each, void *self,
                      char *error, size_t error_size);
/* All rows (`damaged`: how many were inconsistent), with their frees. A lifetime's number is not used again before
 * `kept` others have ended. Stops with run->stopped. If backward passes are to be related, rows that are left out are
 * passed and marked. */
bool run_rows_replay(struct run *run, uint32_t process, enum run_rows_columns what, size_t kept, run_rows_fn each,
                     void *self, uint64_t *damaged, char *error, size_t error_size);
/* Whole rows, including all that are live at one of n > 0 moments (ns, ascending). */
bool run_rows_live(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_rows_fn each, void *self,
                   char *error, size_t error_size);
/* Whole rows with the last `rows_n` ids. */
bool run_rows_last(struct run *run, uint32_t process, int64_t rows_n, run_rows_fn each, void *self, char *error,
                   size_t error_size);
