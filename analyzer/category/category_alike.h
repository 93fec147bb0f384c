/* The probable category of a block whose life the end of the run cut short: the category of earlier blocks of its call
 * path and size that lived at least as long, in allocations and frees. Unknown for a block that has outlived them all.
 */
#pragma once

#include "analyzer/category/category_use.h"
#include "analyzer/run/run.h"
#include "analyzer/category/category.h"

struct category_alike;
struct category_alike *category_alike_new(struct category_finder *categorizer, bool python,
                                          const struct category_uses *uses);
void category_alike_free(struct category_alike *a);
/* Announces that category_alike_rule will be called for these. */
void category_alike_request(struct category_alike *a, uint32_t stack, int64_t bytes);
/* Reads the blocks that were freed by `until_ns`; call once. */
bool category_alike_read(struct category_alike *a, struct run *run, uint32_t process, int64_t until_ns, char *error,
                         size_t error_size);
/* The rule of a block that was live at `until_ns`, see category_rule_count; RUN_NONE: there is none. */
unsigned category_alike_rule(const struct category_alike *a, uint32_t stack, int64_t bytes, int64_t alloc_ns);
