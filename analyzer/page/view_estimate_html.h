/* An estimate as a page: one file with all that it needs. The page itself (analyzer/web/estimate) is put together at
 * build time; what is written here is its data, which is what --json prints. */
#ifndef GPUSPY_VIEW_ESTIMATE_HTML_H
#define GPUSPY_VIEW_ESTIMATE_HTML_H

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/estimate/answer.h"

/* `explain`: each line's formula is open from the start. False where memory ran out; write errors stay in `out`. */
bool page_estimate(const struct estimate_answer *a, bool explain, FILE *out);

#endif
