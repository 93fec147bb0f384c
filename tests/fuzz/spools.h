/* Bytes → a spool file whose header, chunks and counters need not make sense. */
#ifndef TEST_FUZZ_SPOOLS_H
#define TEST_FUZZ_SPOOLS_H

#include "tests/fuzz/records.h"

/* Uses the whole input. `pid` goes into the header, unless the input says otherwise. */
void fuzz_spool_file(struct fuzz_bytes *b, const char *path, uint32_t pid);

#endif
