/* Device memory profiles of JAX: jax.profiler.save_device_memory_profile() writes a pprof protobuf, packed by gzip. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool import_is_pprof(const unsigned char *head, size_t n);
bool import_pprof_is_memory(const char *path);
bool import_pprof(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                  size_t error_size);
