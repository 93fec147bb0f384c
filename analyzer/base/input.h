/* What commands read. */
#ifndef GPUSPY_INPUT_H
#define GPUSPY_INPUT_H

#include <stdbool.h>
#include <stddef.h>

/* False after a line on stderr, which begins with `who`, where one of them is neither file nor folder:
 * opening a FIFO would wait for its writer for ever. What is missing is said where it is opened. */
bool input_check_paths(const char *who, char **paths, size_t n);

/* Is it a database that gpuspy recorded? By its first bytes. */
bool input_is_recording(const char *path);

/* The recording in the working directory that was written last, as "run.3.db": for commands that were given none. False
 * after a line on stderr, which begins with `who`: there is none. */
enum { INPUT_NAME = 256 }; /* bytes of a file's name (NAME_MAX + 1) */
bool input_newest(const char *who, char out[INPUT_NAME]);

/* Databases beside a file that are named as those of the other processes of its run are: run.<pid>.db
 * beside run.db. In no order; paths and list to be freed. */
char **input_siblings(const char *path, size_t *n);

#endif
