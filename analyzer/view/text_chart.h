/* Memory over time, drawn in text. */
#pragma once

#include <stdio.h>
#include "analyzer/report/report.h"
#include "analyzer/base/term.h"

/* Draws a chart of `rows` lines above a time axis from 0 to `end_s`: `front` as solid blocks, and behind it `back` in a
 * lighter tone (reserved behind allocated memory, for example); either may be NULL. Each column shows the maximum of
 * its interval. */
void view_chart(const struct result_timeline *front, const struct result_timeline *back, double end_s, int rows,
                const struct terminal *term, int indent, FILE *out);
