/* The text of the program's own Python files: the recorder stores it, and the analyzer reads it from disk if a
 * recording has none. Both follow these rules: regular files only, of bounded size, not changed since the recording
 * began (cells of a notebook, whose names are hashes of their text, may be younger), and without the secrets that
 * gpuspy recognises. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum {
    GS_SOURCE_FILE_BYTES = 256 * 1024,   /* per file: larger ones are left out */
    GS_SOURCE_TOTAL_BYTES = 4096 * 1024, /* per recording */
    GS_SOURCE_FILES = 1024               /* per recording, including those that are left out */
};

/* Is it a file of an installed package, of PyTorch or of the standard library? Also if the file does not exist. */
bool gs_source_is_library(const char *file);
/* May a file of this name be the program's own? Not a library's, and not "<string>" or the like. */
bool gs_source_is_own(const char *file);
/* Is it a source file of C, C++, CUDA or Rust, by its name? */
bool gs_source_is_native(const char *file);
/* Is it a cell of a notebook? …/ipykernel_4711/3032832350.py, Colab's …/ipython-input-3-4282502808.py or without the 3,
 * Databricks' …/.ipykernel/991/command-1723439101937605-4150301398, a name without a file, or what the analyzer calls
 * it. The last number is a hash of the cell's text, so such a file never changes. */
bool gs_source_is_cell(const char *file);

/* A relative name is resolved in `folder`; false: that is NULL, or the path is too long. */
bool gs_source_path(char *path, size_t size, const char *file, const char *folder);
/* A descriptor, or -1. Opens no FIFO and no device, and does not wait for a lease. Keeps the time of the last access,
 * because it is the program's file. */
int gs_source_open(const char *path);

/* The folders whose lists of installed files were read, and those files: hashes. Zeroed at first; the caller frees
 * `at`. */
struct gs_source_lists {
    uint64_t *at;
    size_t count, room;
};

/* Is it listed as a file of a package that was installed outside of such folders, as by `pip install --target`? A
 * relative name is resolved in `folder`, which may be NULL. Reads folders on disk; errno is kept. */
bool gs_source_is_installed(struct gs_source_lists *lists, const char *file, const char *folder);

/* Why a file is left out: the words of the table source. */
#define GS_SOURCE_INSTALLED "installed"
#define GS_SOURCE_FULL "full" /* with this file, the recording would have more than GS_SOURCE_TOTAL_BYTES */

/* Was a file written after latest_ns (of the wall clock)? gpuspy ignores a time further in the future than a file
 * server's clock may be ahead: the clock is wrong, as on a machine that starts in 1970, or the time is from an
 * archive. */
bool gs_source_is_newer(const struct timespec *written, int64_t latest_ns);
/* A file's text without secrets (schema/mask.h), line by line as in the file, in memory that the caller frees. A
 * relative name is resolved in `folder`, which may be NULL. A file that was written after latest_ns is not read;
 * `strict`: nor one whose inode changed after that. NULL: *left_out is the reason, see gpuspy.sql; errno
 * is kept. */
char *gs_source_read(const char *file, const char *folder, int64_t latest_ns, bool strict, size_t *length,
                     const char **left_out);
