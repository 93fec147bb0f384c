/* Why `gpuspy run` recorded nothing: only what is known, from how the program ended and from its file. */
#ifndef GPUSPY_UNRECORDED_H
#define GPUSPY_UNRECORDED_H

#include <stdbool.h>

/* One line on stderr. `program` as it was typed, `status` as waitpid stores it. */
void command_print_unrecorded(const char *program, int status, bool torch_cpu);

#endif
