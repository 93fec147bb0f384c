#pragma once

#include "analyzer/top/model.h"

void top_forget_allocations(struct top_model *m, uint32_t source);
/* The next update reads all allocations, copies and waits of the recording again. */
void top_forget_rows(struct top_model *m, uint32_t source);
