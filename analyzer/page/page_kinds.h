/* The category of a block, decided during the replay: the same when it is allocated and when it is freed. It follows
 * categories.c, which decides for the peak, except for evidence that needs the whole state of a moment. */
#pragma once

#include "analyzer/report/report.h"

struct page_kinds;
struct page_kinds *page_kinds_new(struct run *run, const struct result_report *report);
void page_kinds_free(struct page_kinds *k);
void page_kinds_process(struct page_kinds *k, uint32_t process); /* its blocks come next */
/* `series` of the block; the call that frees it, RUN_NONE unknown. */
enum result_category page_kind(struct page_kinds *k, const struct run_lifetime *life, const struct run_series *series,
                               uint32_t free_stack);
