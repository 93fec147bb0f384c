/* Attaches to one process as gpuspy attach does; for gpuspy top. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Records the process from now on, with the settings of the environment. True: `database` (of PATH_MAX bytes) receives
 * the recording's path. `line` receives a message to print. */
bool command_attach_process(pid_t pid, char *database, char *line, size_t size);
