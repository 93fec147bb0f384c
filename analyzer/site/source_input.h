/* What a line of the program passes to a model, and to which, from the source. */
#pragma once

#include "analyzer/site/builder.h"

/* Does the loop around the model's call pass it the same data each time, which was put on the GPU before? */
bool site_repeats_input(struct site_builder *b, uint32_t stack);
/* The line that called the outermost module; RUN_NONE: none. */
uint32_t site_pass_caller(const struct run *run, uint32_t stack);
/* The line that calls, with gradients on, a model that the file trains nowhere, such as a teacher, or passes it to the
 * function that calls it; RUN_NONE: none. */
uint32_t site_untrained_call(struct site_builder *b, uint32_t stack);
