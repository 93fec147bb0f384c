/* Seccomp filters that end the process for a system call. A filter can allow what the program does and end it for what
 * only gpuspy does, so gpuspy tries its own calls in a child process first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The calls that gpuspy can do without. */
enum gs_filter_optional {
    GS_FILTER_PRIORITY = 1,
    GS_FILTER_OWN_FILES = 2,
    GS_FILTER_CHILDREN = 4, /* only of a filter that the program adds: under it, none can try another */
    GS_FILTER_PROGRAMS = 8  /* what starts the command of GPUSPY_ON_OOM */
};
extern _Atomic unsigned gs_filter_refused;

/* Tries the filter of the calling thread, if it has one. False: the process would end; `why` names the call, or is
 * empty if even printing it would end the process. True: gs_filter_refused has the optional calls that would end it. */
bool gs_filter_allows(char *why, size_t size);
/* The same for a filter (struct sock_fprog) that the program is about to add; `why` is never empty. */
bool gs_filter_would_allow(const void *program, char *why, size_t size);
/* The program adds a filter. */
void gs_filter_added(void);
