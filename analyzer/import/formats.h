/* The formats of import.c's table: does a file's head, its first IMPORT_HEAD bytes, fit; does the file hold what is
 * imported; and the conversion, as import_file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/import/import.h"

/* Snapshots of PyTorch's allocator: pickles of torch.cuda.memory._snapshot() and _dump_snapshot(). */
bool import_is_snapshot(const unsigned char *head, size_t n);
/* `part` NULL: all of it. */
bool import_snapshot_part(const char *path, const char *to, const struct import_part *part,
                          void (*progress)(void *, uint64_t), void *self, char *error, size_t error_size);
bool import_snapshot(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                     size_t error_size);

/* Traces of torch.profiler, and of torch.autograd.profiler: JSON for Chrome's trace viewer. */
bool import_is_json(const unsigned char *head, size_t n);
bool import_trace(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                  size_t error_size);

/* Device memory profiles of JAX: jax.profiler.save_device_memory_profile() writes a pprof protobuf, packed by gzip. */
bool import_is_pprof(const unsigned char *head, size_t n);
bool import_pprof_is_memory(const char *path);
bool import_pprof(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                  size_t error_size);

/* Exports of Nsight Systems (nsys export --type sqlite), to a run.db per process that called CUDA. The head fits if it
 * is a SQLite database of another program; it holds recordings if it has tables of an export. */
bool import_is_nsys(const unsigned char *head, size_t n);
bool import_holds_nsys(const char *path);
bool import_nsys(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                 size_t error_size);
