/* The door of those who ask CUDA itself for entry points: every runtime since 11.3, NCCL, PyTorch. */
#ifndef GPUSPY_DOOR_PROCADDRESS_H
#define GPUSPY_DOOR_PROCADDRESS_H

/* `*pointer` is what CUDA answered to `asked`. Where it is an export that has a wrapper, the wrapper
 * is put in its place. errno is kept. */
void gs_hand_out(const char *asked, void **pointer);

/* Writes the names that were handed out without a wrapper to the live session's spool, each once a
 * session. Safe in any thread; no lock, no malloc. */
void gs_unseen_write(void);

#endif
