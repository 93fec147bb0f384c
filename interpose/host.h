/* Whether this process can be recorded without harm. */
#ifndef GPUSPY_HOST_H
#define GPUSPY_HOST_H

#include <stdbool.h>
#include <stddef.h>

/* Asked before a recording opens anything. False: one line in `why`. */
bool gs_host_allows(char *why, size_t size);

#endif
