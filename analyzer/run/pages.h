/* The rows of a table read from the pages of its file, without SQLite's virtual machine: five times as fast.
 *
 * It reads only tables as a recorder writes them, in a file that no process writes to: rows of integers, each within
 * its page. At the first difference it stops, and the caller continues with SQL from there. So only SQLite decides
 * whether a file is damaged and what an unusual row means. For rows.c.
 */
#pragma once

#include "analyzer/run/run_internal.h"

enum { RUN_PAGES_COLUMNS = 9 }; /* of the table */

struct run_page_row {
    int64_t id;                        /* the table's first column */
    int64_t values[RUN_PAGES_COLUMNS]; /* by column; 0 for NULL and for the id's column */
    uint32_t nulls;                    /* a bit for each column that is NULL */
};
typedef bool (*run_pages_fn)(void *self, const struct run_page_row *row);

struct run_pages_ids { /* both included */
    int64_t first, last;
};

/* Calls `each` for each row with an id in `ranges` (ascending, apart), ids ascending, until it returns false. True
 * after the last one; false: `*last` is the id of the last row that was read, INT64_MIN if there was none. `columns`
 * are the names of all columns of the table, the first its INTEGER PRIMARY KEY. */
bool run_pages_scan(struct run_database *db, const char *table, const char *const *columns,
                    const struct run_pages_ids *ranges, size_t ranges_n, run_pages_fn each, void *self, int64_t *last);
