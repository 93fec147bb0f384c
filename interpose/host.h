/* Whether this process can be recorded without harm. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* When the library is loaded: looks for libraries that are not compatible with gpuspy. */
void gs_host_load(void);

/* The same before a session starts, for libraries that were loaded later. Call it without a lock. */
void gs_host_inspect(void);
/* Whether malloc is the C library's. Others (heaptrack's, memray's) may write to their files in any thread that
 * allocates, so every thread must have the program's descriptors. */
bool gs_host_malloc_is_libcs(void);

/* Asked before a recording opens anything, in threads that have a table of descriptors of their own or
 * share the program's. False: one line in `why`. */
bool gs_host_allows(bool own_files, char *why, size_t size);
