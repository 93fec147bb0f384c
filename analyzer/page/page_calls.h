/* Waits and copies over time in a page: by call site, in bins of the process's time. */
#pragma once

#include "analyzer/page/page_stacks.h"

struct page_calls;
struct page_calls *page_calls_new(struct run *run);
void page_calls_free(struct page_calls *c);
/* A run_call_fn for the report's pass. */
void page_calls_add(void *self, const struct run_copy *copy, const struct run_sync *sync);
/* Member "calls". Returns how many call sites were merged. */
size_t page_calls_put(struct page_calls *c, struct page_stacks *stacks, struct page_writer *w);
