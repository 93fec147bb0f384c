/* Runs all questions over a run and collects their answers. */
#ifndef GPUSPY_REPORT_H
#define GPUSPY_REPORT_H

#include "analyzer/result/result.h"

/* NULL and a line in `error` (cannot read 'x': reason; what to do) where a database turns out to be
 * damaged. `options` need not outlive the call. */
struct gs_report *gs_report_build(struct gs_run *run, const struct gs_options *options, char *error,
                                  size_t error_size);
void gs_report_free(struct gs_report *report);

#endif
