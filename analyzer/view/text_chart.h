/* Memory over time, drawn in text. */
#ifndef GPUSPY_TEXT_CHART_H
#define GPUSPY_TEXT_CHART_H

#include <stdio.h>
#include "analyzer/report/report.h"
#include "analyzer/base/term.h"

/* Draws `rows` lines and an axis: `front` as solid blocks and, behind it, `back` (which is larger: what is held against
 * what is in use) in a lighter tone; either may be NULL. From 0 to `end_s`. Every column shows the most of its stretch
 * of time, so that no peak falls between two columns. */
void view_chart(const struct result_timeline *front, const struct result_timeline *back, double end_s, int rows,
                const struct terminal *term, int indent, FILE *out);

#endif
