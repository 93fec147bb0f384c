/* Whether this process can be recorded without harm. */
#ifndef GPUSPY_HOST_H
#define GPUSPY_HOST_H

#include <stdbool.h>
#include <stddef.h>

/* When the library is loaded: looks for what does not go with gpuspy. */
void gs_host_load(void);

/* Asked before a recording opens anything, in threads that have a table of descriptors of their own or
 * share the program's. False: one line in `why`. */
bool gs_host_allows(bool own_files, char *why, size_t size);

#endif
