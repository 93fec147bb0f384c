/* Explains why `gpuspy run` recorded nothing, as far as the program's end and its file show it. */
#pragma once

#include <stdbool.h>

/* Prints one line on stderr. `program` as the user typed it, `status` from waitpid. `what_if`: --simulate or --limit
 * was given. */
void command_print_unrecorded(const char *program, int status, bool torch_cpu, bool what_if);
