/* A tree of calls as trees and flame graphs show it to people: what only passes a call on (nn.Module's
 * _call_impl, decorators) is left out, and a chain of calls, each of which makes only the next one, is one
 * branch, named by its calls in the user's own code. */
#ifndef GPUSPY_BRANCH_H
#define GPUSPY_BRANCH_H

#include "analyzer/base/arena.h"
#include "analyzer/profile/call_tree.h"
#include "analyzer/text/view_text.h"

struct branch {
    const struct gs_call_node *first, *end; /* the chain; a frame of NULL: the root */
    int64_t total, self;
    struct branch **children; /* heaviest first */
    size_t n;
};

/* In the arena; the tree outlives it. `full`: each call is a branch. */
struct branch *branch_build(struct gs_arena *arena, const struct gs_call_tree *tree, bool full);
/* Does this frame only pass a call on? */
bool branch_plumbing(const struct gs_frame *frame);

/* "train.py:46 <module> → :37 train → :25 Model.forward": those of the user's own code, and the last.
 * Where not all fits, the folders go first, then the first calls. */
char *branch_label(const struct view_text *v, const struct branch *b, char *out, size_t size, int columns);
/* "Model.forward train.py:25", or as much of it as fits: the call that tells most. */
char *branch_name(const struct view_text *v, const struct branch *b, char *out, size_t size, int columns);

enum branch_kind { BRANCH_OWN, BRANCH_LIBRARY, BRANCH_NATIVE, BRANCH_OTHER };
/* Whose code the call is that tells most. */
enum branch_kind branch_kind_of(const struct branch *b);

/* What is shown of a tree. */
struct branch_limits {
    int64_t least;  /* what weighs less is summed up */
    size_t top;     /* branches of each call */
    unsigned depth; /* rows below one another; 0: all */
    bool full;
};
/* How many branches are shown, heaviest first, and what the others weigh. */
size_t branch_shown(const struct branch *b, const struct branch_limits *l, int64_t *rest);

#endif
