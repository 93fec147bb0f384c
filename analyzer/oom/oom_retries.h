/* Retries, by line. */
#ifndef GPUSPY_OOM_RETRIES_H
#define GPUSPY_OOM_RETRIES_H

#include "analyzer/oom/oom.h"

/* Fills the report's retry_lines; `retries` has one row for each retry, with its site. */
void gs_oom_retry_lines(struct gs_builder *b, const struct gs_retry_line *retries, size_t n);

#endif
