/* Whether this process can be recorded without harm. */
#ifndef GPUSPY_HOST_H
#define GPUSPY_HOST_H

#include <stdbool.h>
#include <stddef.h>

/* When the library is loaded: looks for what does not go with gpuspy. */
void gs_host_load(void);

/* The same before a session starts, without a lock: what was loaded later. */
void gs_host_look(void);
/* Whether malloc is the C library's. Others (heaptrack's, memray's) may write to files of theirs in any thread
 * that allocates, so that thread must have the program's descriptors. */
bool gs_host_malloc_is_libcs(void);

/* Asked before a recording opens anything, in threads that have a table of descriptors of their own or
 * share the program's. False: one line in `why`. */
bool gs_host_allows(bool own_files, char *why, size_t size);

#endif
