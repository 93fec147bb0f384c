/* The names of a run's databases: run.db for the first process, run.<pid>.db for the others. */
#pragma once

#include <stdint.h>
#include "analyzer/base/input.h"

/* "a/run.db", 7 → "a/run.7.db"; "a/run.tmp", 7 → "a/run.tmp.7.db". */
void import_sibling_name(char *out, size_t size, const char *path, uint32_t number);
/* The databases that exist beside `path`. */
struct input_files import_siblings(const char *path);
void import_remove_siblings(const char *path);
