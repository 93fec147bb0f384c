/* What PyTorch's allocator held before gpuspy attached: its own list of blocks, recorded as allocations of that moment.
 */
#ifndef GPUSPY_ATTACHED_BLOCKS_H
#define GPUSPY_ATTACHED_BLOCKS_H

/* Asks the interpreter to run a function of ours in its main thread, between two instructions of Python; returns at
 * once. Looks functions up: only in a thread of our own. Without Python or PyTorch it does nothing. */
void gs_attached_blocks_ask(void);
/* If it has not run by now, it does nothing. */
void gs_attached_blocks_drop(void);

#endif
