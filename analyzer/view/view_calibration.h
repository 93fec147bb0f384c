/* What was learned from recordings, and everything that is known. */
#pragma once

#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/question/learn.h"

/* `l` NULL: only what is known. */
void view_calibration(const struct estimate_calibration *c, const struct question_learned *l,
                      const struct terminal *term, FILE *out);
