/* Waits of the host for the GPU, from the calls: rows of the sync table, and copies that blocked the host (blocking
 * ones, and asynchronous ones whose host side is pageable). A copy from the GPU for which the same thread's next call
 * waits, on the same stream, is one wait with it: that is how .item(), .cpu() and .tolist() appear in CUDA's calls. So
 * is a copy to the GPU if one line of Python did both: .to(device) without non_blocking. */
#pragma once

#include "analyzer/question/signature.h"

enum { QUESTION_WAIT_STAGED_BYTES = 64 << 10 }; /* the driver stages a copy of up to this size and returns */

struct question_wait {
    uint32_t process, thread, stack, api;
    int device;
    unsigned kind; /* enum gs_sync_kind */
    enum question_shape shape;
    uint64_t count;
    int64_t start_ns, blocked_ns, bytes; /* bytes: of the copy, 0 none; start_ns: RUN_UNKNOWN for `count` waits of which
                                            a recording of bounded size keeps only the sums */
};

typedef void (*question_wait_fn)(void *self, const struct question_wait *wait);
struct question_waits;
/* The signer must outlive it. */
struct question_waits *question_waits_new(struct run *run, struct question_signer *signer, question_wait_fn each,
                                          void *self);
/* Call it as a run_call_fn, in order of time. A wait is reported once it is known to be complete. */
void question_waits_add(struct question_waits *w, const struct run_copy *copy, const struct run_sync *sync);
/* Reports the remaining waits, and the sums of waits whose rows were removed. Their form is taken from recorded ones of
 * the same call path; without any, a wait and a copy of one line that occur equally often are one. */
void question_waits_free(struct question_waits *w);
