/* The names of a run's databases: run.db for the first process, run.<pid>.db for the others. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "a/run.db", 7 → "a/run.7.db"; "a/run.tmp", 7 → "a/run.tmp.7.db". */
void import_sibling_name(char *out, size_t size, const char *path, uint32_t number);
/* The databases that exist beside `path`, unsorted; the caller frees paths and list. */
char **import_siblings(const char *path, size_t *n);
void import_remove_siblings(const char *path);
