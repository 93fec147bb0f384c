/* Recordings that other tools made → run.db. What a format lacks stays unknown. */
#ifndef GPUSPY_IMPORT_H
#define GPUSPY_IMPORT_H

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

/* By its content, gzip's packing looked through. NONE also of what cannot be read. */
enum import_format import_format_of(const char *path);

/* "a report of Nsight Systems; export it first: …": what a file is that gpuspy cannot read, by its name or its first
 * bytes. NULL: nothing is known. */
const char *import_hint(const char *path);
#define IMPORT_CHECKPOINT \
    "a checkpoint of torch.save, not a recording of memory; gpuspy reads pickles of torch.cuda.memory"

/* Writes `to`, which must not exist, and beside it a database for each other process of the recording (siblings.h).
 * False and a line in `error`: what is wrong with the file, without its name. */
bool import_file(const char *path, enum import_format format, const char *to,
                 void (*progress)(void *self, uint64_t bytes), void *self, char *error, size_t error_size);

/* Of a history: what happened from one time to another, since its first event; both included. */
struct import_part {
    int64_t from_ns, to_ns;
};
/* The same for a part. False for other formats than PyTorch snapshots, too. */
bool import_file_part(const char *path, enum import_format format, const char *to, const struct import_part *part,
                      void (*progress)(void *self, uint64_t bytes), void *self, char *error, size_t error_size);

/* In `meta` of the database: its word, NULL of one that gpuspy recorded. */
#define IMPORT_META "import."

#endif
