/* What PyTorch's caching allocator has in itself and reports to nobody: how much memory it may reserve
 * (torch.cuda.set_per_process_memory_fraction), and the private pool of a block (CUDA graphs, torch.cuda.MemPool). */
#ifndef GPUSPY_ALLOCATOR_STATE_H
#define GPUSPY_ALLOCATOR_STATE_H

#include "interpose/recorder.h"

/* They record what is new, and keep errno. The first two are called in a report, which holds the device's lock. */

/* `reserved`: the report's total. The first calls look for it by system calls; then each costs a few loads. */
void gs_allocator_read_cap(struct gs_thread *t, int device, int64_t reserved);
/* After this thread's allocator has requested memory from CUDA: the pool of the block that it then reports, and so of
 * all blocks in that segment. By system calls. */
void gs_allocator_read_pool(struct gs_thread *t, int device, uint64_t block, int64_t bytes);
/* Which private pools nothing allocates from any more. After a graph has gone, and where memory is short. */
void gs_allocator_read_unused(struct gs_thread *t);

#endif
