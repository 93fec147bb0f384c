/* A tree of calls, and the same as a flame graph, for a terminal and as JSON. */
#pragma once

#include <jansson.h>
#include "analyzer/view/branch.h"

/* Rows "bytes share bar ├ call", callers above what they call. */
void view_tree(const struct draw_text *v, const struct profile *p, const struct profile_call_tree *tree,
               const struct view_branch_limits *limits);
/* Cells as wide as their share, callers above. Draws nothing in less than 20 columns. */
void view_flame(const struct draw_text *v, const struct profile *p, const struct profile_call_tree *tree,
                const struct view_branch_limits *limits);
/* [{parent, depth, frame, total, self, count, self_count}]: callers before what they call, `parent` is an index in the
 * list, null for the root. Of limits, least and depth apply. */
json_t *view_tree_json(const struct profile *p, const struct profile_call_tree *tree,
                       const struct view_branch_limits *limits);
