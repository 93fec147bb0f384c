/* Databases to begin with, edits of them that make no sense, and the whole of a report. */
#ifndef TEST_FUZZ_DATABASES_H
#define TEST_FUZZ_DATABASES_H

#include <sqlite3.h>
#include "tests/fuzz/records.h"

#define FUZZ_BASES 2 /* 0: a training with everything; 1: what a random program did */

/* The bytes of one; made at the first call. */
const void *fuzz_base(unsigned which, size_t *size);
/* Edits rows, columns and tables until the input ends; what SQLite refuses is left out. */
void fuzz_edit(struct fuzz_bytes *b, const char *path);
/* Opens, reports and prints it in all forms, to nowhere. `how` says which options. */
void fuzz_report(const char *path, uint8_t how);
/* Makes its page, whose data makes sense. */
void fuzz_page(const char *path, uint8_t how);
/* Holds it against all limits, and prints that in all forms, to nowhere. */
void fuzz_check(const char *path, uint8_t how);
/* Opens and exports it, to nowhere. */
void fuzz_export(const char *path, uint8_t how);

#endif
