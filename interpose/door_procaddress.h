/* The door of those who ask CUDA itself for entry points: every runtime since 11.3, NCCL, PyTorch. */
#ifndef GPUSPY_DOOR_PROCADDRESS_H
#define GPUSPY_DOOR_PROCADDRESS_H

#include "interpose/api.h"

/* gs_wrappers, which its only caller owns. */
typedef void *const (*gs_wrapper_table)[GS_VERSIONS];
/* `*pointer` is what CUDA answered to `asked`. Where it is an export that has a wrapper, the wrapper
 * is put in its place. errno is kept. */
void gs_hand_out(gs_wrapper_table wrappers, const char *asked, void **pointer);

#endif
