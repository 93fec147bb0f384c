/* Makes a spool file from bytes, with an arbitrary header, chunks and counters. */
#pragma once

#include "tests/fuzz/records.h"

/* Consumes the whole input. `pid` is in the header, unless the input changes it. */
void fuzz_spool_file(struct fuzz_bytes *b, const char *path, uint32_t pid);
