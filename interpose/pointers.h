/* Addresses of CUDA functions that objects hold in their data, obtained before gpuspy was loaded: through them a
 * runtime calls the driver, and PyTorch's allocator maps memory. */
#pragma once

#include <link.h>
#include <stdbool.h>

/* Determines which addresses are replaced: those of CUDA's functions by their wrappers', or `back`. One thread at a
 * time. */
void gs_pointers_prepare(bool back);
/* Replaces them in the writable data of one object. Addresses in malloc's memory are not found. */
void gs_pointers_reroute(const struct dl_phdr_info *info);
