/* Statistics of allocations: number, sizes, lifetimes. An observer of a replay. */
#pragma once

#include "analyzer/profile/profile.h"

enum {
    STATISTICS_SIZES = 64, /* [i]: from 2^i up to below 2^(i+1); [0] also has those of 0 bytes */
    STATISTICS_LIVES = 12  /* [i]: from 10^i ns up to below 10^(i+1); the last has all above, [0] all below */
};

struct profile_statistics_tally {
    uint64_t count;
    int64_t bytes;
};

struct profile_statistics_layer { /* of all processes and devices */
    uint64_t allocations, frees;
    uint64_t rows; /* allocations whose sizes and lifetimes are known: all, except in a bounded recording */
    int64_t allocated, freed, largest;
    struct profile_statistics_tally sizes[STATISTICS_SIZES], lives[STATISTICS_LIVES];
    struct profile_statistics_tally kept;      /* never freed */
    struct profile_statistics_tally spaces[8]; /* enum gs_space, allocated */
    double life_ns;                            /* of those that were freed, summed up */
};

struct profile_statistics {
    struct profile_statistics_layer layers[RUN_SERIES_LAYERS];
    struct run *run; /* during the replay */
    /* With a finder if no frame is Python's, because a category then follows from the two calls alone. */
    struct profile_sums sums;
};

/* To be passed to a replay of `run`. */
struct run_observer profile_statistics_observer(struct profile_statistics *s, struct run *run);
unsigned profile_statistics_size_class(int64_t bytes);
unsigned profile_statistics_life_class(int64_t ns);
