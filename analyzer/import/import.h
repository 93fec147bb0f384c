/* Converts recordings of other tools to a run.db. What a format does not contain stays unknown. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum import_format {
    IMPORT_FORMAT_NONE,
    IMPORT_FORMAT_SNAPSHOT,
    IMPORT_FORMAT_TRACE,
    IMPORT_FORMAT_PPROF,
    IMPORT_FORMAT_NSYS
};

enum { IMPORT_HEAD = 1024 }; /* the first bytes of a file, which state its format */

/* Recognises the content, also one that gzip packed. NONE: unknown, or the file cannot be read. */
enum import_format import_format_of(const char *path);

/* What kind of file it is that gpuspy cannot read, and what to do ("a report of Nsight Systems; export it first: …"),
 * from its name or its first bytes; `out` is for a hint with the file's name. NULL: unknown. */
const char *import_hint(const char *path, char *out, size_t size);
#define IMPORT_CHECKPOINT \
    "a checkpoint of torch.save, not a recording of memory; gpuspy reads pickles of torch.cuda.memory"

/* Writes `to`, which must not exist, and beside it a database for each other process of the recording (siblings.h).
 * False: a line in `error` states what is wrong, without the file's name. */
bool import_file(const char *path, enum import_format format, const char *to,
                 void (*progress)(void *self, uint64_t bytes), void *self, char *error, size_t error_size);

/* A part of a history: the time since its first event, both ends included. */
struct import_part {
    int64_t from_ns, to_ns;
};
/* Imports a part. Also false for formats other than PyTorch snapshots. */
bool import_file_part(const char *path, enum import_format format, const char *to, const struct import_part *part,
                      void (*progress)(void *self, uint64_t bytes), void *self, char *error, size_t error_size);
