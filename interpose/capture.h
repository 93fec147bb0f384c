/* Which streams are being captured into graphs, and whether graphs allocate. */
#ifndef GPUSPY_CAPTURE_H
#define GPUSPY_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

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
bool gs_graph_has_allocated(void);

/* A new session knows nothing. */
void gs_capture_forget(void);

#endif
