/* When a call path allocated, in bounded memory: distinguishes old blocks from new ones independent of the passes'
 * duration. A first pass, or one that the machine interrupted, takes as long as a hundred others. */
#pragma once

#include <stdint.h>

enum { OOM_HISTORY = 16 };

struct oom_history {         /* all 0: no allocation yet */
    uint64_t times;          /* allocations, freed or not */
    int64_t ns[OOM_HISTORY]; /* of every `stride`-th, ascending */
    uint32_t n;
    uint64_t stride;
};

/* Times must be in order. */
void oom_history_add(struct oom_history *h, int64_t ns);
/* The share of its allocations, 0 to 1, that came before that time. */
double oom_history_rank(const struct oom_history *h, int64_t ns);
/* The reverse: when it had made that share of its allocations. */
int64_t oom_history_time(const struct oom_history *h, double rank);
