/* Addresses of CUDA functions that objects hold in their data, by which a runtime calls the driver and PyTorch's
 * allocator maps memory: asked for before gpuspy came. */
#ifndef GPUSPY_POINTERS_H
#define GPUSPY_POINTERS_H

#include <link.h>
#include <stdbool.h>

/* Which addresses give way to which: those of CUDA's functions to their wrappers', or `back`. One thread at a time. */
void gs_pointers_prepare(bool back);
/* Does it in the writable data of one object. What lies in malloc's memory is not found. */
void gs_pointers_reroute(const struct dl_phdr_info *info);

#endif
