#pragma once

#include "analyzer/oom/oom.h"

/* Of the measures that the cause requires only the first must lead; the others are ordered by their value. */
void oom_choose_measures(struct site_builder *b, struct result_oom_verdict *v);
