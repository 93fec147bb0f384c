/* How often a place is called over the program's steps: in each, in every 50th, between them,
 * before or after them. A place has one cadence per process that it was called in, added up at the
 * end. */
#ifndef GPUSPY_CADENCE_H
#define GPUSPY_CADENCE_H

#include "analyzer/site/builder.h"

struct step_cadence {
    uint32_t process;                /* of the last call, + 1; 0: none yet */
    size_t now, last;                /* the step of the last call, and the steady one of it or before it;
                                        SIZE_MAX none yet in this process */
    uint64_t now_calls;              /* in that step so far */
    uint64_t usual, votes;           /* calls in most of the steps that call, found in one pass */
    bool loop;                       /* the steps are those of a loop that nothing says more of */
    uint64_t before, between, after; /* calls: with the warm-up; in no step; from the last one on */
    uint64_t calls, hits;            /* in steady steps: calls, and steps with any */
    uint64_t steps;                  /* steady steps of the processes that called */
    uint64_t gaps, gap_sum;          /* from one step with a call to the next such one */
    size_t gap_least, gap_most;
    int64_t first_ns, last_ns; /* of all its calls */
    int64_t end_ns;            /* of the last call */
    int64_t apart_ns;          /* in steady steps: from a call's end to the next in that step */
    int64_t blocked_ns;        /* in steady steps */
    int64_t steady_ns;         /* how long those took, all of them */
};

/* The steps of the process whose calls are being read. Zero-initialise. */
struct step_clock {
    const struct step_list *steps;
    int64_t steady_ns; /* that its steady steps take, without what lies between them */
    uint32_t process;  /* + 1; 0: none yet */
    size_t step;       /* the one at [from, until) */
    int64_t from, until;
};

void step_cadence_add(const struct site_builder *b, struct step_clock *clock, struct step_cadence *c, uint32_t process,
                      int64_t time_ns, int64_t blocked_ns);

/* The step past the last steady one. */
size_t step_steady_end(const struct step_list *s);

/* What follows from it. A site in a function called evaluate or validate, or called from one, is
 * evaluation, however often it comes by; NULL unknown. */
struct result_pace step_pace(const struct step_cadence *c, const struct result_site *site);

/* Does it cost enough to be said? By time (2 % of the steady steps and 1 ms), and where times mean
 * nothing (a simulated GPU) by count: once a step. Without steps: by no more than `otherwise`. */
bool step_pace_matters(const struct result_pace *p, bool simulated, bool by_count, bool otherwise);

/* "1 a step", "every 50 steps", "in evaluation"; "" where no steps are known. */
#define STEP_PACE_TEXT 48
char *step_pace_text(const struct result_pace *p, char out[STEP_PACE_TEXT]);
/* calls_per_step, phase and every_steps into an object. */
struct json_t;
void json_pace(struct json_t *object, const struct result_pace *pace);

/* Any device of the run is a simulated one: its times mean nothing. */
bool step_is_simulated(const struct site_builder *b);
/* Any process of the run reported tensors. */
bool step_has_tensors(const struct site_builder *b);

#endif
