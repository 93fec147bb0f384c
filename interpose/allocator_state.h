/* What PyTorch's caching allocator keeps in itself and does not report: how much memory it may reserve
 * (torch.cuda.set_per_process_memory_fraction), and the private pool of a block (CUDA graphs, torch.cuda.MemPool). */
#pragma once

#include "interpose/recorder.h"

/* These functions record changes only, and keep errno. The first two are called during a report, which holds the
 * device's lock. */

/* `reserved`: the report's total. The first calls search for the member by system calls; later calls cost a few loads.
 * */
void gs_allocator_read_cap(struct gs_thread *t, int device, int64_t reserved);
/* How often the allocator waited for all streams. The only trace of an emptied cache that had no unused segment. */
void gs_allocator_read_syncs(struct gs_thread *t, int device);
/* After this thread's allocator has requested memory from CUDA: the pool of the block that it reports next, and
 * therefore of all blocks in that segment. Uses system calls. */
void gs_allocator_read_pool(struct gs_thread *t, int device, uint64_t block, int64_t bytes);
/* Finds private pools from which nothing allocates any more. Called after a graph was destroyed, and when memory is
 * short. */
void gs_allocator_read_unused(struct gs_thread *t);
