/* Declarations that rank.c and rank_skew.c share (rank_parts.c). */
#pragma once

#include "analyzer/question/rank.h"

struct question_rank_calls {
    double blocked_s, waited_s, collective_s;
    uint64_t waits, copies;
    int64_t copied_bytes;
};

struct question_rank_first { /* the first allocation of a process on a device */
    uint32_t process, stack;
    int device;
};

struct question_ranks {
    struct site_builder *b;
    ARENA_LIST(struct question_rank_first, firsts);
    struct map peaks;                  /* process, device, layer → peak */
    struct question_rank_calls *calls; /* by process */
    size_t calls_cap;
    uint8_t *collective; /* by stack: 1 no, 2 below torch.distributed */
    size_t collective_cap;
    ARENA_LIST(struct result_rank_finding, found);
};

struct result_rank_finding *question_rank_add_finding(struct question_ranks *r, enum result_rank_kind kind,
                                                      const struct result_rank *rank, int device, int64_t bytes,
                                                      uint32_t stack);
/* "rank 3", "process 4711" */
const char *question_rank_label(const struct site_builder *b, const struct result_rank *rank);
/* "rank 1, rank 2 and 4 more" of the marked ones. */
const char *question_rank_labels(const struct site_builder *b, const struct result_rank *list, const bool *marked,
                                 size_t n);
bool question_rank_is_same_host(const struct run_process *x, const struct run_process *y);
/* Did both run at the same time? */
bool question_rank_overlaps(const struct run_process *x, const struct run_process *y);
/* Those to compare: the last process of each rank; none if a process has no rank. Free the result. */
const struct result_rank **question_rank_last(const struct result_report *report, size_t *n);
/* rank_skew.c: starts and missing ranks, the spread of their figures, which rank the others wait for. */
void question_rank_skew(struct question_ranks *r, struct site_builder *b);
