/* A profile as a tree of calls: for trees and flame graphs of all kinds, and what compares them.
 *
 * Calls of one function at one line, below the same callers, are one node, regardless of their process, device and
 * category. Native frames without a name have one node per module and offset. Entries without a stack are children of
 * the root, below profile_call_unknown.
 */
#pragma once

#include "analyzer/profile/profile.h"

struct profile_call_node {
    const struct run_frame *frame; /* NULL: the root */
    struct profile_call_node *parent;
    ARENA_ROWS(struct profile_call_node *, children); /* heaviest first */
    uint32_t depth;                                   /* 0 the root; at most RUN_DEPTH_MAX */
    int64_t self, total;                              /* weight: of this call only; including all that it called */
    uint64_t self_count, total_count;
};

struct profile_call_tree {
    struct profile_call_node *root;
    size_t nodes;   /* including the root */
    uint32_t depth; /* of the deepest node */
};

/* The frame of entries without a stack: function "(no stack recorded)". */
extern const struct run_frame profile_call_unknown;

/* Which entries are included; NULL all. */
typedef bool (*profile_call_keep_fn)(void *self, const struct profile_entry *entry);

/* Looks names up. The tree's frames belong to the run; the profile may be freed before the tree. */
struct profile_call_tree *profile_call_tree_build(struct run *run, const struct profile *profile, bool native,
                                                  profile_call_keep_fn keep, void *self);
void profile_call_tree_free(struct profile_call_tree *tree);

/* The nodes, callers before what they call and largest first: start with the root; NULL at the end. Needs no recursion.
 * */
const struct profile_call_node *profile_call_next(const struct profile_call_node *node);
