/* Statements whose result has an element for each pair of elements of their operands. */
#pragma once

#include "analyzer/site/builder.h"
#include "analyzer/site/python_code.h"

/* Does the statement of the innermost line of the program combine two tensors along different dimensions:
 * a[:, None] - b[None], x.unsqueeze(1) * y.unsqueeze(0), einsum("i,j->ij", a, b), cdist(a, b)? */
bool site_makes_pairs(struct site_builder *b, uint32_t stack);
/* The same of a statement of a file with n lines. */
bool site_statement_makes_pairs(const struct site_statement *statement, const char *const *lines, size_t n);
