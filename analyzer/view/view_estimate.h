/* An estimate as text: how the options were read, a table by category, the moment of the peak within the step, a bar
 * for each GPU, and what would help. */
#pragma once

#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/estimate/answer.h"
#include "analyzer/estimate/recipe.h"

struct view_estimate {
    const struct estimate_answer *a;
    const struct estimate_recipe *recipe; /* how --config was read; NULL: it was not given */
    struct terminal term;
    FILE *out;
    bool explain; /* every line with its formula, source and reason */
};

void view_estimate(const struct view_estimate *v);
