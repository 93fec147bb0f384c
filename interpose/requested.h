/* The size that the program requested from PyTorch's caching allocator. The report of an allocation has only the size
 * of the block, but it is made while the allocator holds the device's lock: its statistics, which count requested
 * bytes, can be read then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* By how much a block of `bytes` on the device, reported just now with these totals, is larger than the request;
 * GS_EXTRA_UNKNOWN (schema/event.h). `caller`: the caller of the report. The first calls search for the statistics by
 * system calls; later calls cost a few loads. Keeps errno. */
uint32_t gs_requested_extra(const void *caller, int device, int64_t bytes, int64_t allocated, int64_t reserved);
/* Where the device's statistics end in PyTorch's allocator; 0: unknown. */
uintptr_t gs_requested_end(int device);
/* For a device whose end is known: it counted along with enough reports. Before that it may be a copy, and unmapped any
 * time after the report of an allocation. */
bool gs_requested_is_proven(int device);
