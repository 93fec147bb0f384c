/* The processes of one run side by side: which GPU each works on and what it holds there; and what stands
 * out: memory on a GPU that is another's, several on one GPU, one that holds more than the others. */
#ifndef GPUSPY_RANK_H
#define GPUSPY_RANK_H

#include "analyzer/question/question.h"

struct gs_ranks;
struct gs_ranks *gs_ranks_start(struct gs_builder *b, struct gs_observer *observer);
/* Each copy and wait, see gs_run_calls. */
void gs_ranks_call(struct gs_ranks *r, const struct gs_copy *copy, const struct gs_sync *sync);
/* After peaks; frees. Nothing where fewer than two processes held device memory. */
void gs_ranks_finish(struct gs_ranks *r);

/* A device of a process as its host knows it: the word of CUDA_VISIBLE_DEVICES that stands for it, else its
 * number. In the arena. */
const char *gs_gpu_word(const struct gs_builder *b, uint32_t process, int device);

#endif
