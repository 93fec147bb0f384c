/* How often a call site is called over the program's steps: in each, in every 50th, between them, before or after them.
 * A call site has one cadence per process that called it; they are added up at the end. */
#pragma once

#include "analyzer/site/builder.h"

struct step_cadence {
    uint32_t process; /* of the last call, + 1; 0: none yet */
    size_t now,
        last; /* the step of the last call, and the last steady one up to it; SIZE_MAX none yet in this process */
    uint64_t now_calls;              /* in that step so far */
    uint64_t usual, votes;           /* calls in most of the steps that have any, found in one pass (majority vote) */
    bool loop;                       /* the steps are those of a loop without better evidence */
    uint64_t before, between, after; /* calls: before, with the warm-up; in no step; from the last step on */
    uint64_t calls, hits;            /* in steady steps: calls, and steps with any */
    uint64_t steps;                  /* steady steps of the processes that called */
    uint64_t gaps, gap_sum;          /* from one step with a call to the next one with a call */
    size_t gap_least, gap_most;
    int64_t first_ns, last_ns; /* of all its calls */
    int64_t end_ns;            /* of the last call */
    int64_t apart_ns;          /* in steady steps: from a call's end to the next call in that step */
    int64_t blocked_ns;        /* in steady steps */
    int64_t steady_ns;         /* total duration of those steps */
    int64_t usual_ns;          /* the same without pauses of the program */
};

/* The steps of the process whose calls are being read. Zero-initialise. */
struct step_clock {
    const struct step_list *steps;
    int64_t steady_ns; /* duration of its steady steps, without the time between them */
    int64_t usual_ns;  /* the same without pauses of the program */
    uint32_t process;  /* + 1; 0: none yet */
    size_t step;       /* the one at [from, until) */
    int64_t from, until;
};

void step_cadence_add(const struct site_builder *b, struct step_clock *clock, struct step_cadence *c, uint32_t process,
                      int64_t time_ns, int64_t blocked_ns);

/* The step past the last steady one. */
size_t step_steady_end(const struct step_list *s);

/* The conclusions from a cadence. A site in a function called evaluate or validate, or called from one, is evaluation,
 * however often it is called; NULL unknown. */
struct result_pace step_pace(const struct step_cadence *c, const struct result_site *site);

/* Does it cost enough to be reported? By time (2 % of the steady steps and 1 ms), or by count (once per step) if times
 * mean nothing (a simulated GPU). Without steps: by at most `otherwise`. */
bool step_pace_matters(const struct result_pace *p, bool simulated, bool by_count, bool otherwise);

/* "1 per step", "every 50 steps", "in evaluation"; "" if no steps are known. */
#define STEP_PACE_TEXT 48
char *step_pace_text(const struct result_pace *p, char out[STEP_PACE_TEXT]);

/* Is any device of the run simulated? Then its times mean nothing. */
bool step_is_simulated(const struct site_builder *b);
/* Did any process of the run report tensors? */
bool step_has_tensors(const struct site_builder *b);
