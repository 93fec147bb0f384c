/* Tensors whose physical memory the program unmaps and later maps again at the same address: vLLM's sleep mode,
 * torch_memory_saver. PyTorch does not know of it. Such a tensor's row becomes one lifetime for each time that its
 * memory is mapped. For rows.c. */
#pragma once

#include "analyzer/run/order.h"

struct run_asleep;

/* NULL: no memory of the process was unmapped. Free it with run_asleep_free. */
struct run_asleep *run_asleep_new(struct run *run, uint32_t process);
void run_asleep_free(struct run_asleep *asleep);
/* Ends the row's lifetime where its memory is unmapped; the rest waits until it is mapped again. */
void run_asleep_divide(struct run_asleep *asleep, struct run_stored *row);
/* The earliest lifetime that waits and begins before `before` (ns), divided likewise. False: there is none. */
bool run_asleep_next(struct run_asleep *asleep, int64_t before, struct run_stored *row);
