/* Retries, by line. */
#pragma once

#include "analyzer/oom/oom.h"

/* Fills the report's retry_lines; `retries` has one row for each retry, with its site. */
void oom_retry_lines(struct site_builder *b, const struct result_retry_line *retries, size_t n);
