/* A recording of another tool as a fuzz target's input. */
#pragma once

#include "analyzer/import/import.h"
#include "tests/fuzz/fuzz.h"

/* Imports the bytes if they are recognised as `format`; the result must open. Returns 0. */
int fuzz_foreign(const uint8_t *data, size_t size, enum import_format format);
/* Imports a file, which has that format, as `to`, which is not there. The result opens, or the error is one line and
 * nothing is left. */
void fuzz_import(const char *path, enum import_format format, const char *to);
