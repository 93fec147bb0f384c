/* The moments and ranges of a run in a page: failures, flushes, steps and the program's own marks. */
#pragma once

#include "analyzer/page/page_stacks.h"

/* Members "events" (failures, retries, flushes), "steps". */
void page_events_put(const struct result_report *r, struct page_writer *w);
/* Member "marks": an evenly spaced selection for each name; *left_out counts the others. One pass over them. */
bool page_marks_put(struct run *run, struct page_stacks *stacks, struct page_writer *w, uint64_t *left_out, char *error,
                    size_t error_size);
