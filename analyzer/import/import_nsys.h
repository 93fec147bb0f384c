/* Converts exports of Nsight Systems (nsys export --type sqlite) to a run.db per process that called CUDA. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As in the table of import.c: whether the file begins as a SQLite database of another program; whether it has tables
 * of an export. */
bool import_is_nsys(const unsigned char *head, size_t n);
bool import_holds_nsys(const char *path);
bool import_nsys(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                 size_t error_size);
