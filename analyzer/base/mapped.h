/* Files that libraries map: ELF readers, SQLite's index of the log. */
#pragma once

#include <stddef.h>

/* Another process can truncate such a file, or its disk is full, and reading the missing page raises SIGBUS. Installs a
 * handler for the whole process: a missing page then reads as zeros, which every reader treats as damage. */
void mapped_survive(void);

/* Removes the whole pages of a part that was read, not written, from this process's memory: the kernel reads them again
 * when they are needed. Does nothing if no file is mapped there. */
void mapped_release(const void *start, size_t size);
