/* An estimate as a page: one file without other resources. The page itself (analyzer/web/estimate) is assembled at
 * build time; this file writes its data, the same as --json prints. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/estimate/answer.h"

/* `explain`: each line's formula is open from the start. False if memory ran out; write errors stay in `out`. */
bool page_estimate(const struct estimate_answer *a, bool explain, FILE *out);
