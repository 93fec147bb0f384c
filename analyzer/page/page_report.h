/* The report's JSON in a page: what stands in it again and again (frames, sites, call paths) is written
 * once. Where it is too large all the same, its lists are cut shorter and its lines of points thinned.
 * Members "report" and "shared". */
#ifndef GPUSPY_PAGE_REPORT_H
#define GPUSPY_PAGE_REPORT_H

#include <jansson.h>
#include "analyzer/page/page_writer.h"

/* Changes `report`. Returns to how many entries its lists were cut, 0 they were not. */
size_t page_report_put(json_t *report, struct page_writer *w);

#endif
