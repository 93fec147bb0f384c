/* A tree of calls as trees and flame graphs show it to people: what only passes a call on (nn.Module's
 * _call_impl, decorators) is left out, and a chain of calls, each of which makes only the next one, is one
 * branch, named by its calls in the user's own code. */
#ifndef GPUSPY_BRANCH_H
#define GPUSPY_BRANCH_H

#include "analyzer/base/arena.h"
#include "analyzer/profile/call_tree.h"
#include "analyzer/view/view_text.h"

struct view_branch {
    const struct profile_call_node *first, *end; /* the chain; a frame of NULL: the root */
    int64_t total, self;
    struct view_branch **children; /* heaviest first */
    size_t n;
};

/* In the arena; the tree outlives it. `full`: each call is a branch. */
struct view_branch *view_branch_build(struct arena *arena, const struct profile_call_tree *tree, bool full);
/* Does this frame only pass a call on? */
bool view_branch_plumbing(const struct run_frame *frame);

/* "train.py:46 <module> → :37 train → :25 Model.forward": those of the user's own code, and the last.
 * Where not all fits, the folders go first, then the first calls. */
char *view_branch_label(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns);
/* "Model.forward train.py:25", or as much of it as fits: the call that tells most. */
char *view_branch_name(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns);

enum view_branch_kind { BRANCH_OWN, BRANCH_LIBRARY, BRANCH_NATIVE, BRANCH_OTHER };
/* Whose code the call is that tells most. */
enum view_branch_kind view_branch_kind_of(const struct view_branch *b);

/* What is shown of a tree. */
struct view_branch_limits {
    int64_t least;  /* what weighs less is summed up */
    size_t top;     /* branches of each call */
    unsigned depth; /* rows below one another; 0: all */
    bool full;
};
/* How many branches are shown, heaviest first, and what the others weigh. */
size_t view_branch_shown(const struct view_branch *b, const struct view_branch_limits *l, int64_t *rest);

#endif
