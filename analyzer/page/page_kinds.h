/* What a block is for, told as it passes: the same when it is made and when it is freed. As
 * categories.c has it for the peak, but for what only the whole state of a moment tells. */
#ifndef GPUSPY_PAGE_KINDS_H
#define GPUSPY_PAGE_KINDS_H

#include "analyzer/report/report.h"

struct gs_page_kinds;
struct gs_page_kinds *gs_page_kinds_new(struct gs_run *run, const struct gs_report *report);
void gs_page_kinds_free(struct gs_page_kinds *k);
void gs_page_kinds_process(struct gs_page_kinds *k, uint32_t process); /* its blocks come next */
/* `series` of the block; the call that frees it, GS_NONE not known. */
enum gs_category gs_page_kind(struct gs_page_kinds *k, const struct gs_lifetime *life, const struct gs_series *series,
                              uint32_t free_stack);

#endif
