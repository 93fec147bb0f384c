/* The address map of a device's memory in a page: at the peak, and at each failure from which the program did not
 * recover. Segments are CUDA allocations; under PyTorch, its tensors are the blocks in them, and the rest are holes.
 * Bounded: if there are too many blocks, small neighbours are drawn as one, and the smallest segments are left out;
 * each map states so. */
#pragma once

#include "analyzer/page/page_kinds.h"
#include "analyzer/page/page_stacks.h"

struct page_maps;
struct page_maps *page_maps_new(struct run *run, const struct result_report *report, struct page_kinds *kinds);
void page_maps_free(struct page_maps *m);
/* Another pass over the rows that are live at these moments, after a replay. */
bool page_maps_read(struct page_maps *m, char *error, size_t error_size);
void page_maps_put(struct page_maps *m, struct page_stacks *stacks, struct page_writer *w);
