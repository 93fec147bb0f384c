/* The report's JSON in a page: what stands in it again and again (frames, sites, call paths) is written
 * once. Members "report" and "shared". */
#ifndef GPUSPY_PAGE_REPORT_H
#define GPUSPY_PAGE_REPORT_H

#include <jansson.h>
#include "analyzer/page_writer.h"

void gs_page_report_put(json_t *report, struct gs_page_writer *w);

#endif
