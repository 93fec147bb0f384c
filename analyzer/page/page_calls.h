/* Waits and copies over time in a page: by place, in bins of the process's time. */
#ifndef GPUSPY_PAGE_CALLS_H
#define GPUSPY_PAGE_CALLS_H

#include "analyzer/page/page_stacks.h"

struct gs_page_calls;
struct gs_page_calls *gs_page_calls_new(struct gs_run *run);
void gs_page_calls_free(struct gs_page_calls *c);
/* A gs_call_fn for the report's pass. */
void gs_page_calls_tell(void *self, const struct gs_copy *copy, const struct gs_sync *sync);
/* Member "calls". Returns how many places were merged. */
size_t gs_page_calls_put(struct gs_page_calls *c, struct gs_page_stacks *stacks, struct gs_page_writer *w);

#endif
