/* Which package a file belongs to, and how to install its debugging information. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* "apt install libc6-dbg"; false: unknown. Queries the system's package manager, for at most two seconds. */
bool export_package_debug_hint(const char *path, char *out, size_t size);
