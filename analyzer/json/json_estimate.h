/* JSON of `gpuspy estimate`. */
#pragma once

#include <jansson.h>
#include "analyzer/estimate/answer.h"
#include "analyzer/estimate/recipe.h"

/* The whole answer. `recipe`: how --config was understood; may be NULL. Returns NULL if memory runs out. The caller
 * owns the reference. */
json_t *json_estimate(const struct estimate_answer *a, const struct estimate_recipe *recipe);
/* Of a file or a database, cleaned: it may be invalid UTF-8. "" is null. */
json_t *json_clean_text(const char *from);
