/* Which PyTorch the process has loaded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The version, such as "2.6.0+cu124", from the files beside the library at `module` (libc10_cuda.so); false: unknown.
 * Reads files, runs nothing. For the drain's thread. */
bool gs_torch_version(const char *module, char *version, size_t size);
