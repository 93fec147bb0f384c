/* The report as a page: one file without other resources, which opens without a network.
 *
 * The page itself (analyzer/web) is assembled at build time; this writes its data, as JSON that no name in a
 * recording can break out of. web/model.js reads it.
 *
 *      page = page_new(run, &options);              run opened with options.memory_map
 *      report = report_build(run, &options, …);
 *      page_write(page, report, …);
 *
 * The resolution is chosen when the page is written, by the number of events; the page states it. */
#pragma once

#include <stdio.h>
#include "analyzer/report/report.h"

#include "analyzer/whatif/whatif.h"

struct page;
/* Registers itself in `options`, so that report_build passes it the events; both must live until page_free. Sets
 * options.top if it is 0. */
struct page *page_new(struct run *run, struct run_options *options);
/* One more pass over the events. False and a line in `error` if a database could not be read; write errors stay in
 * `out`. `source`: the recording as the user named it. */
bool page_write(struct page *page, const struct result_report *report, const char *source, FILE *out, char *error,
                size_t error_size);
/* A what-if whose curve is drawn over the recorded one; it must live until page_write. `recorded`: what it is compared
 * with. */
void page_add_whatif(struct page *page, const struct whatif_scenario *whatif, const struct whatif_proof *proof);
void page_free(struct page *page);
