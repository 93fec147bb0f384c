/* What happened in a run at a moment, or in a range that the program marked: of a page. */
#ifndef GPUSPY_PAGE_EVENTS_H
#define GPUSPY_PAGE_EVENTS_H

#include "analyzer/page/page_stacks.h"

/* Members "events" (failures, retries, flushes), "steps". */
void gs_page_events_put(const struct gs_report *r, struct gs_page_writer *w);
/* Member "marks": of each name at most some, evenly; *left_out of the others. One pass over them. */
bool gs_page_marks_put(struct gs_run *run, struct gs_page_stacks *stacks, struct gs_page_writer *w, uint64_t *left_out,
                       char *error, size_t error_size);

#endif
