/* When a call path allocated, in bounded memory: distinguishes old blocks from new ones independent of the passes'
 * duration. A first pass, or one that the machine interrupted, takes as long as a hundred others. */
#pragma once

#include <stdint.h>

enum { OOM_HISTORY = 16 };

struct oom_history {         /* all 0: no allocation yet */
    uint64_t times;          /* allocations, freed or not */
    uint64_t seen, turns;    /* since all rows exist; turns: without those that followed one of the same line */
    int64_t ns[OOM_HISTORY]; /* of every `stride`-th, ascending */
    uint32_t n;
    uint64_t stride;
};

/* What a series allocated and freed up to moments of the run, in bounded memory. */
enum { OOM_COURSE = 128 };

struct oom_course { /* all 0: no allocation yet */
    struct oom_sums {
        int64_t ns, allocated, freed, low; /* low: the least that was live since the one before */
    } list[OOM_COURSE];                    /* of every `stride`-th allocation, ascending */
    uint32_t n;
    uint64_t times, stride;
    int64_t low; /* since the last one; INT64_MAX: it is the last allocation */
};

/* An allocation of `bytes`, which `allocated` includes. Times must be in order. */
void oom_course_add(struct oom_course *c, int64_t ns, int64_t bytes, int64_t allocated, int64_t freed);
/* Bytes freed per byte allocated in that time; NAN unknown. */
double oom_course_turnover(const struct oom_course *c, int64_t from_ns, int64_t to_ns);
/* The least that was live in the first eighth of the allocations of that time; -1: too few moments are known. */
int64_t oom_course_low(const struct oom_course *c, int64_t from_ns, int64_t to_ns);

/* Times must be in order. */
void oom_history_add(struct oom_history *h, int64_t ns);
/* The share of its allocations, 0 to 1, that came before that time. */
double oom_history_rank(const struct oom_history *h, int64_t ns);
/* The reverse: when it had made that share of its allocations. */
int64_t oom_history_time(const struct oom_history *h, double rank);
