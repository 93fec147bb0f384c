/* Long output on a terminal goes through a pager: GPUSPY_PAGER, else PAGER, else less. An empty name, or "cat", means
 * none. Never if stdout is not a terminal, nor on a dumb one. */
#pragma once

#include <stdbool.h>

/* Pages what is written to stdout from here on, if it should be. Call terminal_of(stdout) before. */
void pager_start(void);
/* Was it started? Then a closed pipe means that the user has left the pager, and is not an error. */
bool pager_is_running(void);
/* After stdout was closed: waits until the user has left the pager. */
void pager_wait(void);
