/* torch.cuda.memory._snapshot() and torch.cuda.memory_snapshot() as a pickle. For import.c. */
#ifndef GPUSPY_IMPORT_SNAPSHOT_H
#define GPUSPY_IMPORT_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool import_is_snapshot(const unsigned char *head, size_t n);
bool import_snapshot(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                     size_t error_size);

#endif
