/* Which package a file came with, and how its debugging information is had. */
#ifndef GPUSPY_PACKAGE_H
#define GPUSPY_PACKAGE_H

#include <stdbool.h>
#include <stddef.h>

/* "apt install libc6-dbg"; false where nobody can say. Asks the system's package manager, for two
 * seconds at most. */
bool export_package_debug_hint(const char *path, char *out, size_t size);

#endif
