/* What graph memory and pools report about themselves. */
#pragma once

#include "interpose/capture.h"
#include "interpose/recorder.h"

/* After a launch or a trim: gs_record_pool(pool 0), if such memory exists and its state changed. */
void gs_record_graph_memory(struct gs_thread *t, int device);
/* What a pool holds now; pool 0: the current device's current pool. */
void gs_record_pool_now(struct gs_thread *t, uint64_t pool);

/* A new session knows no pools. */
void gs_graph_forget(void);
