/* The report's JSON in a page: repeated parts (frames, sites, call paths) are written once. If it is still too large,
 * its lists are shortened and its points thinned. Members "report" and "shared". */
#pragma once

#include <jansson.h>
#include "analyzer/page/page_writer.h"

/* Changes `report`. Returns to how many entries its lists were cut, 0 not at all. */
size_t page_report_put(json_t *report, struct page_writer *w);
