/* A roofline drawn in text: log against log, the roofs of several precisions, and points under them. */
#pragma once

#include <stdio.h>
#include "analyzer/base/term.h"

enum { ROOF_CHART_POINTS = 6, ROOF_CHART_ROOFS = 12 };

struct view_roof_chart {
    double bytes_per_s; /* the slope */
    struct {
        const char *name;
        double flops_per_s;
    } roofs[ROOF_CHART_ROOFS]; /* [0] is the main roof; the others are drawn lightly */
    size_t roofs_n;
    struct {
        char mark; /* a letter */
        double intensity, flops_per_s;
    } points[ROOF_CHART_POINTS];
    size_t points_n;
};

/* Draws nothing if a point cannot be placed on a logarithmic axis. */
void view_roof_chart(const struct view_roof_chart *c, const struct terminal *term, FILE *out);
