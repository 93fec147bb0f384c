/* Statements whose result is larger than what they are given. */
#pragma once

#include "analyzer/site/builder.h"
#include "analyzer/site/python_code.h"

/* MASKS: pairs of a & b[:, None]. ONE_SIDED: x[:, None] - y, which makes pairs unless y has size 1 or no dimension
 * there: the sizes of the blocks show it. */
enum site_shape {
    SITE_SHAPE_PAIRS,
    SITE_SHAPE_MASKS,
    SITE_SHAPE_ONE_SIDED,
    SITE_SHAPE_EXPANSION,
    SITE_SHAPE_REPETITION,
    SITE_SHAPE_ONE_HOT
};

/* Does a statement of the innermost line of the program make such a result? */
bool site_line_makes(struct site_builder *b, uint32_t stack, enum site_shape shape);

/* Does the statement of a file with n lines combine two tensors along different dimensions:
 * a[:, None] - b[None], x.unsqueeze(1) * y.unsqueeze(0), einsum("i,j->ij", a, b), cdist(a, b)? */
bool site_statement_makes_pairs(const struct site_statement *statement, const char *const *lines, size_t n);
/* SITE_SHAPE_MASKS or SITE_SHAPE_ONE_SIDED? */
bool site_statement_broadcasts(const struct site_statement *statement, enum site_shape shape);
/* x.expand(n, -1).contiguous(), which no view() of it needs? */
bool site_statement_copies_expansion(const struct site_statement *statement);
/* x.unsqueeze(1).repeat(1, n, 1), of which no view() is made: expand() would do? */
bool site_statement_repeats(const struct site_statement *statement);
/* one_hot(labels, n), torch.eye(n)[labels]? */
bool site_statement_makes_one_hot(const struct site_statement *statement);
