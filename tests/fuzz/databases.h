/* Databases to begin with, senseless edits of them, and everything that a report does. */
#pragma once

#include <sqlite3.h>
#include "tests/fuzz/records.h"

#define FUZZ_BASES 2 /* 0: a training run with every kind of row; 1: the events of a random program */

/* The bytes of a database; the first call makes it. */
const void *fuzz_base(unsigned which, size_t *size);
/* Edits rows, columns and tables until the input ends; ignores edits that SQLite refuses. */
void fuzz_edit(struct fuzz_bytes *b, const char *path);
/* Opens the database and prints its report in all forms, to /dev/null. `how` chooses the options. */
void fuzz_report(const char *path, uint8_t how);
/* Makes the page and checks its data. */
void fuzz_page(const char *path, uint8_t how);
/* Compares it with all limits and prints the result in all forms, to /dev/null. */
void fuzz_check(const char *path, uint8_t how);
/* Opens and exports it, to /dev/null. */
void fuzz_export(const char *path, uint8_t how);
