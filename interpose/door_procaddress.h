/* The door for callers that request entry points from CUDA itself: every runtime since 11.3, NCCL, PyTorch. */
#pragma once

#include "interpose/api.h"

/* gs_wrappers, which the only caller owns. */
typedef void *const (*gs_wrapper_table)[GS_VERSIONS];
/* `*pointer` is CUDA's answer for the name `asked`. If it is an export that has a wrapper, it is replaced by the
 * wrapper. errno is kept. */
void gs_hand_out(gs_wrapper_table wrappers, const char *asked, void **pointer);
