/* The report as a page: one file with all that it needs, which opens without a network. The page itself
 * (analyzer/web) is put together at build time; what is written here is its data, as JSON that cannot
 * leave its element whatever the names in a recording are. web/model.js reads it.
 *
 *   page = page_new(run, &options);      run opened with options.memory_map
 *   report = report_build(run, &options, …);
 *   page_write(page, report, …);
 *
 * The resolution is chosen when the page is written, from how many events there were, and is told in it.
 */
#ifndef GPUSPY_VIEW_HTML_H
#define GPUSPY_VIEW_HTML_H

#include <stdio.h>
#include "analyzer/report/report.h"

#include "analyzer/whatif/whatif.h"

struct page;
/* Puts itself into `options`, so that report_build tells it what passes; both live until
 * page_free. Chooses options.top where it is 0. */
struct page *page_new(struct run *run, struct run_options *options);
/* One more pass over the events. False and a line in `error` where a database could not be read; write
 * errors stay in `out`. `source`: the recording as the person named it. */
bool page_write(struct page *page, const struct result_report *report, const char *source, FILE *out, char *error,
                size_t error_size);
/* A what-if whose curve is drawn over the recorded one; it lives until page_write. `recorded`: what it is compared
 * with. */
void page_add_whatif(struct page *page, const struct whatif_scenario *whatif, const struct whatif_proof *proof);
void page_free(struct page *page);

#endif
