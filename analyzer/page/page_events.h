/* What happened in a run at a moment, or in a range that the program marked: of a page. */
#ifndef GPUSPY_PAGE_EVENTS_H
#define GPUSPY_PAGE_EVENTS_H

#include "analyzer/page/page_stacks.h"

/* Members "events" (failures, retries, flushes), "steps". */
void page_events_put(const struct result_report *r, struct page_writer *w);
/* Member "marks": of each name at most some, evenly; *left_out of the others. One pass over them. */
bool page_marks_put(struct run *run, struct page_stacks *stacks, struct page_writer *w, uint64_t *left_out, char *error,
                    size_t error_size);

#endif
