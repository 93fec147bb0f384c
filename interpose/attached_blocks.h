/* What PyTorch's allocator held before gpuspy attached: the allocator's own list of blocks, recorded as allocations at
 * the moment of attaching. */
#pragma once

/* Asks the interpreter to run a function of gpuspy's in its main thread, between two instructions of Python; returns at
 * once. Looks functions up, so call it only in a thread of gpuspy's own. Without Python or PyTorch it does nothing. */
void gs_attached_blocks_ask(void);
/* If the function has not run yet, it will do nothing. */
void gs_attached_blocks_drop(void);
