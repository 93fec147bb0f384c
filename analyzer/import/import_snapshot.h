/* Snapshots of PyTorch's allocator: pickles of torch.cuda.memory._snapshot() and _dump_snapshot(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/import/import.h"

bool import_is_snapshot(const unsigned char *head, size_t n);
/* `part` NULL: all of it. */
bool import_snapshot_part(const char *path, const char *to, const struct import_part *part,
                          void (*progress)(void *, uint64_t), void *self, char *error, size_t error_size);
bool import_snapshot(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                     size_t error_size);
