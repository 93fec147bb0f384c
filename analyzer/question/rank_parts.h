/* What rank.c and rank_skew.c share (rank_parts.c). */
#ifndef GPUSPY_RANK_PARTS_H
#define GPUSPY_RANK_PARTS_H

#include "analyzer/question/rank.h"

struct gs_rank_calls {
    double blocked_s, waited_s, collective_s;
    uint64_t waits, copies;
    int64_t copied_bytes;
};

struct gs_rank_first { /* the first allocation of a process on a device */
    uint32_t process, stack;
    int device;
};

struct gs_ranks {
    struct gs_builder *b;
    struct gs_rank_first *firsts;
    size_t firsts_n, firsts_cap;
    struct gs_map peaks;         /* process, device, layer → peak */
    struct gs_rank_calls *calls; /* by process */
    size_t calls_cap;
    uint8_t *collective; /* by stack: 1 no, 2 below torch.distributed */
    size_t collective_cap;
    struct gs_rank_finding *found;
    size_t found_n, found_cap;
};

struct gs_rank_finding *gs_ranks_find(struct gs_ranks *r, enum gs_rank_kind kind, const struct gs_rank *rank,
                                      int device, int64_t bytes, uint32_t stack);
/* "rank 3", "process 4711" */
const char *gs_rank_label(const struct gs_builder *b, const struct gs_rank *rank);
/* "rank 1, rank 2 and 4 more" of the marked ones. */
const char *gs_rank_labels(const struct gs_builder *b, const struct gs_rank *list, const bool *marked, size_t n);
bool gs_rank_same_host(const struct gs_process *x, const struct gs_process *y);
/* Both lived at one time. */
bool gs_rank_overlap(const struct gs_process *x, const struct gs_process *y);
/* Those to be compared: of each rank the last process; none where one has no rank. To be freed. */
const struct gs_rank **gs_rank_last(const struct gs_report *report, size_t *n);
/* rank_skew.c: starts and missing ranks, the spread of what they did, who waits for whom. */
void gs_rank_skew(struct gs_ranks *r, struct gs_builder *b);

#endif
