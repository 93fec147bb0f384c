/* The report as a picture of twelve lines to share: what happened, the source line, the curve of memory against the
 * device's limit, and what the fix frees. SVG 1.1 without scripts or links; names in it are escaped. */
#pragma once

#include <stdio.h>
#include "analyzer/report/report.h"

/* Write errors stay in `out`. */
void page_card(const struct result_report *report, FILE *out);
