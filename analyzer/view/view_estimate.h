/* An estimate for people: what was understood, a table by category, when in the step the peak comes, a bar
 * against each GPU, what would help. */
#pragma once

#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/estimate/answer.h"
#include "analyzer/estimate/recipe.h"

struct view_estimate {
    const struct estimate_answer *a;
    const struct estimate_recipe *recipe; /* what --config was read as; NULL: nothing was */
    struct terminal term;
    FILE *out;
    bool explain; /* every line with its formula, source and reason */
};

void view_estimate(const struct view_estimate *v);
