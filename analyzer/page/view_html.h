/* The report as a page: one file with all that it needs, which opens without a network. The page itself
 * (analyzer/web) is put together at build time; what is written here is its data, as JSON that cannot
 * leave its element whatever the names in a recording are. web/model.js reads it.
 *
 *   page = gs_page_new(run, &options);      run opened with options.memory_map
 *   report = gs_report_build(run, &options, …);
 *   gs_page_write(page, report, …);
 *
 * The resolution is chosen when the page is written, from how many events there were, and is told in it.
 */
#ifndef GPUSPY_VIEW_HTML_H
#define GPUSPY_VIEW_HTML_H

#include <stdio.h>
#include "analyzer/report/report.h"

struct gs_page;
/* Puts itself into `options`, so that gs_report_build tells it what passes; both live until
 * gs_page_free. Chooses options.top where it is 0. */
struct gs_page *gs_page_new(struct gs_run *run, struct gs_options *options);
/* One more pass over the events. False and a line in `error` where a database could not be read; write
 * errors stay in `out`. `source`: the recording as the person named it. */
bool gs_page_write(struct gs_page *page, const struct gs_report *report, const char *source, FILE *out, char *error,
                   size_t error_size);
void gs_page_free(struct gs_page *page);

#endif
