/* Files that libraries map (ELF readers, SQLite's index of the log) can be cut off by others, or have no
 * space behind them: touching what is not there is SIGBUS. */
#ifndef GPUSPY_MAPPED_H
#define GPUSPY_MAPPED_H

/* For the whole process: such a page reads as zeros from then on, which every reader takes for damage. */
void mapped_survive(void);

#endif
