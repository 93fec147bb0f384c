/* The text of the program's own Python files: the recorder stores it, and the analyzer reads it from disk if a
 * recording has none. Both follow these rules: regular files only, of bounded size, not changed since the recording
 * began, and without the secrets that gpuspy recognises. */
#ifndef GPUSPY_SOURCE_FILE_H
#define GPUSPY_SOURCE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GS_SOURCE_FILE_BYTES = 256 * 1024,   /* of one file: a larger one is left out */
    GS_SOURCE_TOTAL_BYTES = 4096 * 1024, /* of a recording */
    GS_SOURCE_FILES = 1024               /* likewise, with those that are left out */
};

/* An installed package's, PyTorch's or the standard library's; also where there is no file. */
bool gs_source_is_library(const char *file);
/* Whether a file of this name may be the program's own: no library's, and not "<string>" and the like. */
bool gs_source_is_own(const char *file);

/* Why a file is left out: the words of the table source. */
#define GS_SOURCE_FULL "full" /* with it, the recording would have more than GS_SOURCE_TOTAL_BYTES */

/* A file's text without secrets (schema/mask.h), line by line as in the file, in memory that the caller frees. A
 * relative name is resolved in `folder`, which may be NULL. A file that was written after latest_ns (of the wall clock)
 * is not read; `strict`: nor one whose inode changed after that. NULL: *left_out says why, see gpuspy.sql; errno is
 * kept. */
char *gs_source_read(const char *file, const char *folder, int64_t latest_ns, bool strict, size_t *length,
                     const char **left_out);

#endif
