/* Long output on a terminal goes through a pager: GPUSPY_PAGER, else PAGER, else less. An empty name, or
 * "cat", is none. Never where stdout is no terminal, nor on one that is dumb. */
#ifndef GPUSPY_PAGER_H
#define GPUSPY_PAGER_H

#include <stdbool.h>

/* What is written to stdout from here on is paged, where it is to be. Ask terminal_of(stdout) before. */
void pager_start(void);
/* Was it started? Then a reader that leaves is one that has seen enough, and no error. */
bool pager_is_running(void);
/* After stdout was closed: until the person has left it. */
void pager_wait(void);

#endif
