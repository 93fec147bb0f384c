/* The address map of a device's memory in a page: at the peak, and at each failure that was not recovered
 * from. Segments are what was taken from CUDA; where PyTorch ran, its tensors are the blocks in them, and
 * what lies between is a hole. Bounded: of more blocks than there is room for small neighbours are drawn
 * as one, and the smallest segments are left out; each map says so. */
#ifndef GPUSPY_PAGE_MAP_H
#define GPUSPY_PAGE_MAP_H

#include "analyzer/page/page_kinds.h"
#include "analyzer/page/page_stacks.h"

struct gs_page_maps;
struct gs_page_maps *gs_page_maps_new(struct gs_run *run, const struct gs_report *report, struct gs_page_kinds *kinds);
void gs_page_maps_free(struct gs_page_maps *m);
/* For a replay, behind one that tells `kinds` which process it is. */
struct gs_observer gs_page_maps_watch(struct gs_page_maps *m);
/* Member "maps". */
void gs_page_maps_put(struct gs_page_maps *m, struct gs_page_stacks *stacks, struct gs_page_writer *w);

#endif
