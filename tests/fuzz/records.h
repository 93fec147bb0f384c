/* Makes records from bytes: valid ones for a spool, with arbitrary values. */
#pragma once

#include "schema/spool.h"
#include "tests/fuzz/fuzz.h"

#define FUZZ_WRITERS 3
#define FUZZ_RECORDS 400 /* at most, because a database per input is slow enough */

/* Writes records of every kind into `writers`, which are open, until the input ends. */
void fuzz_records(struct fuzz_bytes *b, struct gs_writer *writers);
/* Makes one record of any kind in `to` (FUZZ_RECORD_ROOM bytes, aligned) and returns its size; advances `time`. */
#define FUZZ_RECORD_ROOM 1024
size_t fuzz_record(struct fuzz_bytes *b, uint64_t *time, void *to);
