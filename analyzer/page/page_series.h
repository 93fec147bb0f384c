/* Memory over time in a page: per series a bounded number of moments, and what was live at each of them,
 * by call path and category.
 *
 * Two passes. In the report's own one it is only seen how much each call path held at most, and so which
 * are worth a line of their own. Then the series' time is cut into buckets: at the program's steps
 * where they are known, else evenly by time; evenly by events; and ever finer towards the peak and each
 * failure. What a bucket shows is the state at its own
 * highest moment, kept as differences to the bucket before; with an undo log it costs O(1) an event.
 * Memory: buckets times lines at the most, both bounded.
 */
#ifndef GPUSPY_PAGE_SERIES_H
#define GPUSPY_PAGE_SERIES_H

#include "analyzer/page/page_kinds.h"
#include "analyzer/page/page_stacks.h"

struct page_series;
struct page_series *page_series_new(struct run *run);
void page_series_free(struct page_series *p);
/* For the report's pass. */
struct run_observer page_series_observer(struct page_series *p);
/* The pass of its own, once the report is there; `also` looks on. */
bool page_series_replay(struct page_series *p, const struct result_report *report, struct page_kinds *kinds,
                        struct page_stacks *stacks, const struct run_observer *also, char *error, size_t error_size);

struct page_resolution {                 /* what was done to make it fit */
    uint64_t events;                     /* allocations and frees */
    size_t series, buckets;              /* buckets: of the series with most */
    bool all;                            /* each event has its own bucket, in all of them */
    uint64_t lines;                      /* call paths with a line of their own */
    uint64_t by_line;                    /* that share one with others of the same line of code */
    uint64_t merged;                     /* merged by category */
    int64_t by_line_bytes, merged_bytes; /* what one of these held at most */
    bool singles_left_out;               /* single allocations of smaller call paths */
};
/* Member "series". */
void page_series_put(struct page_series *p, struct page_stacks *stacks, struct page_writer *w,
                     struct page_resolution *r);

#endif
