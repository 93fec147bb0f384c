/* How many allocations, how large, how long they lived, who makes them: in text and as JSON. */
#ifndef GPUSPY_VIEW_STATS_H
#define GPUSPY_VIEW_STATS_H

#include <jansson.h>
#include "analyzer/profile/statistics.h"
#include "analyzer/profile/tally.h"
#include "analyzer/text/view_text.h"

/* What it is all about, collected. */
struct stats {
    const struct gs_report *report;
    struct statistics all;
    enum gs_series_layer layer; /* whose sizes, lifetimes and lines */
    struct gs_profile *profile; /* all that the layer allocated, by category */
    struct tally *lines, *categories;
    uint64_t steps; /* of the process that has most; 0 none */
};

/* Is there anything of this layer to count? */
bool stats_present(const struct stats *x, int layer);
void view_stats(const struct view_text *t, const struct stats *x);
/* Members of `o`; `top` lines of a list. */
void view_stats_json(json_t *o, const struct stats *x, size_t top);

#endif
