/* What rank.c and rank_skew.c share. */
#ifndef GPUSPY_RANK_PARTS_H
#define GPUSPY_RANK_PARTS_H

#include "analyzer/question/rank.h"

struct gs_rank_finding *gs_ranks_find(struct gs_ranks *r, enum gs_rank_kind kind, const struct gs_rank *rank,
                                      int device, int64_t bytes, uint32_t stack);
/* "rank 3", "process 4711" */
const char *gs_rank_label(const struct gs_builder *b, const struct gs_rank *rank);
/* "rank 1, rank 2 and 4 more" of the marked ones. */
const char *gs_rank_labels(const struct gs_builder *b, const struct gs_rank *list, const bool *marked, size_t n);
/* Both lived at one time. */
bool gs_rank_overlap(const struct gs_process *x, const struct gs_process *y);
/* Those to be compared: of each rank the last process; none where one has no rank. To be freed. */
const struct gs_rank **gs_rank_last(const struct gs_report *report, size_t *n);
/* rank_skew.c: starts and missing ranks, the spread of what they did, who waits for whom. */
void gs_rank_skew(struct gs_ranks *r, struct gs_builder *b);

#endif
