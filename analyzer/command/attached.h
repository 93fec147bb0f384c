/* What gpuspy attach does with one process, for gpuspy top. */
#ifndef GPUSPY_COMMAND_ATTACHED_H
#define GPUSPY_COMMAND_ATTACHED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Records the process from now on, with the settings of the environment. True: `database` (of PATH_MAX) is what it
 * records to. `line`: what to print of it. */
bool command_attach_process(pid_t pid, char *database, char *line, size_t size);

#endif
