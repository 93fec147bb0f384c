/* The result that the sources of steps pass to step.c: the moments of the steps. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"

struct step_moments {
    int64_t *times;  /* of every `stride`-th, ascending */
    int64_t *begins; /* when the steps of `times` began; NULL unknown */
    size_t n, cap, begins_cap;
    size_t stride;
    uint64_t count;           /* of all */
    uint32_t place;           /* from which most of them come, RUN_NONE */
    uint32_t stack;           /* of most of them; of `named` if that is set */
    uint32_t named;           /* the call site that names them, + 1; 0: `place` */
    bool zeroed;              /* of backward passes: the last ones before zero_grad */
    uint64_t removed;         /* of marks: how many a bounded recording removed */
    int64_t removed_first_ns; /* … when the first of them began; RUN_UNKNOWN: their number is unknown */
    const char *name;         /* "range \"step\"", NULL: the call site is the name */
};

enum { STEP_MOMENTS_MAX = 1 << 16 };
/* Adds one more, if it is its turn; thins the list to at most STEP_MOMENTS_MAX. */
void step_moments_add(struct step_moments *m, int64_t begin_ns, int64_t time_ns);
void step_moments_free(struct step_moments *m);
/* Most of the gaps between them are within a quarter and four times of the median one. */
bool step_moments_are_even(const int64_t *times, size_t n);
/* The median of the gaps, 0 for fewer than two times. */
int64_t step_moments_gap(const int64_t *times, size_t n);

struct step_place_tree;
/* step_choice.c; count 0 if it finds none. Calls of an optimizer or backward passes: those that take turns make up one
 * step. An optimizer without which the backward passes continue does not count. */
struct step_moments step_moments_of_calls(struct step_place_tree *t, unsigned place_kind);
/* Calls next to an optimizer that allocates only in its first step: named after that optimizer or, if it was never
 * visited, after the backward pass before it. */
struct step_moments step_moments_of_clips(struct step_place_tree *t);
/* If zero_grad drops the gradients of several backward passes at once, only the last of each group is kept. One more
 * pass over the rows. */
void step_moments_accumulate(struct step_moments *m, struct step_place_tree *t, uint32_t process);
/* The outermost loop: a line of the user's that is visited at even intervals. */
struct step_moments step_moments_of_period(struct step_place_tree *t);
/* If everything happens at one line: the stacks below it, most of which occurred equally often. One more pass over the
 * rows. */
struct step_moments step_moments_of_stacks(struct step_place_tree *t, uint32_t process);
/* step_mark.c: the ranges or moments that repeat; count 0 if none do. */
struct step_moments step_moments_of_marks(struct run *run, struct arena *arena, uint32_t process);
