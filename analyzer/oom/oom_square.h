#pragma once

#include "analyzer/oom/oom_sight.h"

/* The measure against N × N elements that an accidental broadcast may have made, or against what oom_shape_advice
 * finds. False: there are none. */
bool oom_square_measure(const struct oom_sight *s, struct result_measure *m);
/* The measure against dense gradients of embedding tables. False: they are little of the GPU or of all gradients. */
bool oom_dense_rows_measure(const struct oom_sight *s, struct result_measure *m);
/* The measure against `all = torch.cat((all, part))` outside of training, if its result is much of the live memory. */
bool oom_joined_measure(const struct oom_sight *s, struct result_measure *m);
/* What to do about the line's result, if its statement shows why it is so large; NULL: it does not. */
const char *oom_shape_advice(struct oom_words *w, uint32_t stack, int64_t bytes);
/* A backward pass that fails copies what the forward pass made: the line of the largest blocks that oom_shape_advice
 * explains, or that of the loss, if its blocks are the largest; RUN_NONE: it did not fail in one, or none does. */
uint32_t oom_shape_behind_backward(struct oom_words *w);
