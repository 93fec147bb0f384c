/* Between growth.c, which finds the call paths that grow, and growth_list.c, which groups them. */
#pragma once

#include "analyzer/question/question.h"

struct question_grown { /* a call path */
    uint32_t stack;
    int64_t first_ns, last_ns;  /* of the allocations that stayed */
    struct result_growth entry; /* without stack and lines */
};
/* Adds the growth to the report; sorts `grown`. */
void question_growth_list(struct site_builder *b, struct question_grown *grown, size_t n);
