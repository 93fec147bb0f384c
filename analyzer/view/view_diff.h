/* A comparison for a terminal. */
#pragma once

#include "analyzer/diff/diff.h"
#include "analyzer/base/term.h"

struct view_diff {
    const struct diff *diff;
    const struct diff_side *side; /* both */
    const char *const *path;      /* both, as they were typed */
    struct terminal term;
    FILE *out;
    size_t top; /* rows of each list */
};

void view_diff(const struct view_diff *v);
