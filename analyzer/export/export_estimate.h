/* An answer of `gpuspy estimate` as CSV (RFC 4180): what was solved for; of several GPUs one row each; else the lines.
 */
#pragma once

#include <stdio.h>
#include "analyzer/estimate/answer.h"

void export_estimate_csv(const struct estimate_answer *a, FILE *out);
