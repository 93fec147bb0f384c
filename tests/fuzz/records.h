/* Bytes → records that a spool takes: well formed, with values that need not make sense. */
#ifndef TEST_FUZZ_RECORDS_H
#define TEST_FUZZ_RECORDS_H

#include "schema/spool.h"
#include "tests/fuzz/fuzz.h"

#define FUZZ_WRITERS 3
#define FUZZ_RECORDS 400 /* at most: a database a run is slow enough */

/* Until the input ends: records of every kind into `writers`, which are open. */
void fuzz_records(struct fuzz_bytes *b, struct gs_writer *writers);
/* One record of any kind in `to` (FUZZ_RECORD_ROOM bytes, aligned), its size; `time` moves on. */
#define FUZZ_RECORD_ROOM 1024
size_t fuzz_record(struct fuzz_bytes *b, uint64_t *time, void *to);

#endif
