/* What a block would have become that the end of the run cut short: what the earlier blocks of its
 * call path and size became, whose lives were at least as long, in allocations and frees. Nothing is said of
 * what has outlived them all. */
#ifndef GPUSPY_CATEGORY_ALIKE_H
#define GPUSPY_CATEGORY_ALIKE_H

#include "analyzer/category/category_use.h"
#include "analyzer/run/run.h"
#include "analyzer/category/category.h"

struct gs_alike;
struct gs_alike *gs_alike_new(struct gs_categorizer *categorizer, bool python, const struct gs_uses *uses);
void gs_alike_free(struct gs_alike *a);
/* Somebody will ask for these. */
void gs_alike_want(struct gs_alike *a, uint32_t stack, int64_t bytes);
/* Reads what was freed by `until_ns`; once. */
bool gs_alike_read(struct gs_alike *a, struct gs_run *run, uint32_t process, int64_t until_ns, char *error,
                   size_t error_size);
/* The rule of a block that was live at `until_ns`, see gs_category_rules; GS_NONE: there is none. */
unsigned gs_alike_rule(const struct gs_alike *a, uint32_t stack, int64_t bytes, int64_t alloc_ns);

#endif
