/* Which streams are being captured into graphs, and whether graphs allocate. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A capture begins into this existing graph; 0: into a new one. */
void gs_capture_begun(uint64_t graph);
/* Did a capture that ended with this graph create it? */
bool gs_capture_made(uint64_t graph);
/* Is a stream being captured? Then work submitted to it does not run now. Queries the driver only if the process has
 * ever begun a capture. */
bool gs_captured(uint64_t stream);
/* The flags of a stream-ordered allocation or free: GS_FLAG_GRAPH while the stream is captured. */
uint8_t gs_capture_flags(uint64_t stream);

/* The process has memory that belongs to a graph. */
void gs_graph_allocates(void);
bool gs_graph_has_allocated(void);

/* A new session has no captures. */
void gs_capture_forget(void);
