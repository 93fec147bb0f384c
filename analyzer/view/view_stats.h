/* Number of allocations, sizes, lifetimes, and their call sites: as text and as JSON. */
#pragma once

#include <jansson.h>
#include "analyzer/profile/statistics.h"
#include "analyzer/profile/tally.h"
#include "analyzer/view/view_text.h"

struct view_stats {
    const struct result_report *report;
    struct profile_statistics all;
    enum run_series_layer layer; /* to which sizes, lifetimes and lines refer */
    struct profile *profile;     /* all that the layer allocated, by category */
    struct profile_tally *lines, *categories;
    uint64_t steps; /* of the process that has most; 0 none */
};

/* Does this layer have any allocations? */
bool view_stats_has_layer(const struct view_stats *x, int layer);
void view_stats(const struct draw_text *t, const struct view_stats *x);
/* Members of `o`; `top` lines of a list. */
void view_stats_json(json_t *o, const struct view_stats *x, size_t top);
