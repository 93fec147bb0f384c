/* Memory over time in a page: per series a bounded number of moments, and the live memory at each of them, by call path
 * and category.
 *
 * Two passes. During the report's own replay, the maximum of each call path is recorded, which decides which of them
 * get their own line, and the series' total (page_curve.h). Then the series' time is cut into buckets: at the program's
 * steps if they are known, else evenly by time; evenly by events; and ever finer towards the peak and each failure. A
 * bucket shows the state at its highest moment. These moments are now known, so that a second pass over the rows, in
 * the order in which they are stored, finds what was live at each of them. It is stored as differences from the
 * previous bucket. Memory: buckets times lines at most, both bounded.
 */
#pragma once

#include "analyzer/page/page_kinds.h"
#include "analyzer/page/page_stacks.h"

struct page_series;
struct page_series *page_series_new(struct run *run);
void page_series_free(struct page_series *p);
struct run_observer page_series_observer(struct page_series *p);
/* Another pass over the rows, when the report is complete. */
bool page_series_read(struct page_series *p, const struct result_report *report, struct page_kinds *kinds,
                      struct page_stacks *stacks, char *error, size_t error_size);

struct page_resolution {                 /* what was reduced to make it fit */
    uint64_t events;                     /* allocations and frees */
    size_t series, buckets;              /* buckets: of the series with most */
    bool all;                            /* each event has its own bucket, in all of them */
    uint64_t lines;                      /* call paths with their own line */
    uint64_t by_line;                    /* call paths that share a line with others of the same line of code */
    uint64_t merged;                     /* merged by category */
    int64_t by_line_bytes, merged_bytes; /* the maximum that one of these held */
    bool singles_left_out;               /* single allocations of smaller call paths */
};
void page_series_put(struct page_series *p, struct page_stacks *stacks, struct page_writer *w,
                     struct page_resolution *r);
