/* The processes of one run compared: which GPU each works on and what it holds there; and outliers: memory on another
 * rank's GPU, several ranks on one GPU, one that holds more than the others. */
#pragma once

#include "analyzer/question/question.h"

struct question_ranks;
struct question_ranks *question_ranks_start(struct site_builder *b, struct run_observer *observer);
/* Each copy and wait, see run_each_call. */
void question_ranks_add(struct question_ranks *r, const struct run_copy *copy, const struct run_sync *sync);
/* After peaks; frees. Adds nothing if fewer than two processes held device memory. */
void question_ranks_finish(struct question_ranks *r);

/* A device of a process as its host knows it: its entry in CUDA_VISIBLE_DEVICES, else its number. In the arena. */
const char *question_gpu_word(const struct site_builder *b, uint32_t process, int device);
