/* Graphs and pools: what is known of captures, and what graph memory and pools say of themselves. */
#ifndef GPUSPY_GRAPH_H
#define GPUSPY_GRAPH_H

#include "interpose/recorder.h"

/* A capture begins; `graph`: into this one, which exists already, or 0. */
void gs_capture_begun(uint64_t graph);
/* Whether a capture that ended with this graph made it. */
bool gs_capture_made(uint64_t graph);
/* Whether a stream is being captured: what is asked of it is not done now. Asks the driver only if the
 * process has ever begun a capture. */
bool gs_captured(uint64_t stream);
/* The flags of a stream-ordered allocation or free: GS_FLAG_GRAPH while the stream is captured. */
uint8_t gs_capture_flags(uint64_t stream);

/* The process has memory that is a graph's. */
void gs_graph_allocates(void);
/* After a launch or a trim: gs_record_pool(pool 0), if such memory exists and its state changed. */
void gs_record_graph_memory(struct gs_thread *t, int device);
/* What a pool holds now; pool 0: the current device's current one. */
void gs_record_pool_now(struct gs_thread *t, uint64_t pool);

/* A new session knows nothing. */
void gs_graph_forget(void);

#endif
