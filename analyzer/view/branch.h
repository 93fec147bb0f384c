/* A tree of calls for display as a tree or flame graph: frames that only pass a call on (nn.Module's _call_impl,
 * decorators) are left out, and a chain of calls, each of which makes only the next one, is one branch, named by its
 * calls in the user's own code. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/profile/call_tree.h"
#include "analyzer/view/view_text.h"

struct view_branch {
    const struct profile_call_node *first, *end; /* the chain; a frame of NULL: the root */
    int64_t total, self;
    struct view_branch **children; /* heaviest first */
    size_t n;
};

/* In the arena; the tree must outlive it. `full`: each call is a branch. */
struct view_branch *view_branch_build(struct arena *arena, const struct profile_call_tree *tree, bool full);
/* Does this frame only pass a call on? */
bool view_branch_plumbing(const struct run_frame *frame);

/* "train.py:46 <module> → :37 train → :25 Model.forward": those of the user's own code, and the last. If not everything
 * fits, first the folders are left out, then the first calls. */
char *view_branch_label(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns);
/* "Model.forward train.py:25", or as much of it as fits: the most informative call. */
char *view_branch_name(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns);

enum view_branch_kind { BRANCH_OWN, BRANCH_LIBRARY, BRANCH_NATIVE, BRANCH_OTHER };
/* Whose code the most informative call is. */
enum view_branch_kind view_branch_kind_of(const struct view_branch *b);

/* Which part of a tree is shown. */
struct view_branch_limits {
    int64_t least;  /* smaller weights are summed up */
    size_t top;     /* branches per call */
    unsigned depth; /* levels; 0: all */
    bool full;
};
/* How many branches are shown, largest first, and the weight of the others. */
size_t view_branch_shown(const struct view_branch *b, const struct view_branch_limits *l, int64_t *rest);
