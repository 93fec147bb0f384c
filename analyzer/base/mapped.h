/* SIGBUS in files that libraries map (ELF readers, SQLite's index of the log): another process can truncate
 * such a file, or its disk is full, and reading the missing page raises SIGBUS. */
#ifndef GPUSPY_MAPPED_H
#define GPUSPY_MAPPED_H

/* Installs a handler for the whole process: a missing page then reads as zeros, which every reader treats as
 * damage. */
void mapped_survive(void);

#endif
